"""Items and labels worth a second look, and the classes that are taken for one another."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from crowdfuse.labels.ids import IntArray
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import ReportData

CONFIDENT_THRESHOLD = 0.8  # a consensus below this is unsure
MAX_LISTED_LABELS = 8  # labels of one item that are listed one by one
MAX_CLASS_PAIRS, MAX_MATRIX_CLASSES = 10, 12


def disputed_rows(data: ReportData) -> IntArray:
    """Items on which people differ, the least sure consensus first; items of one voice have nobody to differ with.

    What is certain is in dispute no more.
    """
    differ = np.flatnonzero((_n_answers(data) > 1) & ~data.has_training_gold)
    return differ[np.argsort(data.quality.confidence[differ], kind="stable")]


def ambiguous_rows(look: ReportData) -> IntArray:
    """Items where good annotators leave the consensus unsure: the item itself is in doubt.

    Good: on average at least as accurate as the annotator of an average label. At least two labels.
    """
    n = look.labels_per_item
    skill = look.quality.annotator_accuracy[look.ann.annotator]
    with np.errstate(invalid="ignore"):
        mean = np.bincount(look.ann.item, skill, minlength=look.ann.n_items) / n
    unsure = (n > 1) & (look.quality.confidence < CONFIDENT_THRESHOLD) & (mean >= skill.mean())
    rows = np.flatnonzero(unsure)
    return rows[np.argsort(look.quality.confidence[rows], kind="stable")]


def mislabelled_rows(look: ReportData) -> IntArray:
    """Items of which the consensus is sure, against half of the labels or more: these labels are in doubt."""
    n = look.labels_per_item
    against = np.bincount(
        look.ann.item, look.ann.label != look.quality.consensus_codes[look.ann.item], minlength=look.ann.n_items
    )
    rows = np.flatnonzero(
        (n > 0) & ~look.has_training_gold & (look.quality.confidence >= CONFIDENT_THRESHOLD) & (2 * against >= n)
    )
    share = against[rows] / n[rows]
    return rows[np.lexsort((-look.quality.confidence[rows], -share))]


def item_facts(look: ReportData, row: int, gold: IntArray) -> dict[str, Any]:
    """One item: who said what, with which weight, and what was made of it."""
    ann = look.ann
    labels = np.arange(ann.indptr[row], ann.indptr[row + 1])
    weight = None if look.weights is None or np.isnan(look.weights[labels]).any() else look.weights[labels]
    order = np.argsort(-(weight if weight is not None else look.quality.label_confidence[labels]), kind="stable")[
        :MAX_LISTED_LABELS
    ]
    voices = [
        {
            "annotator": printable(ann.annotators[ann.annotator[label]]),
            "label": printable(ann.classes[ann.label[label]]),
            "weight": None if weight is None else float(weight[place]),
            "right": float(look.quality.label_confidence[label]),
        }
        for place, label in zip(order, labels[order], strict=True)
    ]
    count = np.bincount(ann.label[labels], minlength=ann.n_classes)
    votes = [[printable(ann.classes[k]), int(count[k])] for k in np.argsort(-count, kind="stable") if count[k]]
    return {
        "item": printable(ann.items[row]),
        "row": row,
        "labels": len(labels),
        "voices": voices,
        "votes": votes,
        "fused": _named(look, look.fused[row], look.fused_confidence[row]),
        "consensus": _named(look, look.quality.consensus_codes[row], look.quality.confidence[row]),
        "predicted": _named(look, look.predicted[row], look.predicted_confidence[row]),
        "gold": printable(ann.classes[gold[row]]) if gold[row] >= 0 else None,
    }


def suspicious_facts(look: ReportData, most: int) -> dict[str, Any]:
    """The labels most likely wrong; `rows` without those of certain items, which nobody needs to look at."""
    ann, suspicion = look.ann, look.quality.suspicion
    item = ann.item
    open_labels = np.flatnonzero(~look.has_training_gold[item])
    order = open_labels[np.argsort(-suspicion[open_labels], kind="stable")[:most]]
    rows = [
        {
            "item": printable(ann.items[item[label]]),
            "row": int(item[label]),
            "annotator": printable(ann.annotators[ann.annotator[label]]),
            "label": printable(ann.classes[ann.label[label]]),
            "consensus": printable(ann.classes[look.quality.consensus_codes[item[label]]]),
            "suspicion": float(suspicion[label]),
        }
        for label in order
        if suspicion[label] >= 0.5
    ]
    return {"total": int((suspicion > 0.5).sum()), "expected": float(suspicion.sum()), "rows": rows}


def mixed_facts(look: ReportData) -> dict[str, Any]:
    """Which class is taken for which: wrong labels as far as the consensus knows, the most frequent pairs first."""
    ann, K = look.ann, look.ann.n_classes
    said = sparse.csr_array((np.ones(ann.n_labels), ann.label, ann.indptr), shape=(ann.n_items, K))
    labelled = look.labels_per_item > 0
    counts = (said[labelled].T @ look.quality.class_probabilities[labelled].astype(np.float64)).T  # axes (true, said)
    total = np.maximum(counts.sum(1), 1e-12)
    wrong = counts * (1 - np.eye(K))
    pairs = []
    for flat in np.argsort(-wrong.ravel(), kind="stable")[:MAX_CLASS_PAIRS]:
        k, j = divmod(int(flat), K)
        if wrong[k, j] >= 0.5:
            names = {"true": printable(ann.classes[k]), "said": printable(ann.classes[j])}
            pairs.append(names | {"labels": float(wrong[k, j]), "share": float(wrong[k, j] / total[k])})
    shown = np.arange(K)
    if K > MAX_MATRIX_CLASSES:
        shown = np.sort(np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:MAX_MATRIX_CLASSES])
    return {
        "wrong": float(wrong.sum()),
        "labels": ann.n_labels,
        "pairs": pairs,
        "classes": [printable(name) for name in ann.classes[shown]],
        "of": K,
        "matrix": (counts / total[:, None])[np.ix_(shown, shown)].round(4).tolist(),
    }


def _n_answers(look: ReportData) -> IntArray:
    """How many different classes were said of each item."""
    K = look.ann.n_classes
    said = np.unique(look.ann.item * K + look.ann.label) // K
    return np.bincount(said, minlength=look.ann.n_items)


def _named(look: ReportData, k: int, sure: float) -> dict[str, Any] | None:
    return None if k < 0 else {"class": printable(look.ann.classes[k]), "confidence": float(sure)}
