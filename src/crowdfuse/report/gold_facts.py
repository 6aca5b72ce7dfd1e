"""Accuracy of consensus and model on gold, calibration, accuracy with abstention, and a decision threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import proportion_with_interval, wilson_interval
from crowdfuse.quality.gold_tests import overconfidence_p_value
from crowdfuse.quality.multiple_tests import FALSE_ALARM_RATE
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import Answers, ReportData

ABSTENTION_SHARES = np.arange(0, 0.91, 0.05)
MIN_ITEMS_PER_BIN = 5  # a bin of the calibration curve is shown if it holds at least this many items
MIN_GOLD_ITEMS = 20  # abstention and calibration are shown if at least this many items have gold
N_BINS = 10  # of the calibration curve
MAX_ROC_POINTS = 100
NOT_TRAINED_ON = "predictions of the model, which was not trained on these items"
OUT_OF_FOLD = "out-of-fold predictions: each item was predicted by a classifier trained without it"
TRAINED_ON = "predictions of the model, which was trained on these items; there are no out-of-fold predictions"


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
    is_optimistic : bool
        Whether figures on these items are too optimistic, because their true classes were used for training or for
        choosing the epoch or settings.
    is_trained_on : bool
        Whether the model was trained on the labels or the true classes of these items.
    """

    name: str
    rows: IntArray
    codes: IntArray
    training_use: str
    is_optimistic: bool
    is_trained_on: bool


class AnswerSource(NamedTuple):
    """Where the answers for a gold set come from.

    Attributes
    ----------
    description : str
        The source, as part of a sentence.
    is_out_of_fold : bool
        Whether each item was predicted by a classifier that was trained without it.
    is_optimistic : bool
        Whether figures of these answers are too optimistic.
    """

    description: str
    is_out_of_fold: bool
    is_optimistic: bool


class Evaluation(NamedTuple):
    """Answers, and the items with gold on which they are evaluated.

    Attributes
    ----------
    answers : Answers
        The answers for all items of the report.
    rows : ndarray of shape (n_rows,)
        The items to evaluate: rows with an answer and a known true class.
    codes : ndarray of shape (n_rows,)
        True class of each of these items.
    evaluated_on : str
        Names of the gold sets, and where the answers come from. Empty if there are no items to evaluate.
    is_out_of_fold : bool
        Whether some of the answers are out-of-fold predictions.
    is_optimistic : bool
        Whether the figures are too optimistic.
    """

    answers: Answers
    rows: IntArray
    codes: IntArray
    evaluated_on: str = ""
    is_out_of_fold: bool = False
    is_optimistic: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the entries of a report that say how its figures were measured."""
        names = ("evaluated_on", "is_out_of_fold", "is_optimistic")
        return {name: getattr(self, name) for name in names}


def evaluate_model(data: ReportData, gold_sets: Sequence[GoldSet]) -> Evaluation:
    """Return the predictions to evaluate: out-of-fold predictions for the items that the model was trained on.

    Gold sets whose figures would be too optimistic are left out, unless this would leave none.

    Parameters
    ----------
    data : ReportData
        Data with predictions; without predictions, there are no items to evaluate.
    gold_sets : sequence of GoldSet
        Items whose true class is known. The figures on a set are also too optimistic if the model was trained on the
        set and there are no out-of-fold predictions.

    Returns
    -------
    Evaluation
    """
    answers, out_of_fold = data.predictions, data.out_of_fold_predictions
    if out_of_fold is not None:
        is_trained_on = np.zeros(len(answers.codes), bool)
        for gold in gold_sets:
            is_trained_on[gold.rows] |= gold.is_trained_on
        answers = Answers(*(np.where(is_trained_on, *columns) for columns in zip(out_of_fold, answers, strict=True)))
    sources = [_source_of_predictions(data, gold) for gold in gold_sets]
    return _evaluation(answers, answers.codes >= 0, gold_sets, sources)


def evaluate_consensus(data: ReportData, gold_sets: Sequence[GoldSet]) -> Evaluation:
    """Return the consensus to evaluate, on the items with labels whose gold was not used in training.

    Other items are left out: the consensus of an item without labels is the prediction, and the consensus of an item
    whose gold was used in training is this gold.

    Parameters
    ----------
    data : ReportData
        Data with the consensus.
    gold_sets : sequence of GoldSet
        Items whose true class is known.

    Returns
    -------
    Evaluation
    """
    is_known = (data.labels_per_item > 0) & ~data.has_training_gold
    sources = [AnswerSource(gold.training_use, False, gold.is_optimistic) for gold in gold_sets]
    return _evaluation(data.consensus_answers, is_known, gold_sets, sources)


def _source_of_predictions(data: ReportData, gold: GoldSet) -> AnswerSource:
    """Return where the predictions of a gold set come from."""
    if not gold.is_trained_on:
        return AnswerSource(NOT_TRAINED_ON, False, gold.is_optimistic)
    if data.out_of_fold_predictions is None:
        return AnswerSource(TRAINED_ON, False, True)
    return AnswerSource(OUT_OF_FOLD, True, False)


def _evaluation(
    answers: Answers, is_known: NDArray[np.bool_], gold_sets: Sequence[GoldSet], sources: Sequence[AnswerSource]
) -> Evaluation:
    """Return the evaluation on the gold sets that are not optimistic if there are any, otherwise on all gold sets."""
    usable = [pair for pair in zip(gold_sets, sources, strict=True) if is_known[pair[0].rows].any()]
    chosen = [(gold, source) for gold, source in usable if not source.is_optimistic] or usable
    if not chosen:
        return Evaluation(answers, np.zeros(0, np.int64), np.zeros(0, np.int64))
    rows, first = np.unique(np.concatenate([gold.rows for gold, _ in chosen]), return_index=True)
    codes = np.concatenate([gold.codes for gold, _ in chosen])[first]
    names = dict.fromkeys(f"{gold.name} ({source.description})" for gold, source in chosen)
    known = is_known[rows]
    return Evaluation(
        answers,
        rows[known],
        codes[known],
        "; ".join(names),
        any(source.is_out_of_fold for _, source in chosen),
        any(source.is_optimistic for _, source in chosen),
    )


def accuracy_facts(data: ReportData, gold_sets: Sequence[GoldSet]) -> list[dict[str, Any]]:
    """Return the accuracy of model and consensus on each gold set."""
    return [
        {
            "gold": gold.name,
            "n_items": len(gold.rows),
            "training_use": gold.training_use,
            "predictions": _source_of_predictions(data, gold).description,
            "predicted": _accuracy(evaluate_model(data, [gold])),
            "consensus": _accuracy(evaluate_consensus(data, [gold])),
        }
        for gold in gold_sets
    ]


def _accuracy(evaluation: Evaluation) -> dict[str, Any]:
    """Return the accuracy with its interval, and how it was measured."""
    n_right = int((evaluation.answers.codes[evaluation.rows] == evaluation.codes).sum())
    accuracy = proportion_with_interval(n_right, len(evaluation.rows))
    return {
        **accuracy,
        "is_out_of_fold": evaluation.is_out_of_fold,
        "is_optimistic": evaluation.is_optimistic,
    }


def abstention_facts(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return the accuracy of the answers if the least confident answers are left out.

    The result has the accuracy on the remaining items, for several shares of left-out items. It is None if there are
    fewer than `MIN_GOLD_ITEMS` items.
    """
    answers, rows, codes, *_ = evaluation
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
    return {**evaluation.describe(), "points": points}


