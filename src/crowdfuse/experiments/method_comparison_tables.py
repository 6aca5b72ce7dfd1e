"""Tables of the comparison of all methods: accuracies, ranks, the effect of tuning, other metrics and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.estimators.registry import estimator_class
from crowdfuse.experiments.method_comparison import HELD_OUT_SHARE, NETWORK_SETTINGS, ComparisonCell, ComparisonDataset
from crowdfuse.experiments.method_results import REFERENCE_METHOD
from crowdfuse.experiments.protocols import (
    DEFAULTS,
    PROTOCOL_TITLES,
    MeanRanks,
    RowDatasetSeed,
    gains_over,
    metric_by_dataset,
    rank_methods,
    select_runs,
)
from crowdfuse.experiments.rank_plot import plot_critical_difference
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.experiments.search_space import COMMON_SEARCH_SPACE
from crowdfuse.experiments.store import Record
from crowdfuse.io.files import write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table

SECONDARY_METRICS = {
    "log_loss": ("log loss", 1.0, "{:.3f}"),
    "calibration_error": ("calibration error (%)", 100.0, "{:.1f}"),
    "fused_label_accuracy": ("fused labels right (%)", 100.0, "{:.1f}"),
    "suspicion_average_precision": ("average precision of suspicion (%)", 100.0, "{:.1f}"),
}
"""Title, factor and format by metric."""
COST_TITLES = {"training_cpu_seconds": "time", "peak_step_bytes": "memory"}
"""Costs, which are shown relative to the reference method."""
RULES_TEXT = (
    "At each seed, all methods have the same labels, split, network, optimizer, schedule, batch size and number of "
    "epochs; only WDN trains the weights of its average for additional epochs. Methods are evaluated on the gold "
    f"labels of the test items. {100 * HELD_OUT_SHARE:.0f} % of the training items are held out of training in every "
    "protocol.\n\n*Defaults*: the default settings of every method. By default, gated chooses its epoch by held-out "
    "labels, and the others keep the last epoch. *Epoch by held-out labels*: default settings, but all methods choose "
    "their epoch by held-out labels. *Tuned by crowd labels*: several random combinations of settings are tried, as "
    "well as the defaults. The combination under which the labels of the held-out items are most likely is used; "
    "combinations that fail a sanity check are ranked last. *Tuned by gold*: the combination with the highest "
    "accuracy on the gold labels of the held-out items is used. This shows how much tuning can gain, up to the noise "
    "of so few gold labels. true-label trains the same network on gold, without tuning, and is not ranked.\n\nThe "
    "defaults of gated, and the likelihood used for tuning by crowd labels, were developed on MNIST, LabelMe and "
    "Sentiment Polarity, at other sizes of these data sets and with a view of the test accuracy (docs/method.md). "
    "Defaults of the other methods are those of their papers or code, with three exceptions: the start of TraceReg "
    "was chosen with gold of CIFAR-100, MaDL uses isotropic confusions, and COINNet begins with epochs without "
    "outliers, which was chosen after its accuracy here had been seen."
)
SelectedRuns = dict[str, dict[RowDatasetSeed, Record]]


def write_method_comparison(
    datasets: Mapping[str, ComparisonDataset],
    cells: Sequence[ComparisonCell],
    records: Sequence[Record],
    folder: Path,
    command: str,
) -> dict[str, Any]:
    """Write `table.md`, `table.json` and a figure of the ranks per protocol, and return the numbers."""
    kept = select_runs(cells, records)
    numbers = {"command": command, **collect_numbers(kept)}
    write_text(folder / "table.md", render_markdown(datasets, kept, command))
    write_json(folder / "table.json", numbers)
    for protocol, found in accuracy_ranks(kept).items():
        title = f"{PROTOCOL_TITLES[protocol].capitalize()}: mean rank of accuracy over {found.n_datasets} data sets"
        figure = plot_critical_difference(found.mean, found.interval, found.critical_difference, title)
        plots.save_figure(figure, folder / f"ranks-{PROTOCOL_TITLES[protocol].replace(' ', '-')}.png")
    return numbers


def accuracy_ranks(kept: SelectedRuns) -> dict[str, MeanRanks]:
    """Return mean ranks by accuracy, for each protocol in which methods can be ranked."""
    found = {protocol: rank_methods(metric_by_dataset(runs, "accuracy")) for protocol, runs in kept.items()}
    return {protocol: one for protocol, one in found.items() if one is not None}


def collect_numbers(kept: SelectedRuns) -> dict[str, Any]:
    """Return all numbers, for JSON."""
    ranked = accuracy_ranks(kept)
    return {
        protocol: {
            "accuracy": metric_by_dataset(runs, "accuracy"),
            "ranks": ranked[protocol]._asdict() if protocol in ranked else None,
            "reference": REFERENCE_METHOD,
            "gain_over_reference": gains_over(runs, REFERENCE_METHOD),
            **{name: metric_by_dataset(runs, name) for name in SECONDARY_METRICS},
            **{name: metric_by_dataset(runs, name) for name in COST_TITLES},
        }
        for protocol, runs in kept.items()
    }


def render_markdown(datasets: Mapping[str, ComparisonDataset], kept: SelectedRuns, command: str) -> str:
    """Return the comparison as Markdown."""
    parts = [f"# All methods under the same rules\n\n`{command}`\n\n{RULES_TEXT}", _dataset_table(datasets, kept)]
    ranked = accuracy_ranks(kept)
    for protocol, runs in kept.items():
        parts.append(
            f"## {PROTOCOL_TITLES[protocol].capitalize()}\n\n{_accuracies(datasets, runs, ranked.get(protocol))}"
        )
    if len(kept) > 1:
        parts.append(f"## Effect of tuning\n\n{_tuning(kept)}")
    parts.append(f"## Other metrics, at defaults\n\n{_other_metrics(kept[DEFAULTS])}")
    parts.append(f"## Search spaces\n\n{_search_spaces(kept)}")
    return "\n\n".join(parts) + "\n"


def _dataset_table(datasets: Mapping[str, ComparisonDataset], kept: SelectedRuns) -> str:
    seen = {dataset for _, dataset, _ in kept[DEFAULTS]}
    shown = [
        [
            dataset.title,
            dataset.note,
            _settings(dataset.data),
            _settings(dataset.annotators or {}),
            _settings(dataset.training),
        ]
        for name, dataset in datasets.items()
        if name in seen
    ]
    header = ["data set", "description", "data", "annotators", "network"]
    network = f"The network, unless the last column says otherwise: {_settings(NETWORK_SETTINGS)}."
    return f"{markdown_table(header, shown)}\n\n{network}"


def _settings(settings: Mapping[str, Any]) -> str:
    """Return settings as text.

    >>> _settings({"epochs": 12, "names": ["1", "2"]})
    'epochs 12, names 1 2'
    """
    return ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in settings.items()
    )


def _accuracies(
    datasets: Mapping[str, ComparisonDataset], runs: Mapping[RowDatasetSeed, Record], ranked: MeanRanks | None
) -> str:
    by_dataset = metric_by_dataset(runs, "accuracy")
    columns = [name for name in datasets if name in by_dataset]
    rows = _rows(runs, ranked)
    ahead = gains_over(runs, REFERENCE_METHOD)
    best = {
        name: max(
            (np.mean(list(seeds.values())) for row, seeds in by_dataset[name].items() if row != UPPER_BOUND), default=0
        )
        for name in columns
    }
    shown = []
    for row in rows:
        line = [row]
        for name in columns:
            seeds = list(by_dataset[name].get(row, {}).values())
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
    header = ["method", *(datasets[name].title for name in columns), "mean rank", f"minus {REFERENCE_METHOD}"]
    seeds_of = sorted({seed for _, _, seed in runs})
    text = f"Test accuracy (%), mean ± standard deviation over seeds {', '.join(map(str, seeds_of))}.\n\n"
    text += markdown_table(header, shown)
    if ranked is not None:
        text += (
            f"\n\nRanks are over {ranked.n_datasets} data sets and at least {ranked.n_seeds} seeds that all methods "
            "have. "
            "Intervals are 95 %, over the means of the data sets, as if these were independent. Two methods differ "
            f"significantly (5 %, Nemenyi) if their mean ranks are {ranked.critical_difference:.1f} apart. Differences "
            "are means over data sets, with a 95 % interval."
        )
    return text


def _rows(runs: Mapping[RowDatasetSeed, Record], ranked: MeanRanks | None) -> list[str]:
    """Return the rows, best first; rows without a rank come last, in the order of the grid."""
    rows = list(dict.fromkeys(row for row, _, _ in runs))
    order = {} if ranked is None else ranked.mean
    return sorted(rows, key=lambda row: order.get(row, float("inf")))


def _tuning(kept: SelectedRuns) -> str:
    """Return a table of the gain of each method over its defaults in the other protocols, in points."""
    defaults = kept[DEFAULTS]
    rows = dict.fromkeys(row for row, _, _ in defaults if row != UPPER_BOUND)
    shown = []
    for row in rows:
        line = [row]
        for protocol, runs in kept.items():
            if protocol == DEFAULTS:
                continue
            places = [place for place in runs if place[0] == row and place in defaults]
            found = [100 * (runs[place].result["accuracy"] - defaults[place].result["accuracy"]) for place in places]
            line.append(f"{np.mean(found):+.1f} (worst {min(found):+.1f}, of {len(found)})" if found else "")
        shown.append(line)
    return markdown_table(["method", *(PROTOCOL_TITLES[protocol] for protocol in kept if protocol != DEFAULTS)], shown)


def _other_metrics(runs: Mapping[RowDatasetSeed, Record]) -> str:
    """Return a table of the other metrics, means over data sets, and of the relative costs."""
    rows = dict.fromkeys(row for row, _, _ in runs)
    by_metric = {name: metric_by_dataset(runs, name) for name in SECONDARY_METRICS}
    of_cost = [relative_costs(runs, name) for name in COST_TITLES]
    shown = []
    for row in rows:
        line = [row]
        for name, (_, scale, form) in SECONDARY_METRICS.items():
            means = [np.mean(list(of[row].values())) for of in by_metric[name].values() if row in of]
            line.append(form.format(scale * float(np.mean(means))) if means else "")
        line += [f"{found[row]:.2f}" if row in found else "" for found in of_cost]
        shown.append(line)
    titles = [f"{title} over {REFERENCE_METHOD}" for title in COST_TITLES.values()]
    header = ["method", *(title for title, _, _ in SECONDARY_METRICS.values()), *titles]
    return (
        "Means over data sets. The suspicion of a label is one minus its probability in the fused label. Time is CPU "
        "time of training. Memory is counted: tensors saved for the backward pass of a step, parameters, gradients and "
        f"Adam's means. {REFERENCE_METHOD} with soft vote is plain training, so both are relative to it.\n\n"
    ) + markdown_table(header, shown)


def relative_costs(runs: Mapping[RowDatasetSeed, Record], name: str) -> dict[str, float]:
    """Return a cost relative to the cost of the reference, by row: median over seeds, then mean over data sets."""
    figures = metric_by_dataset(runs, name)
    ratios: dict[str, list[float]] = {}
    for of in figures.values():
        for row, by_seed in of.items():
            shared = set(by_seed) & set(of.get(REFERENCE_METHOD, {}))
            if shared:
                middle = float(np.median([by_seed[seed] / of[REFERENCE_METHOD][seed] for seed in shared]))
                ratios.setdefault(row, []).append(middle)
    return {row: float(np.mean(found)) for row, found in ratios.items()}


def _search_spaces(kept: SelectedRuns) -> str:
    methods = dict.fromkeys(record.run["method"] for record in kept[DEFAULTS].values())
    shown = [["all", _space(COMMON_SEARCH_SPACE)]]
    shown += [[method, _space(own)] for method in methods if (own := estimator_class(method).search_space)]
    return markdown_table(["method", "space"], shown)


def _space(space: Mapping[str, Any]) -> str:
    """Return a search space as text.

    >>> _space({"q": (0.1, 1.0), "vote": ["soft", "hard"]})
    'q 0.1 to 1.0 (log-uniform); vote soft, hard'
    """
    return "; ".join(
        f"{name} {values[0]} to {values[1]} (log-uniform)"
        if isinstance(values, tuple)
        else f"{name} {', '.join(map(str, values))}"
        for name, values in space.items()
    )
