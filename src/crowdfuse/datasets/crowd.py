"""Data that real people labelled, ready for a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations


@dataclass(frozen=True)
class CrowdDataset:
    """A data set that annotators labelled: a training set with their labels, and a test set. Both have gold labels.

    Parameters
    ----------
    X : ndarray or ImageFiles of shape (n_items, ...)
        Training inputs: features, images, or image files that are read when needed.
    annotations : Annotations
        The annotators' labels of the training items. Item i of the annotations is row i of `X`.
    y : ndarray of shape (n_items,), int64
        Gold labels of the training items.
    X_test : ndarray or ImageFiles of shape (n_test_items, ...)
        Test inputs.
    y_test : ndarray of shape (n_test_items,), int64
        Gold labels of the test items.
    external_test : tuple of ndarray, default=None
        Inputs and gold labels of a second test set from another source.
    class_names : tuple of str, default=None
        The names of the classes 0, 1, 2, ...

    Examples
    --------
    >>> import numpy as np
    >>> ann = Annotations.from_matrix([[0, 1], [1, -1]])
    >>> CrowdDataset(np.eye(2), ann, np.array([0, 1]), np.eye(2), np.array([1, 2])).classes
    [0, 1, 2]
    """

    X: Any
    annotations: Annotations
    y: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    external_test: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def classes(self) -> list[int]:
        """All classes of the annotations and of the gold labels (training and test), sorted."""
        return sorted({*self.annotations.classes.tolist(), *self.y.tolist(), *self.y_test.tolist()})
