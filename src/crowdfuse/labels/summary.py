"""Summary statistics of annotations: counts, agreement, Krippendorff's alpha."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdfuse.labels.ids import IntArray


@dataclass(frozen=True, repr=False)
class Summary:
    """Summary statistics of annotations; `print` shows them as text.

    Attributes
    ----------
    n_items, n_annotators, n_classes, n_labels : int
        Numbers of items, annotators, classes and labels.
    labels_per_item, labels_per_annotator : dict of str to float
        Smallest, mean and largest number of labels, with the keys `min`, `mean` and `max`.
    items_without_labels : int
        Number of items without labels.
    agreement : float
        Among all pairs of labels on the same item, the share of pairs that agree. NaN if no item has two or more
        labels.
    krippendorff_alpha : float
        Krippendorff's alpha for classes without an order: 1 means full agreement, 0 means agreement by chance. Only
        items with two or more labels count. NaN if there are no such items, or if all their labels are the same class.
    dropped_missing : int
        Number of empty labels that were dropped while reading.
    dropped_duplicates : int
        Number of labels that were dropped because the same annotator had already given the item the same label.
    dropped_conflicts : int
        Number of labels that were dropped because their annotator gave the same item several different labels.
    notes : tuple of str, default=()
        Warnings that were given when the labels were read.

    See Also
    --------
    Annotations.summary : Computes the summary.

    References
    ----------
    K. Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> print(Annotations.from_matrix([["a", "b"], ["a", "a"]]).summary())
    2 items, 2 annotators, 2 classes, 4 labels
    labels per item       2.00 (from 2 to 2)
    labels per annotator  2.00 (from 2 to 2)
    agreement             0.500 of the pairs of labels on the same item
    Krippendorff's alpha  0.000
    """

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
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        def spread(counts: dict[str, float]) -> str:
            return f"{counts['mean']:.2f} (from {counts['min']:.0f} to {counts['max']:.0f})"

        def value_or_reason(value: float, unit: str, reason: str) -> str:
            return f"{value:.3f}{unit}" if value == value else f"not defined: {reason}"

        lines = [
            f"{self.n_items:,} items, {self.n_annotators:,} annotators, "
            f"{self.n_classes:,} classes, {self.n_labels:,} labels",
            f"labels per item       {spread(self.labels_per_item)}",
            f"labels per annotator  {spread(self.labels_per_annotator)}",
            "agreement             "
            + value_or_reason(self.agreement, " of the pairs of labels on the same item", "no item has two labels"),
            "Krippendorff's alpha  "
            + value_or_reason(self.krippendorff_alpha, "", "no item has two labels, or all their labels are one class"),
        ]
        notes = [
            (self.items_without_labels, "item has no label", "items have no label"),
            (
                self.dropped_missing,
                "label is missing (empty, or a word such as NA)",
                "labels are missing (empty, or a word such as NA)",
            ),
            (self.dropped_duplicates, "repeated label was dropped", "repeated labels were dropped"),
            (
                self.dropped_conflicts,
                "label was dropped because its annotator gave the item a different label",
                "labels were dropped because their annotator gave the item a different label",
            ),
        ]
        lines += [f"note: {count:,} {one if count == 1 else many}" for count, one, many in notes if count]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__  # notebooks show the repr


def summarize(
    indptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    n_annotators: int,
    n_classes: int,
    dropped: tuple[int, int, int],
    notes: tuple[str, ...] = (),
) -> Summary:
    """Compute the summary of labels that are stored as CSR arrays.

    Parameters
    ----------
    indptr, annotator, label : ndarray of int
        The arrays of the same names in `Annotations`.
    n_annotators, n_classes : int
        Counts, including annotators and classes without labels.
    dropped : tuple of three ints
        Number of empty, repeated and conflicting labels that were dropped.
    notes : tuple of str, default=()
        Warnings that were given when the labels were read.

    Returns
    -------
    Summary
    """
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
    """Share of agreeing pairs, and alpha = 1 - observed / expected disagreement; NaN if undefined."""
    pairs = float((per_item * (per_item - 1)).sum())
    if not pairs:
        return float("nan"), float("nan")
    # `count` is the number of labels per (item, class), for the items with at least two labels
    keep = per_item[item] >= 2
    cell, count = np.unique(item[keep] * n_classes + label[keep], return_counts=True)
    same = count * (count - 1.0)
    by_class = np.bincount(cell % n_classes, weights=count, minlength=n_classes)
    total = by_class.sum()
    by_size = np.bincount(
        per_item[cell // n_classes], weights=same
    )  # sums of integers: the same bits for any order of items
    observed = 1 - float((by_size[2:] / np.arange(1, len(by_size) - 1)).sum()) / total
    expected = 1 - float((by_class * (by_class - 1)).sum()) / (total * (total - 1))
    alpha = 1 - observed / expected if expected > 0 else float("nan")
    return float(same.sum()) / pairs, alpha


def _spread(counts: IntArray) -> dict[str, float]:
    """Minimum, mean and maximum; zeros if empty."""
    if not len(counts):
        return {"min": 0.0, "mean": 0.0, "max": 0.0}
    return {"min": float(counts.min()), "mean": float(counts.mean()), "max": float(counts.max())}
