"""The accuracy of each annotator with a 95 % interval, from draws of the true classes and the confusion matrices."""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.posterior import PosteriorFit, fix_certain
from crowdfuse.aggregation.votes import FloatArray, normalize_log_joint
from crowdfuse.labels.ids import IntArray
from crowdfuse.quality.confidence_discount import temper

N_BURN_IN = 20  # first draws, which are left out because they depend on the start
MIN_DRAWS, MAX_DRAWS = 30, 100
MAX_DRAWN_VALUES = 4e8  # over all draws; bounds the time for large data
Z_95 = 1.96
VARIANCE_INFLATION = 1.2  # because the draws keep the calibration of the classifier fixed
MODEL_ERROR = 0.004  # standard error of the model itself: every interval is at least +/- 0.8 percentage points wide


def accuracy_with_interval(fit: PosteriorFit, temperature: float, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Estimate the share of each annotator's labels that are right.

    A Gibbs sampler draws the true class of every item, then confusion matrices given these classes, and so on. Each
    draw of the classes gives each annotator a share of right labels. The mean of these shares is the accuracy. Their
    standard deviation gives the interval, which is widened because the draws do not include all uncertainty. A simple
    mean of class probabilities would be biased: too high if the annotator's own label is part of the evidence, and too
    low if it is not.

    If annotators make mistakes together, it is uncertain how often they do. Each draw therefore lowers the confidence
    by a different exponent, between `temperature` squared and 1.

    Parameters
    ----------
    fit : PosteriorFit
        The fitted model. Its counts are overwritten.
    temperature : float
        Exponent that lowers the confidence; see `discount_temperature`.
    seed : int, default=0
        Seed of the draws.

    Returns
    -------
    accuracy : ndarray of shape (n_annotators,)
        Share of right labels; NaN for annotators without labels.
    interval : ndarray of shape (n_annotators, 2)
        Lower and upper end of the 95 % interval; NaN for annotators without labels.
    """
    votes, generator = fit.votes, np.random.default_rng(seed)
    values_per_draw = votes.n_labels * votes.n_classes + fit.counts.size
    n_draws = int(np.clip(MAX_DRAWN_VALUES / values_per_draw - N_BURN_IN, MIN_DRAWS, MAX_DRAWS))
    n_right = np.zeros((n_draws, votes.n_annotators))
    drawn = _draw_classes(fit.soft.astype(np.float64), generator)
    for number in range(-N_BURN_IN, n_draws):
        fit.count(drawn)
        model = fit.annotators(generator)
        exponent = temperature ** (2 * generator.random())
        for block, gate in fit.blocks():
            log_prior = np.log(np.maximum(fit.prior(block.rows), 1e-300))
            posterior, _ = normalize_log_joint(log_prior + model.log_label_probability(block, gate))
            fix_certain(posterior, fit.certain[block.rows])
            drawn[block.rows] = _draw_classes(posterior, generator)
            if number >= 0:
                tempered = drawn[block.rows]
                if temperature < 1:
                    tempered = _draw_classes(temper(posterior, exponent), generator)
                n_right[number] += block.sum_by_annotator(tempered[block.item] == block.label)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = n_right / fit.n_labels
    accuracy: FloatArray = shares.mean(0)
    half_width = Z_95 * np.sqrt(VARIANCE_INFLATION * shares.var(0) + MODEL_ERROR**2)
    return accuracy, np.clip(np.stack([accuracy - half_width, accuracy + half_width], axis=1), 0, 1)


def _draw_classes(probabilities: FloatArray, generator: np.random.Generator) -> IntArray:
    """Return one class per row, drawn from its probabilities (n, K)."""
    cumulative = probabilities.cumsum(1)
    drawn: IntArray = (cumulative < generator.random((len(cumulative), 1)) * cumulative[:, -1:]).sum(1)
    last: IntArray = np.minimum(drawn, probabilities.shape[1] - 1)
    return last
