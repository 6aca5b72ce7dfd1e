"""Heads whose output belongs to an annotator, computed for the pairs (item, annotator) that are asked for."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from crowdfuse.nets.mlp import dense_layers


class AnnotatorHead(nn.Module):
    """An MLP on the item's features whose last layer is one an annotator, evaluated pair by pair.

    The same function as one MLP with R x `n_out` outputs, of which only the labelled ones are computed:
    cost and memory grow with the pairs.
    """

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(*dense_layers(n_features, hidden))
        self.last = LayerEach(hidden[-1] if hidden else n_features, n_out, n_annotators)

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Features (B, D) and pairs (L,), (L,) to (L, n_out)."""
        h = self.hidden(features)
        if len(h) * self.last.n_annotators <= 2 * len(item):  # nearly all pairs are there: one product for all
            return _choose(self.last.for_all(h), item, annotator)
        return self.last.for_pairs(h.index_select(0, item), annotator)


class SeparateHeads(nn.Module):
    """An MLP an annotator, nothing shared: the paper's way, for few annotators.

    All annotators' networks are run on all items of the batch, whoever labelled them: cost and memory grow with
    items x annotators.
    """

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int) -> None:
        super().__init__()
        widths = [n_features, *hidden, n_out]
        self.layers = nn.ModuleList(LayerEach(n_in, n, n_annotators) for n_in, n in itertools.pairwise(widths))

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Features (B, D) and pairs (L,), (L,) to (L, n_out)."""
        h = features
        for layer in self.layers[:-1]:
            h = layer.for_all(h).relu()  # type: ignore[operator]
        return _choose(self.layers[-1].for_all(h), item, annotator)  # type: ignore[operator]


class LayerEach(nn.Module):
    """A linear layer an annotator, with the start of `nn.Linear`."""

    def __init__(self, n_in: int, n_out: int, n_annotators: int) -> None:
        super().__init__()
        self.n_annotators = n_annotators
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_annotators, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_annotators, n_out).uniform_(-bound, bound))

    def for_all(self, h: Tensor) -> Tensor:
        """What every annotator makes of every item: (B, n_in), the same for all, or (B, R, n_in), to (B, R, n_out)."""
        if h.ndim == 2:
            return (h @ self.weight.permute(1, 0, 2).flatten(1)).view(len(h), *self.bias.shape) + self.bias
        return torch.bmm(h.transpose(0, 1), self.weight).transpose(0, 1) + self.bias

    def for_pairs(self, h: Tensor, annotator: Tensor) -> Tensor:
        """Rows (L, n_in), each with its annotator's weights, to (L, n_out)."""
        weight, bias = self.weight.index_select(0, annotator), self.bias.index_select(0, annotator)
        return torch.baddbmm(bias[:, None], h[:, None], weight)[:, 0]


def _choose(every: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
    """Of (B, R, n_out) the pairs asked for, (L, n_out)."""
    return every.flatten(0, 1).index_select(0, item * every.shape[1] + annotator)
