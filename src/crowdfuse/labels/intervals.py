"""95 % confidence intervals: Wilson for proportions, Student's t and the bootstrap for means of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z_95 = 1.959963984540054  # the 97.5 % quantile of the standard normal distribution
N_BOOTSTRAP_DRAWS = 2_000
BOOTSTRAP_DRAWS_PER_BLOCK = 200  # bounds the memory: this many draws are counted at a time, for all items


def wilson_interval(right: ArrayLike, total: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of Wilson's 95 % interval for the proportion `right / total`.

    Let p = right / total, n = total and z = 1.96. The interval is ``(middle - spread, middle + spread)``, where::

        middle = (p + z^2 / (2 n)) / (1 + z^2 / n)
        spread = z sqrt(p (1 - p) / n + z^2 / (4 n^2)) / (1 + z^2 / n)

    Parameters
    ----------
    right : array-like
        Number of successes; it need not be a whole number.
    total : array-like
        Number of trials; broadcast against `right`.

    Returns
    -------
    low, high : ndarray of float64
        Ends of the interval, in the broadcast shape of the two arguments. Where `total` is 0, they are 0 and 1.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA, 1927.

    Examples
    --------
    >>> [round(float(end), 3) for end in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    right, total = np.asarray(right, np.float64), np.asarray(total, np.float64)
    n = np.maximum(total, 1e-12)
    p = np.clip(right / n, 0, 1)
    middle, spread = p + Z_95**2 / (2 * n), Z_95 * np.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n**2))
    scale = 1 + Z_95**2 / n
    return np.clip((middle - spread) / scale, 0, 1), np.clip((middle + spread) / scale, 0, 1)


def proportion_with_interval(right: float, total: float) -> dict[str, Any]:
    """Return a proportion and its Wilson interval as a dictionary, in the form in which reports store it.

    Parameters
    ----------
    right : float
        Number of successes.
    total : float
        Number of trials.

    Returns
    -------
    dict
        `value` (None if `total` is 0), `low`, `high`, and `n`, the number of trials rounded to an integer.

    Examples
    --------
    >>> {name: round(value, 3) for name, value in proportion_with_interval(8, 10).items()}
    {'value': 0.8, 'low': 0.49, 'high': 0.943, 'n': 10}
    """
    low, high = (float(end) for end in wilson_interval(right, total))
    return {"value": float(right / total) if total else None, "low": low, "high": high, "n": round(total)}


def t_interval_half_width(values: Sequence[float] | NDArray[Any]) -> float:
    """Return half the width of the 95 % t-interval of a mean.

    The interval goes from the mean minus this number to the mean plus this number. If the values are differences
    between pairs of measurements, the interval is the one of the paired t-test.

    Parameters
    ----------
    values : sequence of float
        At least two independent values.

    Returns
    -------
    float

    Examples
    --------
    >>> round(t_interval_half_width([10.0, 20.0]), 2)  # standard error 5, one degree of freedom
    63.53
    """
    from scipy import stats

    standard_error = np.std(values, ddof=1) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1) * standard_error)


def bootstrap_interval(differences: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of all values, where rows and columns are both resampled.

    Rows (seeds) and columns (items) are both drawn with replacement, 2,000 times, from a fixed random seed. Columns are
    drawn by position, so column j may hold different items for different seeds.

    Parameters
    ----------
    differences : ndarray of shape (n_seeds, n_items)
        One value per seed and item.

    Returns
    -------
    low, high : float
        The 2.5 % and 97.5 % quantiles of the resampled means.

    Examples
    --------
    >>> bootstrap_interval(np.ones((3, 50)))
    (1.0, 1.0)
    """
    generator = np.random.default_rng(0)
    n_seeds, n_items = differences.shape
    seed_counts = generator.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), N_BOOTSTRAP_DRAWS)
    means = np.empty(N_BOOTSTRAP_DRAWS)
    for start in range(0, N_BOOTSTRAP_DRAWS, BOOTSTRAP_DRAWS_PER_BLOCK):
        block = slice(start, start + BOOTSTRAP_DRAWS_PER_BLOCK)
        item_counts = generator.multinomial(n_items, np.full(n_items, 1 / n_items), BOOTSTRAP_DRAWS_PER_BLOCK)
        means[block] = (seed_counts[block] * (item_counts @ differences.T)).sum(1) / differences.size
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
