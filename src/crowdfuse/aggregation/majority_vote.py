"""Majority vote: every label counts the same."""

from __future__ import annotations

from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import Votes
from crowdfuse.labels.annotations import Annotations


def majority_vote(ann: Annotations, *, seed: int = 0) -> Aggregate:
    """The share of an item's labels that each class got.

    Where classes share the most labels, the soft label says so, and `labels` has one of them, drawn from `seed`.

    >>> ann = Annotations.from_matrix([["cat", "cat", "dog"], ["dog", None, "dog"]])
    >>> result = majority_vote(ann)
    >>> result.labels.tolist(), result.confidence.round(2).tolist()
    (['cat', 'dog'], [0.6700000166893005, 1.0])
    """
    votes = Votes(ann)
    soft = votes.empty()
    for block in votes.blocks:
        soft[block.rows] = block.shares()
    return make_result("majority-vote", votes, soft, seed=seed)
