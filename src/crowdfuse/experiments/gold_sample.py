"""Gold of a few items, for the runs that are given some."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sample_gold(y: NDArray[Any], count: int, seed: int) -> NDArray[np.float64]:
    """The gold of `count` items, drawn by the seed, NaN elsewhere.

    >>> some_gold(np.array([4, 5, 6, 7]), 2, seed=0)
    array([nan,  5.,  6., nan])
    """
    gold = np.full(len(y), np.nan)
    rows = np.random.default_rng([seed, 6]).permutation(len(y))[:count]
    gold[rows] = y[rows]
    return gold
