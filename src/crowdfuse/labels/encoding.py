"""Encode labels: find missing labels, and replace class names by codes (their positions in the list of classes)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of, refuse_repeats, unique_sorted


def concatenate_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Return all positions of several ranges, one range after another.

    Parameters
    ----------
    starts, counts : ndarray of int, shape (n_ranges,)
        First position and length of each range.

    Returns
    -------
    ndarray of int, shape (counts.sum(),)

    Examples
    --------
    >>> concatenate_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    positions: IntArray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return positions


def encode_classes(
    values: NDArray[Any], classes: Sequence[Any] | None, describe_position: Callable[[int], str] | None = None
) -> tuple[NDArray[Any], IntArray]:
    """Return the class names and the code of each label.

    Parameters
    ----------
    values : ndarray of shape (n_labels,)
        Class names, one per label.
    classes : sequence or None
        Class names in the order to use. If None, the classes are the distinct labels, sorted.
    describe_position : callable, default=None
        Function that describes a position in `values` for an error message, for example as "row 3, column 1". By
        default, position 3 becomes "labels[3]".

    Returns
    -------
    names : ndarray of shape (n_classes,)
        Class names.
    codes : ndarray of int, shape (n_labels,)
        Position of each label in `names`.

    Raises
    ------
    ValueError
        If a label is neither a string nor an integer, or if it is not one of the given classes.

    Examples
    --------
    >>> names, codes = encode_classes(np.array(["dog", "cat", "dog"]), None)
    >>> names.tolist(), codes.tolist()
    (['cat', 'dog'], [1, 0, 1])
    """
    labels = normalize_ids(values, "labels", describe_position)
    if classes is None:
        return unique_sorted(labels)
    names = normalize_ids(classes, "classes")
    refuse_repeats(names, "classes")
    codes = positions_of(labels, names)
    if (codes < 0).any():
        first = int(np.argmax(codes < 0))
        where = f"labels[{first}]" if describe_position is None else describe_position(first)
        raise ValueError(f"{where}: {unknown_class_message(format_names([labels[first]]), names)}")
    return names, codes


def unknown_class_message(label: str, classes: NDArray[Any]) -> str:
    """Return the error message for a label that is not one of the given classes.

    Parameters
    ----------
    label : str
        The label as the message shows it, with quotes if it is a string.
    classes : ndarray of shape (n_classes,)
        The given class names.

    Returns
    -------
    str

    Examples
    --------
    >>> unknown_class_message("'catt'", np.array(["cat", "dog"], object))
    "label 'catt' is not one of the 2 classes ('cat', 'dog'); correct it, or add it to classes="
    """
    return (
        f"label {label} is not one of the {len(classes):,} classes ({format_names(classes)}); "
        "correct it, or add it to classes="
    )


def is_missing(values: NDArray[Any], *, markers: bool) -> NDArray[np.bool_]:
    """Return which values are missing.

    Parameters
    ----------
    values : ndarray
        Labels of any dtype.
    markers : bool
        Whether -1 and the empty string also mean missing, in addition to None, NaN and pandas' NA.

    Returns
    -------
    ndarray of bool
        True where a value is missing; same shape as `values`.

    Examples
    --------
    >>> is_missing(np.array([0, -1]), markers=True).tolist(), is_missing(np.array([0, -1]), markers=False).tolist()
    ([False, True], [False, False])
    """
    missing = np.zeros(values.shape, bool)
    if values.dtype.kind == "O":
        missing.flat[:] = [_is_null(value) or (markers and value in (-1, "")) for value in values.flat]
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    if markers and values.dtype.kind in "fiU":
        missing |= values == ("" if values.dtype.kind == "U" else -1)
    return missing


def _is_null(value: Any) -> bool:
    """Whether a value is None, NaN or pandas' NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # comparing pandas' NA gives NA, which has no truth value
        return True


def names_with_missing(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the class names and, at the end, a value that means missing; the index -1 selects this value.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Class names.

    Returns
    -------
    ndarray of shape (n_classes + 1,)
        The last value is -1 if all classes are integers other than -1, otherwise None.

    Examples
    --------
    >>> names_with_missing(np.array([3, 4])).tolist(), names_with_missing(np.array(["cat"], object)).tolist()
    ([3, 4, -1], ['cat', None])
    """
    can_use_minus_one = classes.dtype.kind == "i" and -1 not in classes
    missing, dtype = (-1, np.int64) if can_use_minus_one else (None, object)
    names: NDArray[Any] = np.array([*classes, missing], dtype)
    return names
