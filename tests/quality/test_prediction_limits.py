"""What a run says against the predictions of its classifier."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import Annotations, consensus
from crowdfuse.quality import prediction_limitations

N_ITEMS = 300


@pytest.fixture
def gold() -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, 2, N_ITEMS)


@pytest.fixture
def ann(gold: NDArray[np.int64]) -> Annotations:
    generator = np.random.default_rng(1)
    is_right = generator.random((N_ITEMS, 4)) < 0.9
    return Annotations.from_matrix(np.where(is_right, gold[:, None], 1 - gold[:, None]))


def predictions(gold: NDArray[np.int64], share_right: float, confidence: float) -> NDArray[np.float64]:
    """Class probabilities of a classifier that is right on this share of the items, with one confidence for all."""
    is_right = np.random.default_rng(2).permutation(np.arange(len(gold)) < share_right * len(gold))
    said = np.where(is_right, gold, 1 - gold)
    return np.where(said[:, None] == np.arange(2), confidence, 1 - confidence)


def test_a_classifier_at_chance_is_named_with_its_estimated_accuracy(ann: Annotations, gold: NDArray[np.int64]) -> None:
    result = consensus(ann, predictions(gold, 0.5, 0.99), n_folds=5)
    assert result.parameters["sharpness"] == 0
    (line,) = prediction_limitations(result)
    assert line.startswith("Do not rely on the predictions of this classifier")
    assert "right on an estimated 50 %, with a mean confidence of 99 %" in line


def test_too_high_confidence_is_named_and_an_honest_one_is_not(ann: Annotations, gold: NDArray[np.int64]) -> None:
    (line,) = prediction_limitations(consensus(ann, predictions(gold, 0.8, 0.99), n_folds=5))
    assert "too high" in line
    assert "99 %" in line
    assert prediction_limitations(consensus(ann, predictions(gold, 0.8, 0.8), n_folds=5)) == ()
    assert prediction_limitations(consensus(ann, predictions(gold, 0.8, 0.6), n_folds=5)) == ()


def test_without_folds_nothing_is_known_about_the_predictions(ann: Annotations, gold: NDArray[np.int64]) -> None:
    (line,) = prediction_limitations(consensus(ann, predictions(gold, 0.8, 0.8), n_folds=0))
    assert "unknown" in line
    assert prediction_limitations(consensus(ann)) == ()
