"""Euclidean distances of inputs to points and to class means, computed in blocks to save memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.ids import IntArray

VALUES_PER_BLOCK = 1 << 18  # number of values of X that are processed at a time; 2 MB of float64 fit the cache


def as_rows(X: ArrayLike, n_items: int, name: str = "X") -> NDArray[Any]:
    """Reshape inputs of any shape (n_items, ...) to one flat row per item.

    Parameters
    ----------
    X : array-like of shape (n_items, ...)
        Numeric inputs.
    n_items : int
        Expected number of items.
    name : str, default="X"
        Name of the argument, for error messages.

    Returns
    -------
    ndarray of shape (n_items, n_features)

    Raises
    ------
    ValueError
        If the inputs are not numeric, or if they do not have `n_items` rows.

    Examples
    --------
    >>> as_rows(np.zeros((3, 2, 2)), 3).shape
    (3, 4)
    """
    inputs = np.asarray(X)
    if inputs.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers, got dtype {inputs.dtype}; convert it to numbers first")
    if not inputs.ndim or len(inputs) != n_items:
        raise ValueError(
            f"{name} and y must have one row per item, got {name} of shape {inputs.shape} and {n_items:,} true classes "
            "in y"
        )
    return inputs.reshape(n_items, -1)


def blocks(inputs: NDArray[Any]) -> Iterator[slice]:
    """Return slices of rows, each of at most `VALUES_PER_BLOCK` values."""
    size = max(1, VALUES_PER_BLOCK // max(1, inputs.shape[1]))
    return (slice(start, start + size) for start in range(0, len(inputs), size))


def distances_to(inputs: NDArray[Any], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Euclidean distance of every row (N, D) to every point (P, D), as an array (N, P).

    Examples
    --------
    >>> distances_to(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])).tolist()
    [[0.0], [5.0]]
    """
    distance = np.empty((len(inputs), len(points)))
    for block in blocks(inputs):
        values = inputs[block].astype(np.float64)
        for p, point in enumerate(points):
            distance[block, p] = np.linalg.norm(values - point, axis=1)
    return distance


def class_means(inputs: NDArray[Any], truth: IntArray, n_classes: int, name: str = "X") -> NDArray[np.float64]:
    """Return the mean row of each class, (K, D). Raise an error that names the first row with NaN or infinity, if any.

    Examples
    --------
    >>> class_means(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]), 2).tolist()
    [[1.0], [5.0]]
    """
    means = np.stack([inputs[truth == k].mean(0, dtype=np.float64) for k in range(n_classes)])
    if not np.isfinite(means).all():
        row = next(row for row, values in enumerate(inputs) if not np.isfinite(values).all())
        raise ValueError(
            f"{name}, row {row} has NaN or infinity, but class means require finite values; replace the value, or "
            "leave out the row"
        )
    return means


def nearest_classes(inputs: NDArray[Any], truth: IntArray, n_classes: int, name: str = "X") -> IntArray:
    """Return for each class the other class with the nearest mean, (K,).

    Examples
    --------
    >>> nearest_classes(np.array([[0.0], [1.0], [5.0]]), np.array([0, 1, 2]), 3).tolist()
    [1, 0, 1]
    """
    means = class_means(inputs, truth, n_classes, name)
    apart = distances_to(means, means)
    np.fill_diagonal(apart, np.inf)
    nearest: IntArray = apart.argmin(1)
    return nearest
