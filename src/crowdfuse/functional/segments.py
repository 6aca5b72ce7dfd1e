"""Sums, softmax and vote fractions over the labels of each item."""

from __future__ import annotations

import torch
from torch import Tensor


def scatter_sum(values: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Sum the rows of `values` that belong to the same item.

    Parameters
    ----------
    values : Tensor of shape (L, ...)
        One row per pair (item, annotator).
    item : Tensor of shape (L,)
        For each pair, the position of its item in the batch.
    n_items : int
        Number of items B.

    Returns
    -------
    sums : Tensor of shape (B, ...)
        0 for items without pairs.

    Examples
    --------
    >>> scatter_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 0]), 3)
    tensor([5., 0., 2.])
    """
    return values.new_zeros((n_items, *values.shape[1:])).index_add(0, item, values)


def segment_softmax(scores: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Turn scores into weights by a softmax over the pairs (item, annotator) of each item.

    Annotators who did not label the item have no pair, so they get no weight.

    Parameters
    ----------
    scores : Tensor of shape (L,)
        Score of each pair. If all scores of an item are minus infinity, all its weights are 0.
    item : Tensor of shape (L,)
        For each pair, the position of its item in the batch.
    n_items : int
        Number of items B.

    Returns
    -------
    weights : Tensor of shape (L,)
        The weights of the pairs of an item sum to 1, unless all scores of the item are minus infinity.

    Examples
    --------
    >>> segment_softmax(torch.tensor([1.0, 1.0, 7.0]), torch.tensor([0, 0, 1]), 2)
    tensor([0.5000, 0.5000, 1.0000])
    """
    largest = scores.detach().new_full((n_items,), -torch.inf).scatter_reduce(0, item, scores.detach(), "amax")
    exponential = (scores - largest.nan_to_num(neginf=0)[item]).exp()
    total = scatter_sum(exponential, item, n_items).clamp(min=torch.finfo(scores.dtype).tiny)
    return exponential / total[item]


def vote_shares(label: Tensor, item: Tensor, n_items: int, n_classes: int) -> Tensor:
    """Return the vote shares of each item: the fraction of its labels that name each class.

    Parameters
    ----------
    label : Tensor of shape (L,)
        Class of each label.
    item : Tensor of shape (L,)
        For each label, the position of its item in the batch.
    n_items : int
        Number of items B.
    n_classes : int
        Number of classes K.

    Returns
    -------
    shares : Tensor of shape (B, K)
        Rows of items without labels are 0.

    Examples
    --------
    >>> vote_shares(torch.tensor([1, 1, 0, 2]), torch.tensor([0, 0, 0, 1]), 3, 3)
    tensor([[0.3333, 0.6667, 0.0000],
            [0.0000, 0.0000, 1.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    votes = torch.bincount(item * n_classes + label, minlength=n_items * n_classes).view(n_items, n_classes)
    return votes / votes.sum(1, keepdim=True).clamp(min=1)
