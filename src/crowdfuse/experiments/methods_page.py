"""Which method? What each assumes, needs and costs, and where it won, from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.comparison_results import (
    DEFAULTS,
    GROUP_TITLES,
    HELD_OUT_EPOCH,
    QUALITIES,
    TUNED_BY_CROWD,
    ComparisonResults,
    datasets_won_and_tied,
    describe_alternatives,
    describe_rank,
    mean_ranks,
)
from crowdfuse.experiments.method_comparison import DATASET_GROUPS as ARENAS
from crowdfuse.experiments.protocols import critical_difference
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import markdown_table

PROTOCOLS = (DEFAULTS, HELD_OUT_EPOCH, TUNED_BY_CROWD)


def method_facts(evidence: ComparisonResults, methods: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One entry a method, the best mean rank at defaults first, those without a rank last."""
    ranks = {protocol: mean_ranks(evidence, protocol) for protocol in PROTOCOLS}
    by_quality = {
        protocol: {title: mean_ranks(evidence, protocol, [quality]) for quality, title in QUALITIES.items()}
        for protocol in PROTOCOLS
    }
    facts = []
    for method in methods or ESTIMATORS:
        kind = estimator_class(method)
        won = {protocol: datasets_won_and_tied(evidence, protocol, method) for protocol in PROTOCOLS}
        ranked = [protocol for protocol in PROTOCOLS if method in ranks[protocol]]
        facts.append(
            {
                "method": method,
                "estimator": kind.__name__,
                "default": method == DEFAULT_METHOD,
                "assumes": kind.assumes,
                "needs": kind.needs,
                "times plain": _times(evidence, "time", method),
                "memory times plain": _times(evidence, "memory", method),
                "mean rank": {protocol: ranks[protocol][method] for protocol in ranked},
                "rank by quality": {
                    protocol: {title: of[method] for title, of in by_quality[protocol].items()} for protocol in ranked
                },
                "first in accuracy": {protocol: first for protocol, (first, _) in won.items()},
                "level with the first": {protocol: level for protocol, (_, level) in won.items()},
            }
        )
    return sorted(facts, key=lambda fact: fact["mean rank"].get(DEFAULTS, float("inf")))


def _times(evidence: ComparisonResults, cost: str, method: str) -> float | None:
    """The mean over groups of how many times soft vote's a cost is."""
    found = [group[cost][method] for group in evidence.values() if method in group[cost]]
    return round(sum(found) / len(found), 2) if found else None


def overview(facts: Sequence[dict[str, Any]], evidence: ComparisonResults) -> str:
    """All methods on a screen of a terminal: two lines each, at defaults."""
    width = max(len(fact["method"]) for fact in facts)
    lines = [f"{'':{width}}  rank  in accuracy  time  memory"]
    for fact in facts:
        rank, in_accuracy = (
            f"{of:.1f}" if of else "" for of in (fact["mean rank"].get(DEFAULTS), _accuracy_rank(fact, DEFAULTS))
        )
        time, memory = (f"{fact[name]:.1f}" if fact[name] else "" for name in ("times plain", "memory times plain"))
        first = fact["first in accuracy"][DEFAULTS]
        said = ["the default"] if fact["default"] else []
        said += [f"first on {', '.join(first)}"] if first else []
        figures = f"{fact['method']:{width}}  {rank:>4}  {in_accuracy:>11}  {time:>4}  {memory:>6}  {'; '.join(said)}"
        lines += [figures.rstrip(), f"    {fact['assumes']}{_needs(fact)}"]
    return "\n".join(lines) + (
        f"\n\n{_default(evidence)}\n"
        "Ranks: 1 is the best, at defaults. Time and memory: over plain training with the same network. First: in "
        "accuracy.\n"
        f"{_doubt(evidence)}\n"
        "What uniform, any, looks ... are: crowdfuse methods --page. More on some: crowdfuse methods gated max-mig. On "
        "your own data: crowdfuse compare."
    )


def _accuracy_rank(fact: dict[str, Any], protocol: str) -> float | None:
    rank: float | None = fact["rank by quality"].get(protocol, {}).get(QUALITIES["accuracy"])
    return rank


