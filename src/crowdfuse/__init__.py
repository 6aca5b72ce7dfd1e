"""crowdfuse: train a classifier from annotators who disagree, and see whom to believe, on which item, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdfuse.annotations import Annotations
from crowdfuse.choosing import label_likelihood, label_score
from crowdfuse.next_labels import next_labels  # at once, not lazily: a module has the function's name
from crowdfuse.quality import Quality, quality
from crowdfuse.registry import ESTIMATORS
from crowdfuse.summary import Summary

if TYPE_CHECKING:
    from crowdfuse.estimators import *  # noqa: F403 (each estimator by its name, without a list to keep)
    from crowdfuse.persistence import load
    from crowdfuse.report.labels_report import report_labels

__version__ = "0.1.0"
__all__ = [
    "Annotations",
    "Quality",
    "Summary",
    "label_likelihood",
    "label_score",
    "load",
    "next_labels",
    "quality",
    "report_labels",
    *ESTIMATORS.values(),
]


def __getattr__(name: str) -> Any:
    """Load torch only when a classifier is asked for, or a report."""
    if name in ESTIMATORS.values():
        from crowdfuse import estimators

        return getattr(estimators, name)
    if name == "load":
        from crowdfuse.persistence import load

        return load
    if name == "report_labels":
        from crowdfuse.report.labels_report import report_labels

        return report_labels
    raise AttributeError(f"module 'crowdfuse' has no attribute {name!r}")
