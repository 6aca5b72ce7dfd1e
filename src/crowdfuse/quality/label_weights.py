"""The weights of labels, relative to an even share, and the mean weight of each annotator."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.annotations import Annotations

FloatArray = NDArray[np.float64]

WEIGHT_TOLERANCE = 1e-3  # largest distance from an even share at which a relative weight counts as even


def relative_weights(shares: ArrayLike, ann: Annotations) -> FloatArray | None:
    """Return the weight of each label relative to an even share, shape (n_labels,); None if all are 1.

    This is the weight that reports, review page and tables show. 1 means the same weight as if all labels of the item
    weighed the same; 2 means twice as much.

    Parameters
    ----------
    shares : array-like of shape (n_labels,)
        Weight of each label, as `annotator_weights` of a classifier returns it: the weights of an item sum to 1. NaN
        where unknown.
    ann : Annotations
        The labels.

    Returns
    -------
    ndarray of shape (n_labels,) or None
        NaN where unknown.

    Examples
    --------
    >>> relative_weights([0.25, 0.75], Annotations.from_matrix([["cat", "dog"]]))
    array([0.5, 1.5])
    """
    relative: FloatArray = np.asarray(shares, np.float64) * np.diff(ann.indptr)[ann.item]
    return relative if (np.abs(relative - 1) > WEIGHT_TOLERANCE).any() else None


def mean_relative_weights(shares: ArrayLike, ann: Annotations) -> FloatArray | None:
    """Return the mean weight of each annotator relative to an even share, NaN where unknown; None if all are even.

    The mean is over the annotator's labels on items with at least two labels: the only label of an item has all the
    weight, which says nothing about the annotator.

    Parameters
    ----------
    shares : array-like of shape (n_labels,)
        Weight of each label: the weights of an item sum to 1. NaN where unknown.
    ann : Annotations
        The labels.

    Returns
    -------
    ndarray of shape (n_annotators,) or None
        1 means the same weight as if all labels of an item weighed the same; 2 means twice as much.

    Examples
    --------
    >>> mean_relative_weights([0.25, 0.75, 1], Annotations.from_matrix([["cat", "dog"], ["cat", None]]))
    array([0.5, 1.5])
    """
    relative = relative_weights(shares, ann)
    if relative is None:
        return None
    known = ~np.isnan(relative) & (np.diff(ann.indptr)[ann.item] > 1)
    n_weighted = np.bincount(ann.annotator[known], minlength=ann.n_annotators)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.bincount(ann.annotator[known], relative[known], ann.n_annotators) / n_weighted
    return mean
