"""Fully connected layers, for backbones and heads alike."""

from __future__ import annotations

from torch import nn


def dense_layers(n_in: int, hidden: tuple[int, ...], dropout: float = 0.0) -> list[nn.Module]:
    """Linear, ReLU and, where asked for, dropout: once for each hidden width.

    >>> len(dense_layers(2, (64, 32)))
    4
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_in, width), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        n_in = width
    return layers


def mlp(n_in: int, hidden: tuple[int, ...], n_out: int, dropout: float = 0.0) -> nn.Sequential:
    """Hidden layers and a linear output."""
    return nn.Sequential(*dense_layers(n_in, hidden, dropout), nn.Linear(hidden[-1] if hidden else n_in, n_out))
