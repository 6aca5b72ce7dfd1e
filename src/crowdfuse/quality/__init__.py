"""Label quality, choosing between models without gold labels, whom to ask next, and diagnostics."""

from __future__ import annotations

from crowdfuse.quality.diagnostics import Finding, diagnose
from crowdfuse.quality.label_quality import LabelQuality, label_quality
from crowdfuse.quality.model_selection import label_likelihood, label_score
from crowdfuse.quality.next_labels import next_labels

__all__ = [
    "Finding",
    "LabelQuality",
    "diagnose",
    "label_likelihood",
    "label_quality",
    "label_score",
    "next_labels",
]
