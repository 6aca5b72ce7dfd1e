"""Networks. A backbone is any `nn.Module` that turns inputs into (N, D) features; ours have names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from crowdfuse.checks.choices import check_choice, did_you_mean
from crowdfuse.nets.augment import CropAndFlip, RandomResizedCropAndFlip
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.mlp import dense_layers
from crowdfuse.nets.resnet import ResNet18, resnet_stem

Backbone = str | nn.Module | Callable[[], nn.Module]

LENET_MIN_SIDE_PIXELS = 16  # pixels a side, so that something is left after both convolutions
BACKBONE_NAMES = ("auto", "mlp", "lenet", "resnet18", "identity")
AUGMENTATIONS = ("crop-flip", "resized-crop-flip")


@dataclass(frozen=True)
class Trunk:
    """A backbone for inputs of one shape, and the hidden layers that heads on it have by default."""

    module: nn.Module
    n_features: int
    head_hidden: tuple[int, ...]
    is_built_in: bool


def make_trunk(backbone: Backbone, shape: tuple[int, ...], hidden: tuple[int, ...], dropout: float) -> Trunk:
    """Build a named backbone, or copy the one given, and find its number of features by a dry run.

    `shape` is that of one input. `"auto"` is an MLP for rows of features and LeNet for images.
    """
    if isinstance(backbone, str):
        module, head_hidden = _named(backbone, shape, hidden, dropout)
    else:
        head_hidden = (128,)
        module = copy.deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone()
        if not isinstance(module, nn.Module):
            raise TypeError(f"backbone must give an nn.Module, got {type(module).__name__}")
    return Trunk(module, _count_features(module, shape), head_hidden, isinstance(backbone, str))


def _named(
    name: str, shape: tuple[int, ...], hidden: tuple[int, ...], dropout: float
) -> tuple[nn.Module, tuple[int, ...]]:
    if name == "auto":
        name = "mlp" if len(shape) == 1 else "lenet"
    n_inputs = int(torch.Size(shape).numel())
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), *dense_layers(n_inputs, hidden, dropout)), ()
    if name == "identity":
        return nn.Flatten(), hidden
    if name in ("lenet", "resnet18") and len(shape) not in (2, 3):
        raise ValueError(f"backbone {name!r} reads images (H, W) or (C, H, W), got inputs of shape {shape}")
    channels = shape[0] if len(shape) == 3 else 1
    if name == "resnet18":
        return ResNet18(channels, resnet_stem(shape)), (128,)
    if name == "lenet":
        if min(shape[-2:]) < LENET_MIN_SIDE_PIXELS:
            raise ValueError(
                f"backbone 'lenet' reads images of at least {LENET_MIN_SIDE_PIXELS} pixels a side, "
                f"got {shape[-2]} x {shape[-1]}; "
                "make them larger (--image-size 32), or use backbone='mlp' (--backbone mlp)"
            )
        return LeNet(channels), (120, 84)
    meant = did_you_mean(name, BACKBONE_NAMES)
    raise ValueError(
        f"unknown backbone {name!r}{meant} The named ones are {', '.join(BACKBONE_NAMES)}, or pass an nn.Module"
    )


def make_augmentation(name: str | None, shape: tuple[int, ...]) -> nn.Module | None:
    """Random crops and flips of training images, by name."""
    if name is None:
        return None
    check_choice("augment", name, AUGMENTATIONS)
    least = 2 if name == "crop-flip" else 3
    if not least <= len(shape) <= 3:
        raise ValueError(f"augment={name!r} is for images of {least} or 3 dimensions, got inputs of shape {shape}")
    return CropAndFlip() if name == "crop-flip" else RandomResizedCropAndFlip(shape[-1])


def _count_features(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Run two blank inputs through, in evaluation mode, and look at what comes out."""
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
        raise ValueError(f"a backbone must give (N, D) features; for inputs (2, {shape}) it gave {got}")
    return int(features.shape[1])
