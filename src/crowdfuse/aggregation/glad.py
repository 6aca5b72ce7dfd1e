"""GLAD (Whitehill et al., 2009): one ability per annotator and one difficulty per item."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations

MAX_LBFGS_ITERATIONS = 10  # per M-step; more gain little, since the next E-step changes the objective


def glad(
    ann: Annotations,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Aggregate:
    """Estimate class probabilities, the ability of each annotator and the difficulty of each item, by EM.

    Let y be a label by annotator r on item n with true class k, and K the number of classes. The model is::

        P(label y | true k)  =  s if y = k, else (1 - s) / (K - 1)
        s                    =  1 / (1 + exp(-ability[r] / difficulty[n]))

    Here s is the probability that the label is right. If the ability of an annotator is below 0, the annotator is wrong
    more often than right. All classes are equally likely a priori. As in Whitehill et al. (2009), ability and
    log(1 / difficulty) have normal priors with mean 1 and variance 1. EM (expectation-maximization) starts at the prior
    means. The log-likelihood includes the logarithms of the priors. Each M-step runs a few iterations of the optimizer
    L-BFGS.

    Parameters
    ----------
    ann : Annotations
        The labels. There must be at least one label and two classes.
    max_iter : int, default=100
        Maximum number of EM iterations.
    tol : float, default=1e-5
        Stop when an iteration raises the log-likelihood by less than `tol` times the number of labels. If 0, all
        `max_iter` iterations are run.
    seed : int, default=0
        Seed for breaking ties between equally likely classes.
    on_iteration : callable, default=None
        Called after every iteration as `on_iteration(number, log_likelihood)`; the first number is 1.

    Returns
    -------
    Aggregate
        The result. `parameters["ability"]` has shape (n_annotators,), and `parameters["difficulty"]` has shape
        (n_items,).

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels, if there are fewer than two classes, or if a setting is out of range.

    References
    ----------
    J. Whitehill et al., "Whose vote should count more: optimal integration of labels from labelers of unknown
    expertise", NeurIPS 2009.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> result = glad(Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0], [1, 1, 0]]))
    >>> result.consensus.tolist(), (result.parameters["ability"] > 0).tolist()
    ([0, 1, 0, 1, 1], [True, True, False])
    """
    check_settings(max_iter=max_iter, tol=tol)
    votes = Votes(ann)
    R, K = votes.n_annotators, votes.n_classes
    soft = votes.empty()
    point = np.ones(R + votes.n_items)  # abilities, then log(1 / difficulty)
    right = [np.empty(len(block.label)) for block in votes.blocks]

    def step() -> float:
        """One E-step and one M-step; returns the log-likelihood before the M-step."""
        nonlocal point
        ability, ease = point[:R], np.exp(point[R:])
        log_likelihood = -votes.n_items * np.log(K) - votes.n_labels * np.log(K - 1) - _penalty(point)
        for number, block in enumerate(votes.blocks):
            strength = ability[block.annotator] * ease[block.rows][block.item]
            posterior, block_log_likelihood = normalize_log_joint(block.vote_counts(strength + np.log(K - 1)))
            soft[block.rows] = posterior
            right[number] = block.label_confidence(posterior)
            log_likelihood += block_log_likelihood - float(np.logaddexp(0, strength).sum())
        point = _improve(votes, right, point)
        return float(log_likelihood)

    em_trace = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    ability = np.where(votes.labels_per_annotator() > 0, point[:R], np.nan)
    difficulty = np.full(ann.n_items, np.nan)
    difficulty[votes.labelled] = np.exp(-point[R:])
    return make_result(
        "glad",
        votes,
        soft,
        seed=seed,
        parameters={"ability": ability, "difficulty": difficulty},
        em_trace=em_trace,
    )


def _improve(votes: Votes, right: list[FloatArray], start: FloatArray) -> FloatArray:
    """Parameters with a lower expected loss than `start`, given the probability that each label is right."""
    from scipy.optimize import minimize

    result = minimize(
        lambda point: expected_loss(votes, right, point),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_LBFGS_ITERATIONS, "maxcor": 5},
    )
    better: FloatArray = result.x if result.fun <= expected_loss(votes, right, start)[0] else start
    return better


def expected_loss(votes: Votes, right: list[FloatArray], point: FloatArray) -> tuple[float, FloatArray]:
    """Return the loss that the M-step minimizes, and its gradient.

    The loss is `-sum(p log s + (1 - p) log(1 - s))` over all labels, minus the log priors. Here p is the probability
    that the label is right as given in `right`, and s is the same probability according to the model (see `glad`).

    Parameters
    ----------
    votes : Votes
        The labels.
    right : list of ndarray
        For each block, the probability p that each label is right.
    point : ndarray of shape (n_annotators + n_items,)
        Abilities, then log(1 / difficulty).

    Returns
    -------
    loss : float
    gradient : ndarray of the shape of `point`
    """
    from scipy.special import expit

    R = votes.n_annotators
    ability, ease = point[:R], np.exp(point[R:])
    loss, gradient = _penalty(point), point - 1
    for block, p in zip(votes.blocks, right, strict=True):
        label_ability, label_ease = ability[block.annotator], ease[block.rows][block.item]
        strength = label_ability * label_ease
        loss += float((np.logaddexp(0, strength) - p * strength).sum())
        slope = (expit(strength) - p) * label_ease
        gradient[:R] += block.sum_by_annotator(slope)
        gradient[R:][block.rows] += np.bincount(block.item, weights=slope * label_ability, minlength=block.n_items)
    return loss, gradient


def _penalty(point: FloatArray) -> float:
    """Negative log density of the normal priors, without constants."""
    return float(((point - 1) ** 2).sum() / 2)
