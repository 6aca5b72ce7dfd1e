"""Where what the model thinks of an annotator contradicts how far the others say the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import wilson_interval
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MIN_COMPARED_LABELS = 20  # labels that others must have looked at, to compare an annotator by
MIN_AGREEMENT_GAP = 0.05  # how far from usual agreement must be, beyond its interval being clear of it


def agreement_with_others(look: ReportData) -> tuple[FloatArray, IntArray]:
    """For each annotator, (R,): the mean share of the others on an item who say the same, and over how many labels.

    Labels of items that nobody else looked at do not count. Weights play no part in it, so that it can contradict them.
    """
    ann = look.ann
    others = look.labels_per_item[ann.item] - 1
    _, place, count = np.unique(ann.item * ann.n_classes + ann.label, return_inverse=True, return_counts=True)
    shared = others > 0
    share = (count[place][shared] - 1) / others[shared]
    compared = np.bincount(ann.annotator[shared], minlength=ann.n_annotators)
    total = np.bincount(ann.annotator[shared], share, minlength=ann.n_annotators)
    mean: FloatArray = total / np.maximum(compared, 1)
    return mean, compared


def contradictions(look: ReportData, weight: FloatArray | None, accuracy: FloatArray) -> list[dict[str, Any]]:
    """The annotators whom the model believes most, or least, against what the others say.

    `weight` and `accuracy` are (R,), NaN where not known. Who has the highest of one should not agree less
    with the others than usual, nor who has the lowest more. Two annotators agree with one another, and say nothing.
    """
    agreement, compared = agreement_with_others(look)
    judged = np.flatnonzero(compared >= MIN_COMPARED_LABELS)
    if len(judged) < 3:
        return []
    low, high = wilson_interval(agreement * compared, compared)
    found: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, figures in (("weight", weight), ("accuracy", accuracy)):
        if figures is None:
            continue
        known = judged[~np.isnan(figures[judged])]
        if len(known) < 3:
            continue
        for is_most, r in ((True, known[figures[known].argmax()]), (False, known[figures[known].argmin()])):
            usual = float(np.median(agreement[judged[judged != r]]))
            if is_most:
                against = high[r] < usual and agreement[r] < usual - MIN_AGREEMENT_GAP
            else:
                against = low[r] > usual and agreement[r] > usual + MIN_AGREEMENT_GAP
            if against:
                entry = {"annotator": printable(look.ann.annotators[r]), "position": int(r), "most": is_most}
                entry |= {"weight": None, "accuracy": None, "agreement": float(agreement[r]), "usual": usual}
                found.setdefault((int(r), is_most), entry)[name] = float(figures[r])
    return list(found.values())
