"""Findings about labels and classifier, each from a statistical test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes
    ----------
    kind : str
        What was found.
    message : str
        What was found and what to do about it, in words.
    p_value : float
        Corrected p-value of the test.
    n : int
        How much data the test rests on.
    """

    kind: str
    message: str
    p_value: float
    n: int


def diagnose(
    ann: Any, class_probabilities: Any, *, predicted: Any = None, out_of_fold: bool = True, gold: Any = None
) -> tuple[Finding, ...]:
    """Return the findings."""
    return ()
