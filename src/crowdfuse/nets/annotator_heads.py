"""Heads with parameters per annotator, evaluated only for the given pairs (item, annotator)."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from crowdfuse.nets.annotator_tables import PerAnnotator, extend_tables, take_rows
from crowdfuse.nets.mlp import dense_layers, mlp

MAX_DENSE_CELLS_PER_PAIR = 16
"""If (items x annotators) / pairs is at most this, computing all combinations in one dense product is faster."""


class AnnotatorHead(PerAnnotator):
    """An MLP on the item's features, with shared hidden layers and one output layer per annotator.

    An MLP with R x `n_out` outputs would give the same results, but its cost and memory grow with R. Here cost and
    memory grow with the number of requested pairs (item, annotator).

    Parameters
    ----------
    n_features : int
        Number of features per item.
    hidden : tuple of int
        Widths of the shared hidden layers.
    n_annotators : int
        Number of annotators R.
    n_out : int
        Number of outputs per pair.

    Examples
    --------
    >>> head = AnnotatorHead(4, (8,), n_annotators=5, n_out=3)
    >>> head(torch.zeros(2, 4), torch.tensor([0, 0, 1]), torch.tensor([4, 1, 1])).shape
    torch.Size([3, 3])
    """

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(*dense_layers(n_features, hidden))
        self.last = PerAnnotatorLinear(hidden[-1] if hidden else n_features, n_out, n_annotators)

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the outputs for each pair (item, annotator).

        Parameters
        ----------
        features : Tensor of shape (B, n_features)
            Features of the items.
        item : Tensor of shape (L,)
            For each pair, the position of its item in `features`.
        annotator : Tensor of shape (L,)
            Annotator of each pair.

        Returns
        -------
        outputs : Tensor of shape (L, n_out)
        """
        h = self.hidden(features)
        if len(h) * len(self.last.bias) <= MAX_DENSE_CELLS_PER_PAIR * len(item):
            return _select_pairs(self.last.for_all(h), item, annotator)
        return self.last.for_pairs(h.index_select(0, item), annotator)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators. The output layer of each new annotator is the mean of the existing ones.

        Parameters
        ----------
        count : int
            Number of annotators to add.
        """
        extend_tables(self.last, ("weight", "bias"), count)


class SeparateHeads(PerAnnotator):
    """One MLP per annotator with no shared parameters, as in Gao et al. (2022); suited to few annotators.

    Every annotator's network runs on every item of the batch, so cost and memory grow with the number of items times
    the number of annotators.

    Parameters
    ----------
    n_features : int
        Number of features per item.
    hidden : tuple of int
        Widths of the hidden layers of each network.
    n_annotators : int
        Number of annotators R.
    n_out : int
        Number of outputs per pair.

    Examples
    --------
    >>> heads = SeparateHeads(4, (8,), n_annotators=5, n_out=3)
    >>> heads(torch.zeros(2, 4), torch.tensor([0, 0, 1]), torch.tensor([4, 1, 1])).shape
    torch.Size([3, 3])
    """

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_annotators: int, n_out: int) -> None:
        super().__init__()
        widths = [n_features, *hidden, n_out]
        self.layers = nn.ModuleList(PerAnnotatorLinear(n_in, n, n_annotators) for n_in, n in itertools.pairwise(widths))
        self.n_averages = 0

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the outputs for each pair (item, annotator).

        Parameters
        ----------
        features : Tensor of shape (B, n_features)
            Features of the items.
        item : Tensor of shape (L,)
            For each pair, the position of its item in `features`.
        annotator : Tensor of shape (L,)
            Annotator of each pair.

        Returns
        -------
        outputs : Tensor of shape (L, n_out)
        """
        h = features
        for layer in self.layers[:-1]:
            h = layer.for_all(h).relu()  # type: ignore[operator]
        outputs: Tensor = self.layers[-1].for_all(h)  # type: ignore[operator]
        if self.n_averages:
            outputs = torch.cat([outputs, outputs.mean(1, keepdim=True).expand(-1, self.n_averages, -1)], 1)
        return _select_pairs(outputs, item, annotator)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators. Their output is the mean output of all networks.

        The outputs are averaged instead of the weights, because averaging the weights of several networks does not give
        a useful network.

        Parameters
        ----------
        count : int
            Number of annotators to add.
        """
        self.n_averages += count


class AnnotatorEmbedding(PerAnnotator):
    """One learned vector (embedding) per annotator.

    All embeddings start at 0. In training, each label moves its annotator's embedding only a little. The embeddings of
    annotators with few labels therefore stay close to 0.

    Parameters
    ----------
    n_annotators : int
        Number of annotators R.
    width : int
        Length of an embedding.

    Examples
    --------
    >>> AnnotatorEmbedding(5, 2)(torch.tensor([4, 0])).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, n_annotators: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.table = nn.Parameter(torch.zeros(n_annotators, width))

    def forward(self, annotator: Tensor) -> Tensor:
        """Return the embeddings of the given annotators.

        Parameters
        ----------
        annotator : Tensor of shape (L,)
            Annotator indices.

        Returns
        -------
        embeddings : Tensor of shape (L, width)
        """
        return take_rows(self.table, annotator)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean of the existing embeddings.

        Parameters
        ----------
        count : int
            Number of annotators to add.
        """
        extend_tables(self, ("table",), count)


class EmbeddedHead(nn.Module):
    """One MLP for all annotators, which reads the item's features and the annotator's embedding.

    This head is suited to many annotators, because an additional annotator adds only one embedding. The first layer is
    the sum of a term for the item's features and a term for the embedding. The term for the features is computed only
    once per item. Cost and memory grow with the number of pairs (item, annotator).

    Parameters
    ----------
    n_features : int
        Number of features per item.
    hidden : tuple of int
        Widths of the hidden layers.
    n_annotators : int
        Ignored; accepted so that all heads take the same arguments.
    n_out : int
        Number of outputs per pair.
    embedding : AnnotatorEmbedding
        Embeddings of the annotators; several heads can share one `AnnotatorEmbedding`.

    Examples
    --------
    >>> head = EmbeddedHead(4, (8,), 5, 3, embedding=AnnotatorEmbedding(5, 2))
    >>> head(torch.zeros(2, 4), torch.tensor([0, 0, 1]), torch.tensor([4, 1, 1])).shape
    torch.Size([3, 3])
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
        """Return the outputs for each pair (item, annotator).

        Parameters
        ----------
        features : Tensor of shape (B, n_features)
            Features of the items.
        item : Tensor of shape (L,)
            For each pair, the position of its item in `features`.
        annotator : Tensor of shape (L,)
            Annotator of each pair.

        Returns
        -------
        outputs : Tensor of shape (L, n_out)
        """
        h = self.of_item(features).index_select(0, item) + self.of_annotator(self.embedding(annotator))
        outputs: Tensor = self.rest(h)
        return outputs


