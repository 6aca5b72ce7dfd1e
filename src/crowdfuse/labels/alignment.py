"""Match labels and gold labels to the rows of X; raise an error if they cannot be matched."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_names, normalize_ids, positions_of


def labels_as_given(y: Any) -> Annotations | NDArray[Any]:
    """Return `y` unchanged if it is Annotations, else as an array.

    Parameters
    ----------
    y : Annotations or array-like
        The labels that a user passed.

    Returns
    -------
    Annotations or ndarray

    Raises
    ------
    ValueError
        If `y` is a data frame, because converting it to an array would drop its ids.
    """
    if not isinstance(y, Annotations) and hasattr(y, "columns"):
        raise ValueError(
            "y is a table; convert it with Annotations.from_table(y) if it has one row per label, or with "
            "Annotations.from_matrix(y) if it has one row per item and one column per annotator"
        )
    return y if isinstance(y, Annotations) else np.asarray(y, dtype=object if _contains_none(y) else None)


def as_annotations(y: Any) -> Annotations:
    """Return `y` as Annotations.

    Parameters
    ----------
    y : Annotations or array-like of shape (n_items, n_annotators) or (n_items,)
        A 2-D array has one column per annotator; a 1-D array holds the labels of a single annotator.

    Returns
    -------
    Annotations

    Raises
    ------
    ValueError
        If `y` is an array with neither one nor two dimensions.
    """
    values = labels_as_given(y)
    if isinstance(values, Annotations):
        return values
    if values.ndim == 2:
        return Annotations.from_matrix(values)
    if values.ndim == 1:
        return Annotations.from_vector(values)
    raise ValueError(
        f"y must be Annotations, a 2-D array with one column per annotator, or a 1-D array, got shape {values.shape}"
    )


def align(y: Any, n_rows: int, items: ArrayLike | None) -> Annotations:
    """Return the labels in the order of the rows of X.

    Parameters
    ----------
    y : Annotations or array-like of shape (n_rows, n_annotators) or (n_rows,)
        Arrays are matched to X row by row. For Annotations, there are four cases:

        - If `items` is given, items are matched to the rows of X by id.
        - If `items` is None and `y.by_row` is true, items are matched row by row.
        - If `items` is None and the ids are integers from a table, the ids are taken as row numbers.
        - In all other cases, `items` is required.
    n_rows : int
        Number of rows of X.
    items : array-like of shape (n_rows,) or None
        Ids of the rows of X.

    Returns
    -------
    Annotations
        One item per row of X, in the order of X.

    Raises
    ------
    ValueError
        If the lengths differ, or if `items` is required but None.

    Warns
    -----
    UserWarning
        If integer ids are taken as row numbers but row 0 has no labels, which suggests that the ids start at 1.
    """
    ann = as_annotations(y)
    ids = None if items is None else np.asarray(items)
    if ids is not None and ids.shape != (n_rows,):
        raise ValueError(f"items= must have one id for each of the {n_rows:,} rows of X, got shape {ids.shape}")
    if isinstance(y, Annotations) and ids is not None:
        return ann.align(ids)
    if ann.by_row:
        if len(ann) != n_rows:
            raise ValueError(
                f"X has {n_rows:,} rows, but y has {len(ann):,}. Inconsistent numbers of samples: pass one row of y "
                "per row of X. To match labels to rows by id instead, pass Annotations and items= (the id of each "
                "row of X)"
            )
        return ann
    has_integer_ids = ann.items.dtype.kind == "i" and len(ann.items) > 0
    if ann.ids_may_be_row_numbers and has_integer_ids and ann.items.min() >= 0 and ann.items.max() < n_rows:
        if ann.items.min() == 1:
            warnings.warn(
                "item ids are taken as row numbers of X, which count from 0, but no item has the id 0; if your ids "
                "count from 1, pass items= with the id of each row of X",
                stacklevel=4,
            )
        return ann.align(np.arange(n_rows))
    raise ValueError(
        f"the items of the labels have ids such as {format_names(ann.items, 3)}. It is not known which rows of X (0 to "
        f"{n_rows - 1:,}) they belong to. Pass items= with the id of each row, in order, for example "
        "fit(X, annotations, items=ids)"
    )


def has_gold(gold: NDArray[Any], classes: NDArray[Any], n_rows: int, name: str = "gold") -> NDArray[np.bool_]:
    """Return, for each row, whether its true class is known.

    Parameters
    ----------
    gold : ndarray of shape (n_rows,)
        True classes by name. None and NaN mean unknown. -1 also means unknown, unless -1 is one of the classes.
    classes : ndarray of shape (n_classes,)
        Class names.
    n_rows : int
        Number of rows of X.
    name : str, default="gold"
        Name of the argument, for the error message.

    Returns
    -------
    ndarray of bool, shape (n_rows,)

    Raises
    ------
    ValueError
        If the shape of `gold` is not (n_rows,).
    """
    if gold.shape != (n_rows,):
        raise ValueError(f"{name} must have one class for each of the {n_rows:,} rows of X, got shape {gold.shape}")
    unknown = () if -1 in classes else (-1,)
    return np.array([not (v is None or v != v or (not isinstance(v, str) and v in unknown)) for v in gold], bool)


def gold_codes(gold: Any, classes: NDArray[Any], n_rows: int, name: str = "gold") -> NDArray[np.int64]:
    """Return the true class of each row as a position in `classes`.

    Parameters
    ----------
    gold : array-like of shape (n_rows,)
        True classes by name. None and NaN mean unknown. -1 also means unknown, unless -1 is one of the classes.
    classes : ndarray of shape (n_classes,)
        Class names.
    n_rows : int
        Number of rows of X.
    name : str, default="gold"
        Name of the argument, for error messages.

    Returns
    -------
    ndarray of int64, shape (n_rows,)
        -1 where the true class is unknown.

    Raises
    ------
    ValueError
        If the shape of `gold` is not (n_rows,), or if it contains a class that is not in `classes`.

    Examples
    --------
    >>> gold_codes(["dog", None, "cat"], np.array(["cat", "dog"], object), 3).tolist()
    [1, -1, 0]
    """
    values = np.asarray(gold, dtype=object if _contains_none(gold) else None)
    is_known = has_gold(values, classes, n_rows, name)
    names = normalize_ids(values[is_known], name)
    codes = np.full(n_rows, -1, np.int64)
    codes[is_known] = positions_of(names, classes)
    is_outside = codes[is_known] < 0
    if is_outside.any():
        raise ValueError(
            f"{name} contains {format_names(np.unique(names[is_outside]))}, which is not among the classes "
            f"({format_names(classes)}); correct it, or list all classes with classes= (--classes on the command line)"
        )
    return codes


def check_sample_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float32]:
    """Return the weight of each row.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,), float or None
        Weight of each row. A single number is used for all rows; None means 1.
    n_rows : int
        Number of rows of X.

    Returns
    -------
    ndarray of float32, shape (n_rows,)

    Raises
    ------
    ValueError
        If the shape is wrong, if a weight is negative or not finite, or if all weights are 0.

    Examples
    --------
    >>> check_sample_weight(None, 2).tolist()
    [1.0, 1.0]
    """
    if sample_weight is None:
        return np.ones(n_rows, np.float32)
    weight = np.asarray(sample_weight, np.float32)
    if weight.ndim == 0:
        weight = np.full(n_rows, weight, np.float32)
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n_rows,)}!")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight must be finite numbers of at least 0")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row; at least one row needs a weight above 0")
    return weight


def refuse_items(items: ArrayLike | None) -> None:
    """Raise an error if `items` is given along with a gold array, because gold arrays are matched row by row.

    Parameters
    ----------
    items : array-like or None
        The `items` argument of the public method.

    Raises
    ------
    ValueError
        If `items` is not None, because it would be ignored.
    """
    if items is not None:
        raise ValueError(
            "items= cannot be used with gold, because gold is matched to X row by row; leave out items=, and pass one "
            "class per row of X, in the order of X"
        )


def _contains_none(values: Any) -> bool:
    """Whether a list or tuple contains None at its top level."""
    return isinstance(values, Sequence) and not isinstance(values, str) and any(value is None for value in values)
