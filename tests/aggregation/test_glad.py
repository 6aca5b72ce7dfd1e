"""GLAD, against plain loops and planted parameters."""

from __future__ import annotations

from math import exp, log

import numpy as np
from hypothesis import given, settings
from scipy.optimize import approx_fprime

from crowdfuse import Annotations
from crowdfuse.aggregation import glad
from crowdfuse.aggregation.glad import expected_loss
from crowdfuse.aggregation.votes import Votes
from tests.aggregation.crowds import crowds, labels_of


@settings(deadline=None, max_examples=50)
@given(ann=crowds(max_items=6))
def test_log_likelihood_equals_plain_loops(ann: Annotations) -> None:
    """The log-likelihood of the final parameters equals that of the next E-step of a longer run."""
    before, after = glad(ann, max_iter=2, tol=0), glad(ann, max_iter=3, tol=0)
    K = ann.n_classes
    log_likelihood = 0.0
    for n, labels in enumerate(labels_of(ann)):
        if not labels:
            assert np.isnan(before.parameters["difficulty"][n])
            continue
        ease = 1 / before.parameters["difficulty"][n]
        log_likelihood -= (log(ease) - 1) ** 2 / 2
        joint = [1 / K] * K
        for r, said in labels:
            right = 1 / (1 + exp(-before.parameters["ability"][r] * ease))
            for k in range(K):
                joint[k] *= right if said == k else (1 - right) / (K - 1)
        log_likelihood += log(sum(joint))
        np.testing.assert_allclose(after.class_probabilities[n], np.array(joint) / sum(joint), atol=1e-5)
    log_likelihood -= np.nansum((before.parameters["ability"] - 1) ** 2) / 2
    np.testing.assert_allclose(after.log_likelihood[2], log_likelihood, rtol=1e-7)


def test_the_gradient_matches_finite_differences() -> None:
    generator = np.random.default_rng(0)
    votes = Votes(Annotations.from_matrix([[0, 1, -1], [1, 1, 0], [2, -1, 0]]))
    right = [generator.random(len(block.label)) for block in votes.blocks]
    point = generator.normal(size=6)
    expected = approx_fprime(point, lambda at: expected_loss(votes, right, at)[0], 1e-7)
    np.testing.assert_allclose(expected_loss(votes, right, point)[1], expected, atol=1e-5)


def test_planted_difficulties_and_abilities_are_recovered() -> None:
    generator = np.random.default_rng(1)
    truth, hard = generator.integers(0, 2, 600), generator.random(600) < 0.5
    ability = np.array([4.0, 3.0, 2.0, 2.0, 1.0, 0.5, -1.0])
    chance = 1 / (1 + np.exp(-ability * np.where(hard, 0.25, 2.0)[:, None]))
    said = np.where(generator.random(chance.shape) < chance, truth[:, None], 1 - truth[:, None])
    result = glad(Annotations.from_matrix(said))
    found = result.parameters["ability"]
    assert (np.argsort(-found)[[0, -3, -2, -1]] == [0, 4, 5, 6]).all()
    assert found[6] < 0
    difficulty = result.parameters["difficulty"]
    assert np.median(difficulty[hard]) > 1.5 * np.median(difficulty[~hard])
    assert (result.consensus == truth)[~hard].mean() > 0.95
