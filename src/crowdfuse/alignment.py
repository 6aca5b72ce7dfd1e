"""How rows of X meet items, and how names become class positions. A silent misalignment must be impossible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.annotations import Annotations
from crowdfuse.ids import few, find, tidy


def labels_as_given(y: Any) -> Annotations | NDArray[Any]:
    """Annotations as they are, anything else as an array."""
    return y if isinstance(y, Annotations) else np.asarray(y, dtype=object if _holds_none(y) else None)


def annotations_of(y: Any) -> Annotations:
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

    With `items`, the ids of X's rows, labels meet rows by id. Without, an array or row-ordered annotations
    go row by row, and others only if their ids are row numbers.
    """
    ann = annotations_of(y)
    if items is not None:
        ids = np.asarray(items)
        if len(ids) != n_rows:
            raise ValueError(f"items names {len(ids):,} rows, but X has {n_rows:,}")
        return ann.align(ids)
    if ann.by_row:
        if len(ann) != n_rows:
            raise ValueError(
                f"X has {n_rows:,} rows, but y has {len(ann):,}. Inconsistent numbers of samples: "
                "pass items=, the ids of X's rows, to match labels to rows by id"
            )
        return ann
    if ann.items.dtype.kind == "i" and len(ann.items) and ann.items.min() >= 0 and ann.items.max() < n_rows:
        return ann.align(np.arange(n_rows))
    raise ValueError(
        f"the labels know items by ids such as {few(ann.items, 3)}, which are not the row numbers 0 to {n_rows - 1} "
        "of X. Pass items=, the ids of X's rows in order: fit(X, annotations, items=ids)"
    )


def gold_codes(gold: Any, classes: NDArray[Any], n_rows: int, what: str = "gold") -> NDArray[np.int64]:
    """True classes by name, one a row, as positions in `classes`; -1 where None or NaN (or -1, if no class)."""
    values = np.asarray(gold, dtype=object if _holds_none(gold) else None)
    if values.shape != (n_rows,):
        raise ValueError(f"{what} must have one class a row of X ({n_rows:,}), got shape {values.shape}")
    known = (
        np.array([not (v is None or v != v) for v in values]) if values.dtype.kind in "Of" else np.ones(n_rows, bool)
    )
    codes = np.full(n_rows, -1, np.int64)
    names = tidy(values[known], what)
    codes[known] = find(names, classes)
    sentinel = classes.dtype.kind == "i" and -1 not in classes and names.dtype.kind == "i"
    outside = (codes[known] < 0) & ~((names == -1) if sentinel else np.zeros(len(names), bool))
    if outside.any():
        raise ValueError(
            f"{what} holds {few(np.unique(names[outside]))}, not among the classes ({few(classes)}); "
            "name all with classes= (--classes on the command line)"
        )
    return codes


def _holds_none(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and any(value is None for value in values)
