"""The table of annotators: number of labels, estimated accuracy, strongest and weakest class."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import proportion_with_interval, wilson_interval
from crowdfuse.quality.label_weights import mean_relative_weights
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MAX_ANNOTATOR_ROWS = 1_000  # rows that the page can hold and sort without delay
MIN_ITEMS_PER_CLASS = (
    5.0  # an annotator is judged on a class only if they labelled at least this many items of it (expected number)
)

ClassRecall = tuple[int, float]
"""Position of a class, and an annotator's recall: the share of items of this class that the annotator labels
correctly."""


def annotator_facts(data: ReportData, gold: IntArray) -> dict[str, Any]:
    """Return the `annotators` entry of a report: one row per annotator, as in `annotators.csv` of a run folder.

    Parameters
    ----------
    data : ReportData
        Labels, consensus and weights.
    gold : ndarray of shape (n_items,)
        True class of each item, as a position in `classes`; -1 where unknown.

    Returns
    -------
    dict
        `n_annotators` (annotators with labels), `n_without_labels` (annotators without labels), and `rows`. If there
        are more than 1,000 annotators, `rows` holds only the 1,000 annotators with the most labels. In a row, the
        numbers in `accuracy` are None if they cannot be estimated.
    """
    ann, consensus = data.ann, data.consensus
    counts = consensus.labels_per_annotator
    with_labels = np.flatnonzero(counts)
    most_labels = with_labels[np.argsort(-counts[with_labels], kind="stable")][:MAX_ANNOTATOR_ROWS]
    shown = consensus.annotator_order[np.isin(consensus.annotator_order, most_labels)]
    n_right, n_gold = _count_matches(data, gold)
    mean_weight = None if data.weights is None else mean_relative_weights(data.weights, ann)
    n_items = expected_items_per_class(data, shown)
    strongest, weakest = _strongest_and_weakest(n_items, _recalls(data, shown, n_items))
    rows = []
    for position, r in enumerate(shown):
        low, high = consensus.annotator_accuracy_interval[r]
        accuracy = {"value": consensus.annotator_accuracy[r], "low": low, "high": high}
        rows.append(
            {
                "annotator": printable(ann.annotators[r]),
                "position": int(r),
                "n_labels": int(counts[r]),
                "accuracy": {name: None if np.isnan(value) else float(value) for name, value in accuracy.items()},
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
        "rows": rows,
    }


def expected_items_per_class(data: ReportData, annotators: IntArray) -> FloatArray:
    """For each annotator and class, return the expected number of items of the class that they labelled.

    The true class is uncertain, so each item adds the consensus probability of every class to the count of this class.

    Parameters
    ----------
    data : ReportData
        Labels and consensus.
    annotators : ndarray of shape (n_selected,)
        Positions of the annotators.

    Returns
    -------
    ndarray of shape (n_selected, n_classes)
    """
    ann = data.ann
    position = np.full(ann.n_annotators, -1)
    position[annotators] = np.arange(len(annotators))
    keep = position[ann.annotator] >= 0
    pairs = (position[ann.annotator[keep]], ann.item[keep])
    has_labelled = sparse.csr_array((np.ones(len(pairs[0]), np.float32), pairs), shape=(len(annotators), ann.n_items))
    labelled = np.flatnonzero(data.labels_per_item)  # an item without labels may have no probabilities
    n_items: FloatArray = (has_labelled[:, labelled] @ data.consensus.class_probabilities[labelled]).astype(np.float64)
    return n_items


def _recalls(data: ReportData, annotators: IntArray, n_items: FloatArray) -> FloatArray:
    """Return the diagonal of each annotator's confusion matrix, shape (n_selected, n_classes).

    If the consensus has no confusion matrices, the recall is estimated: the expected share of the `n_items` of each
    class that are labelled correctly.
    """
    consensus, ann = data.consensus, data.ann
    if consensus.confusion_matrices is not None:
        return np.diagonal(consensus.confusion_matrices[annotators], axis1=1, axis2=2)
    cells = ann.annotator * ann.n_classes + ann.label
    n_recalled = np.bincount(cells, consensus.label_confidence, ann.n_annotators * ann.n_classes)
    recalls: FloatArray = n_recalled.reshape(-1, ann.n_classes)[annotators] / np.maximum(n_items, 1e-12)
    return np.clip(recalls, 0, 1)


def _strongest_and_weakest(
    n_items: FloatArray, recall: FloatArray
) -> tuple[list[ClassRecall | None], list[ClassRecall | None]]:
    """Return the strongest and the weakest class of each annotator; None if there are too few labels to tell.

    Both are chosen by the 95 % intervals of the recalls. The strongest class has the highest lower end, and the weakest
    class has the lowest upper end. They are returned only if their intervals do not overlap, because otherwise the
    order of the two classes may be due to chance.
    """
    low, high = wilson_interval(recall * n_items, n_items)
    has_enough = n_items >= MIN_ITEMS_PER_CLASS
    best, worst = np.where(has_enough, low, -1).argmax(1), np.where(has_enough, high, 2).argmin(1)
    rows = np.arange(len(recall))
    differs = (has_enough.sum(1) > 1) & (low[rows, best] > high[rows, worst])

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
