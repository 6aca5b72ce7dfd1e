"""Load pretrained image networks of torchvision and timm by name, if these packages are installed."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

from torch import nn

from crowdfuse.encoders.frozen_network import IMAGENET_MEAN, IMAGENET_STD
from crowdfuse.nets.importing import format_error

PACKAGES = ("torchvision", "timm")
HEAD_NAMES = ("fc", "classifier", "head", "heads")  # the classification head of torchvision's networks
INSTALL_COMMAND = "pip install {package} --no-deps"  # with its dependencies, pip may replace a CPU build of torch


class PretrainedNetwork(NamedTuple):
    """A network without its classification head, and the images that it expects.

    Attributes
    ----------
    module : nn.Module
        The network.
    image_size : int or None
        Height and width of the images in pixels; None if any size is allowed.
    mean, std : sequence of float
        Normalization of pixels from 0 to 1: `mean` is subtracted, and the result is divided by `std`.
    """

    module: nn.Module
    image_size: int | None = None
    mean: Any = IMAGENET_MEAN
    std: Any = IMAGENET_STD


def is_pretrained_name(name: str) -> bool:
    """Return whether a name belongs to a network of torchvision or timm.

    >>> is_pretrained_name("timm/resnet50"), is_pretrained_name("mynets:resnet50")
    (True, False)
    """
    return name.partition("/")[0] in PACKAGES


def load_pretrained(name: str) -> PretrainedNetwork:
    """Load a network with pretrained weights. The package may download the weights.

    Parameters
    ----------
    name : str
        "torchvision/resnet50" or "timm/resnet50": the package, and the name of a network in it.

    Returns
    -------
    network : PretrainedNetwork

    Raises
    ------
    ValueError
        If the package is not installed, or the network cannot be loaded.
    """
    package, _, model = name.partition("/")
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"the encoder {name!r} needs the package {package}; install it with "
            f"`{INSTALL_COMMAND.format(package=package)}`. The version of torchvision must fit your version of torch"
        )
    try:
        return _load_torchvision(model) if package == "torchvision" else _load_timm(model)
    except Exception as error:  # it reads files and the network
        raise ValueError(f"{package} cannot load {model!r}: {format_error(error)}") from error


def _load_torchvision(model: str) -> PretrainedNetwork:
    """Return a network of torchvision with its best weights."""
    from torchvision.models import get_model, get_model_weights

    weights = get_model_weights(model).DEFAULT
    network: nn.Module = get_model(model, weights=weights)
    head = next((name for name in HEAD_NAMES if hasattr(network, name)), None)
    if head is None:
        raise ValueError(
            "the network is used without its classification head, but the head was not found. Pass the import path "
            "of a function that returns the network without the head (for example, 'my_nets:headless' stands for the "
            "function headless in my_nets.py)"
        )
    setattr(network, head, nn.Identity())
    transforms = weights.transforms()
    return PretrainedNetwork(network, transforms.crop_size[0], transforms.mean, transforms.std)


def _load_timm(model: str) -> PretrainedNetwork:
    """Return a network of timm."""
    import timm

    network: nn.Module = timm.create_model(model, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(network)
    return PretrainedNetwork(network, config["input_size"][-1], config["mean"], config["std"])
