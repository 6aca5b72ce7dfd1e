"""Data where the answer is known: perfect annotators, planted confusions, a spammer among good annotators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import (
    FusionClassifier,
    MBEMClassifier,
    SingleAnnotatorClassifier,
    TraceRegClassifier,
    TrueLabelClassifier,
    WDNClassifier,
)
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from tests.estimators.estimator_list import ALL

K = 4
FAST: dict[str, Any] = {"batch_size": 256, "learning_rate": 0.01}


def blobs(n_items: int, spread: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return items around the corners of a square, one corner per class, and their classes."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, K, n_items)
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    return corners[truth] + spread * generator.normal(size=(n_items, 2)), truth


def ask(truth: NDArray[Any], confusions: NDArray[Any], missing: float, seed: int) -> NDArray[Any]:
    """Return labels drawn from confusion matrices (R, K, K), axes (true, label); -1 where a label is missing."""
    generator = np.random.default_rng(seed)
    below = confusions.cumsum(2)[:, truth].transpose(1, 0, 2)  # (N, R, K)
    said = (generator.random(below.shape[:2])[:, :, None] > below[:, :, :-1]).sum(2)
    return np.where(generator.random(said.shape) < missing, -1, said)


def one_coin(*right: float) -> NDArray[Any]:
    """Return confusion matrices with these accuracies and uniform mistakes."""
    p = np.array(right)[:, None, None]
    return np.where(np.eye(K, dtype=bool), p, (1 - p) / (K - 1))


@pytest.mark.parametrize("kind", ALL)
def test_perfect_annotators_give_true_label_accuracy(kind: type[CrowdClassifier]) -> None:
    X, truth = blobs(3000, 0.5, seed=0)
    X_test, truth_test = blobs(5000, 0.5, seed=1)
    upper = TrueLabelClassifier(**FAST, epochs=10).fit(X, truth).score(X_test, truth_test)
    settings = FAST | ({"annotator": 1} if kind is SingleAnnotatorClassifier else {})
    if kind is TrueLabelClassifier:
        assert upper > 0.94  # the Bayes classifier has 95.5 %
        return
    Y = ask(truth, one_coin(1, 1, 1), missing=0.3, seed=2)
    clf = kind(**settings, epochs=10).fit(X, Y)
    assert abs(clf.score(X_test, truth_test) - upper) < 0.01


PLANTED = np.array(
    [
        [[0.7, 0.2, 0.1, 0.0], [0.1, 0.8, 0.0, 0.1], [0.0, 0.3, 0.6, 0.1], [0.1, 0.1, 0.1, 0.7]],
        [[0.9, 0.0, 0.0, 0.1], [0.4, 0.5, 0.1, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.4, 0.0, 0.6]],
        [[0.6, 0.1, 0.1, 0.2], [0.0, 0.7, 0.3, 0.0], [0.1, 0.2, 0.7, 0.0], [0.3, 0.0, 0.0, 0.7]],
        [[0.6, 0.4, 0.0, 0.0], [0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.6, 0.4], [0.4, 0.0, 0.0, 0.6]],
    ]
)


@pytest.mark.parametrize("kind", [TraceRegClassifier, MBEMClassifier])
def test_planted_confusions_are_recovered(kind: type[GlobalConfusionsClassifier]) -> None:
    X, truth = blobs(20_000, 0.25, seed=0)
    Y = ask(truth, PLANTED, missing=0.4, seed=1)
    clf = kind(**FAST, epochs=10).fit(X, Y)
    assert clf.score(X, truth) > 0.999
    assert clf.confusion_given_ == "true"
    assert np.abs(clf.confusion_matrices_ - PLANTED).max() < 0.05
    np.testing.assert_allclose(clf.confusion_matrices_.sum(2), 1, atol=1e-5)
    np.testing.assert_array_equal(clf.confusion_matrices(X[:2])[1], clf.confusion_matrices_)


AT_RANDOM = one_coin(1 / K)
ALWAYS_THE_SAME = np.eye(K)[np.full((1, K), 2)]


def test_fusion_trusts_a_spammer_with_a_constant_label() -> None:
    """Known weakness of the method: trusting the annotator who is easiest to predict gives the lowest loss.

    The estimator's documentation mentions it. If this test fails, the weakness is fixed: update the documentation.
    """
    X, truth = blobs(5000, 0.5, seed=0)
    good = ask(truth, one_coin(0.85, 0.8, 0.75), missing=0.2, seed=2)
    with_spammer = np.column_stack([good, ask(truth, ALWAYS_THE_SAME, missing=0.2, seed=3)])
    without = FusionClassifier(**FAST, epochs=10).fit(X, good)
    clf = FusionClassifier(**FAST, epochs=10).fit(X, with_spammer)
    assert clf.score(X, truth) < without.score(X, truth) - 0.1
    assert clf.annotator_weights(X).mean(0).argmax() == 3


@pytest.mark.parametrize(
    ("kind", "spammer"),
    [
        (FusionClassifier, AT_RANDOM),
        (MBEMClassifier, AT_RANDOM),
        (MBEMClassifier, ALWAYS_THE_SAME),
        (TraceRegClassifier, AT_RANDOM),
        (TraceRegClassifier, ALWAYS_THE_SAME),
    ],
)
def test_a_spammer_is_recognized_and_costs_nothing(kind: type[CrowdClassifier], spammer: NDArray[Any]) -> None:
    X, truth = blobs(5000, 0.5, seed=0)
    X_test, truth_test = blobs(5000, 0.5, seed=1)
    good = ask(truth, one_coin(0.85, 0.8, 0.75), missing=0.2, seed=2)
    with_spammer = np.column_stack([good, ask(truth, spammer, missing=0.2, seed=3)])
    without = kind(**FAST, epochs=10).fit(X, good).score(X_test, truth_test)
    clf = kind(**FAST, epochs=10).fit(X, with_spammer)
    assert clf.score(X_test, truth_test) > without - 0.01
    assert clf.consensus(X, with_spammer, folds=0).annotator_accuracy.argmin() == 3
    if isinstance(clf, GlobalConfusionsClassifier):
        assert clf.confusion_matrices_.diagonal(axis1=1, axis2=2).mean(1).argmin() == 3
    else:
        assert clf.annotator_weights(X_test).mean(0).argmin() == 3


def test_wdn_weights_reflect_the_vote_and_not_accuracy() -> None:
    X, truth = blobs(10_000, 0.25, seed=0)
    Y = ask(truth, one_coin(0.9, 0.9, 0.9, 0.5), missing=0.6, seed=1)
    Y[:, 3] = ask(truth, one_coin(0.5), missing=0.0, seed=2)[:, 0]  # the worst annotator labels every item
    clf = WDNClassifier(**FAST, epochs=10).fit(X, Y)
    assert clf.score(X, truth) > 0.99
    part = ((Y >= 0) / (Y >= 0).sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(clf.weights_, part, atol=0.05)
    assert clf.weights_.argmax() == 3
    np.testing.assert_allclose(clf.annotator_weights(X[:2]), np.tile(clf.weights_, (2, 1)), atol=1e-6)
    assert clf.consensus(X, Y, folds=0).annotator_accuracy.argmin() == 3
