"""Majority vote: every label has the same weight."""

from __future__ import annotations

from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import Votes
from crowdfuse.labels.annotations import Annotations


def majority_vote(ann: Annotations, *, seed: int = 0) -> Aggregate:
    """Take the class with the most labels as the consensus of each item.

    The probability of a class is its vote share: the fraction of the item's labels that name the class.

    Parameters
    ----------
    ann : Annotations
        The labels. There must be at least one label and two classes.
    seed : int, default=0
        Seed for breaking ties between equally likely classes.

    Returns
    -------
    Aggregate
        The result. Its class probabilities are the vote shares.

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels or fewer than two classes.

    See Also
    --------
    dawid_skene : Weights annotators by their confusion matrices.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> result = majority_vote(Annotations.from_matrix([["cat", "cat", "dog"], ["dog", None, "dog"]]))
    >>> result.consensus.tolist(), result.confidence.tolist()
    (['cat', 'dog'], [0.6666666865348816, 1.0])
    """
    votes = Votes(ann)
    soft = votes.empty()
    for block in votes.blocks:
        soft[block.rows] = block.vote_shares()
    return make_result("majority-vote", votes, soft, seed=seed)
