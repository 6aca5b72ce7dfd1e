"""How much the confidence of the consensus is lowered, because annotators share mistakes; measured without gold.

The model of the consensus assumes that the mistakes of annotators are independent. In real crowds they are not: an item
that misleads one annotator also misleads others, and the consensus is less certain than the model assumes. Annotators
and classifier see the same input. If annotators make mistakes in favour of classes that the classifier also finds
probable, the mistakes depend on the input. Annotators who see the same input then make the same mistakes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from crowdfuse.aggregation.posterior import PosteriorFit
from crowdfuse.aggregation.votes import Block, FloatArray

DISCOUNT_PER_DEPENDENCE = 40.0  # chosen on real crowds with gold; docs/consensus.md says which
MIN_TEMPERATURE = 0.4  # no stronger discount was needed on any of these crowds
MAX_NEWTON_STEPS = 30
DEPENDENCE_PRIOR_PRECISION = 2.0  # precision of the prior of the dependence, which has mean 0
MIN_PROBABILITY = 1e-3  # smaller probabilities by the classifier are replaced by this


def error_dependence(fit: PosteriorFit) -> tuple[float, float]:
    """Return how strongly the labels follow the classifier's probabilities, beyond what the true class explains.

    Let q be the classifier's calibrated probabilities. A label y by annotator r on an item n of class k is modelled as
    (~ means proportional to)::

        P(y | k, n, r)  ~  confusion[r, k, y] * q[n, y] ** dependence

    If the dependence is 0, a label depends on the input only through the true class. The dependence is estimated by
    maximizing the expected log-likelihood with Newton's method. Confusion matrices and class probabilities are fixed at
    their fitted values.

    Parameters
    ----------
    fit : PosteriorFit
        The fitted model.

    Returns
    -------
    dependence : float
        The estimate; 0 if the classifier is ignored.
    standard_error : float
        Standard error of the estimate.
    """
    if fit.sharpness == 0:
        return 0.0, 0.0
    model = fit.annotators()
    right = model.right_probability()
    dependence, curve = 0.0, DEPENDENCE_PRIOR_PRECISION
    for _ in range(MAX_NEWTON_STEPS):
        slope, curve = -DEPENDENCE_PRIOR_PRECISION * dependence, DEPENDENCE_PRIOR_PRECISION
        for block in fit.votes.blocks:
            log_q = np.log(np.maximum(fit.prior(block.rows), MIN_PROBABILITY))
            power = np.exp(dependence * log_q)
            right_of_label = right[block.annotator]
            total = _mean_over_labels(power, block, right_of_label, model.wrong_labels)
            mean = _mean_over_labels(power * log_q, block, right_of_label, model.wrong_labels) / total
            weight = fit.soft[block.rows][block.item]
            said = log_q.ravel()[block.item_class_cell]
            slope += float((weight * (said[:, None] - mean)).sum())
            square = _mean_over_labels(power * log_q**2, block, right_of_label, model.wrong_labels) / total
            curve += float((weight * (square - mean**2)).sum())
        step = float(np.clip(slope / curve, -0.3, 0.3))
        dependence += step
        if abs(step) < 1e-4:
            break
    return dependence, float(curve**-0.5)


def _mean_over_labels(
    values: FloatArray, block: Block, right_of_label: FloatArray, wrong_labels: FloatArray
) -> FloatArray:
    """Return the mean of `values` over the labels that the annotator may give: (n_labels, n_classes = true)."""
    wrong = (values @ wrong_labels)[block.item]
    mean: FloatArray = right_of_label * values[block.item] + (1 - right_of_label) * wrong
    return mean


def discount_temperature(dependence: float, standard_error: float) -> float:
    """Return the exponent that lowers the confidence of the consensus; 1 leaves the confidence unchanged.

    Parameters
    ----------
    dependence, standard_error : float
        Return values of `error_dependence`. The confidence is lowered only if the dependence is above its standard
        error.

    Returns
    -------
    temperature : float
        ``max(0.4, 1 / (1 + 40 * max(0, dependence - standard_error)))``.

    Examples
    --------
    >>> discount_temperature(0.01, 0.02), discount_temperature(0.02, 0.005), discount_temperature(0.1, 0.01)
    (1.0, 0.625, 0.4)
    """
    return max(MIN_TEMPERATURE, 1 / (1 + DISCOUNT_PER_DEPENDENCE * max(0.0, dependence - standard_error)))


def temper(probabilities: FloatArray, temperature: float) -> FloatArray:
    """Raise class probabilities (n, K) to a power and normalize them. The most probable class stays the same.

    Examples
    --------
    >>> temper(np.array([[0.9, 0.1]]), 0.5).round(3).tolist()
    [[0.75, 0.25]]
    """
    if temperature == 1:
        return probabilities
    tempered: FloatArray = softmax(temperature * np.log(np.maximum(probabilities, 1e-30)), axis=1)
    return tempered
