"""The consensus, choosing between models without gold labels, choosing the next labels to collect, and diagnostics."""

from __future__ import annotations

from crowdfuse.quality.consensus import Consensus, consensus
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.quality.diagnostics import diagnose
from crowdfuse.quality.findings import Finding
from crowdfuse.quality.model_selection import label_likelihood, label_score
from crowdfuse.quality.next_labels import next_labels
from crowdfuse.quality.prediction_limits import prediction_limitations

__all__ = [
    "Consensus",
    "Finding",
    "consensus",
    "diagnose",
    "label_likelihood",
    "label_score",
    "load_consensus",
    "next_labels",
    "prediction_limitations",
]
