"""The table of annotators: number of labels, estimated accuracy, strongest and weakest class."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import proportion_with_interval, wilson_interval
from crowdfuse.report.contradictions import find_contradictions
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MAX_ANNOTATOR_ROWS = 1_000  # rows that the page can hold and sort without delay
MIN_ITEMS_PER_CLASS = 3.0  # expected items of a class needed to judge an annotator on it
MIN_RECALL_GAP = 0.005  # a smaller gap between best and worst class would show as the same percentage

ClassRecall = tuple[int, float]
"""Position of a class, and an annotator's recall: the share of the items of this class that they label correctly."""


def annotator_facts(data: ReportData, gold: IntArray) -> dict[str, Any]:
    """Return the `annotators` entry of a report: one row per annotator, the most accurate first.

    Parameters
    ----------
    data : ReportData
        Labels, fused labels and consensus.
    gold : ndarray of shape (n_items,)
        True class of each item, as a position in `classes`; -1 where unknown.

    Returns
    -------
    dict
        `n_annotators` (annotators who gave labels), `n_without_labels` (annotators who gave none), `contradictions`,
        and `rows`. With more than 1,000 annotators, `rows` holds only the 1,000 with the most labels.
    """
    ann, quality = data.ann, data.quality
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    with_labels = np.flatnonzero(counts)
    shown = with_labels[np.argsort(-counts[with_labels], kind="stable")][:MAX_ANNOTATOR_ROWS]
    accuracy = quality.annotator_accuracy[shown]
    low, high = wilson_interval(accuracy * counts[shown], counts[shown])
    n_agreeing, n_fused = _count_matches(data, data.fused)
    n_right, n_gold = _count_matches(data, gold)
    mean_weight = _mean_relative_weights(data)
    strongest, weakest = _strongest_and_weakest(*recall_counts(data, shown))
    rows = []
    for position in np.argsort(-accuracy, kind="stable"):
        r = shown[position]
        interval = {"low": float(low[position]), "high": float(high[position])}
        rows.append(
            {
                "annotator": printable(ann.annotators[r]),
                "position": int(r),
                "n_labels": int(counts[r]),
                "accuracy": {"value": float(accuracy[position]), **interval},
                "agreement_with_fused": proportion_with_interval(float(n_agreeing[r]), float(n_fused[r]))["value"],
                "accuracy_on_gold": proportion_with_interval(float(n_right[r]), float(n_gold[r]))
                if n_gold[r]
                else None,
                "mean_weight": None if mean_weight is None or np.isnan(mean_weight[r]) else float(mean_weight[r]),
                "strongest": _class_facts(data, strongest[position]),
                "weakest": _class_facts(data, weakest[position]),
            }
        )
    return {
        "n_annotators": len(with_labels),
        "n_without_labels": int(len(counts) - len(with_labels)),
        "contradictions": find_contradictions(data, mean_weight, quality.annotator_accuracy),
        "rows": rows,
    }


def recall_counts(data: ReportData, annotators: IntArray) -> tuple[FloatArray, FloatArray]:
    """For each annotator and class, count the items of the class that they labelled, and how many they got right.

    The true class is uncertain, so each item adds its consensus probability to the count of every class.

    Parameters
    ----------
    data : ReportData
        Labels and consensus.
    annotators : ndarray of shape (n_selected,)
        Positions of the annotators.

    Returns
    -------
    n_items, n_recalled : ndarray of shape (n_selected, n_classes)
        Expected counts.
    """
    ann, K = data.ann, data.ann.n_classes
    position = np.full(ann.n_annotators, -1)
    position[annotators] = np.arange(len(annotators))
    keep = position[ann.annotator] >= 0
    annotator, item = position[ann.annotator[keep]], ann.item[keep]
    shape = (len(annotators), ann.n_items)
    has_labelled = sparse.csr_array((np.ones(len(annotator), np.float32), (annotator, item)), shape=shape)
    n_items = has_labelled @ data.quality.class_probabilities
    cells = annotator * K + ann.label[keep]
    n_recalled = np.bincount(cells, data.quality.label_confidence[keep], len(annotators) * K)
    return n_items.astype(np.float64), n_recalled.reshape(-1, K).astype(np.float64)


def _mean_relative_weights(data: ReportData) -> FloatArray | None:
    """Return the mean weight of each annotator relative to an even share, NaN where unknown; None if all are even."""
    relative = data.relative_weights()
    if relative is None:
        return None
    known = ~np.isnan(relative)
    annotator, n_annotators = data.ann.annotator[known], data.ann.n_annotators
    n_weighted = np.bincount(annotator, minlength=n_annotators)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.bincount(annotator, relative[known], minlength=n_annotators) / n_weighted
    return mean


def _strongest_and_weakest(
    n_items: FloatArray, n_recalled: FloatArray
) -> tuple[list[ClassRecall | None], list[ClassRecall | None]]:
    """Return the strongest and the weakest class of each annotator; None if their recalls hardly differ.

    The strongest class has the highest lower bound of the recall's confidence interval. The weakest class has the
    lowest upper bound.
    """
    low, high = wilson_interval(n_recalled, n_items)
    has_enough = n_items >= MIN_ITEMS_PER_CLASS
    best, worst = np.where(has_enough, low, -1).argmax(1), np.where(has_enough, high, 2).argmin(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = np.clip(n_recalled / n_items, 0, 1)
    rows = np.arange(len(recall))
    differs = (has_enough.sum(1) > 1) & (recall[rows, best] - recall[rows, worst] > MIN_RECALL_GAP)

    def with_recall(classes: IntArray) -> list[ClassRecall | None]:
        return [(int(k), float(recall[row, k])) if differs[row] else None for row, k in enumerate(classes)]

    return with_recall(best), with_recall(worst)


def _count_matches(data: ReportData, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return how many labels of each annotator equal the item's class in `codes`, and how many were compared."""
    ann = data.ann
    known = codes[ann.item] >= 0
    n_equal = np.bincount(ann.annotator[known], (ann.label == codes[ann.item])[known], ann.n_annotators)
    n_compared = np.bincount(ann.annotator[known], minlength=ann.n_annotators)
    return n_equal.astype(np.float64), n_compared.astype(np.float64)


def _class_facts(data: ReportData, recall: ClassRecall | None) -> dict[str, Any] | None:
    """Return a class by name with its recall."""
    return None if recall is None else {"class": printable(data.ann.classes[recall[0]]), "share": recall[1]}
