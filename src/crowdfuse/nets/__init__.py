"""Networks. A backbone is any `nn.Module` that turns inputs into (N, D) features; ours have names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from crowdfuse.choices import nearest
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.mlp import dense_layers

Backbone = str | nn.Module | Callable[[], nn.Module]

LENET_LEAST = 16  # pixels a side, so that something is left after both convolutions
NAMES = ("auto", "mlp", "lenet", "identity")


@dataclass(frozen=True)
class Trunk:
    """A backbone for inputs of one shape, and the hidden layers that heads on it have by default."""

    module: nn.Module
    n_features: int
    head_hidden: tuple[int, ...]
    is_ours: bool


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
    if name == "lenet":
        if len(shape) not in (2, 3):
            raise ValueError(f"backbone 'lenet' reads images (H, W) or (C, H, W), got inputs of shape {shape}")
        if min(shape[-2:]) < LENET_LEAST:
            raise ValueError(
                f"backbone 'lenet' reads images of at least {LENET_LEAST} pixels a side, "
                f"got {shape[-2]} x {shape[-1]}; "
                "make them larger (--image-size), or use backbone='mlp'"
            )
        return LeNet(channels=1 if len(shape) == 2 else shape[0]), (120, 84)
    meant = nearest(name, NAMES)
    raise ValueError(f"unknown backbone {name!r}{meant} The named ones are {', '.join(NAMES)}, or pass an nn.Module")


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
