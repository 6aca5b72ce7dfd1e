"""Checks of numeric settings: each raises a ValueError that names the setting, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_nonnegative(name: str, value: object) -> None:
    """Check that a setting is a finite number of at least 0.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        The value to check.

    Raises
    ------
    ValueError
        If the value is not a number, or if it is negative, NaN or infinite.

    Examples
    --------
    >>> check_nonnegative("weight_decay", -1)
    Traceback (most recent call last):
    ...
    ValueError: weight_decay must be a number of at least 0, got -1
    """
    if not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


def check_positive_integer(name: str, value: object) -> None:
    """Check that a setting is an integer of at least 1.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        The value to check.

    Raises
    ------
    ValueError
        If the value is not an integer, is a boolean, or is below 1.

    Examples
    --------
    >>> check_positive_integer("epochs", 2.5)
    Traceback (most recent call last):
    ...
    ValueError: epochs must be a whole number of at least 1, got 2.5
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_probability(name: str, value: object) -> None:
    """Check that a setting lies strictly between 0 and 1.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        The value to check.

    Raises
    ------
    ValueError
        If the value is not a number above 0 and below 1.

    Examples
    --------
    >>> check_probability("q", 1)
    Traceback (most recent call last):
    ...
    ValueError: q must be above 0 and below 1, got 1
    """
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {value!r}")


def check_above_chance(name: str, value: float, n_classes: int) -> None:
    """Check that a probability is above chance level, 1 / n_classes.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : float
        The value to check.
    n_classes : int
        Number of classes.

    Raises
    ------
    ValueError
        If the value is not between 1 / n_classes and 1.

    Examples
    --------
    >>> check_above_chance("start", 0.5, 2)
    Traceback (most recent call last):
    ...
    ValueError: start must be above chance, which is 0.5 with 2 classes, got 0.5
    """
    check_probability(name, value)
    if value * n_classes <= 1:
        raise ValueError(
            f"{name} must be above chance, which is {1 / n_classes:.3g} with {n_classes} classes, got {value}"
        )


def check_share_below_one(name: str, value: object) -> None:
    """Check that a setting is at least 0 and below 1.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        The value to check.

    Raises
    ------
    ValueError
        If the value is not a number of at least 0 and below 1.

    Examples
    --------
    >>> check_share_below_one("dropout", 1.0)
    Traceback (most recent call last):
    ...
    ValueError: dropout must be at least 0 and below 1, got 1.0
    """
    if not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")


def check_layer_widths(name: str, value: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers as a tuple of integers.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : sequence of int
        One width per hidden layer; may be empty.

    Returns
    -------
    tuple of int

    Raises
    ------
    ValueError
        If the value is not a sequence, or a width is not an integer of at least 1.

    Examples
    --------
    >>> check_layer_widths("hidden", [64, 32])
    (64, 32)
    """
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise ValueError(f"{name} must list the width of each hidden layer, such as (64, 32), got {value!r}")
    for width in value:
        if isinstance(width, bool) or not isinstance(width, Integral) or width < 1:
            raise ValueError(f"{name}: widths of hidden layers must be whole numbers of at least 1, got {width!r}")
    return tuple(int(width) for width in value)
