"""Accuracy of consensus and predictions on gold, calibration, accuracy with abstention, and a decision threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import proportion_with_interval, wilson_interval
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import Answers, ReportData

ABSTENTION_SHARES = np.arange(0, 0.91, 0.05)
MIN_ITEMS_PER_BIN = 5  # a bin of the calibration curve is shown if it holds at least this many items
MIN_GOLD_ITEMS = 20  # abstention and calibration are shown if at least this many items have gold
N_BINS = 10  # of the calibration curve
MAX_ROC_POINTS = 100


@dataclass(frozen=True)
class GoldSet:
    """Items whose true class is known, and how training used them.

    Attributes
    ----------
    name : str
        Name shown in the report.
    rows : ndarray of shape (n_gold,)
        Row of each item.
    codes : ndarray of shape (n_gold,)
        True class of each item, as a position in `classes`.
    training_use : str
        How training used these items, as part of a sentence.
    is_unbiased : bool
        Whether the true classes were used neither for training nor for choosing the epoch or settings.
    """

    name: str
    rows: IntArray
    codes: IntArray
    training_use: str
    is_unbiased: bool


def accuracy_facts(data: ReportData, gold_sets: Sequence[GoldSet]) -> list[dict[str, Any]]:
    """Return the accuracy of predictions and consensus on each gold set."""
    facts = []
    for gold in gold_sets:
        accuracies = {}
        for name, codes in (
            ("predicted", data.predictions.codes),
            ("consensus", data.consensus.consensus_codes),
        ):
            known = codes[gold.rows] >= 0
            if name == "consensus":
                # without labels, the consensus is the prediction; with training gold, it is always right
                known &= (data.labels_per_item[gold.rows] > 0) & ~data.has_training_gold[gold.rows]
            accuracies[name] = proportion_with_interval(
                int((codes[gold.rows] == gold.codes)[known].sum()), int(known.sum())
            )
        facts.append(
            {
                "gold": gold.name,
                "n_items": len(gold.rows),
                "training_use": gold.training_use,
                "is_unbiased": gold.is_unbiased,
                **accuracies,
            }
        )
    return facts


def evaluation_rows(answers: Answers, gold_sets: Sequence[GoldSet]) -> tuple[IntArray, IntArray, str]:
    """Choose the items for evaluating answers: the unbiased gold sets if there are any, otherwise all gold sets.

    Returns
    -------
    rows : ndarray of shape (n_rows,)
        Rows with an answer and a known true class.
    codes : ndarray of shape (n_rows,)
        True class of each chosen row.
    evaluated_on : str
        Names of the chosen gold sets, and how training used them. Empty if there are no gold sets.
    """
    chosen = [gold for gold in gold_sets if gold.is_unbiased and len(gold.rows)]
    chosen = chosen or [gold for gold in gold_sets if len(gold.rows)]
    if not chosen:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), ""
    rows, first = np.unique(np.concatenate([gold.rows for gold in chosen]), return_index=True)
    codes = np.concatenate([gold.codes for gold in chosen])[first]
    known = answers.codes[rows] >= 0
    names = dict.fromkeys(f"{gold.name}: {gold.training_use}" for gold in chosen)
    return rows[known], codes[known], "; ".join(names)


def abstention_facts(answers: Answers, rows: IntArray, codes: IntArray, evaluated_on: str) -> dict[str, Any] | None:
    """Return the accuracy of the answers if the least confident answers are left out.

    The result has the accuracy on the remaining items, for several shares of left-out items. It is None if there are
    fewer than `MIN_GOLD_ITEMS` items.
    """
    if len(rows) < MIN_GOLD_ITEMS:
        return None
    order = np.argsort(-answers.confidence[rows], kind="stable")
    n_right = np.cumsum((answers.codes[rows] == codes)[order])
    points = []
    for abstained in ABSTENTION_SHARES:
        n_kept = len(rows) - round(abstained * len(rows))
        if n_kept >= MIN_GOLD_ITEMS:
            min_confidence = float(answers.confidence[rows[order[n_kept - 1]]])
            accuracy = proportion_with_interval(int(n_right[n_kept - 1]), n_kept)
            points.append({"abstained": 1 - n_kept / len(rows), "min_confidence": min_confidence, **accuracy})
    return {"evaluated_on": evaluated_on, "points": points}


def operating_point(
    data: ReportData,
    answers: Answers,
    rows: IntArray,
    codes: IntArray,
    evaluated_on: str,
    *,
    positive: int,
    sensitivity: float,
) -> dict[str, Any] | None:
    """Return the highest decision threshold that reaches the target sensitivity, with its specificity and precision.

    The threshold is chosen and evaluated on the same items, so sensitivity, specificity and precision are slightly too
    high.

    Parameters
    ----------
    data : ReportData
        Data with two classes.
    answers : Answers
        Predictions, or consensus, to evaluate.
    rows, codes : ndarray of shape (n_rows,)
        Rows used for the evaluation, and the true class of each row.
    evaluated_on : str
        Description of these rows, for the report.
    positive : int
        Position of the positive class.
    sensitivity : float
        Target sensitivity: the share of positive items to predict as positive.

    Returns
    -------
    dict or None
        None if one of the two classes has no gold items.
    """
    confidence = answers.confidence[rows]
    score = np.where(answers.codes[rows] == positive, confidence, 1 - confidence)
    is_positive = codes == positive
    n_positive, n_negative = int(is_positive.sum()), int((~is_positive).sum())
    if not n_positive or not n_negative:
        return None
    n_needed = int(np.ceil(sensitivity * n_positive - 1e-9))
    threshold = float(np.sort(score[is_positive])[::-1][max(n_needed, 1) - 1])
    is_predicted = score >= threshold
    thresholds = np.unique(score)[::-1]
    true_positive_rate = np.searchsorted(np.sort(-score[is_positive]), -thresholds, "right") / n_positive
    false_positive_rate = np.searchsorted(np.sort(-score[~is_positive]), -thresholds, "right") / n_negative
    shown = np.unique(np.linspace(0, len(thresholds) - 1, MAX_ROC_POINTS).round().astype(int))
    roc_curve = np.column_stack([false_positive_rate, true_positive_rate])[shown].round(4).tolist()
    return {
        "evaluated_on": evaluated_on,
        "positive": printable(data.ann.classes[positive]),
        "target_sensitivity": sensitivity,
        "threshold": threshold,
        "sensitivity": proportion_with_interval(int((is_predicted & is_positive).sum()), n_positive),
        "specificity": proportion_with_interval(int((~is_predicted & ~is_positive).sum()), n_negative),
        "precision": proportion_with_interval(int((is_predicted & is_positive).sum()), int(is_predicted.sum())),
        "roc_curve": [[0.0, 0.0], *roc_curve],
    }


def calibration_facts(answers: Answers, rows: IntArray, codes: IntArray, evaluated_on: str) -> dict[str, Any] | None:
    """Return mean confidence and accuracy in ten bins of confidence, and the expected calibration error.

    Return None if there are fewer than `MIN_GOLD_ITEMS` items.
    """
    if len(rows) < MIN_GOLD_ITEMS:
        return None
    confidence, is_right = answers.confidence[rows], answers.codes[rows] == codes
    bin_of = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    count = np.bincount(bin_of, minlength=N_BINS)
    n_right = np.bincount(bin_of, is_right, minlength=N_BINS)
    total_confidence = np.bincount(bin_of, confidence, minlength=N_BINS)
    low, high = wilson_interval(n_right, count)
    bins = [
        {
            "confidence": total_confidence[b] / count[b],
            "accuracy": n_right[b] / count[b],
            "low": low[b],
            "high": high[b],
            "n": int(count[b]),
        }
        for b in np.flatnonzero(count >= MIN_ITEMS_PER_BIN)
    ]
    return {
        "evaluated_on": evaluated_on,
        "bins": bins,
        "error": float(np.abs(n_right - total_confidence).sum() / len(rows)),
        "mean_confidence": float(confidence.mean()),
        "accuracy": float(is_right.mean()),
    }
