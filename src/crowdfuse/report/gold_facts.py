"""How good the model is, where the truth is known: accuracy, abstaining, an operating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.intervals import proportion_with_interval, wilson_interval
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import ReportData

ABSTAINED = np.arange(0, 0.91, 0.05)
MIN_ITEMS_PER_BIN = 5  # items that a step of confidence must have, to be shown
MIN_GOLD_ITEMS = 20  # items that must be left to say anything of


@dataclass(frozen=True)
class GoldSet:
    """Items whose true class is known, and how they stand to the training."""

    name: str
    rows: IntArray
    codes: IntArray
    was_seen: str  # what training saw of them, in words
    is_unbiased: bool  # whether it saw neither their true class nor chose anything by it


def accuracy_facts(look: ReportData, sets: Sequence[GoldSet]) -> list[dict[str, Any]]:
    """For each set the share of right predictions, of right fused labels, and of a right consensus."""
    facts = []
    for gold in sets:
        guesses = {"predicted": look.predicted, "fused": look.fused, "consensus": look.quality.consensus_codes}
        counted = {}
        for name, guess in guesses.items():
            known = guess[gold.rows] >= 0
            if name != "predicted":
                # without labels there is nothing to fuse, and gold itself is right by definition
                known &= (look.labels_per_item[gold.rows] > 0) & ~look.has_training_gold[gold.rows]
            counted[name] = proportion_with_interval(
                int((guess[gold.rows] == gold.codes)[known].sum()), int(known.sum())
            )
        facts.append(
            {"gold": gold.name, "items": len(gold.rows), "seen": gold.was_seen, "fair": gold.is_unbiased} | counted
        )
    return facts


def evaluation_rows(look: ReportData, sets: Sequence[GoldSet]) -> tuple[IntArray, IntArray, str]:
    """The rows to judge predictions by, their classes, and which they are: fair ones, where there are any."""
    chosen = [gold for gold in sets if gold.is_unbiased and len(gold.rows)] or [gold for gold in sets if len(gold.rows)]
    if not chosen:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), ""
    rows, first = np.unique(np.concatenate([gold.rows for gold in chosen]), return_index=True)
    codes = np.concatenate([gold.codes for gold in chosen])[first]
    known = look.predicted[rows] >= 0
    return rows[known], codes[known], "; ".join(dict.fromkeys(f"{gold.name}: {gold.was_seen}" for gold in chosen))


def abstention_facts(look: ReportData, rows: IntArray, codes: IntArray, on: str) -> dict[str, Any] | None:
    """Accuracy on what is left when the model keeps silent on the items it is least sure of."""
    if len(rows) < MIN_GOLD_ITEMS:
        return None
    order = np.argsort(-look.predicted_confidence[rows], kind="stable")
    right = np.cumsum((look.predicted[rows] == codes)[order])
    points = []
    for abstained in ABSTAINED:
        kept = len(rows) - round(abstained * len(rows))
        if kept >= MIN_GOLD_ITEMS:
            figures = proportion_with_interval(int(right[kept - 1]), kept)
            sure = float(look.predicted_confidence[rows[order[kept - 1]]])
            points.append({"abstained": 1 - kept / len(rows), "least confidence": sure, **figures})
    return {"on": on, "points": points}


def operating_point(
    look: ReportData, rows: IntArray, codes: IntArray, on: str, *, positive: int, sensitivity: float
) -> dict[str, Any] | None:
    """Of two classes: the highest threshold that finds the wanted share of the positives, and what it costs.

    Nothing where the gold holds no item of one of the classes. The threshold is chosen on the items it is judged by.
    """
    score = np.where(
        look.predicted[rows] == positive, look.predicted_confidence[rows], 1 - look.predicted_confidence[rows]
    )
    is_positive = codes == positive
    n_positive, n_negative = int(is_positive.sum()), int((~is_positive).sum())
    if not n_positive or not n_negative:
        return None
    needed = int(np.ceil(sensitivity * n_positive - 1e-9))
    threshold = float(np.sort(score[is_positive])[::-1][max(needed, 1) - 1])
    says = score >= threshold
    thresholds = np.unique(score)[::-1]
    found = np.searchsorted(np.sort(-score[is_positive]), -thresholds, "right") / n_positive
    alarms = np.searchsorted(np.sort(-score[~is_positive]), -thresholds, "right") / n_negative
    some = np.unique(np.linspace(0, len(thresholds) - 1, 100).round().astype(int))
    return {
        "on": on,
        "positive": printable(look.ann.classes[positive]),
        "wanted": sensitivity,
        "threshold": threshold,
        "sensitivity": proportion_with_interval(int((says & is_positive).sum()), n_positive),
        "specificity": proportion_with_interval(int((~says & ~is_positive).sum()), n_negative),
        "precision": proportion_with_interval(int((says & is_positive).sum()), int(says.sum())),
        "curve": [[0.0, 0.0], *np.column_stack([alarms, found])[some].round(4).tolist()],
    }


def calibration_facts(look: ReportData, rows: IntArray, codes: IntArray, on: str) -> dict[str, Any] | None:
    """How sure the model is beside how often it is right, in ten steps of confidence."""
    if len(rows) < MIN_GOLD_ITEMS:
        return None
    sure, right = look.predicted_confidence[rows], look.predicted[rows] == codes
    step = np.minimum((sure * 10).astype(int), 9)
    count = np.bincount(step, minlength=10)
    hits, said = np.bincount(step, right, minlength=10), np.bincount(step, sure, minlength=10)
    low, high = wilson_interval(hits, count)
    bins = [
        {
            "confidence": said[b] / count[b],
            "right": hits[b] / count[b],
            "low": low[b],
            "high": high[b],
            "of": int(count[b]),
        }
        for b in np.flatnonzero(count >= MIN_ITEMS_PER_BIN)
    ]
    error = float(np.abs(hits - said).sum() / len(rows))
    return {"on": on, "bins": bins, "error": error, "mean confidence": float(sure.mean()), "right": float(right.mean())}
