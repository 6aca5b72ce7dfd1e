from __future__ import annotations

import numpy as np
from sklearn.metrics import confusion_matrix

from crowdfuse import Annotations
from crowdfuse.synthesis import MadeUp, hammer_spammer_annotators


def test_confusion_matrices_count_what_was_said_given_the_truth() -> None:
    y = np.array(["x", "y", "z"])[np.random.default_rng(0).integers(0, 3, 400)]
    made = hammer_spammer_annotators(y, n_annotators=3, p=0.5, missing=0.4, seed=2)
    said = made.annotations.to_matrix()
    for r in range(3):
        given = said[:, r] != None  # noqa: E711 (elementwise)
        expected = confusion_matrix(y[given], said[given, r].astype(str), labels=["x", "y", "z"], normalize="true")
        np.testing.assert_allclose(made.confusion_matrices[r], expected)


def test_an_annotator_without_labels_has_no_numbers_and_makes_no_noise() -> None:
    ann = Annotations.from_matrix([[0, -1], [1, -1]])
    made = MadeUp(ann, right=np.ones((2, 2), bool), truth=np.array([0, 1]))
    np.testing.assert_array_equal(made.accuracy, [1, np.nan])
    np.testing.assert_array_equal(made.confusion_matrices, [np.eye(2), np.full((2, 2), np.nan)])
