"""The two annotators of the paper's toy example."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations


def two_moon_annotators(X: NDArray[np.float64]) -> Annotations:
    """The paper's two: one sees only whether x >= 0, the other only whether y <= 0.

    >>> two_moon_annotators(np.array([[1.0, 1.0], [-1.0, -1.0]])).to_matrix().tolist()
    [[1, 0], [0, 1]]
    """
    labels = np.stack([X[:, 0] >= 0, X[:, 1] <= 0], axis=1).astype(np.int64)
    return Annotations.from_matrix(labels, annotators=["annotator-1", "annotator-2"])
