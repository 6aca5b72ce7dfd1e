"""Stored results of the comparison of all methods, as shipped with the package in `comparison_results.json`.

`python docs/comparison_results.py` makes the file from the tables of `crowdfuse reproduce mnist-kinds --tune` and
`crowdfuse reproduce crowds --tune` in `docs/results`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

GROUP_TITLES = {"mnist-kinds": "kinds of wrong labels on MNIST", "crowds": "real crowds"}
DEFAULTS, HELD_OUT_EPOCH = "defaults", "held_out_epoch"
TUNED_BY_CROWD, TUNED_BY_GOLD = "tuned_by_crowd", "tuned_by_gold"
PROTOCOL_TITLES = {
    DEFAULTS: "defaults",
    HELD_OUT_EPOCH: "epoch by held-out labels",
    TUNED_BY_CROWD: "tuned by crowd labels",
    TUNED_BY_GOLD: "tuned by gold",
}
METRIC_TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "calibration_error": "calibration",
    "fused_label_accuracy": "fused labels",
    "suspicion_average_precision": "finding wrong labels",
}
"""The metrics that are ranked, with their titles."""
RESULTS_FILE = "comparison_results.json"

ComparisonResults = dict[str, dict[str, Any]]
"""By group of data sets: `command`; by protocol `rank` (mean rank by metric and row), `n_datasets`, `n_seeds` (the
smallest number), `accuracy` (by data set and row) and `leaders`; `relative_time` and `relative_memory` by row."""


def load_comparison_results() -> ComparisonResults:
    """Return the stored results by group of data sets.

    Examples
    --------
    >>> list(load_comparison_results())
    ['mnist-kinds', 'crowds']
    """
    text = files("crowdfuse.experiments").joinpath(RESULTS_FILE).read_text(encoding="utf-8")
    results: ComparisonResults = json.loads(text)
    return results


def mean_ranks(
    results: ComparisonResults,
    protocol: str = DEFAULTS,
    metrics: Iterable[str] = METRIC_TITLES,
    weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the mean rank of each row (method) over groups of data sets and metrics.

    Rows without a rank in one of the groups or metrics are left out.

    Parameters
    ----------
    results : dict
        Stored results by group.
    protocol : str, default="defaults"
        The protocol.
    metrics : iterable of str, optional
        Names of the metrics. All metrics have the same weight. Default: all metrics in `METRIC_TITLES`.
    weights : mapping of str to float or None, default=None
        Weight of each group. If None, all groups have the same weight.

    Returns
    -------
    dict of str to float

    Examples
    --------
    >>> one, other = {"accuracy": {"x": 1.0, "y": 2.0}}, {"accuracy": {"x": 4.0}}
    >>> results = {"a": {"defaults": {"rank": one}}, "b": {"defaults": {"rank": other}}}
    >>> mean_ranks(results, metrics=["accuracy"]), mean_ranks(results, metrics=["accuracy"], weights={"a": 3, "b": 1})
    ({'x': 2.5}, {'x': 1.75})
    """
    metrics = list(metrics)
    group_weights = weights or dict.fromkeys(results, 1.0)
    ranks = [
        (group_weights[name], group.get(protocol, {}).get("rank", {}).get(metric, {}))
        for name, group in results.items()
        for metric in metrics
    ]
    total = sum(weight for weight, _ in ranks)
    shared = [row for row in ranks[0][1] if all(row in by_row for _, by_row in ranks)]
    return {row: sum(weight * by_row[row] for weight, by_row in ranks) / total for row in shared}


def best_overall_method(results: ComparisonResults, candidates: Iterable[str]) -> str:
    """Return the candidate with the best mean rank over all metrics, at default settings."""
    ranks = mean_ranks(results)
    return best_ranked({row: ranks[row] for row in candidates if row in ranks})


def best_ranked(ranks: Mapping[str, float]) -> str:
    """Return the row with the best rank."""
    return min(ranks, key=lambda row: ranks[row])


def datasets_won_and_tied(results: ComparisonResults, protocol: str, row: str) -> tuple[list[str], list[str]]:
    """Return the data sets on which a row has the best accuracy, and the data sets on which it is tied with the best.

    Examples
    --------
    >>> group = {"defaults": {"leaders": {"LabelMe": ["x", "y"], "dog": ["y"]}}}
    >>> datasets_won_and_tied({"crowds": group}, "defaults", "y")
    (['dog'], ['LabelMe'])
    """
    leaders: dict[str, list[str]] = {}
    for group in results.values():
        leaders |= group.get(protocol, {}).get("leaders", {})
    won = [dataset for dataset, rows in leaders.items() if rows[0] == row]
    return won, [dataset for dataset, rows in leaders.items() if row in rows[1:]]


def describe_rank(results: ComparisonResults, method: str) -> str:
    """Return the mean rank of a method at default settings, as a clause."""
    ranks = mean_ranks(results)
    position = sum(rank < ranks[method] for rank in ranks.values()) + 1
    *others, last = METRIC_TITLES.values()
    datasets = [f"{group[DEFAULTS]['n_datasets']} {GROUP_TITLES[name]}" for name, group in results.items()]
    rank = "the best mean rank" if position == 1 else f"mean rank number {position}"
    return (
        f"of {len(ranks)} methods compared at default settings it has {rank}, {ranks[method]:.1f}, over "
        f"{', '.join(others)} and {last}, on {' and '.join(datasets)}"
    )


def describe_alternatives(results: ComparisonResults, method: str) -> str:
    """Return which method would be first by other criteria, as a sentence; empty if it is always `method`."""
    n_datasets = {name: float(group[DEFAULTS]["n_datasets"]) for name, group in results.items()}
    by_criterion = {
        "with the same weight for every data set": mean_ranks(results, weights=n_datasets),
        "if every method chooses its epoch by held-out labels": mean_ranks(results, HELD_OUT_EPOCH),
        "tuned by crowd labels": mean_ranks(results, TUNED_BY_CROWD),
        **{f"by {title} alone": mean_ranks(results, metrics=[metric]) for metric, title in METRIC_TITLES.items()},
    }
    alternatives = [
        f"{criterion} {first} ({ranks[first]:.1f} against {ranks[method]:.1f})"
        for criterion, ranks in by_criterion.items()
        if method in ranks and ranks[first := best_ranked(ranks)] < ranks[method]
    ]
    return f"This is an average: {', '.join(alternatives)} would be first." if alternatives else ""