class PerAnnotatorLinear(nn.Module):
    """One linear layer per annotator, initialized like `nn.Linear`.

    Parameters
    ----------
    n_in : int
        Number of inputs.
    n_out : int
        Number of outputs.
    n_annotators : int
        Number of annotators R.
    """

    def __init__(self, n_in: int, n_out: int, n_annotators: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_annotators, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_annotators, n_out).uniform_(-bound, bound))

    def for_all(self, h: Tensor) -> Tensor:
        """Return the outputs of every annotator's layer for every item.

        Parameters
        ----------
        h : Tensor of shape (B, n_in) or (B, R, n_in)
            Inputs: one row per item for all annotators, or one row per item and annotator.

        Returns
        -------
        outputs : Tensor of shape (B, R, n_out)
        """
        if h.ndim == 2:
            return (h @ self.weight.permute(1, 0, 2).flatten(1)).view(len(h), *self.bias.shape) + self.bias
        return torch.bmm(h.transpose(0, 1), self.weight).transpose(0, 1) + self.bias

    def for_pairs(self, h: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair, the output of its annotator's layer.

        Parameters
        ----------
        h : Tensor of shape (L, n_in)
            One row per pair.
        annotator : Tensor of shape (L,)
            Annotator of each pair.

        Returns
        -------
        outputs : Tensor of shape (L, n_out)
        """
        weight, bias = take_rows(self.weight, annotator), take_rows(self.bias, annotator)
        return torch.baddbmm(bias[:, None], h[:, None], weight)[:, 0]


def _select_pairs(outputs: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
    """Return the rows (L, n_out) of `outputs` (B, R, n_out) that belong to the pairs."""
    return outputs.flatten(0, 1).index_select(0, item * outputs.shape[1] + annotator)
