"""Labels of several annotators: `Annotations`, ids, alignment with the rows of X, statistics, intervals."""

from __future__ import annotations

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.intervals import (
    proportion_with_interval,
    seeds_and_items_half_width,
    t_interval_half_width,
    wilson_interval,
)
from crowdfuse.labels.summary import Summary
from crowdfuse.labels.votes import argmax_breaking_ties, vote_counts, vote_shares

__all__ = [
    "Annotations",
    "Summary",
    "argmax_breaking_ties",
    "proportion_with_interval",
    "seeds_and_items_half_width",
    "t_interval_half_width",
    "vote_counts",
    "vote_shares",
    "wilson_interval",
]
