"""What every rule gives back: annotations, and the truth about each annotator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of, unique_sorted


@dataclass(frozen=True)
class SyntheticCrowd:
    """Annotations, and the truth about them.

    >>> ann = Annotations.from_matrix([["cat", "dog"], ["dog", "dog"]])
    >>> made = SyntheticCrowd(ann, is_correct=np.array([[True, False], [True, True]]), truth=np.array([0, 1]))
    >>> made.accuracy.tolist(), made.confusion_matrices[1].tolist()
    ([1.0, 0.5], [[0.0, 1.0], [0.0, 1.0]])
    >>> made.all_wrong_share
    0.0
    """

    annotations: Annotations
    is_correct: NDArray[np.bool_]
    """(N, R): whether the annotator is right on the item, labelled or not."""
    truth: IntArray
    """(N,): the true class of each item, as a position in `annotations.classes`."""
    weakness: IntArray | None = None
    """(R,): the row that each annotator cannot read, where the rule is weakness and the rows are known."""
    hammer: NDArray[np.bool_] | None = None
    """(R, K): on which classes each annotator is a hammer, where the rule is hammer-spammer."""
    habit: NDArray[np.bool_] | None = None
    """(R, K, K): which class each annotator takes for which at times, where the rule is habit; (..., true, said)."""

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Each annotator's share of right labels among those given, (R,); NaN where there are none."""
        ann = self.annotations
        correct = np.bincount(
            ann.annotator, weights=self.is_correct[ann.item, ann.annotator], minlength=ann.n_annotators
        )
        with np.errstate(invalid="ignore"):
            share: NDArray[np.float64] = correct / np.bincount(ann.annotator, minlength=ann.n_annotators)
        return share

    @property
    def all_wrong_share(self) -> float:
        """The share of the labelled items of which every label given is wrong; NaN where there are none.

        No method can choose the right label there: at best it learns the class from other items.
        """
        ann = self.annotations
        told = np.zeros(ann.n_items, bool)
        told[ann.item[self.is_correct[ann.item, ann.annotator]]] = True
        labelled = np.diff(ann.indptr) > 0
        return float((~told[labelled]).mean()) if labelled.any() else float("nan")

    @property
    def confusion_matrices(self) -> NDArray[np.float64]:
        """P(said | true) of each annotator, counted over the labels given, (R, K, K); axes (annotator, true, said).

        Rows sum to 1, and are NaN for a class of which the annotator labelled no item.
        """
        ann = self.annotations
        R, K = ann.n_annotators, ann.n_classes
        cell = (ann.annotator.astype(np.int64) * K + self.truth[ann.item]) * K + ann.label
        counts = np.bincount(cell, minlength=R * K * K).reshape(R, K, K)
        with np.errstate(invalid="ignore"):
            shares: NDArray[np.float64] = counts / counts.sum(2, keepdims=True)
        return shares


def true_classes(y: ArrayLike) -> tuple[NDArray[Any], IntArray]:
    """The class names in order, and each item's position among them; annotators need two classes to be wrong."""
    classes, truth = unique_sorted(normalize_ids(y, "y"))
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least two classes for a label to be wrong, got {len(truth):,} items of "
            f"{format_names(classes) or 'no class'}"
        )
    return classes, truth


def class_positions(names: Sequence[Any], classes: NDArray[Any], what: str) -> IntArray:
    """Where these classes stand among those in y; `what` is the argument that names them.

    >>> class_positions(["dog"], np.array(["cat", "dog"], object), "habits").tolist()
    [1]
    """
    position = positions_of(normalize_ids(names, what), classes)
    if (position < 0).any():
        unknown = [names[at] for at in np.flatnonzero(position < 0).tolist()]
        raise ValueError(
            f"{what}: {format_names(unknown)} is not one of the {len(classes):,} classes in y ({format_names(classes)})"
        )
    return position


def annotate(
    said: IntArray,
    classes: NDArray[Any],
    missing: float,
    annotators: Sequence[Any] | None,
    generator: np.random.Generator,
) -> Annotations:
    """Annotations from class positions (N, R), a share of the labels left out at random, never an item's last."""
    given = np.where(_left_out(said.shape, missing, generator), -1, said)
    annotations = Annotations.from_matrix(given, classes=range(len(classes)), annotators=annotators)
    annotations.classes = classes  # codes above: names would make an array of objects, and -1 may be a name
    return annotations


def check_missing(share: float) -> None:
    """Refuse a share of missing labels that makes no sense; rules ask before any work."""
    if not 0 <= share < 1:
        raise ValueError(f"missing must be a share from 0 to below 1, got {share}")


def _left_out(shape: tuple[int, ...], share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Which labels are missing: about this share, but every item keeps the one it would lose last."""
    luck = generator.random(shape)
    gone: NDArray[np.bool_] = luck < share
    gone[np.arange(shape[0]), luck.argmax(1)] = False
    return gone
