"""The table of annotators: how much each said, how often right, where strongest and where weakest."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import proportion_with_interval, wilson_interval
from crowdfuse.report.contradictions import contradictions
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import FloatArray, ReportData

MAX_ANNOTATOR_ROWS = 1_000  # rows that a page can hold and sort at once
MIN_ITEMS_PER_CLASS = 3.0  # items of a class that an annotator must have seen, to say how well
MIN_RECALL_GAP = (
    0.005  # shares that are shown as the same percentage: nobody is weakest where they know as much as anywhere
)


def annotator_facts(look: ReportData, gold: IntArray) -> dict[str, Any]:
    """A row an annotator, the most accurate first; of more than 1,000 those with the most labels.

    `gold` (N,) is the true class of each item, -1 where it is not known.
    """
    ann, found = look.ann, look.quality
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    speaking = np.flatnonzero(counts)
    chosen = speaking[np.argsort(-counts[speaking], kind="stable")][:MAX_ANNOTATOR_ROWS]
    skill = found.annotator_accuracy[chosen]
    low, high = wilson_interval(skill * counts[chosen], counts[chosen])
    agreed = _share_of(look, look.fused, ann.n_annotators)
    true = _share_of(look, gold, ann.n_annotators)
    mean_weight = None
    relative = look.relative_weights()
    if relative is not None:
        known = ~np.isnan(relative)
        weighed = np.bincount(ann.annotator[known], minlength=ann.n_annotators)
        with np.errstate(invalid="ignore"):
            mean_weight = np.bincount(ann.annotator[known], relative[known], minlength=ann.n_annotators) / weighed
    strongest, weakest = _extremes(*class_shares(look, chosen))
    rows = []
    for place in np.argsort(-skill, kind="stable"):
        r = chosen[place]
        rows.append(
            {
                "annotator": printable(ann.annotators[r]),
                "position": int(r),
                "labels": int(counts[r]),
                "accuracy": {"value": float(skill[place]), "low": float(low[place]), "high": float(high[place])},
                "agreement": proportion_with_interval(*(float(part[r]) for part in agreed))["value"],
                "gold": proportion_with_interval(*(float(part[r]) for part in true)) if true[1][r] else None,
                "weight": None if mean_weight is None or np.isnan(mean_weight[r]) else float(mean_weight[r]),
                "strongest": _class(look, strongest[place]),
                "weakest": _class(look, weakest[place]),
            }
        )
    return {
        "total": len(speaking),
        "without labels": int(len(counts) - len(speaking)),
        "contradictions": contradictions(look, mean_weight, found.annotator_accuracy),
        "rows": rows,
    }


def class_shares(look: ReportData, annotators: IntArray) -> tuple[FloatArray, FloatArray]:
    """For some annotators (S,) and each class, (S, K): how many items of the class they saw, and said so of.

    Nobody knows the class for certain: an item counts for each class as much as it is likely.
    """
    ann, K = look.ann, look.ann.n_classes
    place = np.full(ann.n_annotators, -1)
    place[annotators] = np.arange(len(annotators))
    keep = place[ann.annotator] >= 0
    who, item = place[ann.annotator[keep]], ann.item[keep]
    shape = (len(annotators), ann.n_items)
    seen = (
        sparse.csr_array((np.ones(len(who), np.float32), (who, item)), shape=shape) @ look.quality.class_probabilities
    )
    said = np.bincount(who * K + ann.label[keep], look.quality.label_confidence[keep], len(annotators) * K)
    return seen.astype(np.float64), said.reshape(-1, K).astype(np.float64)


def _extremes(
    seen: FloatArray, said: FloatArray
) -> tuple[list[tuple[int, float] | None], list[tuple[int, float] | None]]:
    """The class each annotator is surest to know, and surest not to know; None where there is nothing to choose."""
    low, high = wilson_interval(said, seen)
    enough = seen >= MIN_ITEMS_PER_CLASS
    best, worst = np.where(enough, low, -1).argmax(1), np.where(enough, high, 2).argmin(1)
    several = enough.sum(1) > 1
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.clip(said / seen, 0, 1)

    def chosen(classes: IntArray) -> list[tuple[int, float] | None]:
        rows = np.arange(len(rate))
        apart = several & (rate[rows, best] - rate[rows, worst] > MIN_RECALL_GAP)
        return [(int(k), float(rate[s, k])) if apart[s] else None for s, k in enumerate(classes)]

    return chosen(best), chosen(worst)


def _share_of(look: ReportData, truth: IntArray, n_annotators: int) -> tuple[FloatArray, FloatArray]:
    """How many labels of each annotator say what `truth` (N,) does, and of how many it says anything."""
    ann = look.ann
    known = truth[ann.item] >= 0
    right = np.bincount(ann.annotator[known], (ann.label == truth[ann.item])[known], n_annotators)
    return right.astype(np.float64), np.bincount(ann.annotator[known], minlength=n_annotators).astype(np.float64)


def _class(look: ReportData, chosen: tuple[int, float] | None) -> dict[str, Any] | None:
    return None if chosen is None else {"class": printable(look.ann.classes[chosen[0]]), "share": chosen[1]}
