"""Details of individual annotators: confusion matrix, and regions of the item map where they are weak."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.report.item_map import MAP_COLUMNS, ItemMap
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MAX_DETAILED_ANNOTATORS = 24  # annotators shown one by one
MAX_ITEMS_PER_ANNOTATOR = 400  # items sampled for each of them
MAX_MATRIX_CLASSES = 12  # classes shown in a confusion matrix
MIN_ITEMS = 5  # items needed to measure an annotator on a map
AGREEMENT_PRIOR_ITEMS = 3  # in each cell of the map, this many items with the annotator's overall agreement are added


def most_active_annotators(data: ReportData) -> IntArray:
    """Return the positions of the annotators with the most labels, at most 24, in the order of all tables."""
    order = data.consensus.annotator_order
    most_active = np.argsort(-data.consensus.labels_per_annotator, kind="stable")[:MAX_DETAILED_ANNOTATORS]
    return order[np.isin(order, most_active)]


def sample_labels(data: ReportData, annotators: IntArray) -> dict[int, IntArray]:
    """Return, for each given annotator, at most 400 of their labels at random, as positions among all labels."""
    generator = np.random.default_rng(1)
    by_annotator = np.argsort(data.ann.annotator, kind="stable")
    counts = data.consensus.labels_per_annotator
    ends = np.cumsum(counts)
    sample = {}
    for r in annotators:
        labels = by_annotator[ends[r] - counts[r] : ends[r]]
        sample[int(r)] = np.sort(generator.permutation(labels)[:MAX_ITEMS_PER_ANNOTATOR])
    return sample


def detail_facts(
    data: ReportData, labels_by_annotator: dict[int, IntArray], item_map: ItemMap | None
) -> list[dict[str, Any]]:
    """Return the confusion matrix and the map of each annotator as the `annotator_details` entry of a report.

    Parameters
    ----------
    data : ReportData
        Labels and model.
    labels_by_annotator : dict of int to ndarray
        Sampled labels of each annotator to show, from `sample_labels`.
    item_map : ItemMap or None
        Positions of the items on the map; None if there are no inputs.

    Returns
    -------
    list of dict
        One entry per annotator, in the given order.
    """
    relative = data.relative_weights() if data.weights_vary else None
    return [
        {
            "annotator": printable(data.ann.annotators[r]),
            "position": r,
            "confusion": _confusion_facts(data, estimated_confusion(data, r)),
            "map": None if item_map is None else _annotator_map_facts(data, labels, relative, item_map),
        }
        for r, labels in labels_by_annotator.items()
    ]


def estimated_confusion(data: ReportData, r: int) -> FloatArray:
    """Return P(label | true class) of one annotator, shape (n_classes, n_classes).

    If the consensus has a confusion matrix of the annotator, it is returned. Otherwise each label is counted in the
    rows of all classes, weighted by the probability of each class.
    """
    if data.consensus.confusion_matrices is not None:
        matrix: FloatArray = data.consensus.confusion_matrices[r]
        return matrix
    is_own = data.ann.annotator == r
    joint = np.zeros((data.ann.n_classes, data.ann.n_classes))
    np.add.at(joint.T, data.ann.label[is_own], data.consensus.class_probabilities[data.ann.item[is_own]])
    normalized: FloatArray = joint / np.maximum(joint.sum(1, keepdims=True), 1e-12)
    return normalized


def _confusion_facts(data: ReportData, matrix: FloatArray) -> dict[str, Any]:
    """Return the matrix; if there are more than 12 classes, only the 12 most confused classes."""
    K = len(matrix)
    shown = np.arange(K)
    if K > MAX_MATRIX_CLASSES:
        off_diagonal = matrix * (1 - np.eye(K))
        largest = np.maximum(off_diagonal.max(0), off_diagonal.max(1))
        shown = np.sort(np.argsort(-largest, kind="stable")[:MAX_MATRIX_CLASSES])
    return {
        "classes": [printable(name) for name in data.ann.classes[shown]],
        "n_classes": K,
        "matrix": matrix[np.ix_(shown, shown)].tolist(),
    }


def _annotator_map_facts(
    data: ReportData, labels: IntArray, relative: FloatArray | None, item_map: ItemMap
) -> dict[str, Any] | None:
    """Return how strong the annotator is in each cell of the map; None if there are too few items.

    `value` is from -1 (weak) to 1 (strong). If the method weights annotators per item, `value` is the base-2 logarithm
    of the weight relative to equal weights, so that -1 means half the weight. Otherwise, the annotator's agreement with
    the model in the cell is compared with the agreement on all items: `value` is the difference, divided by 0.25.
    """
    rows = data.ann.item[labels]
    cell = item_map.cells(rows)
    # the only label of an item always has all the weight, so it says nothing about the annotator
    keep = (cell >= 0) & ((data.labels_per_item[rows] > 1) | (relative is None))
    if keep.sum() < MIN_ITEMS:
        return None
    labels, rows, cell = labels[keep], rows[keep], cell[keep]
    agrees = (data.ann.label[labels] == data.predictions.codes[rows]).astype(np.float64)
    measured = agrees if relative is None else relative[labels]
    cells, position, count = np.unique(cell, return_inverse=True, return_counts=True)
    overall = measured.mean()
    n_prior = (
        AGREEMENT_PRIOR_ITEMS if relative is None else 0
    )  # shrinkage, because agreement on a few items is mostly chance
    mean = (np.bincount(position, measured) + n_prior * overall) / (count + n_prior)
    value = (mean - overall) / 0.25 if relative is None else np.log2(np.maximum(mean, 1e-3))
    value = np.clip(value, -1, 1)
    return {
        "measure": "agreement" if relative is None else "weight",
        "n_items": len(rows),
        "cells": [
            {
                "x": int(c % MAP_COLUMNS),
                "y": int(c // MAP_COLUMNS),
                "n_items": int(n),
                "mean": float(m),
                "value": float(v),
            }
            for c, n, m, v in zip(cells, count, mean, value, strict=True)
        ],
    }
