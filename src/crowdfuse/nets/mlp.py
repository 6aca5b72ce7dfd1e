"""Fully connected layers, for backbones and heads."""

from __future__ import annotations

from torch import nn


def dense_layers(n_in: int, hidden: tuple[int, ...], dropout: float = 0.0) -> list[nn.Module]:
    """Return hidden layers: linear, ReLU and optionally dropout for each width.

    Parameters
    ----------
    n_in : int
        Number of input features.
    hidden : tuple of int
        Width of each hidden layer.
    dropout : float, default=0.0
        Dropout probability after each layer; 0 adds no dropout module.

    Returns
    -------
    layers : list of nn.Module

    Examples
    --------
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
    """Return a network of hidden layers and a linear output.

    Parameters
    ----------
    n_in : int
        Number of input features.
    hidden : tuple of int
        Width of each hidden layer; () for a single linear layer.
    n_out : int
        Number of outputs.
    dropout : float, default=0.0
        Dropout probability after each hidden layer.

    Returns
    -------
    network : nn.Sequential

    Examples
    --------
    >>> mlp(2, (), 3)
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
    )
    """
    return nn.Sequential(*dense_layers(n_in, hidden, dropout), nn.Linear(hidden[-1] if hidden else n_in, n_out))
