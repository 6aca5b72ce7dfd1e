"""One coin, against plain loops."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings

from crowdfuse import Annotations
from crowdfuse.aggregation import one_coin
from crowdfuse.aggregation.one_coin import MIN_PROBABILITY
from tests.aggregation.crowds import crowds, labels_of, planted


@pytest.mark.parametrize("smoothing", [0.0, 0.01, 1.0])
@settings(deadline=None, max_examples=50)
@given(ann=crowds())
def test_one_coin_equals_plain_loops(smoothing: float, ann: Annotations) -> None:
    items = [labels for labels in labels_of(ann) if labels]
    R, K = ann.n_annotators, ann.n_classes
    soft = [[sum(said == k for _, said in labels) / len(labels) for k in range(K)] for labels in items]
    log_likelihoods = []
    for _ in range(4):
        prior = [sum(row[k] for row in soft) / len(items) for k in range(K)]
        right, given_labels = [smoothing] * R, [2 * smoothing] * R
        for labels, row in zip(items, soft, strict=True):
            for annotator, said in labels:
                right[annotator] += row[said]
                given_labels[annotator] += 1
        accuracy = {
            r: min(max(right[r] / given_labels[r], MIN_PROBABILITY), 1 - MIN_PROBABILITY)
            for r in {r for labels in items for r, _ in labels}
        }
        log_likelihood = smoothing * sum(log(a) + log(1 - a) for a in accuracy.values())
        for n, labels in enumerate(items):
            joint = list(prior)
            for r, said in labels:
                for k in range(K):
                    joint[k] *= accuracy[r] if said == k else (1 - accuracy[r]) / (K - 1)
            log_likelihood += log(sum(joint))
            soft[n] = [value / sum(joint) for value in joint]
        log_likelihoods.append(log_likelihood)
    result = one_coin(ann, max_iter=4, tol=0, smoothing=smoothing)
    np.testing.assert_allclose(result.class_probabilities[np.diff(ann.indptr) > 0], soft, atol=1e-5)
    np.testing.assert_allclose(result.log_likelihood, log_likelihoods, rtol=1e-6, atol=1e-6)


def test_without_smoothing_the_parameter_equals_the_annotator_accuracy() -> None:
    result = one_coin(planted()[0], smoothing=0)
    np.testing.assert_allclose(result.parameters["accuracy"], result.annotator_accuracy, atol=1e-6)
