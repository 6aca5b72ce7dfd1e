"""Annotators made up on purpose, so that who is right is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.annotations import Annotations


@dataclass(frozen=True)
class MadeUp:
    """Annotations, and the truth about them."""

    annotations: Annotations
    right: NDArray[np.bool_]
    """(N, R): whether the annotator is right on the item, labelled or not."""

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Each annotator's share of right labels among those given, (R,)."""
        ann = self.annotations
        correct = np.bincount(ann.annotator, weights=self.right[ann.item, ann.annotator], minlength=ann.n_annotators)
        share: NDArray[np.float64] = correct / np.bincount(ann.annotator, minlength=ann.n_annotators)
        return share


def weakness_annotators(
    X: ArrayLike,
    y: ArrayLike,
    *,
    weakness: Sequence[int],
    epsilon: float | Sequence[float],
    missing: float = 0.0,
    annotators: Sequence[Any] | None = None,
    seed: int = 0,
) -> MadeUp:
    """The paper's rule: annotator r cannot read what looks like image `weakness[r]`.

    Items within Euclidean distance `epsilon` (one for all, or one each) of that row of X get a class drawn
    uniformly from the wrong ones, all others the right one. A share `missing` of the labels is left out at
    random, never an item's last one.

    >>> made = weakness_annotators(np.arange(6.0)[:, None], [0, 1, 0, 1, 0, 1], weakness=[0, 5], epsilon=1)
    >>> made.right.T.astype(int).tolist()
    [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]
    """
    inputs = np.asarray(X, np.float64).reshape(len(np.asarray(X)), -1)
    truth = np.asarray(y)
    classes, code = np.unique(truth, return_inverse=True)
    generator = np.random.default_rng(seed)
    distance = np.stack([np.linalg.norm(inputs - inputs[row], axis=1) for row in weakness], axis=1)
    right = distance > np.broadcast_to(epsilon, len(weakness))
    shift = generator.integers(1, len(classes), right.shape)  # never 0: a wrong label is never the right one
    said = np.where(right, code[:, None], (code[:, None] + shift) % len(classes))
    labels = classes[said].astype(object)
    labels[_left_out(right.shape, missing, generator)] = None
    annotations = Annotations.from_matrix(labels, classes=classes.tolist(), annotators=annotators)
    return MadeUp(annotations, right)


def two_moon_annotators(X: NDArray[np.float64]) -> Annotations:
    """The paper's two: one sees only whether x >= 0, the other only whether y <= 0."""
    labels = np.stack([X[:, 0] >= 0, X[:, 1] <= 0], axis=1).astype(np.int64)
    return Annotations.from_matrix(labels, annotators=["annotator-1", "annotator-2"])


def _left_out(shape: tuple[int, ...], share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Which labels are missing: about this share, but every item keeps the one it would lose last."""
    if not 0 <= share < 1:
        raise ValueError(f"missing must be a share from 0 to below 1, got {share}")
    luck = generator.random(shape)
    gone: NDArray[np.bool_] = luck < share
    gone[np.arange(shape[0]), luck.argmax(1)] = False
    return gone
