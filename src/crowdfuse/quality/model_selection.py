"""Choose between methods and settings without gold, by the likelihood of the labels of unseen items.

Each label is predicted from the input and from the item's other labels. This needs an annotator model: a model of how
annotators err. The annotator model of this module has one accuracy per annotator and one table of wrong labels for all
annotators. If a method has its own annotator model, and this model gives a higher likelihood, it is used instead. Both
models give probabilities of the same labels, so the scores of all classifiers can be compared. Mistakes that all
annotators share are not detected, because there is no gold.
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

N_FOLDS = 5  # folds of labels, used to fit the annotator model


def label_likelihood(classifier: CrowdClassifier, X: Any, annotations: Any) -> ValidationScore:
    """Return the log-likelihood of each label of unseen items under a fitted classifier.

    The probability of a label is computed from the classifier's prediction for the item, from the item's other labels,
    and from a model of how annotators err.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    X : array-like of shape (n_items, ...)
        Items that the classifier was not trained on.
    annotations : Annotations or array-like of shape (n_items, n_annotators)
        Labels of these items, in the order of the rows of `X`; -1 or None for a missing label.

    Returns
    -------
    score : ValidationScore
        The log-likelihood of each label (`values`, of shape (n_labels,)) and its mean (`mean`, higher is better).
        `failed_checks` has a description of each sanity check that the classifier failed, for example because it agrees
        with the labels no more often than by chance. `one.beats(other)` compares two scores on the same labels. A score
        without failed checks beats a score with failed checks. In all other cases, `one` beats `other` if its mean is
        higher by more than one standard error of the difference.

    Raises
    ------
    ValueError
        If there are no labels.

    See Also
    --------
    label_score : Returns the mean log-likelihood; a scorer for scikit-learn.

    Examples
    --------
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
        raise ValueError("there are no labels, so the classifier cannot be scored; pass at least one label")
    values = _cross_validated_log_likelihood(log_f, ann)
    if evidence is not None and (own := leave_one_out(log_f, evidence, ann)).mean() > values.mean():
        values = own
    return ValidationScore(values, failed_sanity_checks(log_f.argmax(1), ann))


def label_score(classifier: CrowdClassifier, X: Any, y: Any) -> float:
    """Return the mean log-likelihood of the labels: a scorer for `GridSearchCV` and similar searches.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    X : array-like of shape (n_items, ...)
        Items that the classifier was not trained on.
    y : Annotations or array-like of shape (n_items, n_annotators)
        Labels of these items, in the order of the rows of `X`; -1 or None for a missing label.

    Returns
    -------
    score : float
        The mean log-likelihood per label (see `label_likelihood`); higher is better. If a classifier fails a sanity
        check, its score is below the scores of all classifiers that pass, and a warning describes the check.

    Raises
    ------
    ValueError
        If there are no labels.

    See Also
    --------
    label_likelihood : Returns the log-likelihood of each label, and the failed checks.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from crowdfuse import MajorityVoteClassifier
    >>> X = np.linspace(-1, 1, 120)[:, None]
    >>> Y = np.stack([X[:, 0] > 0] * 3, axis=1).astype(int)
    >>> search = GridSearchCV(
    ...     MajorityVoteClassifier(epochs=5), {"learning_rate": [1e-6, 1e-2]}, scoring=label_score, cv=2
    ... )
    >>> order = np.random.default_rng(0).permutation(120)
    >>> search.fit(X[order], Y[order]).best_params_
    {'learning_rate': 0.01}
    """
    score = label_likelihood(classifier, X, y)
    if not score.failed_checks:
        return score.mean
    warnings.warn(
        f"{type(classifier).__name__} failed a sanity check and is ranked last: {'; '.join(score.failed_checks)}",
        stacklevel=2,
    )
    return score.mean + 2 * math.log(1e-9)  # below every classifier that passed; failed ones are still ordered


def leave_one_out(log_f: NDArray[Any], evidence: NDArray[Any], ann: Annotations) -> NDArray[np.float64]:
    """Return the log-probability of each label given the item and its other labels.

    Parameters
    ----------
    log_f : ndarray of shape (n_items, n_classes)
        Log-probability of each class, predicted by the classifier.
    evidence : ndarray of shape (n_labels, n_classes)
        For each label and each class, the log-probability that the annotator gives this label if this is the true
        class.
    ann : Annotations
        The labels.

    Returns
    -------
    values : ndarray of shape (n_labels,)
        The log-probabilities, in the order of the labels of `ann`.

    Examples
    --------
    >>> ann = Annotations.from_matrix([[0, 1]])
    >>> evidence = np.log([[0.9, 0.2], [0.1, 0.8]])
    >>> np.exp(leave_one_out(np.log([[0.5, 0.5]]), evidence, ann)).round(3).tolist()
    [0.278, 0.227]
    """
    joint = np.array(log_f, np.float64)
    np.add.at(joint, ann.item, evidence)
    with_label = joint[ann.item]
    values: NDArray[np.float64] = logsumexp(with_label, axis=1) - logsumexp(with_label - evidence, axis=1)
    return values


def _cross_validated_log_likelihood(log_f: NDArray[Any], ann: Annotations) -> NDArray[np.float64]:
    """Return the log-likelihood of each label, (L,), by an annotator model fitted to the labels of the other folds."""
    fold = np.random.default_rng(0).permutation(ann.n_labels) % N_FOLDS
    values = np.zeros(ann.n_labels)
    for held_out_fold in range(N_FOLDS):
        kept = ann.keep_labels(fold != held_out_fold)
        accuracy, wrong_labels = _fit_annotators(log_f, kept)
        prior = np.array(log_f, np.float64)
        np.add.at(prior, kept.item, np.log(label_probabilities(accuracy[kept.annotator], wrong_labels, kept.label)))
        held_out = fold == held_out_fold
        given = label_probabilities(accuracy[ann.annotator[held_out]], wrong_labels, ann.label[held_out])
        values[held_out] = np.log(np.maximum((softmax(prior, axis=1)[ann.item[held_out]] * given).sum(1), 1e-9))
    return values


def _fit_annotators(log_f: NDArray[Any], ann: Annotations) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return accuracies (R,) and wrong-label table (K, K), fitted by EM with the classifier as the class prior."""
    accuracy, wrong_labels = estimate_annotators(None, ann)
    for _ in range(N_EM_ITERATIONS):
        posterior = np.array(log_f, np.float64)
        np.add.at(posterior, ann.item, np.log(label_probabilities(accuracy[ann.annotator], wrong_labels, ann.label)))
        accuracy, wrong_labels = estimate_annotators(softmax(posterior, axis=1)[ann.item], ann)
    return accuracy, wrong_labels
