"""How rows of X meet items, and how names become class positions. A silent misalignment must be impossible."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_names, normalize_ids, positions_of


def labels_as_given(y: Any) -> Annotations | NDArray[Any]:
    """Annotations as they are, anything else as an array; a data frame would lose its ids, and is refused."""
    if not isinstance(y, Annotations) and hasattr(y, "columns"):
        raise ValueError(
            "y is a table: make Annotations of it first, with Annotations.from_table(y) where a row is a label, "
            "Annotations.from_matrix(y) where a row is an item"
        )
    return y if isinstance(y, Annotations) else np.asarray(y, dtype=object if _holds_none(y) else None)


def as_annotations(y: Any) -> Annotations:
    """`y` as annotations: an (N, R) array is a matrix of labels, a 1-D array one annotator."""
    values = labels_as_given(y)
    if isinstance(values, Annotations):
        return values
    if values.ndim == 2:
        return Annotations.from_matrix(values)
    if values.ndim == 1:
        return Annotations.from_vector(values)
    raise ValueError(f"y must be Annotations, an (N, R) array or a 1-D array, got shape {values.shape}")


def align(y: Any, n_rows: int, items: ArrayLike | None) -> Annotations:
    """The labels by row of X.

    An array goes row by row. Annotations meet rows by id, through `items`, the ids of X's rows; without it,
    row by row where they are known to be in that order, by row number where a table's ids are row numbers.
    """
    ann = as_annotations(y)
    ids = None if items is None else np.asarray(items)
    if ids is not None and ids.shape != (n_rows,):
        raise ValueError(f"items= must name each of the {n_rows:,} rows of X, got shape {ids.shape}")
    if isinstance(y, Annotations) and ids is not None:
        return ann.align(ids)
    if ann.by_row:
        if len(ann) != n_rows:
            raise ValueError(
                f"X has {n_rows:,} rows, but y has {len(ann):,}. Inconsistent numbers of samples: "
                "pass Annotations and items=, the ids of X's rows, to match labels to rows by id"
            )
        return ann
    numbers = ann.items.dtype.kind == "i" and len(ann.items) > 0
    if ann.ids_may_be_row_numbers and numbers and ann.items.min() >= 0 and ann.items.max() < n_rows:
        if ann.items.min() == 1:
            warnings.warn(
                "integer ids are taken as row numbers, and nobody labelled row 0: if your ids count from 1, "
                "pass items=, the ids of X's rows",
                stacklevel=4,
            )
        return ann.align(np.arange(n_rows))
    raise ValueError(
        f"the labels know items by ids such as {format_names(ann.items, 3)}, not as rows of X (0 to {n_rows - 1}). "
        "Pass items=, the ids of X's rows in order, such as fit(X, annotations, items=ids)"
    )


def has_gold(gold: NDArray[Any], classes: NDArray[Any], n_rows: int, what: str = "gold") -> NDArray[np.bool_]:
    """Where gold says something, (N,): None, NaN and, unless it is a class, -1 say nothing."""
    if gold.shape != (n_rows,):
        raise ValueError(f"{what} must have one class a row of X ({n_rows:,}), got shape {gold.shape}")
    unknown = () if -1 in classes else (-1,)
    return np.array([not (v is None or v != v or (not isinstance(v, str) and v in unknown)) for v in gold], bool)


def gold_codes(gold: Any, classes: NDArray[Any], n_rows: int, what: str = "gold") -> NDArray[np.int64]:
    """True classes by name, one a row, as positions in `classes`; -1 where gold says nothing."""
    values = np.asarray(gold, dtype=object if _holds_none(gold) else None)
    known = has_gold(values, classes, n_rows, what)
    names = normalize_ids(values[known], what)
    codes = np.full(n_rows, -1, np.int64)
    codes[known] = positions_of(names, classes)
    outside = codes[known] < 0
    if outside.any():
        raise ValueError(
            f"{what} holds {format_names(np.unique(names[outside]))}, not among the classes ({format_names(classes)}); "
            "name all with classes= (--classes on the command line)"
        )
    return codes


def check_sample_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float32]:
    """How much each row counts, (N,): all alike where nothing is said."""
    if sample_weight is None:
        return np.ones(n_rows, np.float32)
    weight = np.asarray(sample_weight, np.float32)
    if weight.ndim == 0:
        weight = np.full(n_rows, weight, np.float32)
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n_rows,)}!")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight must be finite and not negative")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row: nothing to train on")
    return weight


def refuse_items(items: ArrayLike | None) -> None:
    """Gold in an array goes row by row; ids beside it would be looked at by nobody."""
    if items is not None:
        raise ValueError("items= goes with Annotations; gold goes row by row, one class a row of X")


def _holds_none(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and any(value is None for value in values)
