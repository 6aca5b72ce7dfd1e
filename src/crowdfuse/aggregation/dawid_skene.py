"""The model of Dawid and Skene (1979): one confusion matrix per annotator, estimated by EM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint, refuse_dense
from crowdfuse.labels.alignment import gold_codes
from crowdfuse.labels.annotations import Annotations


def dawid_skene(
    ann: Annotations,
    *,
    gold: ArrayLike | Sequence[Any] | None = None,
    max_iter: int = 100,
    tol: float = 1e-5,
    smoothing: float = 0.01,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Aggregate:
    """Estimate class probabilities, the class prior and one confusion matrix per annotator, by EM.

    EM (expectation-maximization) starts from the vote shares: for each item, the fraction of its labels that name each
    class. It then repeats the following updates. Here n is an item, k is a true class, and y is a label by annotator r.
    The sign ~ means "proportional to"::

        P(true = k | labels of n)  ~  prior[k] * product of confusion[r, k, y], over all labels of item n
        confusion[r, k, y]         ~  smoothing + sum of P(true = k | labels of n), over all items that r labelled as y
        prior[k]                   =  mean of P(true = k | labels of n), over all items with labels

    Parameters
    ----------
    ann : Annotations
        The labels. There must be at least one label and two classes.
    gold : sequence of length n_items, default=None
        Name of the true class of each item, or None if unknown. A known class has probability 1 in all iterations, also
        when the confusion matrices of the annotators are estimated.
    max_iter : int, default=100
        Maximum number of EM iterations.
    tol : float, default=1e-5
        Stop when an iteration raises the log-likelihood by less than `tol` times the number of labels. If 0, all
        `max_iter` iterations are run.
    smoothing : float, default=0.01
        Number that is added to every count from which the confusion matrices are estimated. Textbooks use 0. With 0, a
        single label can make the probability of a class 0, and a matrix row whose counts are all 0 becomes uniform. A
        number above 0 acts as a prior on the confusion matrices. The log-likelihood then includes the logarithm of this
        prior, `smoothing * sum(log(confusion))`. If there are very few labels, this term dominates the log-likelihood.
    seed : int, default=0
        Seed for breaking ties between equally likely classes.
    on_iteration : callable, default=None
        Called after every iteration as `on_iteration(number, log_likelihood)`; the first number is 1.

    Returns
    -------
    Aggregate
        The result. It has `confusion_matrices`, and `parameters["class_prior"]` of shape (n_classes,).

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels, if there are fewer than two classes, or if a setting is out of range.

    See Also
    --------
    one_coin : Estimates one accuracy per annotator instead of a matrix. Suits data with many classes or few labels.

    References
    ----------
    A. P. Dawid and A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM algorithm",
    Applied Statistics, 1979.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> result = dawid_skene(Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0]]))
    >>> result.consensus.tolist(), result.confusion_matrices.shape
    ([0, 1, 0, 1], (3, 2, 2))
    """
    check_settings(max_iter=max_iter, tol=tol, smoothing=smoothing)
    votes = Votes(ann)
    R, K = votes.n_annotators, votes.n_classes
    refuse_dense(R * K * K * 8, f"confusion matrices of {R:,} annotators", K)
    soft = votes.empty()
    certain = np.full(votes.n_items, -1) if gold is None else gold_codes(gold, ann.classes, len(ann))[votes.labelled]

    counts, prior = np.zeros((R * K, K)), np.zeros(K)  # axes (annotator and label, true), as of the sparse product
    for block in votes.blocks:
        shares = block.vote_shares()
        known = np.flatnonzero(certain[block.rows] >= 0)
        shares[known] = np.eye(K)[certain[block.rows][known]]
        counts += block.incidence.T @ shares
        prior += shares.sum(0)

    impossible = np.where(
        np.eye(K, dtype=bool), 0, -np.inf
    )  # added to the log scores: gives all classes but the true class probability 0

    def step() -> float:
        """M-step from the current counts, then E-step and new counts; returns the log-likelihood."""
        with np.errstate(divide="ignore"):
            log_confusion, log_prior = np.log(_probabilities(counts, smoothing, K)), np.log(prior / votes.n_items)
        log_likelihood = float(smoothing * log_confusion.sum()) if smoothing else 0.0
        counts[:], prior[:] = 0, 0
        for block in votes.blocks:
            scores = block.incidence @ log_confusion
            scores += log_prior
            known = np.flatnonzero(certain[block.rows] >= 0)
            scores[known] += impossible[certain[block.rows][known]]
            posterior, block_log_likelihood = normalize_log_joint(scores)
            soft[block.rows] = posterior
            counts[:] += block.incidence.T @ posterior
            prior[:] += posterior.sum(0)
            log_likelihood += block_log_likelihood
        return log_likelihood

    em_trace = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    confusions = _probabilities(counts, smoothing, K).reshape(R, K, K).transpose(0, 2, 1)
    return make_result(
        "dawid-skene",
        votes,
        soft,
        seed=seed,
        confusions=np.ascontiguousarray(confusions),
        parameters={"class_prior": prior / votes.n_items},
        em_trace=em_trace,
    )


def _probabilities(counts: FloatArray, smoothing: float, n_classes: int) -> FloatArray:
    """P(label | true) from counts, both (R * K, K) with axes (annotator and label, true)."""
    smoothed = (counts + smoothing).reshape(-1, n_classes, n_classes)
    total = smoothed.sum(1, keepdims=True)
    smoothed += total == 0
    smoothed /= np.where(total == 0, n_classes, total)
    return smoothed.reshape(-1, n_classes)
