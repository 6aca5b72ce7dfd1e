"""Confidence intervals, against scipy and against the variance they must have."""

import numpy as np
import pytest
from scipy import stats

from crowdfuse.labels.intervals import (
    bootstrap_interval,
    proportion_with_interval,
    t_interval_half_width,
    wilson_interval,
)


@pytest.mark.parametrize(("right", "total"), [(0, 10), (8, 10), (10, 10), (513, 1000)])
def test_wilson_interval_equals_scipy(right: int, total: int) -> None:
    expected = stats.binomtest(right, total).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson_interval(right, total), [expected.low, expected.high], atol=1e-12)


def test_wilson_interval_of_nothing_is_everything() -> None:
    assert [float(end) for end in wilson_interval(0, 0)] == pytest.approx([0, 1])
    assert proportion_with_interval(0, 0)["value"] is None


def test_t_interval_equals_scipy() -> None:
    values = np.random.default_rng(0).normal(size=9)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    half = t_interval_half_width(values)
    np.testing.assert_allclose([values.mean() - half, values.mean() + half], [low, high])


def test_bootstrap_interval_has_the_width_of_the_normal_approximation() -> None:
    values = np.random.default_rng(0).normal(size=4000)
    low, high = bootstrap_interval(np.tile(values, (5, 1)))  # equal seeds: only the items vary
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(4000), rel=0.08)
    low, high = bootstrap_interval(
        np.repeat(np.array([[-2.0], [0.0], [1.0], [3.0]]), 50, axis=1)
    )  # only the seeds vary
    assert (low, high) == pytest.approx((-1.25, 2.25), abs=0.3)
