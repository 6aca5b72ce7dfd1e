"""Results of the stored comparisons per method, shipped as `comparison_results.json`.

`python docs/comparison_results.py` writes the file.

It is the digests of `crowdfuse reproduce mnist-kinds --tune` and `crowds --tune`, as `docs/results` has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

GROUP_TITLES = {"mnist-kinds": "kinds of wrong labels on MNIST", "crowds": "real crowds"}
DEFAULTS, HELD_OUT_EPOCH = "defaults", "epoch by held-out labels"
TUNED_BY_CROWD, TUNED_BY_GOLD = "tuned by crowd labels", "tuned by gold"
QUALITIES = {
    "accuracy": "accuracy",
    "log loss": "log loss",
    "calibration error": "calibration",
    "fused labels right": "fused labels",
    "suspicion": "finding wrong labels",
}
"""What a run gives people, by the name of its figure: predictions, probabilities, labels, and what to look at again."""
FILE = "comparison_results.json"

ComparisonResults = dict[str, dict[str, Any]]
"""By group: the command; by protocol mean ranks by quality and row, over how many arenas and at least how many seeds,
accuracies by arena and row, and leaders; time and memory by row."""


def load_comparison_results() -> ComparisonResults:
    """The digests, by group."""
    found: ComparisonResults = json.loads(files("crowdfuse.experiments").joinpath(FILE).read_text(encoding="utf-8"))
    return found


def mean_ranks(
    evidence: ComparisonResults,
    protocol: str = DEFAULTS,
    qualities: Iterable[str] = QUALITIES,
    weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The mean rank of each row that is ranked everywhere: qualities count the same, and so do groups, but for weights.

    >>> one, other = {"accuracy": {"x": 1.0, "y": 2.0}}, {"accuracy": {"x": 4.0}}
    >>> found = {"a": {"defaults": {"rank": one}}, "b": {"defaults": {"rank": other}}}
    >>> mean_ranks(found, qualities=["accuracy"]), mean_ranks(found, qualities=["accuracy"], weights={"a": 3, "b": 1})
    ({'x': 2.5}, {'x': 1.75})
    """
    qualities = list(qualities)
    shares = weights or dict.fromkeys(evidence, 1.0)
    ranks = [
        (shares[name], group.get(protocol, {}).get("rank", {}).get(quality, {}))
        for name, group in evidence.items()
        for quality in qualities
    ]
    total = sum(share for share, _ in ranks)
    shared = [row for row in ranks[0][1] if all(row in of for _, of in ranks)]
    return {row: sum(share * of[row] for share, of in ranks) / total for row in shared}


def best_overall_method(evidence: ComparisonResults, candidates: Iterable[str]) -> str:
    """The candidate with the best mean rank at its defaults, over all qualities."""
    ranks = mean_ranks(evidence)
    return first_of({row: ranks[row] for row in candidates if row in ranks})


def first_of(ranks: Mapping[str, float]) -> str:
    """The row with the best rank."""
    return min(ranks, key=lambda row: ranks[row])


def datasets_won_and_tied(evidence: ComparisonResults, protocol: str, row: str) -> tuple[list[str], list[str]]:
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


def describe_rank(evidence: ComparisonResults, method: str) -> str:
    """Where a method stands at its defaults, in a sentence."""
    ranks = mean_ranks(evidence)
    place = sum(rank < ranks[method] for rank in ranks.values()) + 1
    *most, last = QUALITIES.values()
    arenas = [f"{group[DEFAULTS]['arenas']} {GROUP_TITLES[name]}" for name, group in evidence.items()]
    stands = "the best mean rank" if place == 1 else f"mean rank number {place}"
    return (
        f"of {len(ranks)} compared at their own defaults it has {stands}, {ranks[method]:.1f}, over {', '.join(most)} "
        f"and {last}, on {' and '.join(arenas)}"
    )


def describe_alternatives(evidence: ComparisonResults, method: str) -> str:
    """Who would be first if something else counted, in a sentence; empty if it is always this method."""
    by_arena = {name: float(group[DEFAULTS]["arenas"]) for name, group in evidence.items()}
    counted = {
        "with every arena counted the same": mean_ranks(evidence, weights=by_arena),
        "with every method choosing its epoch by held-out labels": mean_ranks(evidence, HELD_OUT_EPOCH),
        "tuned by crowd labels": mean_ranks(evidence, TUNED_BY_CROWD),
        **{f"in {title} alone": mean_ranks(evidence, qualities=[quality]) for quality, title in QUALITIES.items()},
    }
    found = [
        f"{how} {first} ({ranks[first]:.1f} against {ranks[method]:.1f})"
        for how, ranks in counted.items()
        if method in ranks and ranks[first := first_of(ranks)] < ranks[method]
    ]
    return f"It is an average: {', '.join(found)} would be first." if found else ""
