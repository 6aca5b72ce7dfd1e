"""Find annotators whom the model trusts but other annotators contradict, or the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import wilson_interval
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MIN_COMPARED_LABELS = 20  # labels on items that others labelled too, to judge an annotator's agreement
MIN_AGREEMENT_GAP = 0.05  # least distance from the median agreement, which must also lie outside the interval
MIN_ANNOTATORS = 3  # two annotators agree with each other equally often


def agreement_with_others(data: ReportData) -> tuple[FloatArray, IntArray]:
    """Compute how often each annotator agrees with the other annotators of the same item.

    Items with a single label are left out. The weights of the model are not used, so that the result can be compared
    with the weights.

    Returns
    -------
    mean : ndarray of shape (n_annotators,)
        For each annotator: the share of an item's other labels that equal the annotator's label, averaged over items. 0
        if the annotator shares no item with others.
    n_compared : ndarray of shape (n_annotators,)
        Number of the annotator's labels that were compared.
    """
    ann = data.ann
    n_others = data.labels_per_item[ann.item] - 1
    _, position, count = np.unique(ann.item * ann.n_classes + ann.label, return_inverse=True, return_counts=True)
    shared = n_others > 0
    share = (count[position][shared] - 1) / n_others[shared]
    n_compared = np.bincount(ann.annotator[shared], minlength=ann.n_annotators)
    total = np.bincount(ann.annotator[shared], share, minlength=ann.n_annotators)
    mean: FloatArray = total / np.maximum(n_compared, 1)
    return mean, n_compared


def find_contradictions(data: ReportData, mean_weight: FloatArray | None, accuracy: FloatArray) -> list[dict[str, Any]]:
    """Find annotators with the highest weight or accuracy despite low agreement, or the lowest despite high agreement.

    Parameters
    ----------
    data : ReportData
        The labels.
    mean_weight : ndarray of shape (n_annotators,) or None
        Mean weight divided by the weight under equal weighting; NaN where unknown.
    accuracy : ndarray of shape (n_annotators,)
        Estimated accuracy; NaN where unknown.

    Returns
    -------
    list of dict
        One entry per annotator found. In an entry, `mean_weight` is None if the weight does not contradict the
        agreement, and likewise `accuracy`.
    """
    agreement, n_compared = agreement_with_others(data)
    judged = np.flatnonzero(n_compared >= MIN_COMPARED_LABELS)
    if len(judged) < MIN_ANNOTATORS:
        return []
    low, high = wilson_interval(agreement * n_compared, n_compared)
    entries: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, values in (("mean_weight", mean_weight), ("accuracy", accuracy)):
        if values is None:
            continue
        known = judged[~np.isnan(values[judged])]
        if len(known) < MIN_ANNOTATORS:
            continue
        for is_highest, r in ((True, known[values[known].argmax()]), (False, known[values[known].argmin()])):
            median = float(np.median(agreement[judged[judged != r]]))
            if is_highest:
                contradicts = high[r] < median and agreement[r] < median - MIN_AGREEMENT_GAP
            else:
                contradicts = low[r] > median and agreement[r] > median + MIN_AGREEMENT_GAP
            if contradicts:
                entry = {
                    "annotator": printable(data.ann.annotators[r]),
                    "position": int(r),
                    "is_highest": is_highest,
                    "mean_weight": None,
                    "accuracy": None,
                    "agreement": float(agreement[r]),
                    "median_agreement": median,
                }
                entries.setdefault((int(r), is_highest), entry)[name] = float(values[r])
    return list(entries.values())
