"""Correction of p-values for the number of tests, by Holm's method."""

from __future__ import annotations

import numpy as np

from crowdfuse.quality.independent_crowd import FloatArray

FALSE_ALARM_RATE = 0.01  # per kind of test and data set


def significant(p_values: FloatArray, n_tests: int) -> list[tuple[int, float]]:
    """Return the tests whose corrected p-values are below the false-alarm rate, the smallest first.

    Parameters
    ----------
    p_values : ndarray of shape (n,)
        P-values of the tests. Tests that are certainly not significant may be left out.
    n_tests : int
        Number of all tests, including tests that were left out.

    Returns
    -------
    found : list of (int, float)
        Position in `p_values` and corrected p-value of each significant test.

    Examples
    --------
    >>> significant(np.array([0.5, 0.001, 0.003]), n_tests=3)
    [(1, 0.003), (2, 0.006)]
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.maximum.accumulate(p_values[order] * (n_tests - np.arange(len(order))))
    return [(int(at), float(p)) for at, p in zip(order, corrected, strict=True) if p < FALSE_ALARM_RATE]
