"""What is tried when a method is tuned: its defaults, and draws from a declared space.

What all methods have in common is drawn alike for all of them; what is a method's own stands in `search_space` of its
estimator.
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


def space_of(method: str) -> SearchSpace:
    """All that is tuned of a method, by the name of the setting."""
    return COMMON_SEARCH_SPACE | estimator_class(method).search_space


def draw_settings(method: str, draw: int, seed: int) -> dict[str, Any]:
    """The settings to try: none for draw 0, the defaults. The same for the same method, number and seed.

    >>> drawn("majority-vote", 0, seed=0)
    {}
    >>> one, other = drawn("majority-vote", 3, seed=0), drawn("fusion", 3, seed=0)
    >>> one["learning_rate"] == other["learning_rate"], "penalty" in other
    (True, True)
    """
    if draw == 0:
        return {}
    return {
        name: _one(space, np.random.default_rng([seed, draw, _number(name)]))
        for name, space in space_of(method).items()
    }


def _one(space: list[Any] | tuple[float, float], generator: np.random.Generator) -> Any:
    if isinstance(space, list):
        return space[generator.integers(len(space))]
    low, high = (math.log(end) for end in space)
    return float(f"{math.exp(generator.uniform(low, high)):.3g}")


def _number(name: str) -> int:
    """A stream of its own for every setting."""
    return zlib.crc32(name.encode())
