"""Figures of predictions on the test items of a comparison, and the baselines that every method should beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score, recall_score

from crowdfuse.aggregation import majority_vote
from crowdfuse.experiments.comparison_tables import (
    AGREEMENT,
    BALANCED_ACCURACY,
    GOLD_METRIC,
    HELD_OUT_METRIC,
    LOG_LOSS,
    MACRO_F1,
)
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray


def score_predictions(
    predicted: IntArray, gold: IntArray, probabilities: NDArray[np.floating[Any]] | None = None
) -> dict[str, float]:
    """Return accuracy, balanced accuracy, macro F1 and, from class probabilities, log loss.

    Balanced accuracy is the mean recall of the classes in `gold`; macro F1 is the mean F1 of the classes in `gold` or
    `predicted`.

    Parameters
    ----------
    predicted : ndarray of shape (n_items,)
        Predicted class numbers.
    gold : ndarray of shape (n_items,)
        True class numbers.
    probabilities : ndarray of shape (n_items, n_classes), default=None
        Class probabilities; None leaves out the log loss.

    Returns
    -------
    scores : dict of str to float

    Examples
    --------
    >>> score_predictions(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]))["balanced_accuracy"]
    0.5
    """
    scores = {
        GOLD_METRIC: float((predicted == gold).mean()),
        BALANCED_ACCURACY: float(recall_score(gold, predicted, labels=np.unique(gold), average="macro")),
        MACRO_F1: float(f1_score(gold, predicted, average="macro", zero_division=0)),
    }
    if probabilities is not None:
        likely = probabilities[np.arange(len(gold)), gold].astype(np.float64)
        scores[LOG_LOSS] = float(-np.log(np.maximum(likely, np.finfo(np.float64).eps)).mean())
    return scores


def class_frequencies(ann: Annotations) -> NDArray[np.float64]:
    """Return the share of each class among the labels, with one label added per class so that none is 0.

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
    """Return the figures of always predicting the most frequent class of the training labels.

    Its class probabilities are the frequencies of the classes in the training labels.

    Parameters
    ----------
    train, test : Annotations
        The labels of the training items and of the test items.
    gold : ndarray of shape (n_test_items,) or None
        True class numbers of the test items; None scores by their labels.

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
    """Return the figures of the majority vote on the labels of the test items that have labels.

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
        Empty if no test item has labels. There is no log loss, because vote shares of 0 would make it infinite.
    """
    rows = np.flatnonzero(np.diff(test.indptr) > 0)
    if not len(rows):
        return {}
    return score_predictions(majority_vote(test[rows], seed=seed).consensus_codes, gold[rows])
