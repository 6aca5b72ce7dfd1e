"""MACE, against plain loops and planted spammers."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings

from crowdfuse import Annotations
from crowdfuse.aggregation import mace
from tests.aggregation.crowds import crowds, labels_of, planted


@pytest.mark.parametrize("smoothing", [0.01, 1.0])
@settings(deadline=None, max_examples=50)
@given(ann=crowds())
def test_mace_equals_plain_loops(smoothing: float, ann: Annotations) -> None:
    items = [labels for labels in labels_of(ann) if labels]
    seen = {r for labels in items for r, _ in labels}
    K = ann.n_classes
    competence = dict.fromkeys(seen, 0.5)
    spam = {r: [1 / K] * K for r in seen}
    log_likelihoods = []
    for _ in range(4):
        log_likelihood = smoothing * sum(
            log(competence[r]) + log(1 - competence[r]) + sum(map(log, spam[r])) for r in seen
        )
        copied = dict.fromkeys(seen, smoothing)
        total = dict.fromkeys(seen, 2 * smoothing)
        spammed = {r: [smoothing] * K for r in seen}
        soft = []
        for labels in items:
            joint = [1 / K] * K
            for r, said in labels:
                for k in range(K):
                    joint[k] *= competence[r] * (said == k) + (1 - competence[r]) * spam[r][said]
            log_likelihood += log(sum(joint))
            soft.append([value / sum(joint) for value in joint])
            for r, said in labels:
                total[r] += 1
                for k in range(K):  # P(label was copied | true class k)
                    copies = competence[r] * (said == k)
                    share = copies / (copies + (1 - competence[r]) * spam[r][said])
                    copied[r] += soft[-1][k] * share
                    spammed[r][said] += soft[-1][k] * (1 - share)
        log_likelihoods.append(log_likelihood)
        competence = {r: copied[r] / total[r] for r in seen}
        spam = {r: [value / sum(spammed[r]) for value in spammed[r]] for r in seen}
    result = mace(ann, max_iter=4, tol=0, smoothing=smoothing, n_restarts=1)
    np.testing.assert_allclose(result.class_probabilities[np.diff(ann.indptr) > 0], soft, atol=1e-5)
    np.testing.assert_allclose(result.log_likelihood, log_likelihoods, rtol=1e-6, atol=1e-6)
    for r in range(ann.n_annotators):
        np.testing.assert_allclose(result.parameters["competence"][r], competence.get(r, np.nan), rtol=1e-5)
        np.testing.assert_allclose(result.parameters["spam"][r], spam.get(r, [np.nan] * K), rtol=1e-5)


def test_planted_spammers_and_their_distribution_are_recovered() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 3000)
    competence, spam = np.array([0.9, 0.8, 0.7, 0.3, 0.0]), np.array([0.7, 0.2, 0.1])
    copies = generator.random((3000, 5)) < competence
    said = np.where(copies, truth[:, None], generator.choice(3, (3000, 5), p=spam))
    result = mace(Annotations.from_matrix(said))
    np.testing.assert_allclose(result.parameters["competence"], competence, atol=0.05)
    np.testing.assert_allclose(result.parameters["spam"][3:], [spam, spam], atol=0.05)


def test_the_restart_with_the_highest_likelihood_is_used() -> None:
    ann, _, _ = planted(n_items=30, accuracies=(0.6, 0.5, 0.5))
    one, ten = mace(ann, n_restarts=1), mace(ann, n_restarts=10)
    assert ten.log_likelihood[-1] >= one.log_likelihood[-1]
    with pytest.raises(ValueError, match="n_restarts must be a whole number of at least 1, got 0"):
        mace(ann, n_restarts=0)
