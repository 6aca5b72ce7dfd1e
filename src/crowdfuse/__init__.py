"""Train a classifier on the labels of annotators who disagree, and see whom to trust, on which item, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdfuse.estimators.registry import ESTIMATORS
from crowdfuse.labels import Annotations, Summary
from crowdfuse.quality import Consensus, consensus, label_likelihood, label_score, load_consensus, next_labels

if TYPE_CHECKING:
    from crowdfuse.estimators import *  # noqa: F403 (every estimator, without a second list to maintain)
    from crowdfuse.estimators.base import CrowdClassifier
    from crowdfuse.estimators.persistence import load
    from crowdfuse.report import report_labels

__version__ = "0.1.0"
__all__ = [
    "Annotations",
    "Consensus",
    "CrowdClassifier",
    "Summary",
    "consensus",
    "label_likelihood",
    "label_score",
    "load",
    "load_consensus",
    "next_labels",
    "report_labels",
    *ESTIMATORS.values(),
]


def __getattr__(name: str) -> Any:
    """Import classifiers and reports on first use, since they need torch."""
    if name == "CrowdClassifier" or name in ESTIMATORS.values():
        from crowdfuse import estimators

        return getattr(estimators, name)
    if name == "load":
        from crowdfuse.estimators.persistence import load

        return load
    if name == "report_labels":
        from crowdfuse.report import report_labels

        return report_labels
    raise AttributeError(f"module 'crowdfuse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
