"""MACE (Hovy et al., 2013): an annotator either knows the true class, or labels without looking at the item (spams)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations

MIN_PROBABILITY = 1e-12  # minimum distance of probabilities from 0 and 1, so that logarithms are finite


class MaceFit(NamedTuple):
    """The result of EM from one start: class probabilities, competence, spam distributions, log-likelihoods."""

    soft: NDArray[np.float32]
    competence: FloatArray
    spam: FloatArray
    em_trace: tuple[tuple[float, ...], bool]


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
    """Estimate class probabilities, and the competence and spam distribution of each annotator, by EM.

    With probability `competence[r]`, annotator r gives the true class k. Otherwise the annotator spams: the label y is
    drawn from the distribution `spam[r]`, regardless of the item. In the formula of the model, (y = k) is 1 for a right
    label and 0 for a wrong label::

        P(label y | true k)  =  competence[r] * (y = k) + (1 - competence[r]) * spam[r, y]

    All classes are equally likely a priori. A label drawn from `spam` can be right by chance, so the accuracy of an
    annotator can be higher than the competence.

    Parameters
    ----------
    ann : Annotations
        The labels. There must be at least one label and two classes.
    max_iter : int, default=100
        Maximum number of EM iterations.
    tol : float, default=1e-5
        Stop when an iteration raises the log-likelihood by less than `tol` times the number of labels. If 0, all
        `max_iter` iterations are run.
    smoothing : float, default=0.01
        Number that is added to the counts from which competence and spam are estimated. A number above 0 acts as a
        prior on competence and spam. The log-likelihood then includes the logarithm of this prior.
    n_restarts : int, default=10
        Number of runs of EM (expectation-maximization). The run with the highest log-likelihood is used. The first run
        starts from a competence of 1/2 and uniform spam. All other runs start from random values.
    seed : int, default=0
        Seed for the random starts, and for breaking ties between equally likely classes.
    on_iteration : callable, default=None
        Called after every iteration as `on_iteration(number, log_likelihood)`. In each run, the first number is 1.

    Returns
    -------
    Aggregate
        The result. `parameters["competence"]` has shape (n_annotators,), and `parameters["spam"]` has shape
        (n_annotators, n_classes).

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels, if there are fewer than two classes, or if a setting is out of range.

    References
    ----------
    D. Hovy et al., "Learning whom to trust with MACE", NAACL 2013.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> result = mace(Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1], [0, 0, 1]]))
    >>> result.consensus.tolist(), result.parameters["competence"].round(1).tolist()
    ([0, 1, 0, 1, 0], [1.0, 1.0, 0.0])
    """
    check_settings(max_iter=max_iter, tol=tol, smoothing=smoothing)
    if isinstance(n_restarts, bool) or not isinstance(n_restarts, int) or n_restarts < 1:
        raise ValueError(f"n_restarts must be a whole number of at least 1, got {n_restarts!r}")
    votes = Votes(ann)
    R, K = votes.n_annotators, votes.n_classes
    labels = np.zeros(R * K)
    for block in votes.blocks:
        labels += np.bincount(block.annotator_class_cell, minlength=R * K)
    generator = np.random.default_rng(seed)
    best: MaceFit | None = None
    for restart in range(n_restarts):
        competence, spam = np.full(R, 0.5), np.full((R, K), 1 / K)
        if restart:
            competence, spam = generator.uniform(0.05, 0.95, R), generator.dirichlet(np.full(K, 5.0), R)
        run = _fit_from(votes, labels.reshape(R, K), competence, spam, max_iter, tol, smoothing, on_iteration)
        if best is None or run.em_trace[0][-1] > best.em_trace[0][-1]:
            best = run
    assert best is not None
    has_no_labels = labels.reshape(R, K).sum(1) == 0
    best.competence[has_no_labels], best.spam[has_no_labels] = np.nan, np.nan
    return make_result(
        "mace",
        votes,
        best.soft,
        seed=seed,
        parameters={"competence": best.competence, "spam": best.spam},
        em_trace=best.em_trace,
    )


def _fit_from(
    votes: Votes,
    labels: FloatArray,
    competence: FloatArray,
    spam: FloatArray,
    max_iter: int,
    tol: float,
    smoothing: float,
    on_iteration: OnIteration | None,
) -> MaceFit:
    """EM from one start; `labels` (R, K) counts the labels of each annotator and class."""
    R, K = labels.shape
    given = labels.sum(1)
    seen = given > 0
    soft = votes.empty()

    def step() -> float:
        """One E-step and one M-step; returns the log-likelihood before the M-step."""
        spamming = (1 - competence)[:, None] * spam
        telling = competence[:, None] + spamming
        bonus = (np.log(telling) - np.log(spamming)).ravel()
        log_likelihood = float((labels * np.log(spamming)).sum() - votes.n_items * np.log(K))
        log_likelihood += smoothing * float(
            (np.log(competence) + np.log(1 - competence) + np.log(spam).sum(1))[seen].sum()
        )
        right = np.zeros(R * K)
        for block in votes.blocks:
            posterior, block_log_likelihood = normalize_log_joint(block.vote_counts(bonus[block.annotator_class_cell]))
            soft[block.rows] = posterior
            right += np.bincount(block.annotator_class_cell, weights=block.label_confidence(posterior), minlength=R * K)
            log_likelihood += block_log_likelihood
        copied = right.reshape(R, K) * competence[:, None] / telling
        spammed = labels - copied
        _set_shares(competence, copied.sum(1) + smoothing, given + 2 * smoothing, seen)
        _set_shares(spam, spammed + smoothing, (spammed + smoothing).sum(1), seen)
        return log_likelihood

    em_trace = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    return MaceFit(soft, competence, spam, em_trace)


def _set_shares(values: FloatArray, counts: FloatArray, total: FloatArray, seen: NDArray[np.bool_]) -> None:
    """Set values to counts / total, clipped, for annotators with labels; leave the others as they are."""
    known = seen & (total > 0)
    divisor = total[known] if values.ndim == 1 else total[known, None]
    values[known] = np.clip(counts[known] / divisor, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
