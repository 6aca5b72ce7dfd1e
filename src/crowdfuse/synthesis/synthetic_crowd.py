"""`SyntheticCrowd`, the result of every rule that simulates annotators, and helpers that the rules share."""

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
    """Synthetic annotations, with the true classes and the properties of each annotator.

    Attributes
    ----------
    annotations : Annotations
        The labels.
    is_correct : ndarray of bool, shape (n_items, n_annotators)
        Whether the annotator's label is the true class. The functions that create a crowd can leave out labels at
        random (parameter `missing`). For a label that was left out, `is_correct` says whether it would have been
        right.
    truth : ndarray of int, shape (n_items,)
        True class of each item, as a position in `annotations.classes`.
    weakness : ndarray of int, shape (n_annotators,), or None
        Set by `weakness_annotators`: for each annotator, the index of a row of the inputs `X`. The annotator gives
        wrong labels to the items that are near this row.
    hammer : ndarray of bool, shape (n_annotators, n_classes), or None
        Set by `hammer_spammer_annotators`: whether each annotator is a hammer (True) or a spammer (False) on each
        class. A hammer labels every item of the class correctly; a spammer gives wrong labels or guesses.
    habit : ndarray of bool, shape (n_annotators, n_classes, n_classes), or None
        Set by `habit_annotators`: `habit[r, a, b]` is True if annotator r gives the label b to some items of class a.

    See Also
    --------
    weakness_annotators, hammer_spammer_annotators, habit_annotators, network_annotators : Create a `SyntheticCrowd`.

    Examples
    --------
    >>> ann = Annotations.from_matrix([["cat", "dog"], ["dog", "dog"]])
    >>> crowd = SyntheticCrowd(ann, is_correct=np.array([[True, False], [True, True]]), truth=np.array([0, 1]))
    >>> crowd.accuracy.tolist(), crowd.confusion_matrices[1].tolist()
    ([1.0, 0.5], [[0.0, 1.0], [0.0, 1.0]])
    >>> crowd.all_wrong_share
    0.0
    """

    annotations: Annotations
    is_correct: NDArray[np.bool_]
    truth: IntArray
    weakness: IntArray | None = None
    hammer: NDArray[np.bool_] | None = None
    habit: NDArray[np.bool_] | None = None

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Share of right labels per annotator: ndarray of shape (n_annotators,). NaN for annotators without labels."""
        ann = self.annotations
        correct = np.bincount(
            ann.annotator, weights=self.is_correct[ann.item, ann.annotator], minlength=ann.n_annotators
        )
        with np.errstate(invalid="ignore"):
            share: NDArray[np.float64] = correct / np.bincount(ann.annotator, minlength=ann.n_annotators)
        return share

    @property
    def all_wrong_share(self) -> float:
        """Share of the labelled items on which every label is wrong; NaN if no item has labels.

        A method cannot find the class of such an item among the item's labels. It can only predict this class from what
        it learned on other items.
        """
        ann = self.annotations
        has_right_label = np.zeros(ann.n_items, bool)
        has_right_label[ann.item[self.is_correct[ann.item, ann.annotator]]] = True
        labelled = np.diff(ann.indptr) > 0
        return float((~has_right_label[labelled]).mean()) if labelled.any() else float("nan")

    @property
    def confusion_matrices(self) -> NDArray[np.float64]:
        """P(label | true class) of each annotator, from counts: ndarray of shape (n_annotators, n_classes, n_classes).

        The axes are (annotator, true class, label). Each row sums to 1. A row is NaN if the annotator labelled no item
        of the true class.
        """
        ann = self.annotations
        R, K = ann.n_annotators, ann.n_classes
        cell = (ann.annotator.astype(np.int64) * K + self.truth[ann.item]) * K + ann.label
        counts = np.bincount(cell, minlength=R * K * K).reshape(R, K, K)
        with np.errstate(invalid="ignore"):
            shares: NDArray[np.float64] = counts / counts.sum(2, keepdims=True)
        return shares


def true_classes(y: ArrayLike) -> tuple[NDArray[Any], IntArray]:
    """Return the sorted class names and the position of each item's class; an error for fewer than two classes."""
    classes, truth = unique_sorted(normalize_ids(y, "y"))
    if len(classes) < 2:
        raise ValueError(
            f"y must contain at least two classes, got {len(truth):,} items of {format_names(classes) or 'no class'}; "
            "with a single class, synthetic annotators have no wrong label to give, so add items of another class"
        )
    return classes, truth


def class_positions(names: Sequence[Any], classes: NDArray[Any], what: str) -> IntArray:
    """Return the positions of class names among the classes in y.

    Parameters
    ----------
    names : sequence
        Class names.
    classes : ndarray of shape (n_classes,)
        The classes in y.
    what : str
        Name of the argument, for the error message.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    ValueError
        If a class is not in y.

    Examples
    --------
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
    codes: IntArray,
    classes: NDArray[Any],
    missing: float,
    annotators: Sequence[Any] | None,
    generator: np.random.Generator,
) -> Annotations:
    """Return annotations from class codes (N, R); a given share of the labels is left out at random."""
    given = np.where(_left_out(codes.shape, missing, generator), -1, codes)
    annotations = Annotations.from_matrix(given, classes=range(len(classes)), annotators=annotators)
    annotations.classes = classes  # set after the codes were checked, because a class can have the name -1
    return annotations


def check_missing(share: float) -> None:
    """Raise an error if the share of missing labels is not at least 0 and below 1."""
    if not 0 <= share < 1:
        raise ValueError(f"missing must be a share of the labels, at least 0 and below 1, got {share}")


def _left_out(shape: tuple[int, ...], share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Which labels are missing: about this share, but every item keeps the label with the highest draw."""
    draws = generator.random(shape)
    is_missing: NDArray[np.bool_] = draws < share
    is_missing[np.arange(shape[0]), draws.argmax(1)] = False
    return is_missing
