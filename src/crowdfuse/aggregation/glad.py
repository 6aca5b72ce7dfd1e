"""GLAD (Whitehill et al., 2009): annotators have an ability, items a difficulty."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations

MAX_LBFGS_ITERATIONS = 10  # steps uphill in one M-step: more gain little, since the next E-step moves the hill


def glad(
    ann: Annotations,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Aggregate:
    """Soft labels, the ability of each annotator and the difficulty of each item, by EM.

        P(said y | true k)  =  s where y = k, else (1 - s) / (K - 1)
        s                   =  1 / (1 + exp(-ability[r] / difficulty[n]))

    An ability below 0 is that of someone who is wrong on purpose. All classes are equally likely beforehand; as in the
    paper, ability and log(1 / difficulty) have normal priors of mean 1 and variance 1, at whose means EM begins, and
    the log-likelihood has their terms. Each M-step is a few steps of L-BFGS. `n_iter`, `tol`, `seed` as in
    `dawid_skene`. `parameters` has `ability` (R,) and `difficulty` (N,).

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0], [1, 1, 0]])
    >>> result = glad(ann)
    >>> result.labels.tolist(), (result.parameters["ability"] > 0).tolist()
    ([0, 1, 0, 1, 1], [True, True, False])
    """
    check_settings(max_iter=max_iter, tol=tol)
    votes = Votes(ann)
    R, K = votes.n_annotators, votes.n_classes
    soft = votes.empty()
    point = np.ones(R + votes.n_items)  # abilities, then log(1 / difficulty)
    right = [np.empty(len(block.label)) for block in votes.blocks]

    def step() -> float:
        nonlocal point
        ability, ease = point[:R], np.exp(point[R:])
        height = -votes.n_items * np.log(K) - votes.n_labels * np.log(K - 1) - _penalty(point)
        for number, block in enumerate(votes.blocks):
            strength = ability[block.annotator] * ease[block.rows][block.item]
            posterior, likelihood = normalize_log_joint(block.tally(strength + np.log(K - 1)))
            soft[block.rows] = posterior
            right[number] = block.label_confidence(posterior)
            height += likelihood - float(np.logaddexp(0, strength).sum())
        point = _uphill(votes, right, point)
        return float(height)

    climbed = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    ability = np.where(votes.labels_per_annotator() > 0, point[:R], np.nan)
    difficulty = np.full(ann.n_items, np.nan)
    difficulty[votes.labelled] = np.exp(-point[R:])
    return make_result(
        "glad",
        votes,
        soft,
        seed=seed,
        parameters={"ability": ability, "difficulty": difficulty},
        em_trace=climbed,
    )


def _uphill(votes: Votes, right: list[FloatArray], start: FloatArray) -> FloatArray:
    """A point that explains the labels better, each of them being right with the given probabilities."""
    from scipy.optimize import minimize

    found = minimize(
        lambda point: expected_loss(votes, right, point),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_LBFGS_ITERATIONS, "maxcor": 5},
    )
    better: FloatArray = found.x if found.fun <= expected_loss(votes, right, start)[0] else start
    return better


def expected_loss(votes: Votes, right: list[FloatArray], point: FloatArray) -> tuple[float, FloatArray]:
    """What the M-step makes small, minus sum(p log s + (1 - p) log(1 - s)) plus the priors' terms, and its gradient."""
    from scipy.special import expit

    R = votes.n_annotators
    ability, ease = point[:R], np.exp(point[R:])
    loss, gradient = _penalty(point), point - 1
    for block, p in zip(votes.blocks, right, strict=True):
        mine, eased = ability[block.annotator], ease[block.rows][block.item]
        strength = mine * eased
        loss += float((np.logaddexp(0, strength) - p * strength).sum())
        slope = (expit(strength) - p) * eased
        gradient[:R] += block.by_annotator(slope)
        gradient[R:][block.rows] += np.bincount(block.item, weights=slope * mine, minlength=block.n_items)
    return loss, gradient


def _penalty(point: FloatArray) -> float:
    return float(((point - 1) ** 2).sum() / 2)
