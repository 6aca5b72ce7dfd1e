"""Checks of numeric settings: each raises a ValueError that names the setting and the value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_nonnegative(name: str, value: object) -> None:
    """Refuse what is no number, negative or infinite."""
    if not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


def check_positive_integer(name: str, value: object) -> None:
    """Refuse what is no positive whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_probability(name: str, value: object) -> None:
    """Refuse what does not lie between 0 and 1."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a probability above 0 and below 1, got {value!r}")


def check_above_chance(name: str, value: float, n_classes: int) -> None:
    """Refuse what is no probability, or no more than that of guessing one of so many classes.

    >>> check_above_chance("start", 0.5, 2)
    Traceback (most recent call last):
    ...
    ValueError: start=0.5 is no more than chance with 2 classes: nothing would tell the classes apart
    """
    check_probability(name, value)
    if value * n_classes <= 1:
        raise ValueError(
            f"{name}={value} is no more than chance with {n_classes} classes: nothing would tell the classes apart"
        )


def check_share_below_one(name: str, value: object) -> None:
    """Refuse what does not lie between 0 and 1, or is 1."""
    if not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise ValueError(f"{name} must be a share of at least 0 and below 1, got {value!r}")


def check_layer_widths(name: str, value: Any) -> tuple[int, ...]:
    """Widths of hidden layers as a tuple of integers."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise ValueError(f"{name} must be a tuple of widths such as (64, 32), got {value!r}")
    for width in value:
        if not isinstance(width, Integral) or width < 1:
            raise ValueError(f"{name}: widths of hidden layers must be whole numbers of at least 1, got {width!r}")
    return tuple(int(width) for width in value)
