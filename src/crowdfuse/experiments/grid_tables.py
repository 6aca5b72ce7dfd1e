"""Tables and figures of a grid: accuracies beside the paper's, ranks, differences, and the paper's two plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.experiments.grid import Experiment
from crowdfuse.experiments.result_table import (
    PairedDifference,
    Table,
    TableEntry,
    describe_intervals,
    format_difference,
)
from crowdfuse.io.files import write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table

PAPER_GAP_POINTS = 3.0  # larger differences from the paper, in points, are listed
MAX_TABLE_COLUMNS = 8  # if there are more values, the values become the rows


def write_grid_report(experiment: Experiment, table: Table, folder: Path, command: str) -> dict[str, Any]:
    """Write `table.md`, `table.json` and figures, and return the numbers.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    table : Table
        The table of its results.
    folder : Path
        Folder for the files.
    command : str
        The command that makes the files.
    """
    numbers = collect_numbers(experiment, table)
    write_text(folder / "table.md", render_markdown(experiment, table, command))
    write_json(folder / "table.json", {"command": command, **numbers})
    save_figures(experiment, table, folder)
    return numbers


def collect_numbers(experiment: Experiment, table: Table) -> dict[str, Any]:
    """Return all numbers of a table, for JSON."""
    return {
        "experiment": experiment.name,
        "parameter": experiment.parameter,
        "table": [entry.to_dict() for entry in table.entries.values()],
        "paired_differences": [one.to_dict() for one in pooled_differences(experiment, table)],
        "true_annotator_accuracy": _shares(table),
        "auroc": _aurocs(experiment, table),
    }


def render_markdown(experiment: Experiment, table: Table, command: str) -> str:
    """Return the report as Markdown."""
    length, is_trial = _describe_length(experiment, table)
    sections = [
        f"# {experiment.title}",
        f"Made by `{command}`.",
        f"Test accuracy in %; ± is the standard deviation over seeds. {length} {experiment.scale.protocol}",
        _accuracy(experiment, table),
    ]
    if experiment.paper_table_id:
        far = _paper_gaps(table) if experiment.scale.uses_paper_recipe and not is_trial else []
        sections += ["## Ranks, ours and the paper's", _ranks(experiment, table), *far]
    sections += _differences(experiment, table)
    shares = _shares(table)
    if shares:
        header = [experiment.parameter, *(f"annotator-{r + 1}" for r in range(max(map(len, shares.values()))))]
        rows = [[value, *(f"{100 * share:.1f}" for share in of)] for value, of in shares.items()]
        rows = [row + ["-"] * (len(header) - len(row)) for row in rows]
        sections += ["## Annotator accuracy (%)", markdown_table(header, rows)]
    sections += _auroc_section(experiment, table)
    sections += _gate_section(experiment, table)
    return "\n\n".join(sections) + "\n"


def _describe_length(experiment: Experiment, table: Table) -> tuple[str, bool]:
    """Return a sentence on epochs and items, and whether this is a trial (not comparable with the paper)."""
    runs = [record.run for record in table.records.values()]
    epochs = sorted({run["settings"]["epochs"] for run in runs})
    items = sorted({str(run["data"]["n_train"]) for run in runs})
    own, all_items = experiment.scale.recipe["epochs"], str(experiment.scale.data["n_train"])
    shorter = "" if epochs == [own] else f" (the experiment declares {own})"
    fewer = "" if items == [all_items] else f" Trained on {', '.join(items)} items: a trial."
    return f"Epochs: {', '.join(map(str, epochs))}{shorter}.{fewer}", bool(shorter or fewer)


def accuracy_rows(experiment: Experiment, table: Table) -> list[list[str]]:
    """Return one row per method: our and the paper's accuracy at every value, and the mean over all values."""
    return [
        [
            row,
            *(_cell(table.entries.get((row, value)), experiment.paper_table_id) for value in table.values),
            _mean(experiment, table, row),
        ]
        for row in table.rows
    ]


def _accuracy(experiment: Experiment, table: Table) -> str:
    """Return the accuracies; values are the rows if there are many."""
    beside = " (paper)" if experiment.paper_table_id else ""
    over = f"mean of {len(experiment.values)}"
    header = [f"method{beside}", *(f"{experiment.parameter} {value}" for value in table.values), over]
    rows = accuracy_rows(experiment, table)
    if len(table.values) <= MAX_TABLE_COLUMNS:
        return markdown_table(header, rows)
    transposed = list(zip([experiment.parameter, *table.values, over], *rows, strict=True))
    return markdown_table(list(transposed[0]), [list(row) for row in transposed[1:]])


