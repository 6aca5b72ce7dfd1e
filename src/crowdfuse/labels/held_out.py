"""Held-out labels: choose an epoch, a setting or a method without gold labels.

For some of the items with several labels, one label is kept out of training. The score of a classifier is the
log-likelihood of these held-out labels. The log-likelihood is computed from the class probabilities of the classifier
and from a simple model of how annotators err. Sanity checks find classifiers that are clearly wrong although their
score is high.
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

HELD_OUT_FRACTION = 0.1  # of all labels
MAX_HELD_OUT_LABELS = 5_000
N_EM_ITERATIONS = 8
INITIAL_ACCURACY = 0.7  # of every annotator, before the first iteration
ACCURACY_PRIOR_LABELS = 5.0  # shrinkage: as if each annotator had given this many more labels, of mean accuracy
MIN_PREDICTED_TO_LABELLED_RATIO = 0.05  # a class with a lower ratio (share of predictions / share of labels) is lost
MIN_EXPECTED_PREDICTIONS = 20  # items; classes that should be predicted less often are not checked
MIN_LIKELIHOOD = 1e-9  # of a label, so that logarithms stay finite


class ValidationScore(NamedTuple):
    """The score of a classifier on held-out labels.

    Attributes
    ----------
    values : ndarray of float64, shape (n_held_out,)
        Log-likelihood of each held-out label.
    failed_checks : tuple of str
        A description of each sanity check that the classifier failed; empty if it passed all checks.

    Examples
    --------
    >>> better = ValidationScore(np.array([-0.1, -0.2, -0.1]), ())
    >>> worse = ValidationScore(np.array([-1.1, -1.0, -1.2]), ())
    >>> better.beats(worse), worse.beats(better)
    (True, False)
    """

    values: NDArray[np.float64]
    failed_checks: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean log-likelihood per held-out label."""
        return float(self.values.mean())

    def beats(self, other: ValidationScore) -> bool:
        """Return whether to prefer this score to an earlier one.

        A score without failed checks beats a score with failed checks. If both or neither have failed checks, the mean
        of this score must be higher by more than one standard error of the difference between the means. Of two nearly
        equal scores, the earlier one is therefore kept.

        Parameters
        ----------
        other : ValidationScore
            The earlier score, on the same labels.

        Returns
        -------
        bool
        """
        if bool(self.failed_checks) != bool(other.failed_checks):
            return not self.failed_checks
        difference = self.values - other.values
        return bool(difference.mean() > difference.std() / math.sqrt(len(difference)))


