"""Reports on labels and models as HTML, Markdown and JSON, and figures for papers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crowdfuse.report import plots
    from crowdfuse.report.classifier_report import report_classifier
    from crowdfuse.report.labels_report import report_labels
    from crowdfuse.report.report import Report

__all__ = ["Report", "plots", "report_classifier", "report_labels"]

_MODULES = {"Report": "report", "report_classifier": "classifier_report", "report_labels": "labels_report"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that torch and matplotlib are loaded only if needed."""
    if name == "plots":
        return import_module("crowdfuse.report.plots")
    if name in _MODULES:
        return getattr(import_module(f"crowdfuse.report.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'crowdfuse.report' has no attribute {name!r}")
