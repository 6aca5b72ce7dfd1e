"""The metrics by which methods are compared on test items, and the columns of the table that shows them.

A new metric that needs gold labels needs a key and a title in `COLUMNS`, and its value in `score_predictions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score, recall_score

from crowdfuse.labels.ids import IntArray

GOLD_METRIC, HELD_OUT_METRIC = "test_accuracy", "held_out_likelihood"
BALANCED_ACCURACY, MACRO_F1, LOG_LOSS, AGREEMENT = "balanced_accuracy", "macro_f1", "log_loss", "held_out_agreement"
COLUMNS = {
    GOLD_METRIC: {
        GOLD_METRIC: "accuracy (%)",
        BALANCED_ACCURACY: "balanced accuracy (%)",
        MACRO_F1: "macro F1 (%)",
        LOG_LOSS: "log loss",
    },
    HELD_OUT_METRIC: {HELD_OUT_METRIC: "held-out likelihood (%)", AGREEMENT: "held-out agreement (%)"},
}
"""Keys and titles of the columns, by the metric that ranks the methods."""
UNKNOWN = "—"


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


def format_score(name: str, score: float | None) -> str:
    """Return a score as text for a table: a log loss with three decimals, any other score in percent, None as "—"."""
    if score is None:
        return UNKNOWN
    return f"{score:.3f}" if name == LOG_LOSS else f"{100 * score:.2f}"
