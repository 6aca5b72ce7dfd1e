"""Expectation and maximisation in turn, until the likelihood hardly rises."""

from __future__ import annotations

import math
from collections.abc import Callable

OnIteration = Callable[[int, float], None]
"""Told after every iteration: its number, and the log-likelihood."""


def run_em(
    step: Callable[[], float], *, n_labels: int, max_iter: int, tol: float, on_iteration: OnIteration | None
) -> tuple[tuple[float, ...], bool]:
    """Take steps, each of which returns a log-likelihood, until it rises by less than `tol` a label.

    Returns the log-likelihoods, and whether it came to that; with `tol=0` all `n_iter` steps are taken.

    >>> heights = iter([-9.0, -4.0, -3.9, -3.8])
    >>> run_em(lambda: next(heights), n_labels=1, n_iter=4, tol=0.5, on_iteration=None)
    ((-9.0, -4.0, -3.9), True)
    """
    reached: list[float] = []
    while len(reached) < max_iter:
        reached.append(step())
        if on_iteration is not None:
            on_iteration(len(reached), reached[-1])
        if tol and len(reached) > 1 and reached[-1] - reached[-2] < tol * n_labels:
            return tuple(reached), True
    return tuple(reached), False


def check_settings(*, max_iter: int, tol: float, smoothing: float = 0.0) -> None:
    """Refuse settings that make no sense; methods ask before any work."""
    if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 1:
        raise ValueError(f"n_iter must be a whole number from 1, got {max_iter!r}")
    for name, value in (("tol", tol), ("smoothing", smoothing)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number from 0, got {value!r}")
