"""Settings to try when a method is tuned: its defaults, and random draws from a search space.

Settings that all methods share, such as the learning rate, get the same draws in all methods. Settings of a single
method are in the `search_space` of its estimator.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.registry import estimator_class

COMMON_SEARCH_SPACE: SearchSpace = {
    "learning_rate": (5e-4, 1e-2),
    "weight_decay": (1e-5, 1e-2),
    "dropout": [0.0, 0.25, 0.5],
}


def search_space_of(method: str) -> SearchSpace:
    """Return the search space of a method by setting, including the settings that all methods share.

    Examples
    --------
    >>> search_space_of("majority-vote")["dropout"]
    [0.0, 0.25, 0.5]
    """
    return COMMON_SEARCH_SPACE | estimator_class(method).search_space


def draw_settings(method: str, draw: int, seed: int) -> dict[str, Any]:
    """Return the settings of one draw. They depend only on the method, the number of the draw and the seed.

    Parameters
    ----------
    method : str
        Name of the method.
    draw : int
        Number of the draw. Draw 0 has the default settings, so the result is empty.
    seed : int
        Seed of the draws.

    Returns
    -------
    dict of str to object

    Examples
    --------
    >>> draw_settings("majority-vote", 0, seed=0)
    {}
    >>> vote, fusion = draw_settings("majority-vote", 3, seed=0), draw_settings("fusion", 3, seed=0)
    >>> vote["learning_rate"] == fusion["learning_rate"], "penalty" in fusion
    (True, True)
    """
    if draw == 0:
        return {}
    return {
        name: _draw_value(space, np.random.default_rng([seed, draw, _stream_number(name)]))
        for name, space in search_space_of(method).items()
    }


def _draw_value(space: list[Any] | tuple[float, float], generator: np.random.Generator) -> Any:
    """Return a random element of a list, or a log-uniform number from a range, with three digits."""
    if isinstance(space, list):
        return space[generator.integers(len(space))]
    low, high = (math.log(end) for end in space)
    return float(f"{math.exp(generator.uniform(low, high)):.3g}")


def _stream_number(name: str) -> int:
    """Return a number that gives each setting its own random stream."""
    return zlib.crc32(name.encode())