def _cell(entry: TableEntry | None, paper: str | None) -> str:
    """Return our and the paper's accuracy."""
    if entry is None:
        return "-"
    spread = "" if entry.std is None else f" ± {entry.std:.1f}"
    beside = "" if paper is None else f" ({'-' if entry.paper_accuracy is None else f'{entry.paper_accuracy:.1f}'})"
    return f"{entry.mean:.1f}{spread}{beside}"


def _mean(experiment: Experiment, table: Table, row: str) -> str:
    """Return the mean over the declared values of the experiment, if all are finished."""
    own = declared_values(experiment)
    entries = [table.entries[row, value] for value in own if (row, value) in table.entries]
    if len(entries) < len(own):
        return "-"
    theirs = [entry.paper_accuracy for entry in entries if entry.paper_accuracy is not None]
    beside = f" ({np.mean(theirs):.1f})" if len(theirs) == len(own) else ""
    return f"{np.mean([entry.mean for entry in entries]):.1f}{beside}"


def _ranks(experiment: Experiment, table: Table) -> str:
    """Return the table of ranks."""
    ranked = {row for (row, _), entry in table.entries.items() if entry.rank is not None}
    rows = [
        [row, *(_rank(table.entries.get((row, value))) for value in table.values)]
        for row in table.rows
        if row in ranked
    ]
    return markdown_table(["method", *(f"{experiment.parameter} {value}" for value in table.values)], rows)


def _rank(entry: TableEntry | None) -> str:
    """Return our and the paper's rank."""
    if entry is None:
        return "-"
    return f"{entry.rank} ({'-' if entry.paper_rank is None else entry.paper_rank})"


def _paper_gaps(table: Table) -> list[str]:
    """Return a section with the cells that differ from the paper by more than PAPER_GAP_POINTS."""
    compared = [entry for entry in table.entries.values() if entry.paper_accuracy is not None]
    far = [e for e in compared if e.paper_accuracy is not None and abs(e.mean - e.paper_accuracy) > PAPER_GAP_POINTS]
    if not far:
        return [f"No cell differs from the paper's by more than {PAPER_GAP_POINTS:.0f} points."] if compared else []
    rows = [
        [e.row, e.value, f"{e.mean:.1f}", f"{e.paper_accuracy:.1f}", f"{e.mean - (e.paper_accuracy or 0):+.1f}"]
        for e in far
    ]
    return [
        f"## More than {PAPER_GAP_POINTS:.0f} points from the paper",
        markdown_table(["method", "value", "ours", "paper", "difference"], rows),
    ]


def declared_values(experiment: Experiment) -> list[str]:
    """Return the declared values of the experiment as they are written in tables."""
    return [value if isinstance(value, str) else f"{value:g}" for value in experiment.values]


def pooled_differences(experiment: Experiment, table: Table) -> list[PairedDifference]:
    """Return the differences between the main method and each other method, as means over the declared values.

    Values beyond the declared ones, such as a control without wrong labels, are left out, as in the column of means. If
    none of the declared values has run, the means are over all values.
    """
    return table.paired_differences(
        experiment.main_method, [value for value in declared_values(experiment) if value in table.values] or None
    )


def _differences(experiment: Experiment, table: Table) -> list[str]:
    """Return the section on paired differences."""
    main = experiment.main_method
    paired = pooled_differences(experiment, table)
    if not paired:
        return []
    rows = [
        [
            one.baseline,
            one.n_pairs,
            one.n_seeds,
            f"{one.mean:+.2f}",
            "-" if one.low is None else f"{one.low:+.2f} to {one.high:+.2f}",
        ]
        for one in paired
    ]
    several = " The difference of a seed is its mean over values." if len(table.values) > 1 else ""
    sections = [
        f"## {main.capitalize()} minus each method, in points",
        f"Paired: the same noise, split, network and seed. Interval: {describe_intervals(paired)}.{several}",
        markdown_table([f"{main} minus", "pairs", "seeds", "mean", "interval"], rows),
    ]
    if len(table.values) > 1:
        at = {
            value: {one.baseline: format_difference(one) for one in table.paired_differences(main, [value])}
            for value in table.values
        }
        others = [one.baseline for one in paired]
        by_value = [[value, *(at[value].get(than, "-") for than in others)] for value in table.values if at[value]]
        sections += [markdown_table([experiment.parameter, *(f"{main} minus {than}" for than in others)], by_value)]
    return sections


