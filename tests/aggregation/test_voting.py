"""Majority vote and Wawa, against loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given

from crowdfuse import Annotations
from crowdfuse.aggregation import majority_vote, wawa
from tests.aggregation.crowds import crowds, labels_of


@given(ann=crowds())
def test_majority_vote_equals_vote_shares(ann: Annotations) -> None:
    result = majority_vote(ann)
    np.testing.assert_allclose(result.class_probabilities, ann.vote_shares(), rtol=1e-6)
    for labels, best in zip(labels_of(ann), result.consensus_codes, strict=True):
        counts = Counter(label for _, label in labels)
        assert counts[best] == max(counts.values()) if labels else best == -1


@given(ann=crowds())
def test_wawa_weighs_by_agreement_with_the_majority(ann: Annotations) -> None:
    everything = labels_of(ann)
    agreed: list[list[float]] = [[] for _ in ann.annotators]
    for labels in everything:
        counts = Counter(label for _, label in labels)
        winners = [label for label, count in counts.items() if count == max(counts.values())]
        for annotator, label in labels:
            agreed[annotator].append((label in winners) / len(winners))
    weight = [sum(values) / len(values) if values else float("nan") for values in agreed]
    result = wawa(ann)
    np.testing.assert_allclose(result.parameters["weight"], weight)
    for labels, soft in zip(everything, result.class_probabilities, strict=True):
        total = sum(weight[annotator] for annotator, _ in labels)
        for k in range(ann.n_classes):
            expected = sum(weight[annotator] for annotator, label in labels if label == k)
            np.testing.assert_allclose(soft[k], expected / total if labels else np.nan, rtol=1e-5, atol=1e-7)


def test_ties_are_broken_by_the_seed() -> None:
    ann = Annotations.from_matrix(np.tile([0, 1, 2, 2, 1], (300, 1)), classes=range(4))
    result = majority_vote(ann, seed=3)
    counts = np.bincount(result.consensus_codes, minlength=4)
    assert counts[0] == counts[3] == 0
    assert (counts[1:3] > 100).all()
    assert (result.consensus_codes == majority_vote(ann, seed=3).consensus_codes).all()
    assert (result.consensus_codes != majority_vote(ann, seed=4).consensus_codes).any()