def _needs(fact: dict[str, Any]) -> str:
    return f"; needs {fact['needs']}" if fact["needs"] else ""


def _doubt(evidence: ComparisonResults) -> str:
    """How many pairs of methods are shown to differ in accuracy, by the ranks."""
    said = []
    for name, group in evidence.items():
        ranks = group[DEFAULTS]["rank"]["accuracy"]
        apart = critical_difference(len(ranks), group[DEFAULTS]["arenas"])
        pairs = list(combinations(ranks.values(), 2))
        differ = sum(abs(one - other) >= apart for one, other in pairs)
        said.append(f"{differ} of {len(pairs)} pairs on {GROUP_TITLES[name]}")
    return (
        "Ranks over so few arenas say little of two methods: those in accuracy are shown to differ (5 %, Nemenyi) for "
        f"{', '.join(said)}."
    )


def _above_the_bound(evidence: ComparisonResults) -> str:
    """Where methods are above the one that is told the truth."""
    accuracy = {arena: of for group in evidence.values() for arena, of in group[DEFAULTS]["accuracy"].items()}
    counts = {
        arena: sum(value > of[UPPER_BOUND] for value in of.values())
        for arena, of in accuracy.items()
        if UPPER_BOUND in of
    }
    said = [f"{format_count(count, 'method')} on {arena}" for arena, count in counts.items() if count]
    return f"{UPPER_BOUND} is no upper bound everywhere: above it are {', '.join(said)}." if said else ""


def _default(evidence: ComparisonResults) -> str:
    return (
        f"Without --method, crowdfuse fit takes {DEFAULT_METHOD}: {describe_rank(evidence, DEFAULT_METHOD)}. "
        f"{describe_alternatives(evidence, DEFAULT_METHOD)}"
    )


