"""Folds: which items are left out together when a copy of a classifier is trained without them."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray


def check_folds(folds: Any) -> int:
    """Return the number of folds.

    Raises
    ------
    ValueError
        If `folds` is neither 0 nor an integer of at least 2.

    Examples
    --------
    >>> check_folds(5)
    5
    """
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 0 or folds == 1:
        raise ValueError(
            f"folds must be an integer of at least 2, or 0 for no cross-fitting, got {folds!r}; 5 is the usual number"
        )
    return int(folds)


def count_folds(folds: int, n_rows: int) -> int:
    """Return the number of folds to use: `folds`, but at most one per row, and 0 instead of 1.

    Examples
    --------
    >>> count_folds(5, 1_000), count_folds(5, 3), count_folds(5, 1)
    (5, 3, 0)
    """
    count = min(folds, n_rows)
    return count if count > 1 else 0


def assign_folds(rows: IntArray, folds: int, seed: int = 0) -> list[IntArray]:
    """Split rows into folds of nearly equal size at random; the same rows and seed always give the same folds.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,)
        Row numbers.
    folds : int
        Number of folds. If there are fewer rows than folds, every row is a fold. If there are fewer than two rows,
        there are no folds.
    seed : int, default=0
        Seed of the random split.

    Returns
    -------
    list of ndarray
        The rows of each fold, sorted.

    Examples
    --------
    >>> [len(fold) for fold in assign_folds(np.arange(7), 3)]
    [3, 2, 2]
    """
    count = count_folds(folds, len(rows))
    if not count:
        return []
    return [np.sort(part) for part in np.array_split(np.random.default_rng(seed).permutation(rows), count)]
