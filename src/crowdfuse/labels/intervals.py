"""95 % confidence intervals: Wilson for proportions, Student's t for means, also over seeds and test items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z_95 = 1.959963984540054  # the 97.5 % quantile of the standard normal distribution


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
        Ends of the interval, in the broadcast shape of the two arguments. Where `total` is 0, low is 0 and high is 1.

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
    """Return a proportion and its 95 % Wilson interval as a dictionary, as reports store them.

    Parameters
    ----------
    right : float
        Number of successes.
    total : float
        Number of trials.

    Returns
    -------
    dict
        "value": the proportion `right / total`, or None if `total` is 0. "low" and "high": ends of the 95 % interval.
        "n": `total`, rounded to an integer.

    Examples
    --------
    >>> {name: round(value, 3) for name, value in proportion_with_interval(8, 10).items()}
    {'value': 0.8, 'low': 0.49, 'high': 0.943, 'n': 10}
    """
    low, high = (float(end) for end in wilson_interval(right, total))
    return {"value": float(right / total) if total else None, "low": low, "high": high, "n": round(total)}


def t_interval_half_width(values: Sequence[float] | NDArray[Any]) -> float:
    """Return half the width of the 95 % t-interval of a mean.

    The ends of the interval are the mean minus and plus the returned number. If the values are differences between
    pairs of measurements, the interval is that of the paired t-test.

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


def seeds_and_items_half_width(differences: NDArray[np.float64]) -> float:
    """Return half the width of the 95 % interval of a mean over seeds and test items.

    Seeds and test items are treated as random samples: the interval is for the mean over all possible seeds and items.
    Let S be the number of seeds and I the number of items. A seed mean is the mean of one seed over all items. An item
    mean is the mean of one item over all seeds. The formula uses three standard deviations:

    - ``s_seeds``: the standard deviation of the S seed means;
    - ``s_items``: the standard deviation of the I item means;
    - ``s_rest``: the standard deviation of the residuals, with (S - 1) (I - 1) degrees of freedom. The residual of a
      value is the value minus its seed mean, minus its item mean, plus the mean of all values.

    The half width is computed as follows, where t(d) is the 97.5 % quantile of Student's t-distribution with d degrees
    of freedom::

        over_seeds = t(S - 1) s_seeds / sqrt(S)
        over_items = t(I - 1) sqrt(max(0, s_items^2 / I - s_rest^2 / (S I)))
        half_width = sqrt(over_seeds^2 + over_items^2)

    If all item means are equal, the result is the half width of Student's t-interval over the seed means. In general,
    the result is Howe's approximation, whose coverage is slightly above 95 %.

    Parameters
    ----------
    differences : ndarray of shape (n_seeds, n_items)
        One value per seed and item, such as the difference between two methods. At least two seeds and two items are
        needed. Column j holds the same item for every seed.

    Returns
    -------
    float

    References
    ----------
    W. G. Howe, "Approximate confidence limits on the mean of X + Y where X and Y are two tabled independent random
    variables", JASA, 1974.

    Examples
    --------
    >>> only_seeds_vary = np.repeat([[10.0], [20.0]], 50, axis=1)
    >>> round(seeds_and_items_half_width(only_seeds_vary), 2)  # as t_interval_half_width([10.0, 20.0])
    63.53
    """
    n_seeds, n_items = differences.shape
    by_seed, by_item = differences.mean(1), differences.mean(0)
    rest = differences - by_seed[:, None] - by_item + differences.mean()
    rest_variance = float((rest**2).sum()) / ((n_seeds - 1) * (n_items - 1))
    over_items = t_interval_half_width(by_item)
    explained = 1 - rest_variance / n_seeds / max(float(np.var(by_item, ddof=1)), 1e-300)
    return math.hypot(t_interval_half_width(by_seed), over_items * math.sqrt(max(0.0, explained)))
