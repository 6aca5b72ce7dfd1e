"""The two annotators of the two-moons example of Gao et al. (2022)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations


def two_moon_annotators(X: NDArray[np.float64]) -> Annotations:
    """Label points (x, y) like the two annotators of the two-moons example of Gao et al. (2022).

    The first annotator gives label 1 if x >= 0, otherwise label 0. The second annotator gives label 1 if y <= 0,
    otherwise label 0.

    Parameters
    ----------
    X : ndarray of float64, shape (n_items, 2)
        Points of the two-moons data set.

    Returns
    -------
    Annotations
        The labels of two annotators, with classes 0 and 1.

    Examples
    --------
    >>> two_moon_annotators(np.array([[1.0, 1.0], [-1.0, -1.0]])).to_matrix().tolist()
    [[1, 0], [0, 1]]
    """
    labels = np.stack([X[:, 0] >= 0, X[:, 1] <= 0], axis=1).astype(np.int64)
    return Annotations.from_matrix(labels, annotators=["annotator-1", "annotator-2"])
