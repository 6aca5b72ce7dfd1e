"""Labels of several annotators: `Annotations`, ids, alignment with the rows of X, summary statistics."""

from __future__ import annotations

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.summary import Summary

__all__ = ["Annotations", "Summary"]