def operating_point(
    data: ReportData, evaluation: Evaluation, *, positive: int, sensitivity: float
) -> dict[str, Any] | None:
    """Return the highest decision threshold that reaches the target sensitivity, with its specificity and precision.

    The threshold is chosen and evaluated on the same items, so sensitivity, specificity and precision are slightly too
    high.

    Parameters
    ----------
    data : ReportData
        Data with two classes.
    evaluation : Evaluation
        Predictions, or consensus, to evaluate.
    positive : int
        Position of the positive class.
    sensitivity : float
        Target sensitivity: the share of positive items to predict as positive.

    Returns
    -------
    dict or None
        None if one of the two classes has no gold items.
    """
    answers, rows, codes, *_ = evaluation
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
        **evaluation.describe(),
        "positive": printable(data.ann.classes[positive]),
        "target_sensitivity": sensitivity,
        "threshold": threshold,
        "sensitivity": proportion_with_interval(int((is_predicted & is_positive).sum()), n_positive),
        "specificity": proportion_with_interval(int((~is_predicted & ~is_positive).sum()), n_negative),
        "precision": proportion_with_interval(int((is_predicted & is_positive).sum()), int(is_predicted.sum())),
        "roc_curve": [[0.0, 0.0], *roc_curve],
    }


def calibration_facts(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return mean confidence and accuracy, overall and in ten bins of confidence, and the expected calibration error.

    `is_overconfident` is the result of a one-sided binomial test at the level `FALSE_ALARM_RATE`.

    Return None if there are fewer than `MIN_GOLD_ITEMS` items.
    """
    answers, rows, codes, *_ = evaluation
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
    p_value = overconfidence_p_value(confidence, is_right)
    return {
        **evaluation.describe(),
        "n_items": len(rows),
        "bins": bins,
        "error": float(np.abs(n_right - total_confidence).sum() / len(rows)),
        "mean_confidence": float(confidence.mean()),
        "accuracy": float(is_right.mean()),
        "overconfidence_p_value": p_value,
        "is_overconfident": p_value < FALSE_ALARM_RATE,
    }
