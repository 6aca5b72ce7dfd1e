"""The overview of methods: what each assumes, needs and costs, and where it is best, from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.comparison_results import (
    DEFAULTS,
    GROUP_TITLES,
    HELD_OUT_EPOCH,
    METRIC_TITLES,
    PROTOCOL_TITLES,
    TUNED_BY_CROWD,
    ComparisonResults,
    datasets_won_and_tied,
    describe_alternatives,
    describe_rank,
    mean_ranks,
)
from crowdfuse.experiments.method_comparison import DATASET_GROUPS
from crowdfuse.experiments.protocols import nemenyi_critical_difference
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import markdown_table

PROTOCOLS = (DEFAULTS, HELD_OUT_EPOCH, TUNED_BY_CROWD)


def method_facts(results: ComparisonResults, methods: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the facts on each method, ordered by mean rank with default settings; methods without a rank come last.

    Parameters
    ----------
    results : dict
        Stored results, as `load_comparison_results` returns them.
    methods : sequence of str, default=()
        Names of the methods. If empty, all methods.

    Returns
    -------
    list of dict
        One dictionary per method.
    """
    ranks = {protocol: mean_ranks(results, protocol) for protocol in PROTOCOLS}
    by_metric = {
        protocol: {title: mean_ranks(results, protocol, [metric]) for metric, title in METRIC_TITLES.items()}
        for protocol in PROTOCOLS
    }
    facts = []
    for method in methods or ESTIMATORS:
        kind = estimator_class(method)
        won = {protocol: datasets_won_and_tied(results, protocol, method) for protocol in PROTOCOLS}
        ranked = [protocol for protocol in PROTOCOLS if method in ranks[protocol]]
        facts.append(
            {
                "method": method,
                "estimator": kind.__name__,
                "default": method == DEFAULT_METHOD,
                "assumes": kind.assumes,
                "needs": kind.needs,
                "relative_time": _mean_cost(results, "relative_time", method),
                "relative_memory": _mean_cost(results, "relative_memory", method),
                "mean_rank": {protocol: ranks[protocol][method] for protocol in ranked},
                "mean_rank_by_metric": {
                    protocol: {title: of[method] for title, of in by_metric[protocol].items()} for protocol in ranked
                },
                "best_on": {protocol: first for protocol, (first, _) in won.items()},
                "tied_on": {protocol: level for protocol, (_, level) in won.items()},
            }
        )
    return sorted(facts, key=lambda fact: fact["mean_rank"].get(DEFAULTS, float("inf")))


def _mean_cost(results: ComparisonResults, cost: str, method: str) -> float | None:
    """Return a cost relative to soft vote, as a mean over groups; None if the cost was not measured."""
    found = [group[cost][method] for group in results.values() if method in group[cost]]
    return round(sum(found) / len(found), 2) if found else None


def format_overview(facts: Sequence[dict[str, Any]], results: ComparisonResults) -> str:
    """Return the overview for a terminal: two lines per method, at defaults."""
    width = max(len(fact["method"]) for fact in facts)
    lines = [f"{'':{width}}  rank  in accuracy  time  memory"]
    for fact in facts:
        rank, in_accuracy = (
            f"{of:.1f}" if of else "" for of in (fact["mean_rank"].get(DEFAULTS), _accuracy_rank(fact, DEFAULTS))
        )
        time, memory = (f"{fact[name]:.1f}" if fact[name] else "" for name in ("relative_time", "relative_memory"))
        first = fact["best_on"][DEFAULTS]
        said = ["the default"] if fact["default"] else []
        said += [f"first on {', '.join(first)}"] if first else []
        figures = f"{fact['method']:{width}}  {rank:>4}  {in_accuracy:>11}  {time:>4}  {memory:>6}  {'; '.join(said)}"
        lines += [figures.rstrip(), f"    {fact['assumes']}{_needs(fact)}"]
    return "\n".join(lines) + (
        f"\n\n{_default(results)}\n"
        "Rank 1 is the best, at defaults. Time and memory are relative to plain training with the same network. First "
        "refers to accuracy.\n"
        f"{_count_significant_pairs(results)}\n"
        "crowdfuse methods --page explains the data sets (uniform, any, looks ...). crowdfuse methods gated max-mig "
        "shows "
        "more on single methods. crowdfuse compare compares on your own data."
    )


