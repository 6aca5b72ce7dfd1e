"""Dawid and Skene (1979): every annotator has a confusion matrix, found by EM."""

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
    """Soft labels, class prior and each annotator's P(said | true), by EM from the vote shares.

        P(true = k | labels of n)  ~  prior[k] * product over the labels (r, y) of n of  confusion[r, k, y]
        confusion[r, k, y]         ~  smoothing + sum over r's labels y of P(true = k | labels of the item)
        prior[k]                   =  mean over items of P(true = k | labels of the item)

    `gold` are true classes by name, one an item, None where unknown: these are certain, and show how far their
    annotators can be believed.

    It stops when the log-likelihood rises by less than `tol` a label, or after `n_iter` iterations; with `tol=0` it
    makes them all. `smoothing=0` is the textbook's: one label of a class may then rule out a true class for good; a
    row of which nothing was seen is uniform. Above 0 the log-likelihood has the prior's term,
    smoothing * sum(log(confusion)); where hardly anything is known, such as a few labels of one annotator alone, that
    term decides. `parameters["class_prior"]` (K,) is the prior; ties in `labels` are drawn from `seed`.

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0]])
    >>> result = dawid_skene(ann)
    >>> result.labels.tolist(), result.confusions.shape
    ([0, 1, 0, 1], (3, 2, 2))
    """
    check_settings(max_iter=max_iter, tol=tol, smoothing=smoothing)
    votes = Votes(ann)
    R, K = votes.n_annotators, votes.n_classes
    refuse_dense(R * K * K * 8, f"confusion matrices of {R:,} annotators", K)
    soft = votes.empty()
    certain = np.full(votes.n_items, -1) if gold is None else gold_codes(gold, ann.classes, len(ann))[votes.labelled]

    counts, prior = np.zeros((R * K, K)), np.zeros(K)  # axes (annotator and said, true), as the sparse product has it
    for block in votes.blocks:
        shares = block.shares()
        known = np.flatnonzero(certain[block.rows] >= 0)
        shares[known] = np.eye(K)[certain[block.rows][known]]
        counts += block.incidence.T @ shares
        prior += shares.sum(0)

    impossible = np.where(np.eye(K, dtype=bool), 0, -np.inf)  # what is another class than gold says

    def step() -> float:
        """The E-step under what was counted last, and what is counted under it."""
        with np.errstate(divide="ignore"):
            log_confusion, log_prior = np.log(_probabilities(counts, smoothing, K)), np.log(prior / votes.n_items)
        height = float(smoothing * log_confusion.sum()) if smoothing else 0.0
        counts[:], prior[:] = 0, 0
        for block in votes.blocks:
            scores = block.incidence @ log_confusion
            scores += log_prior
            known = np.flatnonzero(certain[block.rows] >= 0)
            scores[known] += impossible[certain[block.rows][known]]
            posterior, likelihood = normalize_log_joint(scores)
            soft[block.rows] = posterior
            counts[:] += block.incidence.T @ posterior
            prior[:] += posterior.sum(0)
            height += likelihood
        return height

    climbed = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    confusions = _probabilities(counts, smoothing, K).reshape(R, K, K).transpose(0, 2, 1)
    return make_result(
        "dawid-skene",
        votes,
        soft,
        seed=seed,
        confusions=np.ascontiguousarray(confusions),
        parameters={"class_prior": prior / votes.n_items},
        em_trace=climbed,
    )


def _probabilities(counts: FloatArray, smoothing: float, n_classes: int) -> FloatArray:
    """P(said | true) from counts, both (R * K, K) with axes (annotator and said, true)."""
    smoothed = (counts + smoothing).reshape(-1, n_classes, n_classes)
    total = smoothed.sum(1, keepdims=True)
    smoothed += total == 0
    smoothed /= np.where(total == 0, n_classes, total)
    return smoothed.reshape(-1, n_classes)
