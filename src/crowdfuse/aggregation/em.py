"""The loop of EM (expectation-maximization), and checks of its settings."""

from __future__ import annotations

import math
from collections.abc import Callable

OnIteration = Callable[[int, float], None]
"""Called after every iteration as `on_iteration(number, log_likelihood)`; the first number is 1."""


def run_em(
    step: Callable[[], float], *, n_labels: int, max_iter: int, tol: float, on_iteration: OnIteration | None
) -> tuple[tuple[float, ...], bool]:
    """Repeat EM steps until one raises the log-likelihood by less than `tol` per label.

    Parameters
    ----------
    step : callable
        Runs one iteration and returns the log-likelihood.
    n_labels : int
        Number of labels.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Tolerance per label. If 0, all `max_iter` iterations are run.
    on_iteration : callable or None
        Called after every iteration as `on_iteration(number, log_likelihood)`; the first number is 1.

    Returns
    -------
    log_likelihoods : tuple of float
        The log-likelihood of each iteration.
    converged : bool
        True if the loop stopped because of `tol`, False if it stopped because of `max_iter`.

    Examples
    --------
    >>> values = iter([-9.0, -4.0, -3.9, -3.8])
    >>> run_em(lambda: next(values), n_labels=1, max_iter=4, tol=0.5, on_iteration=None)
    ((-9.0, -4.0, -3.9), True)
    """
    log_likelihoods: list[float] = []
    while len(log_likelihoods) < max_iter:
        log_likelihoods.append(step())
        if on_iteration is not None:
            on_iteration(len(log_likelihoods), log_likelihoods[-1])
        if tol and len(log_likelihoods) > 1 and log_likelihoods[-1] - log_likelihoods[-2] < tol * n_labels:
            return tuple(log_likelihoods), True
    return tuple(log_likelihoods), False


def check_settings(*, max_iter: int, tol: float, smoothing: float = 0.0) -> None:
    """Check the settings of EM, before any work is done.

    Parameters
    ----------
    max_iter : int
        At least 1.
    tol, smoothing : float
        At least 0, finite.

    Raises
    ------
    ValueError
        If a setting is out of range.
    """
    if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 1:
        raise ValueError(f"max_iter must be a whole number of at least 1, got {max_iter!r}")
    for name, value in (("tol", tol), ("smoothing", smoothing)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
