"""Worker agreement with aggregate (Wawa): a vote weighted by each annotator's agreement with the majority."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import Votes
from crowdfuse.labels.annotations import Annotations


def wawa(ann: Annotations, *, seed: int = 0) -> Aggregate:
    """Take a majority vote, then a second vote in which annotators who agree with the majority have more weight.

    The weight of an annotator is the share of the annotator's labels that agree with the majority. If m classes of an
    item tie for the most labels, a label that names one of these classes counts as 1/m of an agreement. The name Wawa
    stands for worker agreement with aggregate.

    Parameters
    ----------
    ann : Annotations
        The labels. There must be at least one label and two classes.
    seed : int, default=0
        Seed for breaking ties between equally likely classes.

    Returns
    -------
    Aggregate
        The result. Its class probabilities are the shares of the weighted vote. `parameters["weight"]` has shape
        (n_annotators,).

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels or fewer than two classes.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> result = wawa(Annotations.from_matrix([[0, 0, 1], [1, 1, 0], [0, -1, 1]]))
    >>> result.parameters["weight"].round(2).tolist(), result.consensus.tolist()
    ([0.83, 1.0, 0.17], [0, 1, 0])
    """
    votes = Votes(ann)
    n_agreed = np.zeros(votes.n_annotators)
    for block in votes.blocks:
        counts = block.vote_counts()
        is_winner = counts == counts.max(1, keepdims=True)
        n_agreed += block.sum_by_annotator(block.label_confidence(is_winner / is_winner.sum(1, keepdims=True)))
    with np.errstate(invalid="ignore"):
        weight = n_agreed / votes.labels_per_annotator()
    soft = votes.empty()
    for block in votes.blocks:
        soft[block.rows] = block.vote_shares(weight[block.annotator])
    return make_result("wawa", votes, soft, seed=seed, parameters={"weight": weight})
