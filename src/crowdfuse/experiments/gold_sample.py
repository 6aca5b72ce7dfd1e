"""A random sample of gold labels, for runs that train with gold of a few items."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sample_gold(y: NDArray[Any], count: int, seed: int) -> NDArray[np.float64]:
    """Return the gold labels of `count` random items, and NaN for all other items.

    Parameters
    ----------
    y : ndarray of shape (n_items,)
        Gold of all items, as numbers.
    count : int
        Number of items whose gold is kept.
    seed : int
        Seed of the sample.

    Returns
    -------
    ndarray of shape (n_items,)

    Examples
    --------
    >>> sample_gold(np.array([4, 5, 6, 7]), 2, seed=0)
    array([nan,  5.,  6., nan])
    """
    gold = np.full(len(y), np.nan)
    rows = np.random.default_rng([seed, 6]).permutation(len(y))[:count]
    gold[rows] = y[rows]
    return gold
