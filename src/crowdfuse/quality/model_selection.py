"""Choosing between methods and settings without gold: how likely each makes the labels of items it never saw.

A label is predicted from the item and from what others said of it. For that a small model of annotators is fitted, an
accuracy each and one table of what is said instead; a method that has a model of its own can do better by it. Both give
probabilities of the same labels, so they can be compared. As always without gold, what all annotators get wrong
together stays unseen.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import (
    N_EM_ITERATIONS,
    ValidationScore,
    estimate_annotators,
    failed_sanity_checks,
    label_probabilities,
)

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier

N_FOLDS = 5


def label_likelihood(classifier: CrowdClassifier, X: Any, annotations: Any) -> ValidationScore:
    """How likely a fitted classifier makes each label of items it never saw, in logs, and what speaks against it.

    The better of two has the higher `mean`; `one.beats(other)` also asks for more than a standard error, and puts
    those with objections last.

    >>> from crowdfuse import MajorityVoteClassifier
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> Y = np.stack([X[:, 0] > 0] * 3, axis=1).astype(int)
    >>> good = MajorityVoteClassifier(epochs=10).fit(X[::2], Y[::2])
    >>> bad = MajorityVoteClassifier(epochs=10).fit(X[::2], 1 - Y[::2])
    >>> label_likelihood(good, X[1::2], Y[1::2]).beats(label_likelihood(bad, X[1::2], Y[1::2]))
    True
    """
    log_f, evidence, ann = classifier.label_log_probabilities(X, annotations)
    if not ann.n_labels:
        raise ValueError("there is no label to judge by")
    values = _by_yardstick(log_f, ann)
    if evidence is not None and (own := leave_one_out(log_f, evidence, ann)).mean() > values.mean():
        values = own
    return ValidationScore(values, failed_sanity_checks(log_f.argmax(1), ann))


def label_score(classifier: CrowdClassifier, X: Any, y: Any) -> float:
    """The mean of `label_likelihood`, for scikit-learn's searches; a classifier with objections is warned of, and last.

    `GridSearchCV(GatedClassifier(), {"dropout": [0, 0.5]}, scoring=crowdfuse.label_score).fit(X, Y)`, Y of shape (N, R)
    """
    verdict = label_likelihood(classifier, X, y)
    if not verdict.failed_checks:
        return verdict.mean
    warnings.warn(
        f"{type(classifier).__name__} failed a sanity check and is ranked last: {'; '.join(verdict.failed_checks)}",
        stacklevel=2,
    )
    return verdict.mean + 2 * math.log(1e-9)  # below anything that has none, and still in order


def leave_one_out(log_f: NDArray[Any], evidence: NDArray[Any], ann: Annotations) -> NDArray[np.float64]:
    """`log p(y_l | x, the item's other labels)`, (L,), from classes (N, K) and `log p(y_l | k)`, (L, K).

    >>> ann = Annotations.from_matrix([[0, 1]])
    >>> given = np.log([[0.9, 0.2], [0.1, 0.8]])                   # of label 0, and of label 1
    >>> np.exp(leave_one_out(np.log([[0.5, 0.5]]), given, ann)).round(3).tolist()
    [0.278, 0.227]
    """
    together = np.array(log_f, np.float64)
    np.add.at(together, ann.item, evidence)
    with_it = together[ann.item]
    values: NDArray[np.float64] = logsumexp(with_it, axis=1) - logsumexp(with_it - evidence, axis=1)
    return values


def _by_yardstick(log_f: NDArray[Any], ann: Annotations) -> NDArray[np.float64]:
    """The same by a model of annotators that is fitted to the labels of other folds."""
    fold = np.random.default_rng(0).permutation(ann.n_labels) % N_FOLDS
    values = np.zeros(ann.n_labels)
    for out in range(N_FOLDS):
        kept = ann.keep_labels(fold != out)
        right, spread = _fit(log_f, kept)
        prior = np.array(log_f, np.float64)
        np.add.at(prior, kept.item, np.log(label_probabilities(right[kept.annotator], spread, kept.label)))
        those = fold == out
        given = label_probabilities(right[ann.annotator[those]], spread, ann.label[those])
        values[those] = np.log(np.maximum((softmax(prior, axis=1)[ann.item[those]] * given).sum(1), 1e-9))
    return values


def _fit(log_f: NDArray[Any], ann: Annotations) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Expectation and maximisation, the classes of items given f and all their labels."""
    right, spread = estimate_annotators(None, ann)
    for _ in range(N_EM_ITERATIONS):
        posterior = np.array(log_f, np.float64)
        np.add.at(posterior, ann.item, np.log(label_probabilities(right[ann.annotator], spread, ann.label)))
        right, spread = estimate_annotators(softmax(posterior, axis=1)[ann.item], ann)
    return right, spread
