"""Annotations together with gold, for scikit-learn's metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations


class AnnotationsWithGold(Annotations):
    """Labels and gold (true classes) of the same items: `fit` uses the labels, and scikit-learn's metrics the gold.

    Create it with `Annotations.with_gold`.

    Parameters
    ----------
    annotations : Annotations
        The labels, in the order of the rows of X.
    gold : ndarray of shape (n_items,)
        True class of each item, by name.

    Attributes
    ----------
    gold : ndarray of shape (n_items,)
        True class of each item.
    """

    def __init__(self, annotations: Annotations, gold: NDArray[Any]) -> None:
        super().__init__(
            indptr=annotations.indptr,
            annotator=annotations.annotator,
            label=annotations.label,
            items=annotations.items,
            annotators=annotations.annotators,
            classes=annotations.classes,
            by_row=True,
            notes=annotations.notes,
        )
        self.gold = gold

    def __getitem__(self, key: Any) -> AnnotationsWithGold:
        """Return the labels and gold of the given rows.

        Parameters
        ----------
        key : int, slice, list of int or boolean mask
            The rows, each at most once.

        Returns
        -------
        AnnotationsWithGold
        """
        rows = key[0] if isinstance(key, tuple) else key
        return AnnotationsWithGold(super().__getitem__(key), np.atleast_1d(self.gold[rows]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the gold, for scikit-learn's metrics and splitters."""
        return self.gold if dtype is None else self.gold.astype(dtype)
