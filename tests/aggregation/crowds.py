"""Small crowds for the tests of aggregation."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdfuse import Annotations


@st.composite
def crowds(draw: st.DrawFn, max_items: int = 12) -> Annotations:
    """Any annotations: missing labels, items and annotators without labels, classes without labels."""
    K = draw(st.integers(2, 4))
    R = draw(st.integers(1, 5))
    N = draw(st.integers(1, max_items))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    said = generator.integers(0, K, (N, R))
    said[generator.random((N, R)) < draw(st.sampled_from([0.0, 0.3, 0.7]))] = -1
    said[0, 0] = 0  # at least one label
    return Annotations.from_matrix(said, classes=range(K))


def planted(
    n_items: int = 2000, accuracies: Any = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5), n_classes: int = 4, missing: float = 0.3
) -> tuple[Annotations, NDArray[np.int64], NDArray[np.float64]]:
    """Annotators with known accuracies: annotations, true classes, share of right labels per annotator."""
    generator = np.random.default_rng(7)
    truth = generator.integers(0, n_classes, n_items)
    R = len(accuracies)
    wrong = (truth[:, None] + generator.integers(1, n_classes, (n_items, R))) % n_classes
    right = generator.random((n_items, R)) < np.array(accuracies)
    said = np.where(right, truth[:, None], wrong)
    gone = generator.random((n_items, R)) < missing
    share = (right & ~gone).sum(0) / (~gone).sum(0)
    return Annotations.from_matrix(np.where(gone, -1, said), classes=range(n_classes)), truth, share


def labels_of(ann: Annotations) -> list[list[tuple[int, int]]]:
    """Labels of each item as (annotator, class), for the plain loops of the tests."""
    return [
        [(int(ann.annotator[at]), int(ann.label[at])) for at in range(ann.indptr[n], ann.indptr[n + 1])]
        for n in range(ann.n_items)
    ]
