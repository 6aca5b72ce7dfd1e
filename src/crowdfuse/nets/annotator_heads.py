"""Heads whose output belongs to an annotator, computed for the pairs (item, annotator) that are asked for."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from crowdfuse.nets.annotator_tables import PerAnnotator, extend_tables, take_rows
from crowdfuse.nets.mlp import dense_layers, mlp

MAX_DENSE_CELLS_PER_PAIR = (
    16  # times the pairs asked for: so many cost less in one product than each with a copy of its weights
)


class AnnotatorHead(PerAnnotator):
    """An MLP on the item's features whose last layer is one an annotator, evaluated pair by pair.

    The same function as one MLP with R x `n_out` outputs, of which only the labelled ones are computed:
    cost and memory grow with the pairs.
    """

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(*dense_layers(n_features, hidden))
        self.last = PerAnnotatorLinear(hidden[-1] if hidden else n_features, n_out, n_annotators)

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Features (B, D) and pairs (L,), (L,) to (L, n_out)."""
        h = self.hidden(features)
        if len(h) * len(self.last.bias) <= MAX_DENSE_CELLS_PER_PAIR * len(item):
            return _choose(self.last.for_all(h), item, annotator)
        return self.last.for_pairs(h.index_select(0, item), annotator)

    def add_annotators(self, count: int) -> None:
        extend_tables(self.last, ("weight", "bias"), count)


class SeparateHeads(PerAnnotator):
    """An MLP an annotator, nothing shared: the paper's way, for few annotators.

    All annotators' networks are run on all items of the batch, whoever labelled them: cost and memory grow with
    items x annotators.
    """

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int) -> None:
        super().__init__()
        widths = [n_features, *hidden, n_out]
        self.layers = nn.ModuleList(PerAnnotatorLinear(n_in, n, n_annotators) for n_in, n in itertools.pairwise(widths))
        self.n_averages = 0

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Features (B, D) and pairs (L,), (L,) to (L, n_out)."""
        h = features
        for layer in self.layers[:-1]:
            h = layer.for_all(h).relu()  # type: ignore[operator]
        every: Tensor = self.layers[-1].for_all(h)  # type: ignore[operator]
        if self.n_averages:
            every = torch.cat([every, every.mean(1, keepdim=True).expand(-1, self.n_averages, -1)], 1)
        return _choose(every, item, annotator)

    def add_annotators(self, count: int) -> None:
        """The average of networks is that of what they say: the mean of their weights would be nobody's network."""
        self.n_averages += count


class AnnotatorEmbedding(PerAnnotator):
    """A few numbers an annotator, all 0 at the start: who says little stays close to the average."""

    def __init__(self, n_annotators: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.table = nn.Parameter(torch.zeros(n_annotators, width))

    def forward(self, annotator: Tensor) -> Tensor:
        """Annotators (L,) to (L, width)."""
        return take_rows(self.table, annotator)

    def add_annotators(self, count: int) -> None:
        extend_tables(self, ("table",), count)


class EmbeddedHead(nn.Module):
    """One MLP for all annotators that reads the item's features and the annotator's embedding, for many annotators.

    The first layer is linear in both, so the items' part is computed once an item. Cost and memory grow with the
    pairs; an annotator more is `width` numbers more.
    """

    def __init__(
        self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int, *, embedding: AnnotatorEmbedding
    ) -> None:
        super().__init__()
        first, *more = hidden or (n_out,)
        self.embedding = embedding
        self.of_item = nn.Linear(n_features, first)
        self.of_annotator = nn.Linear(embedding.width, first, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), *mlp(first, tuple(more), n_out))

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Features (B, D) and pairs (L,), (L,) to (L, n_out)."""
        h = self.of_item(features).index_select(0, item) + self.of_annotator(self.embedding(annotator))
        out: Tensor = self.rest(h)
        return out


class PerAnnotatorLinear(nn.Module):
    """A linear layer an annotator, with the start of `nn.Linear`."""

    def __init__(self, n_in: int, n_out: int, n_annotators: int) -> None:
        super().__init__()
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
        weight, bias = take_rows(self.weight, annotator), take_rows(self.bias, annotator)
        return torch.baddbmm(bias[:, None], h[:, None], weight)[:, 0]


def _choose(every: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
    """Of (B, R, n_out) the pairs asked for, (L, n_out)."""
    return every.flatten(0, 1).index_select(0, item * every.shape[1] + annotator)
