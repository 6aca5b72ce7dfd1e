"""Backbones by name, and any other `nn.Module` that turns inputs into features of shape (N, D)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from crowdfuse.checks.choices import did_you_mean
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.mlp import dense_layers
from crowdfuse.nets.resnet import ResNet18, resnet_stem

Backbone = str | nn.Module | Callable[[], nn.Module]
"""Either the name of a built-in backbone, a module (which is copied), or a function that returns a module."""

BACKBONE_NAMES = ("auto", "mlp", "lenet", "resnet18", "identity")
LENET_MIN_SIDE_PIXELS = 16  # smaller images would be empty after both convolutions
DEFAULT_HEAD_HIDDEN = (128,)  # widths of a head's hidden layers on ResNet-18 and on a backbone of the user


@dataclass(frozen=True)
class Trunk:
    """A backbone, with the number of features that it returns.

    Parameters
    ----------
    module : nn.Module
        Maps inputs of shape (N, ...) to features of shape (N, n_features).
    n_features : int
        Number of features per input.
    head_hidden : tuple of int
        Default widths of the hidden layers of the heads, the networks that read the backbone's features.
    is_built_in : bool
        Whether the backbone is a built-in backbone, chosen by name.

    Examples
    --------
    >>> make_trunk("mlp", (5,), (64, 32), dropout=0.0).n_features
    32
    """

    module: nn.Module
    n_features: int
    head_hidden: tuple[int, ...]
    is_built_in: bool


def make_trunk(backbone: Backbone, shape: tuple[int, ...], hidden: tuple[int, ...], dropout: float) -> Trunk:
    """Build or copy a backbone, and run it once to count its features.

    Parameters
    ----------
    backbone : str, nn.Module or callable
        The name of a built-in backbone, a module (which is copied), or a function without arguments that returns a
        module. The names are "mlp", "lenet", "resnet18", "identity" and "auto". "auto" means "mlp" for inputs of shape
        (D,), and "lenet" for all others.
    shape : tuple of int
        Shape of one input, such as (D,), (H, W) or (C, H, W). "lenet" and "resnet18" need (H, W) or (C, H, W).
    hidden : tuple of int
        If the backbone is "mlp": widths of the hidden layers of the backbone. If the backbone is "identity": widths of
        the hidden layers of the heads, the networks that read the backbone's features. Not used by other backbones.
    dropout : float
        Dropout probability after each hidden layer of "mlp". Not used by other backbones.

    Returns
    -------
    trunk : Trunk

    Raises
    ------
    TypeError
        If the function does not return an `nn.Module`.
    ValueError
        If the name is unknown, if the backbone cannot read inputs of this shape, or if its features are not of shape
        (N, D).

    Examples
    --------
    >>> make_trunk("auto", (1, 28, 28), (), dropout=0.0).n_features
    256
    """
    if isinstance(backbone, str):
        module, head_hidden = _build_named(backbone, shape, hidden, dropout)
    else:
        head_hidden = DEFAULT_HEAD_HIDDEN
        module = copy.deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone()
        if not isinstance(module, nn.Module):
            raise TypeError(f"the function passed as backbone must return an nn.Module, got {type(module).__name__}")
    return Trunk(module, _count_features(module, shape), head_hidden, isinstance(backbone, str))


def _build_named(
    name: str, shape: tuple[int, ...], hidden: tuple[int, ...], dropout: float
) -> tuple[nn.Module, tuple[int, ...]]:
    """Return the module of a built-in backbone, and the default hidden widths of the heads on it."""
    if name == "auto":
        name = "mlp" if len(shape) == 1 else "lenet"
    n_inputs = int(torch.Size(shape).numel())
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), *dense_layers(n_inputs, hidden, dropout)), ()
    if name == "identity":
        return nn.Flatten(), hidden
    if name in ("lenet", "resnet18") and len(shape) not in (2, 3):
        raise ValueError(
            f"backbone {name!r} reads images of shape (H, W) or (C, H, W), got inputs of shape {shape}; "
            "use backbone='mlp'"
        )
    channels = shape[0] if len(shape) == 3 else 1
    if name == "resnet18":
        return ResNet18(channels, resnet_stem(shape)), DEFAULT_HEAD_HIDDEN
    if name == "lenet":
        if min(shape[-2:]) < LENET_MIN_SIDE_PIXELS:
            raise ValueError(
                f"backbone 'lenet' reads images of at least {LENET_MIN_SIDE_PIXELS} x {LENET_MIN_SIDE_PIXELS} pixels, "
                f"got {shape[-2]} x {shape[-1]}; "
                "enlarge them (--image-size 32), or use backbone='mlp' (--backbone mlp)"
            )
        return LeNet(channels), (120, 84)
    hint = did_you_mean(name, BACKBONE_NAMES)
    raise ValueError(
        f"unknown backbone {name!r}{hint} The built-in backbones are {', '.join(BACKBONE_NAMES)}; "
        "in Python, you can also pass an nn.Module"
    )


def _count_features(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the number of features, from two inputs of zeros in evaluation mode."""
    training = module.training
    module.eval()
    with torch.no_grad():
        try:
            features = module(torch.zeros(2, *shape))
        except RuntimeError as error:
            raise ValueError(f"the backbone cannot read inputs of shape {shape}: {error}") from error
    module.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"a backbone must return features of shape (N, D); for 2 inputs of shape {shape}, it returned {got}"
        )
    return int(features.shape[1])