def _accuracy_rank(fact: dict[str, Any], protocol: str) -> float | None:
    rank: float | None = fact["mean_rank_by_metric"].get(protocol, {}).get(METRIC_TITLES["accuracy"])
    return rank


def _needs(fact: dict[str, Any]) -> str:
    return f"; needs {fact['needs']}" if fact["needs"] else ""


def _count_significant_pairs(results: ComparisonResults) -> str:
    """Return a sentence: how many pairs of methods differ significantly in accuracy, by their ranks."""
    counts = []
    for name, group in results.items():
        ranks = group[DEFAULTS]["rank"]["accuracy"]
        apart = nemenyi_critical_difference(len(ranks), group[DEFAULTS]["n_datasets"])
        pairs = list(combinations(ranks.values(), 2))
        differ = sum(abs(one - other) >= apart for one, other in pairs)
        counts.append(f"{differ} of {len(pairs)} pairs on {GROUP_TITLES[name]}")
    return (
        "Ranks over so few data sets say little about two methods: ranks by accuracy differ significantly (5 %, "
        "Nemenyi) "
        f"for {', '.join(counts)}."
    )


def _describe_above_upper_bound(results: ComparisonResults) -> str:
    """Return a sentence: where methods are better than the upper bound; empty if nowhere."""
    accuracy = {dataset: of for group in results.values() for dataset, of in group[DEFAULTS]["accuracy"].items()}
    counts = {
        dataset: sum(value > of[UPPER_BOUND] for value in of.values())
        for dataset, of in accuracy.items()
        if UPPER_BOUND in of
    }
    better = [f"{format_count(count, 'method')} on {dataset}" for dataset, count in counts.items() if count]
    return f"{UPPER_BOUND} is not always an upper bound: {', '.join(better)} are better." if better else ""


def _default(results: ComparisonResults) -> str:
    """Return sentences on the default method."""
    return (
        f"Without --method, crowdfuse fit uses {DEFAULT_METHOD}: {describe_rank(results, DEFAULT_METHOD)}. "
        f"{describe_alternatives(results, DEFAULT_METHOD)}"
    )