@dataclass(frozen=True)
class HeldOutLabels:
    """Labels that are kept out of training, together with the other labels of the same items.

    Attributes
    ----------
    rows : ndarray of int64, shape (n_items,)
        Row numbers, in the training data, of the items with a held-out label.
    item : ndarray of int64, shape (n_held_out,)
        Item of each held-out label, as a position in `rows`.
    annotator : ndarray of int64, shape (n_held_out,)
        Annotator of each held-out label.
    label : ndarray of int64, shape (n_held_out,)
        Class of each held-out label.
    training_annotations : Annotations
        The other labels of these items, which stay in training. `score` uses them to estimate how annotators err.

    See Also
    --------
    hold_out_labels : Chooses the labels to hold out.
    """

    rows: NDArray[np.int64]
    item: NDArray[np.int64]
    annotator: NDArray[np.int64]
    label: NDArray[np.int64]
    training_annotations: Annotations

    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """Score a classifier by the log-likelihood of the held-out labels.

        The likelihood of label y by annotator r is `sum_k f_k (a_r [y = k] + (1 - a_r) W[k, y])`, a sum over the true
        class k:

        - f_k is the classifier's probability of class k for the item;
        - a_r is the accuracy of annotator r;
        - [y = k] is 1 if y equals k, and 0 otherwise;
        - W[k, y] is the probability of label y if the true class is k and the label is wrong. It is the same for all
          annotators.

        The EM algorithm fits a and W to the training labels of these items. If a classifier has memorized the training
        labels, the fitted accuracies are too high, and the held-out labels become less likely.

        Parameters
        ----------
        logits : ndarray of shape (n_items, n_classes)
            Class logits of the items in `rows`.

        Returns
        -------
        ValidationScore
        """
        f = np.exp(log_softmax(np.asarray(logits, np.float64), axis=1))
        accuracy, wrong = self._fit_annotators(f)
        likelihood = (f[self.item] * label_probabilities(accuracy[self.annotator], wrong, self.label)).sum(1)
        checks = failed_sanity_checks(f.argmax(1), self.training_annotations)
        return ValidationScore(np.log(np.maximum(likelihood, MIN_LIKELIHOOD)), checks)

    def _fit_annotators(self, f: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Annotator accuracies (R,) and the distribution of wrong labels (K, K), by EM from the training labels."""
        ann = self.training_annotations
        accuracy, wrong = estimate_annotators(None, ann)
        for _ in range(N_EM_ITERATIONS):
            posterior = f[ann.item] * label_probabilities(accuracy[ann.annotator], wrong, ann.label)
            posterior /= np.maximum(posterior.sum(1, keepdims=True), 1e-300)
            accuracy, wrong = estimate_annotators(posterior, ann)
        return accuracy, wrong

    def fingerprint(self) -> dict[str, str]:
        """Return a hash of the held-out labels.

        A checkpoint stores the hash. If training is resumed with other held-out labels, the hashes differ.

        Returns
        -------
        dict of str to str
        """
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.rows, self.item, self.annotator, self.label):
            digest.update(np.ascontiguousarray(array).data)
        return {"held_out_labels": digest.hexdigest()}


def hold_out_labels(ann: Annotations, usable: NDArray[np.bool_], seed: int) -> tuple[Annotations, HeldOutLabels | None]:
    """Hold out a tenth of all labels, but at most 5,000, and at most one label per item.

    Parameters
    ----------
    ann : Annotations
        All labels. `by_row` must be true: item i belongs to row i of X.
    usable : ndarray of bool, shape (n_items,)
        Items from which a label may be held out. An item with a single label always keeps it.
    seed : int
        Seed of the random choice of labels.

    Returns
    -------
    training : Annotations
        The labels to train on, with the same items.
    held_out : HeldOutLabels or None
        The held-out labels; None if no usable item has at least two labels.

    Examples
    --------
    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 1, -1], [1, -1, -1]])
    >>> training, held_out = hold_out_labels(ann, np.ones(4, bool), seed=0)
    >>> training.n_labels, len(held_out.label)
    (8, 1)
    """
    counts = np.diff(ann.indptr)
    candidates = np.flatnonzero((counts > 1) & usable)
    n_held_out = min(MAX_HELD_OUT_LABELS, len(candidates), max(1, round(HELD_OUT_FRACTION * ann.n_labels)))
    if not len(candidates):
        return ann, None
    generator = np.random.default_rng([seed, 5])
    rows = np.sort(generator.permutation(candidates)[:n_held_out])
    positions = ann.indptr[rows] + generator.integers(0, counts[rows])
    stays = np.ones(ann.n_labels, bool)
    stays[positions] = False
    training = ann.keep_labels(stays)
    held_out = HeldOutLabels(
        rows=rows,
        item=np.arange(len(rows)),
        annotator=ann.annotator[positions].astype(np.int64),
        label=ann.label[positions].astype(np.int64),
        training_annotations=training[rows],
    )
    return training, held_out


def failed_sanity_checks(predicted: NDArray[np.int64], ann: Annotations) -> tuple[str, ...]:
    """Return a description of each sanity check that the predicted classes fail.

    The checks assume that annotators together are better than chance, that annotators who agree on an item are mostly
    right, and that every class with enough labels is the true class of some items.

    Parameters
    ----------
    predicted : ndarray of int64, shape (n_items,)
        Predicted class of each item.
    ann : Annotations
        Labels of the same items.

    Returns
    -------
    tuple of str
        One description per failed check; empty if all checks are passed.

    Examples
    --------
    >>> ann = Annotations.from_matrix([[0, 0], [1, 1], [0, 0], [1, 0]])
    >>> failed_sanity_checks(np.array([0, 1, 0, 1]), ann)
    ()
    >>> failed_sanity_checks(np.array([1, 0, 1, 0]), ann)[0]
    'agrees with only 12 % of the labels, no better than chance'
    """
    if not ann.n_labels:
        return ()
    failed: list[str] = []
    agrees = predicted[ann.item] == ann.label
    if not agrees.mean() > 1 / ann.n_classes:
        failed.append(f"agrees with only {100 * agrees.mean():.0f} % of the labels, no better than chance")
    counts = np.diff(ann.indptr)
    first = ann.label[np.minimum(ann.indptr[:-1], ann.n_labels - 1)]
    is_unanimous = np.bincount(ann.item, ann.label == first[ann.item], minlength=ann.n_items) == counts
    is_unanimous &= counts > 1
    if is_unanimous.any() and not (share := float((predicted == first)[is_unanimous].mean())) > 0.5:
        failed.append(f"agrees with the annotators on only {100 * share:.0f} % of the items with unanimous labels")
    labelled_share = np.bincount(ann.label, minlength=ann.n_classes) / ann.n_labels
    predicted_share = np.bincount(predicted, minlength=ann.n_classes) / len(predicted)
    is_lost = predicted_share < MIN_PREDICTED_TO_LABELLED_RATIO * labelled_share
    lost = np.flatnonzero(is_lost & (labelled_share * len(predicted) > MIN_EXPECTED_PREDICTIONS))
    if len(lost):
        names = ", ".join(str(ann.classes[k]) for k in lost[:3]) + (" and more" if len(lost) > 3 else "")
        classes, them = ("class", "it") if len(lost) == 1 else ("classes", "them")
        failed.append(f"never or almost never predicts {classes} {names}, although annotators use {them}")
    return tuple(failed)


def estimate_annotators(
    posterior: NDArray[np.float64] | None, ann: Annotations
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate the accuracy of each annotator, and one distribution of wrong labels for all annotators.

    Parameters
    ----------
    posterior : ndarray of float64, shape (n_labels, n_classes), or None
        For each label, the class probabilities of its item. If None, fixed initial values are returned.
    ann : Annotations
        The labels.

    Returns
    -------
    accuracy : ndarray of float64, shape (n_annotators,)
        Accuracy of each annotator, shrunk towards the mean accuracy of all labels. The shrinkage is stronger for
        annotators with fewer labels.
    wrong_label_distribution : ndarray of float64, shape (n_classes, n_classes)
        P(label | true class, label is wrong), with axes (true class, label). The diagonal is 0.
    """
    if posterior is None or not len(posterior):
        initial = np.full(ann.n_annotators, INITIAL_ACCURACY)
        return initial, _normalize_off_diagonal(np.ones((ann.n_classes, ann.n_classes)))
    is_right = posterior[np.arange(len(posterior)), ann.label]
    n_right = np.bincount(ann.annotator, is_right, minlength=ann.n_annotators)
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    accuracy = np.clip(
        (n_right + ACCURACY_PRIOR_LABELS * is_right.mean()) / (counts + ACCURACY_PRIOR_LABELS), 1e-3, 1 - 1e-3
    )
    label_by_true = np.zeros((ann.n_classes, ann.n_classes))
    np.add.at(label_by_true, ann.label, posterior)
    return accuracy, _normalize_off_diagonal(label_by_true.T + 1.0)


def label_probabilities(
    accuracy: NDArray[np.float64], wrong_label_distribution: NDArray[np.float64], label: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the probability of each label given each true class.

    Parameters
    ----------
    accuracy : ndarray of float64, shape (n_labels,)
        Accuracy of the annotator of each label.
    wrong_label_distribution : ndarray of float64, shape (n_classes, n_classes)
        P(label | true class, label is wrong), with axes (true class, label).
    label : ndarray of int, shape (n_labels,)
        Class of each label.

    Returns
    -------
    ndarray of float64, shape (n_labels, n_classes)

    Examples
    --------
    >>> wrong = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> label_probabilities(np.array([0.75]), wrong, np.array([0])).tolist()
    [[0.75, 0.25]]
    """
    given: NDArray[np.float64] = (1 - accuracy)[:, None] * wrong_label_distribution.T[label]
    given[np.arange(len(label)), label] = accuracy
    return given


def _normalize_off_diagonal(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The counts with a diagonal of 0 and rows that sum to 1."""
    counts = counts * (1 - np.eye(len(counts)))
    shares: NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
    return shares