def _gate_section(experiment: Experiment, table: Table) -> list[str]:
    """Return the section on the calibration of gates."""
    rows = []
    for (row, value), entry in table.entries.items():
        found = [
            table.records.get((row, value, seed)) for seed in entry.by_seed
        ]  # a row that summarizes others has none
        results = [
            record.result for record in found if record is not None and "gate_calibration_error" in record.result
        ]
        if len(results) < len(found):
            continue
        errors = [result["gate_calibration_error"] for result in results]
        balanced = np.mean([result["balanced_accuracy"] for result in results])
        worst = f"{min(entry.by_seed.values()):.2f}"
        share = f"{100 * np.mean([result['nobody_right_share'] for result in results]):.1f}"
        error = f"{np.mean(errors):.3f} ({max(errors):.3f})"
        rows.append([value, row, worst, f"{100 * balanced:.1f}", error, share])
    if not rows:
        return []
    header = [experiment.parameter, "method", "worst seed (%)", "balanced accuracy (%)", "gate error (worst)"]
    return [
        "## Gates",
        "Gate error: calibration error of the gates over ten bins, mean over annotators and seeds.",
        markdown_table([*header, "items without a right label (%)"], rows),
    ]


def _shares(table: Table) -> dict[str, list[float]]:
    """Return annotator accuracies by value, means over seeds; empty if rows have different annotators."""
    found: dict[str, dict[int, list[float]]] = {}
    for (_, value, seed), record in table.records.items():
        if "true_annotator_accuracy" in record.result:
            share = record.result["true_annotator_accuracy"]
            if found.setdefault(value, {}).setdefault(seed, share) != share:
                return {}
    return {value: np.mean(list(found[value].values()), axis=0).tolist() for value in table.values if value in found}


def _aurocs(experiment: Experiment, table: Table) -> dict[str, dict[str, list[list[float]]]]:
    """Return the AUROC of weights and diagonals by value: one list per seed, one number per annotator."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for value in table.values:
        for seed in table.seeds:
            record = table.records.get((experiment.main_method, value, seed))
            for kind in ("weights", "diagonals"):
                if record is not None and f"auroc_{kind}" in record.result:
                    found.setdefault(value, {}).setdefault(kind, []).append(record.result[f"auroc_{kind}"])
    return found


def _auroc_section(experiment: Experiment, table: Table) -> list[str]:
    """Return the section on how well fusion knows where annotators are right."""
    aurocs = _aurocs(experiment, table)
    if not aurocs:
        return []
    rows = [
        [value, kind, len(seeds), " / ".join(f"{figure:.3f}" for figure in np.mean(seeds, axis=0))]
        for value, kinds in aurocs.items()
        for kind, seeds in kinds.items()
    ]
    return [
        "## Does fusion know where an annotator is right?",
        "AUROC over the training items of an annotator's weight, and of the diagonal entry P[said, said] of its "
        "matrix, against being right on the item; 0.5 is chance. Mean over seeds, one number per annotator.",
        markdown_table([experiment.parameter, "of", "seeds", "AUROC"], rows),
    ]


def save_figures(experiment: Experiment, table: Table, folder: Path) -> None:
    """Save accuracy over the parameter, and validation accuracy over epochs at its first value and seed."""
    if len(table.values) > 1 and not any(isinstance(value, str) for value in experiment.values):
        series = {row: _series(table, row) for row in table.rows}
        plots.save_figure(
            plots.accuracy_curves(
                experiment.parameter,
                series,
                experiment.title,
                is_logarithmic=experiment.is_logarithmic,
                papers_best=experiment.paper_best_value,
            ),
            folder / "accuracy.png",
        )
    if not table.records:
        return
    value, seed = table.values[0], table.seeds[0]
    curves = {
        row: [100 * float(epoch["validation_accuracy"]) for epoch in record.result["history"]]
        for (row, v, s), record in table.records.items()
        if v == value and s == seed and all("validation_accuracy" in epoch for epoch in record.result["history"])
    }
    if curves:
        title = f"{experiment.title}: {experiment.parameter} {value}, seed {seed}"
        plots.save_figure(plots.validation_curves(curves, title), folder / "epochs.png")


def _series(table: Table, row: str) -> Sequence[tuple[float, float, float | None, float | None]]:
    """Return value, mean, standard deviation and the paper's accuracy, at each value of the parameter."""
    entries = [table.entries[row, value] for value in table.values if (row, value) in table.entries]
    return [(float(entry.value), entry.mean, entry.std, entry.paper_accuracy) for entry in entries]
