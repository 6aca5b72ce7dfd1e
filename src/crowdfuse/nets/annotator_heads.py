"""Heads whose output belongs to an annotator, computed for the pairs (item, annotator) that are asked for."""

from __future__ import annotations

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
        n_in = hidden[-1] if hidden else n_features
        bound = 1 / math.sqrt(n_in)  # as nn.Linear starts
        self.weight = nn.Parameter(torch.empty(n_annotators, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_annotators, n_out).uniform_(-bound, bound))

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Features (B, D) and pairs (L,), (L,) to (L, n_out)."""
        h = self.hidden(features)
        n_annotators, _, n_out = self.weight.shape
        if len(h) * n_annotators <= 2 * len(item):  # nearly all pairs are there: one product for all
            full = (h @ self.weight.permute(1, 0, 2).flatten(1)).view(len(h), n_annotators, n_out) + self.bias
            chosen: Tensor = full.flatten(0, 1).index_select(0, item * n_annotators + annotator)
            return chosen
        weight = self.weight.index_select(0, annotator)
        return torch.baddbmm(self.bias.index_select(0, annotator)[:, None], h.index_select(0, item)[:, None], weight)[
            :, 0
        ]
