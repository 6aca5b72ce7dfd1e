"""Worker agreement with aggregate: a vote, weighted by how often each annotator agrees with the majority."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import Votes
from crowdfuse.labels.annotations import Annotations


def wawa(ann: Annotations, *, seed: int = 0) -> Aggregate:
    """Two rounds of voting: in the second a label counts as much as its annotator agreed with the first.

    The weight of an annotator is the share of his labels that are the majority's choice; where m classes share the
    most labels, choosing one of them counts 1/m. `parameters["weight"]` (R,) holds it.

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 0], [0, -1, 1]])
    >>> result = wawa(ann)
    >>> result.parameters["weight"].round(2).tolist(), result.labels.tolist()
    ([0.83, 1.0, 0.17], [0, 1, 0])
    """
    votes = Votes(ann)
    agreed = np.zeros(votes.n_annotators)
    for block in votes.blocks:
        tally = block.tally()
        winners = tally == tally.max(1, keepdims=True)
        agreed += block.by_annotator(block.label_confidence(winners / winners.sum(1, keepdims=True)))
    with np.errstate(invalid="ignore"):
        weight = agreed / votes.labels_per_annotator()
    soft = votes.empty()
    for block in votes.blocks:
        soft[block.rows] = block.shares(weight[block.annotator])
    return make_result("wawa", votes, soft, seed=seed, parameters={"weight": weight})
