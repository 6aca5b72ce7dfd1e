"""MACE (Hovy et al., 2013): an annotator either copies the truth or spams, by a distribution of his own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations

MIN_PROBABILITY = 1e-12  # no probability is lower than this, so that logarithms stay finite


class MaceFit(NamedTuple):
    soft: NDArray[np.float32]
    competence: FloatArray
    spam: FloatArray
    climbed: tuple[tuple[float, ...], bool]


def mace(
    ann: Annotations,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    smoothing: float = 0.01,
    n_restarts: int = 10,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Aggregate:
    """Soft labels, and for each annotator how often he does not spam and what he says when he does, by EM.

        P(said y | true k)  =  trust[r] * (y = k) + (1 - trust[r]) * spam[r, y]

    All classes are equally likely beforehand. The first of `n_restarts` begins with a trust of 1/2 and even spam, the
    others anywhere, drawn from `seed`; the one that ends highest is taken. `smoothing` is added to the counts that
    trust and spam come from, and the log-likelihood then has the prior's term. `n_iter`, `tol` as in `dawid_skene`.
    `parameters` has `trust` (R,) and `spam` (R, K). A spammer is right at times by chance, so skill is above trust.

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1], [0, 0, 1]])
    >>> result = mace(ann)
    >>> result.labels.tolist(), result.parameters["trust"].round(1).tolist()
    ([0, 1, 0, 1, 0], [1.0, 1.0, 0.0])
    """
    check_settings(max_iter=max_iter, tol=tol, smoothing=smoothing)
    if isinstance(n_restarts, bool) or not isinstance(n_restarts, int) or n_restarts < 1:
        raise ValueError(f"n_restarts must be a whole number from 1, got {n_restarts!r}")
    votes = Votes(ann)
    R, K = votes.n_annotators, votes.n_classes
    labels = np.zeros(R * K)
    for block in votes.blocks:
        labels += np.bincount(block.annotator_class_cell, minlength=R * K)
    generator = np.random.default_rng(seed)
    best: MaceFit | None = None
    for restart in range(n_restarts):
        trust, spam = np.full(R, 0.5), np.full((R, K), 1 / K)
        if restart:
            trust, spam = generator.uniform(0.05, 0.95, R), generator.dirichlet(np.full(K, 5.0), R)
        run = _climb(votes, labels.reshape(R, K), trust, spam, max_iter, tol, smoothing, on_iteration)
        if best is None or run.climbed[0][-1] > best.climbed[0][-1]:
            best = run
    assert best is not None
    silent = labels.reshape(R, K).sum(1) == 0
    best.competence[silent], best.spam[silent] = np.nan, np.nan
    return make_result(
        "mace",
        votes,
        best.soft,
        seed=seed,
        parameters={"trust": best.competence, "spam": best.spam},
        em_trace=best.climbed,
    )


def _climb(
    votes: Votes,
    labels: FloatArray,
    trust: FloatArray,
    spam: FloatArray,
    n_iter: int,
    tol: float,
    smoothing: float,
    on_iteration: OnIteration | None,
) -> MaceFit:
    """EM from one start; `labels` (R, K) says how often each annotator said each class."""
    R, K = labels.shape
    given = labels.sum(1)
    seen = given > 0
    soft = votes.empty()

    def step() -> float:
        spamming = (1 - trust)[:, None] * spam
        saying = trust[:, None] + spamming
        bonus = (np.log(saying) - np.log(spamming)).ravel()
        height = float((labels * np.log(spamming)).sum() - votes.n_items * np.log(K))
        height += smoothing * float((np.log(trust) + np.log(1 - trust) + np.log(spam).sum(1))[seen].sum())
        right = np.zeros(R * K)
        for block in votes.blocks:
            posterior, likelihood = normalize_log_joint(block.tally(bonus[block.annotator_class_cell]))
            soft[block.rows] = posterior
            right += np.bincount(block.annotator_class_cell, weights=block.label_confidence(posterior), minlength=R * K)
            height += likelihood
        copied = right.reshape(R, K) * trust[:, None] / saying
        spammed = labels - copied
        _set(trust, copied.sum(1) + smoothing, given + 2 * smoothing, seen)
        _set(spam, spammed + smoothing, (spammed + smoothing).sum(1), seen)
        return height

    climbed = run_em(step, n_labels=votes.n_labels, max_iter=n_iter, tol=tol, on_iteration=on_iteration)
    return MaceFit(soft, trust, spam, climbed)


def _set(values: FloatArray, counts: FloatArray, total: FloatArray, seen: NDArray[np.bool_]) -> None:
    """values = counts / total for annotators who were seen, never quite 0 or 1; as they were where nothing is known."""
    known = seen & (total > 0)
    divisor = total[known] if values.ndim == 1 else total[known, None]
    values[known] = np.clip(counts[known] / divisor, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
