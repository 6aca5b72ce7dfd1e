"""Annotations in a few numbers: counts, agreement, Krippendorff's alpha."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdfuse.labels.ids import IntArray


@dataclass(frozen=True, repr=False)
class Summary:
    """The annotations in a few numbers; `print` it."""

    n_items: int
    n_annotators: int
    n_classes: int
    n_labels: int
    labels_per_item: dict[str, float]
    labels_per_annotator: dict[str, float]
    items_without_labels: int
    agreement: float
    krippendorff_alpha: float
    dropped_missing: int
    dropped_duplicates: int
    dropped_conflicts: int
    notes: tuple[str, ...] = ()  # what was said when they were read

    def __str__(self) -> str:
        def spread(d: dict[str, float]) -> str:
            return f"{d['mean']:.2f} (from {d['min']:.0f} to {d['max']:.0f})"

        def known(value: float, text: str, otherwise: str) -> str:
            return f"{value:.3f}{text}" if value == value else f"not defined: {otherwise}"

        lines = [
            f"{self.n_items:,} items, {self.n_annotators:,} annotators, "
            f"{self.n_classes:,} classes, {self.n_labels:,} labels",
            f"labels an item        {spread(self.labels_per_item)}",
            f"labels an annotator   {spread(self.labels_per_annotator)}",
            "agreement             "
            + known(self.agreement, " of the pairs of labels on one item", "no item has two labels"),
            "Krippendorff's alpha  "
            + known(self.krippendorff_alpha, "", "it takes items with two labels, and two classes among them"),
        ]
        notes = [
            (self.items_without_labels, "item has no label", "items have no label"),
            (self.dropped_missing, "label was empty and counts as missing", "labels were empty and count as missing"),
            (self.dropped_duplicates, "row repeated another and was dropped", "rows repeated others and were dropped"),
            (
                self.dropped_conflicts,
                "label contradicted another of the same annotator and was dropped",
                "labels contradicted another of the same annotator and were dropped",
            ),
        ]
        lines += [f"note: {count:,} {one if count == 1 else many}" for count, one, many in notes if count]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__  # what a notebook shows


def summarise(
    indptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    n_annotators: int,
    n_classes: int,
    dropped: tuple[int, int, int],
    notes: tuple[str, ...] = (),
) -> Summary:
    """From CSR arrays by item; `dropped` counts missing, repeated and contradicting labels."""
    per_item = np.diff(indptr)
    agreement, alpha = _agreement(np.repeat(np.arange(len(per_item)), per_item), label, per_item, n_classes)
    return Summary(
        n_items=len(per_item),
        n_annotators=n_annotators,
        n_classes=n_classes,
        n_labels=len(label),
        labels_per_item=_spread(per_item),
        labels_per_annotator=_spread(np.bincount(annotator, minlength=n_annotators)),
        items_without_labels=int((per_item == 0).sum()),
        agreement=agreement,
        krippendorff_alpha=alpha,
        dropped_missing=dropped[0],
        dropped_duplicates=dropped[1],
        dropped_conflicts=dropped[2],
        notes=notes,
    )


def _agreement(item: IntArray, label: IntArray, per_item: IntArray, n_classes: int) -> tuple[float, float]:
    """The share of agreeing pairs, and alpha = 1 - observed / expected disagreement; NaN where undefined."""
    pairs = float((per_item * (per_item - 1)).sum())
    if not pairs:
        return float("nan"), float("nan")
    # n_ic = how often class c was said of item i, for the items that have at least two labels
    keep = per_item[item] >= 2
    cell, count = np.unique(item[keep] * n_classes + label[keep], return_counts=True)
    same = count * (count - 1.0)
    by_class = np.bincount(cell % n_classes, weights=count, minlength=n_classes)
    total = by_class.sum()
    by_size = np.bincount(per_item[cell // n_classes], weights=same)  # whole numbers, in any order of items
    observed = 1 - float((by_size[2:] / np.arange(1, len(by_size) - 1)).sum()) / total
    expected = 1 - float((by_class * (by_class - 1)).sum()) / (total * (total - 1))
    alpha = 1 - observed / expected if expected > 0 else float("nan")
    return float(same.sum()) / pairs, alpha


def _spread(counts: IntArray) -> dict[str, float]:
    if not len(counts):
        return {"min": 0.0, "mean": 0.0, "max": 0.0}
    return {"min": float(counts.min()), "mean": float(counts.mean()), "max": float(counts.max())}
