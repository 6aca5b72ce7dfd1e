"""The one-coin model: one accuracy per annotator, and all wrong classes are equally likely."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.em import OnIteration, check_settings, run_em
from crowdfuse.aggregation.result import Aggregate, make_result
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations

MIN_PROBABILITY = 1e-12  # minimum distance of accuracies from 0 and 1, so that logarithms are finite


def one_coin(
    ann: Annotations,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    smoothing: float = 0.01,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Aggregate:
    """Estimate class probabilities, the class prior and one accuracy per annotator, by EM.

    This is the model of `dawid_skene` with one accuracy per annotator instead of a matrix. It suits data with many
    classes or few labels. EM (expectation-maximization) starts from the vote shares: for each item, the fraction of its
    labels that name each class. Let y be a label by annotator r on an item with true class k, and K the number of
    classes. Let n_right be the expected number of right labels of annotator r: each label of r counts with the current
    probability that it is right. The model and the update of the accuracy are::

        P(label y | true k)  =  accuracy[r] if y = k, else (1 - accuracy[r]) / (K - 1)
        accuracy[r]          =  (n_right + smoothing) / (number of labels of r + 2 * smoothing)

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
        Number that is added to two counts of each annotator: the right labels and the wrong labels. A number above 0
        acts as a prior on the accuracies. The log-likelihood then includes the logarithm of this prior.
    seed : int, default=0
        Seed for breaking ties between equally likely classes.
    on_iteration : callable, default=None
        Called after every iteration as `on_iteration(number, log_likelihood)`; the first number is 1.

    Returns
    -------
    Aggregate
        The result. `parameters["accuracy"]` has shape (n_annotators,), and `parameters["class_prior"]` has shape
        (n_classes,).

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels, if there are fewer than two classes, or if a setting is out of range.

    See Also
    --------
    dawid_skene : Estimates one confusion matrix per annotator.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> result = one_coin(Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [2, 2, 1], [2, 2, 0], [1, 0, 1]]))
    >>> result.annotator_accuracy.round(1).tolist()
    [1.0, 0.8, 0.4]
    """
    check_settings(max_iter=max_iter, tol=tol, smoothing=smoothing)
    votes = Votes(ann)
    soft = votes.empty()
    n_labels = votes.labels_per_annotator()

    n_right, prior = np.zeros(votes.n_annotators), np.zeros(votes.n_classes)
    for block in votes.blocks:
        shares = block.vote_shares()
        n_right += block.sum_by_annotator(block.label_confidence(shares))
        prior += shares.sum(0)

    def accuracy() -> FloatArray:
        """Accuracy of each annotator from the current counts; 0.5 without labels."""
        share = np.divide(
            n_right + smoothing, n_labels + 2 * smoothing, out=np.full(len(n_labels), 0.5), where=n_labels > 0
        )
        clipped: FloatArray = np.clip(share, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        return clipped

    def step() -> float:
        """M-step from the current counts, then E-step and new counts; returns the log-likelihood."""
        a = accuracy()
        log_right, log_wrong = np.log(a), np.log((1 - a) / (votes.n_classes - 1))
        with np.errstate(divide="ignore"):
            log_prior = np.log(prior / votes.n_items)
        log_likelihood = float(log_wrong @ n_labels + smoothing * (np.log(a) + np.log(1 - a))[n_labels > 0].sum())
        n_right[:], prior[:] = 0, 0
        for block in votes.blocks:
            posterior, block_log_likelihood = normalize_log_joint(
                block.vote_counts((log_right - log_wrong)[block.annotator]) + log_prior
            )
            soft[block.rows] = posterior
            n_right[:] += block.sum_by_annotator(block.label_confidence(posterior))
            prior[:] += posterior.sum(0)
            log_likelihood += block_log_likelihood
        return log_likelihood

    em_trace = run_em(step, n_labels=votes.n_labels, max_iter=max_iter, tol=tol, on_iteration=on_iteration)
    return make_result(
        "one-coin",
        votes,
        soft,
        seed=seed,
        parameters={
            "accuracy": np.where(n_labels > 0, accuracy(), np.nan),
            "class_prior": prior / votes.n_items,
        },
        em_trace=em_trace,
    )
