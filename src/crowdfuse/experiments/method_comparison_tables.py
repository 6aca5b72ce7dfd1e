"""All methods by the same rules: accuracies by arena, ranks, what tuning brings, and what else a method gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.estimators.registry import estimator_class
from crowdfuse.experiments.comparison_results import QUALITIES
from crowdfuse.experiments.method_comparison import HELD_OUT_SHARE, NETWORK, ComparisonCell, ComparisonDataset
from crowdfuse.experiments.protocols import (
    Ranks,
    RowDatasetSeed,
    best_and_tied,
    gains,
    metric_by_dataset,
    ranks,
    select_runs,
)
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.experiments.search_space import COMMON_SEARCH_SPACE
from crowdfuse.experiments.store import Record
from crowdfuse.io.files import write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table

REFERENCE = "majority-vote"
METRICS = {
    "log loss": ("log loss", 1.0, "{:.3f}"),
    "calibration error": ("calibration error (%)", 100.0, "{:.1f}"),
    "fused labels right": ("fused labels right (%)", 100.0, "{:.1f}"),
    "suspicion": ("average precision of suspicion (%)", 100.0, "{:.1f}"),
}
LOWER_IS_BETTER = ("log loss", "calibration error")  # the less, the better
COSTS = {"seconds of training": "time", "bytes of a step": "memory"}  # over those of the reference
RULES_TEXT = (
    "The same labels, split, network, optimiser, schedule, batch and number of epochs for all at a seed; only WDN "
    f"trains the weights of its average for some epochs more. Gold judges on test items. {100 * HELD_OUT_SHARE:.0f} "
    "% of "
    "the training items are kept out of training in every protocol.\n\n"
    "*Defaults*: every method's own settings; gated, as it comes, chooses its epoch by labels that it holds out, "
    "the others keep the last. *Epoch by held-out labels*: the same, with that choice for all. *Tuned by crowd "
    "labels* takes, of so many draws, the defaults among them, the one that makes the labels of the items kept "
    "out likeliest, those that guards object to last. *Tuned by gold* takes the draw that gets most of the items "
    "kept out right: the ceiling, as far as gold of so few items can tell. true-label trains the same network on "
    "gold, untuned, and is no competitor.\n\n"
    "Gated, and the likelihood that crowd labels choose by, were settled on MNIST, LabelMe and Sentiment Polarity "
    "with test accuracy in view, on other sizes of them (docs/method.md). Other methods' defaults are their papers' or "
    "their code's, but for TraceReg's start, set with gold of CIFAR-100 in view, MaDL's isotropic confusions, and the "
    "epochs without outliers that COINNet begins with, which came after its accuracy here had been seen."
)
SelectedRuns = dict[str, dict[RowDatasetSeed, Record]]


def write_fair_report(
    arenas: Mapping[str, ComparisonDataset],
    cells: Sequence[ComparisonCell],
    records: Sequence[Record],
    folder: Path,
    command: str,
) -> dict[str, Any]:
    """`table.md`, `table.json` and the ranks as a figure, beside the store; returns the numbers."""
    kept = select_runs(cells, records)
    numbers = {"command": command, **collect_numbers(kept), "digest": summarize_comparison(arenas, kept, command)}
    write_text(folder / "table.md", render_markdown(arenas, kept, command))
    write_json(folder / "table.json", numbers)
    for protocol, found in all_ranks(kept).items():
        title = f"{protocol.capitalize()}: mean rank of accuracy over {found.arenas} arenas"
        figure = plots.critical_difference(found.mean, found.interval, found.critical, title)
        plots.save_figure(figure, folder / f"ranks-{protocol.replace(' ', '-')}.png")
    return numbers


def all_ranks(kept: SelectedRuns) -> dict[str, Ranks]:
    """By accuracy, for each protocol that has something to rank."""
    found = {protocol: ranks(metric_by_dataset(runs, "accuracy")) for protocol, runs in kept.items()}
    return {protocol: one for protocol, one in found.items() if one is not None}


def collect_numbers(kept: SelectedRuns) -> dict[str, Any]:
    """All numbers, as JSON holds them."""
    ranked = all_ranks(kept)
    return {
        protocol: {
            "accuracy": metric_by_dataset(runs, "accuracy"),
            "ranks": ranked[protocol]._asdict() if protocol in ranked else None,
            f"minus {REFERENCE}": gains(runs, REFERENCE),
            **{name: metric_by_dataset(runs, name) for name in METRICS},
            **{name: metric_by_dataset(runs, name) for name in COSTS},
        }
        for protocol, runs in kept.items()
    }


def summarize_comparison(arenas: Mapping[str, ComparisonDataset], kept: SelectedRuns, command: str) -> dict[str, Any]:
    """What there is to know of each method in few numbers: what `crowdfuse methods` shows of stored results."""
    found: dict[str, Any] = {"command": command}
    for protocol, runs in kept.items():
        by_arena = metric_by_dataset(runs, "accuracy")
        ranked = {name: ranks(metric_by_dataset(runs, name), ascending=name in LOWER_IS_BETTER) for name in QUALITIES}
        by_accuracy = ranked["accuracy"]
        found[protocol] = {
            "arenas": 0 if by_accuracy is None else by_accuracy.arenas,
            "seeds": 0 if by_accuracy is None else by_accuracy.seeds,
            "rank": {
                name: {row: round(rank, 2) for row, rank in of.mean.items()}
                for name, of in ranked.items()
                if of is not None
            },
            "accuracy": {
                arenas[name].title: {row: round(float(np.mean(list(seeds.values()))), 6) for row, seeds in of.items()}
                for name, of in by_arena.items()
            },
            "leaders": {arenas[name].title: rows for name, rows in best_and_tied(by_arena).items()},
        }
    for name, title in COSTS.items():
        found[title] = {row: round(times, 2) for row, times in costs(kept["defaults"], name).items()}
    return found


def render_markdown(arenas: Mapping[str, ComparisonDataset], kept: SelectedRuns, command: str) -> str:
    """The whole comparison as text."""
    parts = [f"# All methods by the same rules\n\n`{command}`\n\n{RULES_TEXT}", _arenas(arenas, kept)]
    ranked = all_ranks(kept)
    for protocol, runs in kept.items():
        parts.append(f"## {protocol.capitalize()}\n\n{_accuracies(arenas, runs, ranked.get(protocol))}")
    if len(kept) > 1:
        parts.append(f"## What tuning brings\n\n{_tuning(kept)}")
    parts.append(f"## What else, at defaults\n\n{_others(kept['defaults'])}")
    parts.append(f"## What was tuned\n\n{_spaces(kept)}")
    return "\n\n".join(parts) + "\n"


def _arenas(arenas: Mapping[str, ComparisonDataset], kept: SelectedRuns) -> str:
    seen = {arena for _, arena, _ in kept["defaults"]}
    shown = [
        [arena.title, arena.note, _settings(arena.data), _settings(arena.annotators or {}), _settings(arena.training)]
        for name, arena in arenas.items()
        if name in seen
    ]
    header = ["arena", "what", "data", "annotators", "network"]
    return f"{markdown_table(header, shown)}\n\nThe network, but for what an arena has otherwise: {_settings(NETWORK)}."


def _settings(settings: Mapping[str, Any]) -> str:
    """Settings in words.

    >>> _settings({"epochs": 12, "names": ["1", "2"]})
    'epochs 12, names 1 2'
    """
    return ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in settings.items()
    )


def _accuracies(
    arenas: Mapping[str, ComparisonDataset], runs: Mapping[RowDatasetSeed, Record], ranked: Ranks | None
) -> str:
    by_arena = metric_by_dataset(runs, "accuracy")
    columns = [name for name in arenas if name in by_arena]
    rows = _rows(runs, ranked)
    ahead = gains(runs, REFERENCE)
    best = {
        name: max(
            (np.mean(list(seeds.values())) for row, seeds in by_arena[name].items() if row != UPPER_BOUND), default=0
        )
        for name in columns
    }
    shown = []
    for row in rows:
        line = [row]
        for name in columns:
            seeds = list(by_arena[name].get(row, {}).values())
            if not seeds:
                line.append("")
                continue
            spread = f" ± {100 * np.std(seeds, ddof=1):.1f}" if len(seeds) > 1 else ""
            text = f"{100 * np.mean(seeds):.1f}{spread}"
            line.append(f"**{text}**" if row != UPPER_BOUND and np.mean(seeds) == best[name] else text)
        if ranked is not None and row in ranked.mean:
            low, high = ranked.interval[row]
            line.append(f"{ranked.mean[row]:.1f} ({low:.1f} to {high:.1f})")
        else:
            line.append("")
        line.append("" if row not in ahead else "{:+.1f} ({:+.1f} to {:+.1f})".format(*ahead[row][:3]))
        shown.append(line)
    header = ["method", *(arenas[name].title for name in columns), "mean rank", f"minus {REFERENCE}"]
    seeds_of = sorted({seed for _, _, seed in runs})
    text = f"Test accuracy (%), mean ± standard deviation over seeds {', '.join(map(str, seeds_of))}.\n\n"
    text += markdown_table(header, shown)
    if ranked is not None:
        text += (
            f"\n\nRanks over {ranked.arenas} arenas and at least {ranked.seeds} seeds that all methods have; intervals "
            "are 95 %, over arenas' means, as if arenas had nothing to do with each other. Two methods are shown to "
            f"differ at 5 % (Nemenyi) where their mean ranks are {ranked.critical:.1f} apart. Differences are over "
            "arenas, with a 95 % interval."
        )
    return text


def _rows(runs: Mapping[RowDatasetSeed, Record], ranked: Ranks | None) -> list[str]:
    """Best first; those that are not ranked at the end, in the order of the grid."""
    rows = list(dict.fromkeys(row for row, _, _ in runs))
    order = {} if ranked is None else ranked.mean
    return sorted(rows, key=lambda row: order.get(row, float("inf")))


def _tuning(kept: SelectedRuns) -> str:
    """How much better than its defaults each method is in the other protocols, in points."""
    defaults = kept["defaults"]
    rows = dict.fromkeys(row for row, _, _ in defaults if row != UPPER_BOUND)
    shown = []
    for row in rows:
        line = [row]
        for protocol, runs in kept.items():
            if protocol == "defaults":
                continue
            places = [place for place in runs if place[0] == row and place in defaults]
            found = [100 * (runs[place].result["accuracy"] - defaults[place].result["accuracy"]) for place in places]
            line.append(f"{np.mean(found):+.1f} (worst {min(found):+.1f}, of {len(found)})" if found else "")
        shown.append(line)
    return markdown_table(["method", *(protocol for protocol in kept if protocol != "defaults")], shown)


def _others(runs: Mapping[RowDatasetSeed, Record]) -> str:
    """Means over arenas of the other figures, and what training costs beside the reference."""
    rows = dict.fromkeys(row for row, _, _ in runs)
    by_metric = {name: metric_by_dataset(runs, name) for name in METRICS}
    of_cost = [costs(runs, name) for name in COSTS]
    shown = []
    for row in rows:
        line = [row]
        for name, (_, scale, form) in METRICS.items():
            means = [np.mean(list(of[row].values())) for of in by_metric[name].values() if row in of]
            line.append(form.format(scale * float(np.mean(means))) if means else "")
        line += [f"{found[row]:.2f}" if row in found else "" for found in of_cost]
        shown.append(line)
    titles = [f"{title} over {REFERENCE}" for title in COSTS.values()]
    header = ["method", *(title for title, _, _ in METRICS.values()), *titles]
    return (
        "Means over arenas. Suspicion is one minus the fused label's share of the class said. Time is the processor's, "
        "of training; memory is what a step holds for the way back, with parameters, gradients and Adam's means, "
        f"counted. Soft vote is plain training, so both are over {REFERENCE}'s.\n\n"
    ) + markdown_table(header, shown)


def costs(runs: Mapping[RowDatasetSeed, Record], name: str) -> dict[str, float]:
    """How many times the reference's a figure is, by row: medians over seeds, means over arenas."""
    figures = metric_by_dataset(runs, name)
    ratios: dict[str, list[float]] = {}
    for of in figures.values():
        for row, by_seed in of.items():
            shared = set(by_seed) & set(of.get(REFERENCE, {}))
            if shared:
                middle = float(np.median([by_seed[seed] / of[REFERENCE][seed] for seed in shared]))
                ratios.setdefault(row, []).append(middle)
    return {row: float(np.mean(found)) for row, found in ratios.items()}


def _spaces(kept: SelectedRuns) -> str:
    methods = dict.fromkeys(record.run["method"] for record in kept["defaults"].values())
    shown = [["all", _space(COMMON_SEARCH_SPACE)]]
    shown += [[method, _space(own)] for method in methods if (own := estimator_class(method).search_space)]
    return markdown_table(["method", "space"], shown)


def _space(space: Mapping[str, Any]) -> str:
    """A space in words.

    >>> _space({"q": (0.1, 1.0), "vote": ["soft", "hard"]})
    'q 0.1 to 1.0 in logs; vote soft, hard'
    """
    return "; ".join(
        f"{name} {values[0]} to {values[1]} in logs"
        if isinstance(values, tuple)
        else f"{name} {', '.join(map(str, values))}"
        for name, values in space.items()
    )
