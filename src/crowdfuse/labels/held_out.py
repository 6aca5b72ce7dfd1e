"""Held-out labels: choosing an epoch, a start, a setting or a method without gold.

Of some items that have several labels, one is kept out of training. A classifier is the better the more its class
probabilities tell about these labels, once a small model of annotators stands between the two; guards refuse what
explains labels well and is still plainly wrong.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from crowdfuse.labels.annotations import Annotations

HELD_OUT_FRACTION, MAX_HELD_OUT_LABELS = 0.1, 5_000  # of the labels; labels
N_EM_ITERATIONS = 8
ACCURACY_PRIOR_LABELS = 5.0  # labels: how many an annotator's own share of right ones must outweigh
MIN_PREDICTED_TO_LABELLED_RATIO = (
    0.05  # of the share of labels that name a class: predicted less often than that, the class is lost
)


class ValidationScore(NamedTuple):
    """What held-out labels say of a classifier."""

    values: NDArray[np.float64]
    """The log-likelihood of each label, (H,)."""
    failed_checks: tuple[str, ...]
    """What speaks against the classifier however likely it makes the labels; empty if nothing does."""

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    def beats(self, other: ValidationScore) -> bool:
        """Whether to prefer this one: no objections, or as few; then likelier by more than one standard error.

        Paired, label by label. Where two are as good as equal the earlier, simpler one stays.
        """
        if bool(self.failed_checks) != bool(other.failed_checks):
            return not self.failed_checks
        difference = self.values - other.values
        return bool(difference.mean() > difference.std() / math.sqrt(len(difference)))


@dataclass(frozen=True)
class HeldOutLabels:
    """Labels that were kept out of training, and what was kept in of the same items."""

    rows: NDArray[np.int64]
    """The items, as rows of the training data, (M,)."""
    item: NDArray[np.int64]
    """Which of the M items each label is of, (H,)."""
    annotator: NDArray[np.int64]
    label: NDArray[np.int64]
    training_annotations: Annotations
    """The other labels of the M items: a model of annotators is fitted to these."""

    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """The verdict on class logits (M, K) of the items.

        A label y of annotator r has the likelihood `sum_k f_k (a_r [y = k] + (1 - a_r) W[k, y])`: an annotator is
        right with probability a_r, and one table W, the same for all, says what is said instead. a and W are fitted
        to the kept labels by expectation and maximisation, so a classifier that knows these by heart has annotators
        that are too good to be true, and pays for it here.
        """
        log_f = log_softmax(np.asarray(logits, np.float64), axis=1)
        f = np.exp(log_f)
        right, spread = self._annotators(f)
        likely = (f[self.item] * label_probabilities(right[self.annotator], spread, self.label)).sum(1)
        return ValidationScore(np.log(np.maximum(likely, 1e-9)), self._objections(f.argmax(1)))

    def _annotators(self, f: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How often each annotator is right, (R,), and what is said instead of each class, (K, K), diagonal 0."""
        ann = self.training_annotations
        right, spread = estimate_annotators(None, ann)
        for _ in range(N_EM_ITERATIONS):
            posterior = f[ann.item] * label_probabilities(right[ann.annotator], spread, ann.label)
            posterior /= np.maximum(posterior.sum(1, keepdims=True), 1e-300)
            right, spread = estimate_annotators(posterior, ann)
        return right, spread

    def _objections(self, predicted: NDArray[np.int64]) -> tuple[str, ...]:
        return failed_sanity_checks(predicted, self.training_annotations)

    def fingerprint(self) -> dict[str, str]:
        """A hash of the labels, to know them again."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.rows, self.item, self.annotator, self.label):
            digest.update(np.ascontiguousarray(array).data)
        return {"held_out_labels": digest.hexdigest()}


def hold_out_labels(ann: Annotations, usable: NDArray[np.bool_], seed: int) -> tuple[Annotations, HeldOutLabels | None]:
    """Keep one label each of some items out: a tenth of all labels, at most 5,000, of `usable` items with several.

    Returns the labels to train on, in the same rows, and those held out; None where no item has two labels.

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 1, -1], [1, -1, -1]])
    >>> kept, held = hold_out_labels(ann, np.ones(4, bool), seed=0)
    >>> kept.n_labels, len(held.label)
    (8, 1)
    """
    counts = np.diff(ann.indptr)
    several = np.flatnonzero((counts > 1) & usable)
    wanted = min(MAX_HELD_OUT_LABELS, len(several), max(1, round(HELD_OUT_FRACTION * ann.n_labels)))
    if not len(several):
        return ann, None
    generator = np.random.default_rng([seed, 5])
    rows = np.sort(generator.permutation(several)[:wanted])
    out = ann.indptr[rows] + generator.integers(0, counts[rows])
    stays = np.ones(ann.n_labels, bool)
    stays[out] = False
    kept = ann.keep_labels(stays)
    held = HeldOutLabels(
        rows=rows,
        item=np.arange(len(rows)),
        annotator=ann.annotator[out].astype(np.int64),
        label=ann.label[out].astype(np.int64),
        training_annotations=kept[rows],
    )
    return kept, held


def failed_sanity_checks(predicted: NDArray[np.int64], ann: Annotations) -> tuple[str, ...]:
    """What speaks against predicted classes (N,), whatever likelihood says; empty if nothing does.

    Annotators are taken to be better than chance together, those who agree on an item to be right more often than
    not, and a class that labels name to be there.

    >>> ann = Annotations.from_matrix([[0, 0], [1, 1], [0, 0], [1, 0]])
    >>> failed_sanity_checks(np.array([0, 1, 0, 1]), ann)
    ()
    >>> failed_sanity_checks(np.array([1, 0, 1, 0]), ann)[0]
    'agrees with only 12 % of the labels, no better than chance'
    """
    found: list[str] = []
    if not ann.n_labels:
        return ()
    agrees = predicted[ann.item] == ann.label
    if not agrees.mean() > 1 / ann.n_classes:
        found.append(f"agrees with only {100 * agrees.mean():.0f} % of the labels, no better than chance")
    counts = np.diff(ann.indptr)
    first = ann.label[np.minimum(ann.indptr[:-1], ann.n_labels - 1)]
    same = np.bincount(ann.item, ann.label == first[ann.item], minlength=ann.n_items) == counts
    united = same & (counts > 1)
    if united.any() and not (share := float((predicted == first)[united].mean())) > 0.5:
        found.append(f"agrees with unanimous annotators on only {100 * share:.0f} % of the items")
    said = np.bincount(ann.label, minlength=ann.n_classes) / ann.n_labels
    given = np.bincount(predicted, minlength=ann.n_classes) / len(predicted)
    lost = np.flatnonzero((given < MIN_PREDICTED_TO_LABELLED_RATIO * said) & (said * len(predicted) > 20))
    if len(lost):
        names = ", ".join(str(ann.classes[k]) for k in lost[:3])
        more = " and more" if len(lost) > 3 else ""
        classes, them = ("class", "it") if len(lost) == 1 else ("classes", "them")
        found.append(f"never predicts {classes} {names}{more}, although annotators use {them}")
    return tuple(found)


def estimate_annotators(
    posterior: NDArray[np.float64] | None, ann: Annotations
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How often annotators are right, (R,), and what all say instead of each class, (K, K), diagonal 0.

    From how likely each label's item is of each class, (L, K); None for a first guess.
    """
    if posterior is None or not len(posterior):
        return np.full(ann.n_annotators, 0.7), _normalize_off_diagonal(np.ones((ann.n_classes, ann.n_classes)))
    is_right = posterior[np.arange(len(posterior)), ann.label]
    summed = np.bincount(ann.annotator, is_right, minlength=ann.n_annotators)
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    right = np.clip(
        (summed + ACCURACY_PRIOR_LABELS * is_right.mean()) / (counts + ACCURACY_PRIOR_LABELS), 1e-3, 1 - 1e-3
    )
    said = np.zeros((ann.n_classes, ann.n_classes))
    np.add.at(said, ann.label, posterior)  # rows: said; columns: true
    return right, _normalize_off_diagonal(said.T + 1.0)


def label_probabilities(
    accuracy: NDArray[np.float64], wrong_label_distribution: NDArray[np.float64], label: NDArray[Any]
) -> NDArray[np.float64]:
    """How likely each label is, given each class, (L, K), by annotators who are so often right, (L,)."""
    given: NDArray[np.float64] = (1 - accuracy)[:, None] * wrong_label_distribution.T[label]
    given[np.arange(len(label)), label] = accuracy
    return given


def _normalize_off_diagonal(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows summing to 1, the diagonal 0."""
    counts = counts * (1 - np.eye(len(counts)))
    shares: NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
    return shares
