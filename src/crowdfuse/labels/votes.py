"""Counting votes per class and choosing the winner, for numpy arrays.

`crowdfuse.functional.vote_shares` does the same calculation for tensors on any device, in single precision. A test
checks that the two agree bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.ids import IntArray


def vote_counts(
    cell: IntArray, n_items: int, n_classes: int, weight: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Return the vote counts: for each item, the number of its labels that name each class.

    If `weight` is given, the total weight of these labels is returned instead of their number.

    Parameters
    ----------
    cell : ndarray of int, shape (n_labels,)
        For each label, the index `item * n_classes + class` of its cell in the flattened array (n_items, n_classes).
    n_items, n_classes : int
        Shape of the result.
    weight : ndarray of shape (n_labels,), default=None
        Weight of each label; by default every label has weight 1.

    Returns
    -------
    ndarray of float64, shape (n_items, n_classes)

    Examples
    --------
    >>> vote_counts(np.array([0, 0, 1, 3]), 2, 2).tolist()
    [[2.0, 1.0], [0.0, 1.0]]
    """
    counts = np.bincount(cell, weights=weight, minlength=n_items * n_classes)
    table: NDArray[np.float64] = counts.astype(np.float64, copy=False).reshape(n_items, n_classes)
    return table


def vote_shares(
    cell: IntArray, n_items: int, n_classes: int, weight: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Return the vote shares: for each item, the share of its labels that name each class.

    If `weight` is given, labels count by their weight: the share of a class is the total weight of the labels that name
    the class, divided by the total weight of the item's labels.

    Parameters
    ----------
    cell : ndarray of int, shape (n_labels,)
        For each label, the index `item * n_classes + class` of its cell in the flattened array (n_items, n_classes).
    n_items, n_classes : int
        Shape of the result.
    weight : ndarray of shape (n_labels,), default=None
        Weight of each label; by default every label has weight 1.

    Returns
    -------
    ndarray of float64, shape (n_items, n_classes)
        Each row sums to 1. Rows of items without labels, or with a total weight of 0, are NaN instead.

    Examples
    --------
    >>> vote_shares(np.array([0, 0, 1, 1]), 2, 2).tolist()
    [[0.5, 0.5], [nan, nan]]
    """
    shares = vote_counts(cell, n_items, n_classes, weight)
    with np.errstate(invalid="ignore"):
        shares /= shares.sum(1, keepdims=True)
    return shares


def argmax_breaking_ties(scores: NDArray[Any], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the column with the highest score in each row; ties are broken at random.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_columns)
        Scores; NaN is not allowed. A tie means exactly equal scores.
    draws : ndarray of float64, shape (n_rows,) or (n_rows, n_columns)
        Uniform random numbers in [0, 1). With shape (n_rows,), each number selects one of the tied columns of its row.
        With shape (n_rows, n_columns), the tied column with the highest random number is selected.

    Returns
    -------
    ndarray of int64, shape (n_rows,)

    Examples
    --------
    >>> scores = np.array([[0.2, 0.8], [0.5, 0.5]])
    >>> argmax_breaking_ties(scores, np.array([0.9, 0.9])).tolist()
    [1, 1]
    >>> argmax_breaking_ties(scores, np.array([[0.9, 0.1], [0.9, 0.1]])).tolist()
    [1, 0]
    """
    is_best = scores == scores.max(1, keepdims=True)
    if draws.ndim == 2:
        best: NDArray[np.int64] = np.where(is_best, draws, -1.0).argmax(1)
        return best
    row, column = np.nonzero(is_best)
    n_tied = np.bincount(row)
    chosen: NDArray[np.int64] = column[np.cumsum(n_tied) - n_tied + (draws * n_tied).astype(np.int64)]
    return chosen
