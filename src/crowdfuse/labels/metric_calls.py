"""Recognize that a metric of scikit-learn reads annotations as if they were true classes."""

from __future__ import annotations

import inspect

METRIC_MODULES = ("sklearn.metrics._classification", "sklearn.metrics._ranking", "sklearn.metrics._regression")
MAX_FRAMES = 20  # scikit-learn converts its arguments within a few calls


def refuse_metrics() -> None:
    """Raise a TypeError if a metric of scikit-learn is among the callers.

    Metrics and splitters convert y to an array in the same way, and a metric would answer with an unrelated message or
    compare class names with codes. Only the caller tells them apart.

    Raises
    ------
    TypeError
        The message says what to pass.

    Examples
    --------
    >>> refuse_metrics()
    """
    frame, metric = inspect.currentframe(), None
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if frame.f_globals.get("__name__") in METRIC_MODULES:
            metric = frame.f_code.co_name  # the last one found is the function that was called
        frame = frame.f_back
    if metric is not None:
        raise TypeError(
            f"{metric} compares predictions with true classes, but y holds labels of annotators. If you have true "
            "classes (gold), pass y=annotations.align(items).with_gold(gold). If not, use scoring=crowdfuse.label_score"
        )