def format_details(facts: Sequence[dict[str, Any]], results: ComparisonResults) -> str:
    """Return all facts on some methods, for a terminal."""
    parts = []
    for fact in facts:
        lines = [f"{fact['method']}  ({fact['estimator']}){'  the default' if fact['default'] else ''}"]
        lines.append(f"  assumes  {fact['assumes']}")
        if fact["needs"]:
            lines.append(f"  needs    {fact['needs']}")
        lines.append(f"  costs    {_costs(fact)}")
        lines += [f"  ranks    {PROTOCOL_TITLES[protocol]}: {_ranks(fact, protocol)}" for protocol in fact["mean_rank"]]
        lines += [f"  first    {said}" for said in _won(fact)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + (
        f"\n\n{_default(results)}\n"
        "Rank 1 is the best. Costs are relative to plain training with the same network. First refers to accuracy; "
        "close "
        "is less than a point behind and not significantly worse.\n"
        f"{_count_significant_pairs(results)}\n"
        "crowdfuse methods --page explains the data sets (uniform, any, looks ...). crowdfuse compare compares on "
        "your own "
        "data."
    )


def _costs(fact: dict[str, Any]) -> str:
    if fact["relative_time"] is None:
        return "not measured here"
    return f"{fact['relative_time']:.1f} times the time of plain training, {fact['relative_memory']:.1f} its memory"


def _ranks(fact: dict[str, Any], protocol: str) -> str:
    each = [f"{title} {rank:.1f}" for title, rank in fact["mean_rank_by_metric"][protocol].items()]
    return f"{fact['mean_rank'][protocol]:.1f} ({', '.join(each)})"


def _won(fact: dict[str, Any]) -> list[str]:
    """Return, by protocol, the data sets on which a method is first in accuracy or tied with the first."""
    found = []
    for protocol in fact["mean_rank"]:
        first, level = fact["best_on"][protocol], fact["tied_on"][protocol]
        said = [", ".join(first)] if first else []
        said += [f"close on {', '.join(level)}"] if level else []
        found.append(f"{PROTOCOL_TITLES[protocol]}: {'; '.join(said) or 'nowhere'}")
    return found


def render_methods_page(results: ComparisonResults) -> str:
    """Return the page for the docs, as Markdown."""
    facts = method_facts(results)
    commands = "\n".join(group["command"] for group in results.values())
    rows = [
        [
            f"{fact['method']} (the default)" if fact["default"] else fact["method"],
            fact["assumes"] + _needs(fact),
            "" if fact["relative_time"] is None else f"{fact['relative_time']:.1f}, {fact['relative_memory']:.1f}",
            "; ".join(_won(fact)),
        ]
        for fact in facts
    ]
    header = ["method", "what it assumes", "time, memory", "where it is first in accuracy"]
    seeds = min(group[DEFAULTS]["n_seeds"] for group in results.values())
    parts = [
        "# Which method?",
        f"`crowdfuse fit` without `--method` uses **{DEFAULT_METHOD}**: {describe_rank(results, DEFAULT_METHOD)}. "
        f"{describe_alternatives(results, DEFAULT_METHOD)} Look for the type of errors that your annotators make, and "
        "compare on your own data with `crowdfuse compare`, which needs no gold.",
        "All numbers on this page come from stored results, made by",
        f"```\n{commands}\n```",
        f"under the same rules for all methods, with a small network and short training, over at least {seeds} seeds. "
        "[Kinds of wrong labels](results/mnist-kinds/table.md) and [real crowds](results/crowds-tuned/table.md) state "
        "the rules, their limits (gated was developed on some of these data sets), the search spaces, and results of "
        "tuning by gold. More data and larger networks can change the order: [uniform](results/uniform/table.md) "
        "compares some methods on all of MNIST with LeNet. `crowdfuse methods` shows most of this page in a terminal, "
        "and `crowdfuse methods --json methods.json` writes it as data.",
        markdown_table(header, rows),
        "Time and memory are relative to plain training (soft vote) with the same network. First is the best mean over "
        "seeds; close is less than a point behind it and not significantly worse (95 %, paired over seeds). "
        f"{_describe_above_upper_bound(results)}",
        "The data sets:",
        "\n".join(
            f"- *{dataset.title}*: {dataset.note}"
            for datasets in DATASET_GROUPS.values()
            for dataset in datasets.values()
        ),
        f"## Ranks\n\nMean ranks; 1 is the best of {len(mean_ranks(results))}. The two groups of data sets have the "
        "same "
        "weight, and so do the five metrics: accuracy, log loss and calibration of the classifier, accuracy of the "
        "fused labels, and the average precision with which the fused labels rank wrong labels. The decision to weigh "
        "all five, and not accuracy alone, came after a first part of the table had been seen. Ranks hide the size of "
        f"differences; the accuracies are below. {_count_significant_pairs(results)} *Epoch by held-out labels* "
        "gives all methods the "
        "choice that gated makes by default.",
        *(_rank_table(results, protocol) for protocol in PROTOCOLS),
        *(_accuracies(results, name) for name in results),
    ]
    return "\n\n".join(parts) + "\n"


def _rank_table(results: ComparisonResults, protocol: str) -> str:
    """Return the mean ranks of a protocol."""
    overall = mean_ranks(results, protocol)
    by_metric = [mean_ranks(results, protocol, [metric]) for metric in METRIC_TITLES]
    rows = [
        [row, *(f"{of[row]:.1f}" for of in (overall, *by_metric))]
        for row in sorted(overall, key=lambda row: overall[row])
    ]
    over = ", ".join(
        f"{group.get(protocol, {}).get('n_datasets', 0)} {GROUP_TITLES[name]}" for name, group in results.items()
    )
    return f"### {PROTOCOL_TITLES[protocol].capitalize()}\n\nOver {over}.\n\n" + markdown_table(
        ["method", "mean", *METRIC_TITLES.values()], rows
    )


def _accuracies(results: ComparisonResults, name: str) -> str:
    """Return the test accuracies of a group at defaults, best rank first."""
    of = results[name][DEFAULTS]
    rows = sorted(
        dict.fromkeys(row for dataset in of["accuracy"].values() for row in dataset),
        key=lambda row: of["rank"]["accuracy"].get(row, 99),
    )
    shown = []
    for row in rows:
        line = [row]
        for dataset, figures in of["accuracy"].items():
            said = f"{100 * figures[row]:.1f}" if row in figures else ""
            line.append(f"**{said}**" if row == of["leaders"][dataset][0] else said)
        shown.append(line)
    return (
        f"## {GROUP_TITLES[name][0].upper()}{GROUP_TITLES[name][1:]}, defaults\n\nTest accuracy (%).\n\n"
        + markdown_table(["method", *of["accuracy"]], shown)
    )
