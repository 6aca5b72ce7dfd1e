"""One coin an annotator: right with one probability, else any other class alike."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations

MIN_PROBABILITY = 1e-12  # nobody is believed to be right or wrong more surely than this, so that logarithms stay finite


def one_coin(
    ann: Annotations,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    smoothing: float = 0.01,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Aggregate:
    """Dawid and Skene's model with one number an annotator, by EM from the vote shares: for many classes or few labels.

        P(said y | true k)  =  accuracy[r] where y = k, else (1 - accuracy[r]) / (K - 1)
        accuracy[r]         =  (smoothing + sum over r's labels y of P(true = y)) / (2 * smoothing + labels of r)

    `n_iter`, `tol`, `seed` as in `dawid_skene`; with smoothing the log-likelihood has the prior's term.
    `parameters` has `accuracy` (R,) and `class_prior` (K,).

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [2, 2, 1], [2, 2, 0], [1, 0, 1]])
    >>> result = one_coin(ann)
    >>> result.annotator_accuracy.round(1).tolist()
    [1.0, 0.8, 0.4]
    """
    check_settings(max_iter=max_iter, tol=tol, smoothing=smoothing)
    votes = Votes(ann)
    soft = votes.empty()
    labels = votes.labels_per_annotator()

    right, prior = np.zeros(votes.n_annotators), np.zeros(votes.n_classes)
    for block in votes.blocks:
        shares = block.shares()
        right += block.by_annotator(block.label_confidence(shares))
        prior += shares.sum(0)

    def accuracy() -> FloatArray:
        share = np.divide(right + smoothing, labels + 2 * smoothing, out=np.full(len(labels), 0.5), where=labels > 0)
        clipped: FloatArray = np.clip(share, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        return clipped

    def step() -> float:
        a = accuracy()
        log_right, log_wrong = np.log(a), np.log((1 - a) / (votes.n_classes - 1))
        with np.errstate(divide="ignore"):
            log_prior = np.log(prior / votes.n_items)
        height = float(log_wrong @ labels + smoothing * (np.log(a) + np.log(1 - a))[labels > 0].sum())
        right[:], prior[:] = 0, 0
        for block in votes.blocks:
            posterior, likelihood = normalize_log_joint(
                block.tally((log_right - log_wrong)[block.annotator]) + log_prior
            )
            soft[block.rows] = posterior
            right[:] += block.by_annotator(block.label_confidence(posterior))
            prior[:] += posterior.sum(0)
            height += likelihood
        return height

    climbed = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    return make_result(
        "one-coin",
        votes,
        soft,
        seed=seed,
        parameters={
            "accuracy": np.where(labels > 0, accuracy(), np.nan),
            "class_prior": prior / votes.n_items,
        },
        em_trace=climbed,
    )
