"""Annotators who are wrong together: the formula against plain loops, and planted shares of such items."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdfuse import Annotations, consensus
from crowdfuse.aggregation.same_mistakes import log_probability_of_same_mistakes
from crowdfuse.aggregation.votes import Votes


def make_wrong_labels(K: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return a random distribution of wrong labels, axes (label, true class)."""
    wrong = generator.random((K, K)) * (1 - np.eye(K))
    normalized: NDArray[np.float64] = wrong / wrong.sum(0)
    return normalized


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 5))
def test_the_probability_is_the_sum_over_the_shared_wrong_label(seed: int, K: int, R: int) -> None:
    generator = np.random.default_rng(seed)
    said = generator.integers(0, K, (6, R))
    said[generator.random(said.shape) < 0.3] = -1
    said[:, 0] = generator.integers(0, K, 6)
    ann = Annotations.from_matrix(said, classes=range(K))
    (block,) = Votes(ann).blocks
    right, wrong = generator.uniform(0.05, 0.95, (ann.n_labels, K)), make_wrong_labels(K, generator)
    expected = np.zeros((6, K))
    for n, k, mistake in product(range(6), range(K), range(K)):
        p = wrong[mistake, k]
        for at in range(ann.indptr[n], ann.indptr[n + 1]):
            y = ann.label[at]
            p *= right[at, k] if y == k else (1 - right[at, k]) * (y == mistake)
        expected[n, k] += p
    found = np.exp(log_probability_of_same_mistakes(block, right, wrong))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_probabilities_of_all_combinations_of_labels_sum_to_1() -> None:
    generator = np.random.default_rng(0)
    said = np.array(list(product(range(3), repeat=3)))
    ann = Annotations.from_matrix(said, classes=range(3))
    (block,) = Votes(ann).blocks
    right = np.tile(generator.uniform(0.3, 0.9, (3, 3)), (len(said), 1))
    log_probability = log_probability_of_same_mistakes(block, right, make_wrong_labels(3, generator))
    np.testing.assert_allclose(np.exp(log_probability).sum(0), 1)


def make_crowd(
    share: float, *, N: int = 2_000, K: int = 6
) -> tuple[NDArray[np.int64], Annotations, NDArray[np.float64]]:
    """Return gold, four annotators who on a share of the items are wrong together, and a classifier."""
    generator = np.random.default_rng(1)
    gold = generator.integers(0, K, N)
    own = (gold[:, None] + generator.integers(1, K, (N, 4))) % K
    mistake = np.where(generator.random(N)[:, None] < share, own[:, :1], own)
    said = np.where(generator.random((N, 4)) < [0.8, 0.6, 0.5, 0.5], gold[:, None], mistake)
    scores = generator.normal(size=(N, K)) + 2.5 * np.eye(K)[gold]
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return gold, Annotations.from_matrix(said, classes=range(K)), probs


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_planted_share_is_recovered(share: float) -> None:
    _, ann, probs = make_crowd(share)
    assert abs(float(consensus(ann, probs).parameters["same_mistake_share"]) - share) < 0.05


def test_two_equal_wrong_labels_do_not_outvote_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    gold, ann, probs = make_crowd(1.0)

    def accuracy_and_overconfidence() -> tuple[float, float]:
        found = consensus(ann, probs)
        is_right = found.consensus_codes == gold
        return float(is_right.mean()), float(found.confidence.mean() - is_right.mean())

    accuracy, overconfidence = accuracy_and_overconfidence()
    monkeypatch.setattr("crowdfuse.aggregation.posterior.SAME_MISTAKE_PRIOR", (0.0, 1.0))
    independent_accuracy, independent_overconfidence = accuracy_and_overconfidence()
    assert accuracy > independent_accuracy + 0.02
    assert abs(overconfidence) < 0.02 < independent_overconfidence


@pytest.mark.parametrize("K", [2, 6])
def test_without_a_classifier_or_with_two_classes_annotators_are_independent(K: int) -> None:
    _, ann, probs = make_crowd(1.0, K=K)
    used = probs if K == 2 else np.full_like(probs, 1 / K)
    assert float(consensus(ann, used).parameters["same_mistake_share"]) == 0
