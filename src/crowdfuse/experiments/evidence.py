"""What stored comparisons say of each method, as the package ships it: `evidence.json`, by `python docs/evidence.py`.

It is the digests of `crowdfuse reproduce mnist-kinds --tune` and `crowds --tune`, as `docs/results` has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

GROUPS = {"mnist-kinds": "kinds of wrong labels on MNIST", "crowds": "real crowds"}
DEFAULTS, TUNED = "defaults", "tuned by crowd labels"
QUALITIES = {
    "accuracy": "accuracy",
    "log loss": "log loss",
    "calibration error": "calibration",
    "fused labels right": "fused labels",
    "suspicion": "suspicion",
}
"""What a run gives people, by the name of its figure: predictions, probabilities, labels, and what to look at again."""
FILE = "evidence.json"

Evidence = dict[str, dict[str, Any]]
"""By group: the command; by protocol mean ranks by quality and row, accuracies by arena and row, and leaders; time and
memory by row."""


def load_evidence() -> Evidence:
    """The digests, by group."""
    found: Evidence = json.loads(files("crowdfuse.experiments").joinpath(FILE).read_text(encoding="utf-8"))
    return found


def mean_ranks(evidence: Evidence, protocol: str = DEFAULTS, qualities: Iterable[str] = QUALITIES) -> dict[str, float]:
    """The mean rank of each row that is ranked everywhere: groups count the same, and so do qualities.

    >>> one, other = {"accuracy": {"x": 1.0, "y": 2.0}}, {"accuracy": {"x": 4.0}}
    >>> mean_ranks({"a": {"defaults": {"rank": one}}, "b": {"defaults": {"rank": other}}}, qualities=["accuracy"])
    {'x': 2.5}
    """
    by_group = [group.get(protocol, {}).get("rank", {}) for group in evidence.values()]
    ranks = [of.get(quality, {}) for of in by_group for quality in qualities]
    shared = [row for row in ranks[0] if all(row in of for of in ranks)]
    return {row: sum(of[row] for of in ranks) / len(ranks) for row in shared}


def all_rounder(evidence: Evidence, candidates: Iterable[str]) -> str:
    """The candidate with the best mean rank at its defaults, over all qualities."""
    ranks = mean_ranks(evidence)
    return min((row for row in candidates if row in ranks), key=lambda row: ranks[row])


def where(evidence: Evidence, protocol: str, row: str) -> tuple[list[str], list[str]]:
    """The arenas in which a row is first, and those in which the first is not surely ahead of it.

    >>> one = {"defaults": {"leaders": {"LabelMe": ["x", "y"], "dog": ["y"]}}}
    >>> where({"crowds": one}, "defaults", "y")
    (['dog'], ['LabelMe'])
    """
    leaders: dict[str, list[str]] = {}
    for group in evidence.values():
        leaders |= group.get(protocol, {}).get("leaders", {})
    first = [arena for arena, rows in leaders.items() if rows[0] == row]
    return first, [arena for arena, rows in leaders.items() if row in rows[1:]]


def why(evidence: Evidence, method: str) -> str:
    """Why a method is the default, in a sentence."""
    ranks = mean_ranks(evidence)
    *most, last = QUALITIES.values()
    arenas = [f"{len(group[DEFAULTS]['accuracy'])} {GROUPS[name]}" for name, group in evidence.items()]
    return (
        f"of {len(ranks)} compared as they come it has the best mean rank, {ranks[method]:.1f}, over "
        f"{', '.join(most)} and {last}, on {' and '.join(arenas)}"
    )


def ahead(evidence: Evidence, method: str) -> str:
    """Who is ahead of a method in one quality alone, in a sentence; empty if nobody is."""
    found = []
    for quality, title in QUALITIES.items():
        ranks = mean_ranks(evidence, qualities=[quality])
        best = min(ranks, key=lambda row: ranks[row])
        if best != method:
            found.append(f"in {title} {best} ({ranks[best]:.1f} against {ranks[method]:.1f})")
    return f"Ahead of it {', '.join(found)}." if found else ""
