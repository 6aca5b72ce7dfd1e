"""The baselines of a comparison, which every method should beat: predictions that need no training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation import majority_vote
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray
from crowdfuse.runs.comparison_scores import AGREEMENT, HELD_OUT_METRIC, score_predictions

MOST_FREQUENT, LABEL_VOTE = "always the most frequent class", "majority vote of the labels"


@dataclass(frozen=True)
class Baseline:
    """A baseline: a row in the table of a comparison that needs no training.

    Parameters
    ----------
    name : str
        Name of the baseline in the table, such as "majority vote of the labels".
    scores : dict of str to float
        Score for each metric, by the name of the metric, such as "test_accuracy". Metrics without a score are absent.
    """

    name: str
    scores: dict[str, float]


def class_frequencies(ann: Annotations) -> NDArray[np.float64]:
    """Return the share of each class among the labels. One label is added per class, so that no share is 0.

    Parameters
    ----------
    ann : Annotations
        The labels.

    Returns
    -------
    shares : ndarray of shape (n_classes,)

    Examples
    --------
    >>> class_frequencies(Annotations.from_matrix([[0, 0], [0, 1]])).tolist()
    [0.6666666666666666, 0.3333333333333333]
    """
    counts = np.bincount(ann.label, minlength=ann.n_classes) + 1.0
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def score_most_frequent_class(train: Annotations, test: Annotations, gold: IntArray | None) -> dict[str, float]:
    """Return the scores of always predicting the most frequent class of the training labels.

    The class probabilities of this prediction are the frequencies of the classes in the training labels.

    Parameters
    ----------
    train, test : Annotations
        The labels of the training items and of the test items.
    gold : ndarray of shape (n_test_items,) or None
        True class numbers of the test items. If None, predictions are scored by the labels of the test items.

    Returns
    -------
    scores : dict of str to float
    """
    shares = class_frequencies(train)
    top = int(shares.argmax())
    if gold is None:
        return {
            HELD_OUT_METRIC: float(np.exp(np.log(shares[test.label]).mean())),
            AGREEMENT: float((test.label == top).mean()),
        }
    return score_predictions(np.full(len(gold), top), gold, np.tile(shares, (len(gold), 1)))


def score_vote(test: Annotations, gold: IntArray, seed: int) -> dict[str, float]:
    """Return the scores of the majority vote, on the test items that have labels.

    Parameters
    ----------
    test : Annotations
        The labels of the test items.
    gold : ndarray of shape (n_test_items,)
        True class numbers of the test items.
    seed : int
        Seed for breaking ties.

    Returns
    -------
    scores : dict of str to float
        The dict is empty if no test item has labels. It has no log loss, because vote shares of 0 would make the log
        loss infinite.
    """
    rows = np.flatnonzero(np.diff(test.indptr) > 0)
    if not len(rows):
        return {}
    return score_predictions(majority_vote(test[rows], seed=seed).consensus_codes, gold[rows])
