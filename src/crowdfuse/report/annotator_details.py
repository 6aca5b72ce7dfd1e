"""One annotator at a time: what they take for what, and where among the items they are weak."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.report.item_map import COLUMNS, ItemMap
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MAX_DETAILED_ANNOTATORS = 24  # annotators that are shown one by one
MAX_ITEMS_PER_ANNOTATOR = 400  # items of each that are looked at
MAX_CONFUSION_VALUES = 8_000_000  # in the confusion matrices of one annotator's items, at most
MAX_MATRIX_CLASSES = 12  # of a confusion matrix
MIN_ITEMS = 5  # items that must be there to say anything of
AGREEMENT_PRIOR_ITEMS = 3  # items that an annotator's usual agreement counts for in each cell


def chosen_annotators(look: ReportData) -> IntArray:
    """Those with the most labels."""
    counts = np.bincount(look.ann.annotator, minlength=look.ann.n_annotators)
    order = np.argsort(-counts, kind="stable")[:MAX_DETAILED_ANNOTATORS]
    return order[counts[order] > 0]


def own_labels(look: ReportData, annotators: IntArray) -> dict[int, IntArray]:
    """Some labels of each of these annotators, as positions among all labels, by annotator."""
    generator = np.random.default_rng(1)
    by_annotator = np.argsort(look.ann.annotator, kind="stable")
    counts = np.bincount(look.ann.annotator, minlength=look.ann.n_annotators)
    ends = np.cumsum(counts)
    own = {}
    for r in annotators:
        labels = by_annotator[ends[r] - counts[r] : ends[r]]
        own[int(r)] = np.sort(generator.permutation(labels)[:MAX_ITEMS_PER_ANNOTATOR])
    return own


def detail_facts(look: ReportData, own: dict[int, IntArray], where: ItemMap | None) -> list[dict[str, Any]]:
    """What is shown of each annotator that has labels in `own`."""
    relative = look.relative_weights() if look.weights_vary else None
    return [
        {
            "annotator": printable(look.ann.annotators[r]),
            "position": r,
            "confusion": _confusion_facts(look, estimated_confusion(look, r)),
            "of the method": _of_the_method(look, r, labels),
            "map": None if where is None else _weak_places(look, labels, relative, where),
        }
        for r, labels in own.items()
    ]


def method_confusion(look: ReportData, r: int, labels: IntArray) -> tuple[FloatArray, int] | None:
    """P(said | true), (K, K), of one annotator as the method has it, and over how many items it is a mean.

    A method that tells P(true | said) is turned round by Bayes' rule, with how often this annotator says what:

        P(said = j | true = k)  ~  mean over items of P(true = k | said = j)  *  P(said = j)
    """
    K = look.ann.n_classes
    given = None if look.model is None else look.model.classifier.confusion_given_
    if look.model is None or given is None or r >= len(look.model.classifier.annotators_):
        return None  # of an annotator never seen in training the method knows nothing
    labels = labels[look.model.position[look.ann.item[labels]] >= 0][: max(1, MAX_CONFUSION_VALUES // K**2)]
    if not len(labels):
        return None
    rows = look.ann.item[labels]  # each row once: nobody labels an item twice
    alone = look.ann[rows].select_annotator(look.ann.annotators[r])
    mean = look.model.classifier.confusion_matrices(look.model.take(rows), alone).mean(0, dtype=np.float64)
    if given == "said":
        everything = look.ann.label[look.ann.annotator == r]
        joint = mean * (np.bincount(everything, minlength=K) / len(everything))
        mean = joint / np.maximum(joint.sum(1, keepdims=True), 1e-12)
    return mean, len(rows)


def estimated_confusion(look: ReportData, r: int) -> FloatArray:
    """P(said | true), (K, K), with labels and model together for the truth.

    Each label counts for every class as much as its item is likely to be of it.
    """
    if look.quality.confusion_matrices is not None:
        matrix: FloatArray = look.quality.confusion_matrices[r]
        return matrix
    mine = look.ann.annotator == r
    joint = np.zeros((look.ann.n_classes, look.ann.n_classes))
    np.add.at(joint.T, look.ann.label[mine], look.quality.class_probabilities[look.ann.item[mine]])
    counted: FloatArray = joint / np.maximum(joint.sum(1, keepdims=True), 1e-12)
    return counted


def _of_the_method(look: ReportData, r: int, labels: IntArray) -> dict[str, Any] | None:
    found = method_confusion(look, r, labels)
    return None if found is None else _confusion_facts(look, found[0]) | {"items": found[1]}


def _confusion_facts(look: ReportData, matrix: FloatArray) -> dict[str, Any]:
    """The matrix, or of many classes the part where most is mixed up."""
    K = len(matrix)
    shown = np.arange(K)
    if K > MAX_MATRIX_CLASSES:
        off = matrix * (1 - np.eye(K))
        shown = np.sort(np.argsort(-np.maximum(off.max(0), off.max(1)), kind="stable")[:MAX_MATRIX_CLASSES])
    return {
        "classes": [printable(name) for name in look.ann.classes[shown]],
        "of": K,
        "matrix": matrix[np.ix_(shown, shown)].round(4).tolist(),
    }


def _weak_places(
    look: ReportData, labels: IntArray, relative: FloatArray | None, where: ItemMap
) -> dict[str, Any] | None:
    """On the grid of the map: how the annotator does beside the others, or beside their own mean.

    `value` is from -1, weak, to 1, strong. Where the method weighs annotators: the logarithm, base 2, of their
    weight beside an even one, so that -1 is half of it. Elsewhere: how much more or less often than usual the
    model says the same, in quarters.
    """
    rows = look.ann.item[labels]
    cell = where.cells(rows)
    keep = (cell >= 0) & ((look.labels_per_item[rows] > 1) | (relative is None))  # alone, one has all the weight
    if keep.sum() < MIN_ITEMS:
        return None
    labels, rows, cell = labels[keep], rows[keep], cell[keep]
    agrees = (look.ann.label[labels] == look.predicted[rows]).astype(np.float64)
    measured = agrees if relative is None else relative[labels]
    cells, place, count = np.unique(cell, return_inverse=True, return_counts=True)
    usual = measured.mean()
    lent = (
        AGREEMENT_PRIOR_ITEMS if relative is None else 0
    )  # what agrees or not says little where there is little of it
    mean = (np.bincount(place, measured) + lent * usual) / (count + lent)
    value = (mean - usual) / 0.25 if relative is None else np.log2(np.maximum(mean, 1e-3))
    value = np.clip(value, -1, 1)
    return {
        "measure": "agreement" if relative is None else "weight",
        "items": len(rows),
        "usual": float(usual),
        "cells": [
            {
                "x": int(c % COLUMNS),
                "y": int(c // COLUMNS),
                "items": int(n),
                "mean": round(float(m), 4),
                "value": round(float(v), 3),
            }
            for c, n, m, v in zip(cells, count, mean, value, strict=True)
        ],
        "weak": _weak_class(look, look.predicted[rows], measured),
    }


def _weak_class(look: ReportData, predicted: IntArray, measured: FloatArray) -> dict[str, Any] | None:
    """The predicted class on whose items the annotator does worst, beside all of their items."""
    count = np.bincount(predicted, minlength=look.ann.n_classes)
    enough = count >= MIN_ITEMS
    if enough.sum() < 2:
        return None
    with np.errstate(invalid="ignore"):
        mean = np.bincount(predicted, measured, minlength=look.ann.n_classes) / count
    k = int(np.where(enough, mean, np.inf).argmin())
    return {"class": printable(look.ann.classes[k]), "mean": float(mean[k]), "items": int(count[k])}
