from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from crowdfuse import Annotations
from crowdfuse.synthesis import SyntheticCrowd, hammer_spammer_annotators


def test_confusion_matrices_count_labels_per_true_class() -> None:
    y = np.array(["x", "y", "z"])[np.random.default_rng(0).integers(0, 3, 400)]
    made = hammer_spammer_annotators(y, n_annotators=3, p=0.5, missing=0.4, seed=2)
    said = made.annotations.to_matrix()
    for r in range(3):
        given = said[:, r] != None  # noqa: E711 (elementwise)
        expected = confusion_matrix(y[given], said[given, r].astype(str), labels=["x", "y", "z"], normalize="true")
        np.testing.assert_allclose(made.confusion_matrices[r], expected)


def test_an_annotator_without_labels_has_nan_and_causes_no_warning() -> None:
    ann = Annotations.from_matrix([[0, -1], [1, -1]])
    made = SyntheticCrowd(ann, is_correct=np.ones((2, 2), bool), truth=np.array([0, 1]))
    np.testing.assert_array_equal(made.accuracy, [1, np.nan])
    np.testing.assert_array_equal(made.confusion_matrices, [np.eye(2), np.full((2, 2), np.nan)])


@pytest.mark.parametrize("missing", [0, 0.6])
def test_all_wrong_share_counts_items_with_only_wrong_labels(missing: float) -> None:
    made = hammer_spammer_annotators(np.arange(300) % 5, n_annotators=3, p=0.4, missing=missing, seed=2)
    said = made.annotations.to_matrix()
    count = sum(all(label != n % 5 for label in row if label != -1) for n, row in enumerate(said))
    assert 0 < count < 300
    assert made.all_wrong_share == count / 300


def test_all_wrong_share_ignores_items_without_labels() -> None:
    ann = Annotations.from_matrix([[0, -1], [-1, -1], [1, 0]], classes=[0, 1])
    right = np.array([[False, True], [True, True], [False, True]])  # who gave no label helps nobody
    assert SyntheticCrowd(ann, is_correct=right, truth=np.array([1, 0, 0])).all_wrong_share == 0.5
    nothing = Annotations.from_matrix([[-1], [-1]], classes=[0, 1])
    assert np.isnan(SyntheticCrowd(nothing, is_correct=np.ones((2, 1), bool), truth=np.array([0, 1])).all_wrong_share)