def details(facts: Sequence[dict[str, Any]], evidence: ComparisonResults) -> str:
    """All that is known of some methods, for a terminal."""
    parts = []
    for fact in facts:
        lines = [f"{fact['method']}  ({fact['estimator']}){'  the default' if fact['default'] else ''}"]
        lines.append(f"  assumes  {fact['assumes']}")
        if fact["needs"]:
            lines.append(f"  needs    {fact['needs']}")
        lines.append(f"  costs    {_costs(fact)}")
        lines += [f"  ranks    {protocol}: {_ranks(fact, protocol)}" for protocol in fact["mean rank"]]
        lines += [f"  first    {said}" for said in _won(fact)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + (
        f"\n\n{_default(evidence)}\n"
        "Ranks: 1 is the best. Costs: over plain training with the same network. First: in accuracy; close: less than "
        "a point behind, and not surely.\n"
        f"{_doubt(evidence)}\n"
        "What uniform, any, looks ... are: crowdfuse methods --page. On your own data: crowdfuse compare."
    )


def _costs(fact: dict[str, Any]) -> str:
    if fact["times plain"] is None:
        return "not measured here"
    return f"{fact['times plain']:.1f} times the time of plain training, {fact['memory times plain']:.1f} its memory"


def _ranks(fact: dict[str, Any], protocol: str) -> str:
    each = [f"{title} {rank:.1f}" for title, rank in fact["rank by quality"][protocol].items()]
    return f"{fact['mean rank'][protocol]:.1f} ({', '.join(each)})"


def _won(fact: dict[str, Any]) -> list[str]:
    """Where it is first in accuracy, or level with the first, by protocol; nothing where it was not compared."""
    found = []
    for protocol in fact["mean rank"]:
        first, level = fact["first in accuracy"][protocol], fact["level with the first"][protocol]
        said = [", ".join(first)] if first else []
        said += [f"close on {', '.join(level)}"] if level else []
        found.append(f"{protocol}: {'; '.join(said) or 'nowhere'}")
    return found


def page(evidence: ComparisonResults) -> str:
    """The page of the docs, as Markdown."""
    facts = method_facts(evidence)
    commands = "\n".join(group["command"] for group in evidence.values())
    rows = [
        [
            f"{fact['method']} (the default)" if fact["default"] else fact["method"],
            fact["assumes"] + _needs(fact),
            "" if fact["times plain"] is None else f"{fact['times plain']:.1f}, {fact['memory times plain']:.1f}",
            "; ".join(_won(fact)),
        ]
        for fact in facts
    ]
    header = ["method", "what it assumes", "time, memory", "where it is first in accuracy"]
    seeds = min(group[DEFAULTS]["seeds"] for group in evidence.values())
    parts = [
        "# Which method?",
        f"`crowdfuse fit` without `--method` takes **{DEFAULT_METHOD}**: {describe_rank(evidence, DEFAULT_METHOD)}. "
        f"{describe_alternatives(evidence, DEFAULT_METHOD)} Look for the kind of mistakes that your annotators make, "
        "and ask your "
        "own data with `crowdfuse compare`, which needs no gold.",
        "All that is said here is drawn from stored results, made by",
        f"```\n{commands}\n```",
        f"under the same rules for all, with a small network and a short training, over at least {seeds} seeds. [Kinds "
        "of wrong labels](results/mnist-kinds/table.md) and [real crowds](results/crowds-tuned/table.md) have the "
        "rules, what is not fair about them (gated was settled on some of these data sets), what was tuned, and tuning "
        "by gold. With more data and larger networks the order can be another: [uniform](results/uniform/table.md) has "
        "some of the methods on all of MNIST with LeNet. `crowdfuse methods` says the most of this page in a terminal, "
        "`crowdfuse methods --json methods.json` as data.",
        markdown_table(header, rows),
        "Time and memory are times those of plain training (soft vote) with the same network. First is the best mean "
        "over seeds; close is less than a point behind it, and not surely (95 %, paired over seeds). "
        f"{_above_the_bound(evidence)}",
        "What the arenas are:",
        "\n".join(f"- *{arena.title}*: {arena.note}" for arenas in ARENAS.values() for arena in arenas.values()),
        f"## Ranks\n\nMean ranks, 1 is the best of {len(mean_ranks(evidence))}. The two groups of arenas count the "
        "same, and so do five qualities: accuracy, log loss and calibration of the classifier, accuracy of the fused "
        "labels, and the average precision with which these tell wrong labels from right ones. That all five count, "
        "and not accuracy alone, was settled after a first part of the table had been seen. Ranks hide how much lies "
        f"between two: the accuracies are below. {_doubt(evidence)} *Epoch by held-out labels* gives all methods the "
        "choice that gated makes by itself.",
        *(_rank_table(evidence, protocol) for protocol in PROTOCOLS),
        *(_accuracies(evidence, name) for name in evidence),
    ]
    return "\n\n".join(parts) + "\n"


def _rank_table(evidence: ComparisonResults, protocol: str) -> str:
    overall = mean_ranks(evidence, protocol)
    by_quality = [mean_ranks(evidence, protocol, [quality]) for quality in QUALITIES]
    rows = [
        [row, *(f"{of[row]:.1f}" for of in (overall, *by_quality))]
        for row in sorted(overall, key=lambda row: overall[row])
    ]
    over = ", ".join(
        f"{group.get(protocol, {}).get('arenas', 0)} {GROUP_TITLES[name]}" for name, group in evidence.items()
    )
    return f"### {protocol.capitalize()}\n\nOver {over}.\n\n" + markdown_table(
        ["method", "mean", *QUALITIES.values()], rows
    )


def _accuracies(evidence: ComparisonResults, name: str) -> str:
    """Test accuracy of a group at defaults, best rank first."""
    of = evidence[name][DEFAULTS]
    rows = sorted(
        dict.fromkeys(row for arena in of["accuracy"].values() for row in arena),
        key=lambda row: of["rank"]["accuracy"].get(row, 99),
    )
    shown = []
    for row in rows:
        line = [row]
        for arena, figures in of["accuracy"].items():
            said = f"{100 * figures[row]:.1f}" if row in figures else ""
            line.append(f"**{said}**" if row == of["leaders"][arena][0] else said)
        shown.append(line)
    return (
        f"## {GROUP_TITLES[name][0].upper()}{GROUP_TITLES[name][1:]}, defaults\n\nTest accuracy (%).\n\n"
        + markdown_table(["method", *of["accuracy"]], shown)
    )
