"""A model of annotators who are independent given the true class: the null hypothesis of the diagnostics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]

EM_ITERATIONS = 15
SHARED_PRIOR_LABELS = 2.0  # the average confusion matrix counts like this many labels in each row of a source's matrix
MAX_CELLS = 12_000_000  # labels x classes; if there are more, the model is fitted to a random sample of items
MAX_CONFUSION_CELLS = 1 << 24  # cells of all confusion matrices; if there are more, sources with few labels share one


class IndependentCrowd:
    """Confusion matrices and class probabilities if annotators are independent, fitted by EM from a given consensus.

    A source is an annotator or the classifier. If there are predictions, the classifier is the last source.

    Parameters
    ----------
    item, source, label : ndarray of int, shape (n_labels,)
        The labels of the sources, sorted by item. Items are numbered from 0 without gaps.
    n_sources, n_classes : int
        Numbers of sources and classes.
    class_probabilities : ndarray of shape (n_items, n_classes)
        Initial class probabilities of EM.

    Attributes
    ----------
    labels : sparse matrix of shape (n_items, n_matrices * n_classes)
        1 for each label.
    matrix_of_source : ndarray of int, shape (n_sources,)
        Number of the confusion matrix of each source. Sources with few labels may share a matrix.
    posterior : ndarray of shape (n_items, n_classes)
        Class probabilities of the items.
    counts : ndarray of shape (n_matrices, n_classes, n_classes)
        Expected number of labels, with axes (matrix, annotator's label, true class).
    log_confusion : ndarray of shape (n_matrices, n_classes, n_classes)
        Logarithm of P(annotator's label | true class), with axes (matrix, annotator's label, true class).
    log_prior : ndarray of shape (n_classes,)
        Logarithm of the share of each class.
    """

    def __init__(
        self,
        item: IntArray,
        source: IntArray,
        label: IntArray,
        n_sources: int,
        n_classes: int,
        class_probabilities: FloatArray,
    ) -> None:
        self.n_sources, self.n_classes = n_sources, n_classes
        self.item, self.source, self.label = item, source, label
        self._by_source = np.argsort(source, kind="stable")
        self._ends = np.bincount(source, minlength=n_sources).cumsum()
        self.matrix_of_source = _assign_matrices(np.bincount(source, minlength=n_sources), n_classes)
        n_matrices = int(self.matrix_of_source.max()) + 1
        column = self.matrix_of_source[source].astype(np.int64) * n_classes + label
        n_items = len(class_probabilities)
        starts = np.searchsorted(item, np.arange(n_items + 1))
        self.labels = csr_matrix((np.ones(len(column)), column, starts), shape=(n_items, n_matrices * n_classes))
        self.posterior = class_probabilities
        self._maximize()
        for _ in range(EM_ITERATIONS):
            self.posterior = class_posterior(self.labels, self.log_confusion, self.log_prior)
            self._maximize()

    def _maximize(self) -> None:
        """Set counts, confusion matrices and class shares from the posterior."""
        K = self.n_classes
        self.counts = np.asarray(self.labels.T @ self.posterior).reshape(-1, K, K)
        self.class_counts = self.posterior.sum(0)
        self.typical = normalize_counts(self.counts.sum(0) + 1 / K)
        self.log_confusion = self.smooth(self.counts)
        self.log_prior = np.log((self.class_counts + 1) / (self.class_counts + 1).sum())

    def smooth(self, counts: FloatArray) -> FloatArray:
        """Return the logarithm of the confusion matrices, shrunk towards the average matrix; axes as in `counts`."""
        return np.log(normalize_counts(counts + SHARED_PRIOR_LABELS * self.typical))

    def labels_of(self, source: int) -> IntArray:
        """Return the label that a source gave to each item, -1 if there is none: ndarray (n_items,)."""
        said = np.full(len(self.posterior), -1)
        mine = self._by_source[self._ends[source - 1] if source else 0 : self._ends[source]]
        said[self.item[mine]] = self.label[mine]
        return said

    def without(self, sources: frozenset[int]) -> IndependentCrowd:
        """Return a model fitted without these sources, starting from the vote of all other sources."""
        if not sources:
            return self
        keep = ~np.isin(self.source, sorted(sources))
        item, label, K = self.item[keep], self.label[keep], self.n_classes
        votes = np.bincount(item * np.int64(K) + label, minlength=len(self.posterior) * K).reshape(-1, K) + 1 / K
        start = votes / votes.sum(1, keepdims=True)
        return IndependentCrowd(item, self.source[keep], label, self.n_sources, K, start)

    def log_joint(self) -> FloatArray:
        """Return the logarithm of the joint probability of labels and class: ndarray (n_items, n_classes)."""
        return log_joint(self.labels, self.log_confusion, self.log_prior)


def normalize_counts(counts: FloatArray) -> FloatArray:
    """Return P(annotator's label | true class) from counts with axes (..., annotator's label, true class)."""
    shares: FloatArray = counts / counts.sum(-2, keepdims=True)
    return shares


def class_posterior(labels: Any, log_confusion: FloatArray, log_prior: FloatArray) -> FloatArray:
    """Return the class probabilities (n_items, n_classes) given a sparse matrix of labels."""
    return normalize_log(log_joint(labels, log_confusion, log_prior))


def normalize_log(log_joint: FloatArray) -> FloatArray:
    """Return exp of the argument, normalized so that rows sum to 1."""
    shares = np.exp(log_joint - log_joint.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.asarray(shares, np.float64)


def log_joint(labels: Any, log_confusion: FloatArray, log_prior: FloatArray) -> FloatArray:
    """Return log P(labels, class) per item and class."""
    return np.asarray(labels @ log_confusion.reshape(-1, len(log_prior)), np.float64) + log_prior


def _assign_matrices(n_labels: IntArray, n_classes: int) -> IntArray:
    """Return the number of each source's matrix. If there would be too many, sources with few labels share the last."""
    n_own = max(1, MAX_CONFUSION_CELLS // n_classes**2)
    if len(n_labels) <= n_own:
        return np.arange(len(n_labels))
    matrix = np.full(len(n_labels), n_own)
    matrix[np.argsort(-n_labels, kind="stable")[:n_own]] = np.arange(n_own)
    return matrix
