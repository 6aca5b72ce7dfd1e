"""Committees: several networks of one architecture that read the same inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear


class Committee(nn.Module):
    """Networks that are evaluated one after the other.

    Parameters
    ----------
    networks : sequence of nn.Module
        Each maps inputs (B, ...) to outputs (B, n_out).

    Examples
    --------
    >>> Committee([nn.Linear(4, 3), nn.Linear(4, 3)])(torch.zeros(5, 4)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        """Return the outputs of all networks, or of a range of them.

        Parameters
        ----------
        x : Tensor of shape (B, ...)
            Inputs.
        members : slice, default=slice(None)
            Which networks to evaluate.

        Returns
        -------
        outputs : Tensor of shape (n_members, B, n_out)
        """
        return torch.stack([network(x) for network in self.networks[members]])


class StackedMLPs(nn.Module):
    """MLPs that are trained together, with one batched product per layer. The outputs are the same as for `Committee`.

    Small networks are then trained in a fraction of the time, because there is one call per layer for all networks.
    Dropout uses the same mask for all networks. In evaluation mode, the networks are evaluated one after the other, so
    that the outputs for an item do not depend on its position in the batch.

    Parameters
    ----------
    networks : sequence of nn.Sequential
        MLPs of linear layers, ReLU, dropout and flattening, all with the same sizes; see `is_plain_mlp`.

    Examples
    --------
    >>> from crowdfuse.nets.mlp import mlp
    >>> networks = [mlp(4, (8,), 3), mlp(4, (8,), 3)]
    >>> x = torch.randn(5, 4)
    >>> torch.allclose(StackedMLPs(networks)(x), Committee(networks)(x), atol=1e-6)
    True
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        layers = [[layer for layer in network.modules() if isinstance(layer, nn.Linear)] for network in networks]
        self.weights = nn.ParameterList(
            torch.stack([layer.weight.detach() for layer in same]) for same in zip(*layers, strict=True)
        )
        self.biases = nn.ParameterList(
            torch.stack([layer.bias.detach() for layer in same]) for same in zip(*layers, strict=True)
        )
        rates = [layer.p for layer in networks[0].modules() if isinstance(layer, nn.Dropout)]
        self.dropout = rates[0] if rates else 0.0

    def forward(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        """Return the outputs of all networks, or of a range of them.

        Parameters
        ----------
        x : Tensor of shape (B, ...)
            Inputs.
        members : slice, default=slice(None)
            Which networks to evaluate.

        Returns
        -------
        outputs : Tensor of shape (n_members, B, n_out)
        """
        if not self.training:
            indices = range(*members.indices(len(self.weights[0])))
            return torch.stack([self._evaluate(x.flatten(1), index) for index in indices])
        h = x.flatten(1).expand(len(self.weights[0][members]), -1, -1)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if number:
                h = h.relu()
                if self.training and self.dropout:  # one mask for all networks: drawing it takes most of the time
                    h = h * dropout(h.new_ones(h.shape[1:]), self.dropout)
            h = torch.baddbmm(bias[members, None], h, weight[members].transpose(1, 2))
        return h

    def _evaluate(self, h: Tensor, index: int) -> Tensor:
        """Return the outputs of one network. They do not depend on the order of rows, unlike in a batched product."""
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = linear(h.relu() if number else h, weight[index], bias[index])
        return h


def is_plain_mlp(network: nn.Module) -> bool:
    """Return whether `StackedMLPs` can evaluate a network.

    Parameters
    ----------
    network : nn.Module
        The network.

    Returns
    -------
    is_plain : bool
        True if the network consists of linear layers with biases, and every linear layer except the last is followed by
        ReLU, or by ReLU and dropout with the same rate everywhere. No parameter may be frozen. Flattening is allowed.

    Examples
    --------
    >>> from crowdfuse.nets.mlp import mlp
    >>> is_plain_mlp(nn.Sequential(nn.Flatten(), mlp(4, (8,), 3))), is_plain_mlp(nn.Conv1d(1, 1, 1))
    (True, False)
    """
    if not all(parameter.requires_grad for parameter in network.parameters()):
        return False  # a frozen layer must stay as it is
    layers = [part for part in network.modules() if not list(part.children()) and not isinstance(part, nn.Flatten)]
    if not layers or not isinstance(layers[-1], nn.Linear) or len({p.p for p in layers if type(p) is nn.Dropout}) > 1:
        return False
    has_dropout = any(type(layer) is nn.Dropout for layer in layers)
    block = [nn.Linear, nn.ReLU, nn.Dropout] if has_dropout else [nn.Linear, nn.ReLU]
    expected = [*block * ((len(layers) - 1) // len(block)), nn.Linear]
    return [type(layer) for layer in layers] == expected and all(
        layer.bias is not None for layer in layers if isinstance(layer, nn.Linear)
    )


def make_committee(networks: Sequence[nn.Module]) -> Committee | StackedMLPs:
    """Return the networks as `StackedMLPs` if all of them are plain MLPs, otherwise as the slower `Committee`.

    Parameters
    ----------
    networks : sequence of nn.Module
        Networks of one architecture.

    Returns
    -------
    committee : Committee or StackedMLPs

    Examples
    --------
    >>> from crowdfuse.nets.mlp import mlp
    >>> type(make_committee([mlp(4, (8,), 3), mlp(4, (8,), 3)])).__name__
    'StackedMLPs'
    """
    return StackedMLPs(networks) if all(map(is_plain_mlp, networks)) else Committee(networks)
