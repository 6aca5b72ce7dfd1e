"""Find items and labels to check again, and classes that are confused with each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.report.annotator_details import MAX_MATRIX_CLASSES
from crowdfuse.report.item_explanation import explain_item, explain_weights
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import Answers, ReportData

CONFIDENT_THRESHOLD = 0.8  # a consensus with at least this confidence counts as sure
MAX_LISTED_LABELS = 8  # labels of one item that are listed one by one
MAX_CLASS_PAIRS = 10  # pairs of confused classes that are listed


def disputed_rows(data: ReportData) -> IntArray:
    """Return the disputed items, the lowest confidence first.

    An item is disputed if one of its labels or the prediction differs from the consensus. Items whose gold label was
    used in training are left out, because their class is known.
    """
    rows = np.flatnonzero(data.consensus.is_disputed & ~data.has_training_gold)
    return rows[np.argsort(data.consensus.confidence[rows], kind="stable")]


def ambiguous_rows(data: ReportData) -> IntArray:
    """Return the items with low confidence although good annotators labelled them, the lowest confidence first.

    Only items with at least two labels are considered. The annotators of an item count as good if their mean accuracy
    is at least the mean accuracy over all labels.
    """
    n_labels = data.labels_per_item
    accuracy = data.consensus.annotator_accuracy[data.ann.annotator]
    with np.errstate(invalid="ignore"):
        mean = np.bincount(data.ann.item, accuracy, minlength=data.ann.n_items) / n_labels
    is_unsure = (n_labels > 1) & (data.consensus.confidence < CONFIDENT_THRESHOLD) & (mean >= accuracy.mean())
    rows = np.flatnonzero(is_unsure)
    return rows[np.argsort(data.consensus.confidence[rows], kind="stable")]


def mislabelled_rows(data: ReportData) -> IntArray:
    """Return the items whose consensus is confident but contradicts at least half of the labels.

    The items with the largest share of contradicting labels come first.
    """
    n_labels = data.labels_per_item
    n_contradicting = np.bincount(data.ann.item, data.consensus.differs_from_consensus, minlength=data.ann.n_items)
    is_confident = (data.consensus.confidence >= CONFIDENT_THRESHOLD) & ~data.has_training_gold
    rows = np.flatnonzero((n_labels > 0) & is_confident & (2 * n_contradicting >= n_labels))
    share = n_contradicting[rows] / n_labels[rows]
    return rows[np.lexsort((-data.consensus.confidence[rows], -share))]


def item_facts(data: ReportData, row: int, gold: IntArray) -> dict[str, Any]:
    """Return the facts on one item: labels, consensus, prediction, gold, why they differ, and the fused label.

    Parameters
    ----------
    data : ReportData
        Labels and consensus; fused labels and weights if there is a model.
    row : int
        Row of the item.
    gold : ndarray of shape (n_items,)
        True class of each item, as a position in `classes`; -1 where unknown.

    Returns
    -------
    dict
        The `weight` of a label is relative to an even share: 1 if all labels of the item count equally.
    """
    ann = data.ann
    labels = np.arange(ann.indptr[row], ann.indptr[row + 1])
    share = None if data.weights is None or np.isnan(data.weights[labels]).any() else data.weights[labels]
    order = np.argsort(-data.consensus.label_confidence[labels], kind="stable")[:MAX_LISTED_LABELS]
    listed_labels = [
        {
            "annotator": printable(ann.annotators[ann.annotator[label]]),
            "label": printable(ann.classes[ann.label[label]]),
            "confidence": float(data.consensus.label_confidence[label]),
            "weight": None if share is None else float(share[position]) * len(labels),
        }
        for position, label in zip(order, labels[order], strict=True)
    ]
    count = np.bincount(ann.label[labels], minlength=ann.n_classes)
    return {
        "item": printable(ann.items[row]),
        "row": row,
        "n_labels": len(labels),
        "listed_labels": listed_labels,
        "label_counts": [
            [printable(ann.classes[k]), int(count[k])] for k in np.argsort(-count, kind="stable") if count[k]
        ],
        "consensus": _class_with_confidence(data, data.consensus_answers, row),
        "predicted": _class_with_confidence(data, data.predictions, row),
        "fused": None if data.fused is None else _class_with_confidence(data, data.fused, row),
        "gold": printable(ann.classes[gold[row]]) if gold[row] >= 0 else None,
        "explanation": explain_item(data.consensus, row),
        "weight_note": None if share is None else explain_weights(data.consensus, row, share),
    }


def suspicious_facts(data: ReportData, max_labels: int) -> dict[str, Any]:
    """Return the labels that differ from the consensus; labels that are most probably wrong come first.

    Parameters
    ----------
    data : ReportData
        Labels and consensus.
    max_labels : int
        Maximum number of labels to list. Labels of items whose gold label was used in training are not listed.

    Returns
    -------
    dict
        `total` is the number of labels that differ from the consensus, and `rows` the listed labels.
    """
    ann, suspicion = data.ann, data.consensus.suspicion
    item = ann.item
    differs = data.consensus.differs_from_consensus
    candidates = np.flatnonzero(differs & ~data.has_training_gold[item])
    order = candidates[np.argsort(-suspicion[candidates], kind="stable")[:max_labels]]
    rows = [
        {
            "item": printable(ann.items[item[label]]),
            "row": int(item[label]),
            "annotator": printable(ann.annotators[ann.annotator[label]]),
            "label": printable(ann.classes[ann.label[label]]),
            "consensus": printable(ann.classes[data.consensus.consensus_codes[item[label]]]),
            "suspicion": float(suspicion[label]),
        }
        for label in order
    ]
    return {"total": int(differs.sum()), "rows": rows}


def class_confusion_facts(data: ReportData) -> dict[str, Any]:
    """Return which classes the annotators as a group confuse, if the consensus is taken as the truth.

    Returns
    -------
    dict
        `pairs` are the most frequent pairs of a consensus class and a different label. Each pair has the number of such
        labels and their share of all labels of items with this consensus. `n_pairs` is the number of all pairs.
        `matrix` has the shares of all pairs, with axes (consensus, label). If there are more than 12 classes, it holds
        only the 12 most confused classes.
    """
    ann, K = data.ann, data.ann.n_classes
    cells = data.consensus.consensus_codes[ann.item] * np.int64(K) + ann.label
    counts = np.bincount(cells, minlength=K * K).reshape(K, K)  # axes (consensus, said)
    total = np.maximum(counts.sum(1), 1)
    wrong = counts * (1 - np.eye(K, dtype=np.int64))
    pairs = []
    for flat in np.argsort(-wrong.ravel(), kind="stable")[:MAX_CLASS_PAIRS]:
        k, j = divmod(int(flat), K)
        if wrong[k, j]:
            names = {"consensus": printable(ann.classes[k]), "said": printable(ann.classes[j])}
            pairs.append(names | {"n_labels": int(wrong[k, j]), "share": float(wrong[k, j] / total[k])})
    shown = np.arange(K)
    if K > MAX_MATRIX_CLASSES:
        shown = np.sort(np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:MAX_MATRIX_CLASSES])
    return {
        "pairs": pairs,
        "n_pairs": int(np.count_nonzero(wrong)),
        "classes": [printable(name) for name in ann.classes[shown]],
        "n_classes": K,
        "matrix": (counts / total[:, None])[np.ix_(shown, shown)].tolist(),
    }


def _class_with_confidence(data: ReportData, answers: Answers, row: int) -> dict[str, Any] | None:
    """Return the class that is the answer for one item, by name, with its confidence; None if it is unknown."""
    k = answers.codes[row]
    return None if k < 0 else {"class": printable(data.ann.classes[k]), "confidence": float(answers.confidence[row])}
