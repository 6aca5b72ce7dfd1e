"""Tables of the comparison on real crowds: accuracies, differences with intervals, and where fusion does not win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.experiments.crowds import ACCURACY, DATASETS, EXPERIMENT_NAME, EXTERNAL_ACCURACY, NETWORK_SETTINGS
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.result_table import (
    UPPER_BOUND,
    PairedDifference,
    Table,
    TableEntry,
    describe_intervals,
    format_difference,
    make_table,
    standard_error,
)
from crowdfuse.experiments.store import Record
from crowdfuse.io.files import write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table

FUSION, SOFT_VOTE, TWO_STAGE = "fusion", "majority-vote", "two-stage"
REFERENCES = {SOFT_VOTE: "soft vote", TWO_STAGE: "two-stage Dawid-Skene"}
GOLD_USE_NOTE = (
    "Gold is used for evaluation and to train true-label, the upper bound. It is not used to choose epochs or "
    "methods: all methods keep the last epoch, except for gated and the rows marked held-out, which choose the epoch "
    "by held-out labels."
)
Differences = dict[str, list[PairedDifference]]
"""By column, the difference of each method to a reference."""


@dataclass(frozen=True)
class CrowdTables:
    """The two tables of the comparison, with one column per data set.

    Parameters
    ----------
    trained : Table
        Classifiers that were trained on inputs.
    labels_only : Table
        Methods that aggregate labels without inputs.
    """

    trained: Table
    labels_only: Table

    def __bool__(self) -> bool:
        return bool(self.trained.entries or self.labels_only.entries)


def crowd_tables(cells: Sequence[Cell], records: Sequence[Record]) -> CrowdTables:
    """Return the tables of the finished runs; an external test set has its own column."""
    trained, labels_only = Table({}), Table({})
    for value, chosen in DATASETS.items():
        of = [cell for cell in cells if cell.value == value]
        for metric, column in ((ACCURACY, chosen.title), (EXTERNAL_ACCURACY, f"{chosen.title}, external test")):
            made = make_table([replace(cell, value=column) for cell in of], records, metric, {})
            if chosen.training is None:
                labels_only = _join_columns(labels_only, made)
            else:
                trained = _join_columns(trained, made)
    return CrowdTables(trained, labels_only)


def _join_columns(left: Table, right: Table) -> Table:
    """Return one table with the columns of both."""
    return Table(left.entries | right.entries, left.records | right.records)


def write_crowds_report(tables: CrowdTables, folder: Path, command: str) -> dict[str, Any]:
    """Write `table.md`, `table.json` and a figure, and return the numbers."""
    numbers = collect_numbers(tables)
    write_text(folder / "table.md", render_markdown(tables, command))
    write_json(folder / "table.json", {"command": command, **numbers})
    panels = differences_from(tables.trained, SOFT_VOTE)
    if panels:
        title = f"Each method minus {REFERENCES[SOFT_VOTE]}, 95 % interval"
        plots.save_figure(plots.paired_differences(_points(panels), title), folder / "differences.png")
    return numbers


def collect_numbers(tables: CrowdTables) -> dict[str, Any]:
    """Return all numbers, for JSON."""
    entries = [*tables.trained.entries.values(), *tables.labels_only.entries.values()]
    differences = [differences_from(tables.trained, reference) for reference in REFERENCES]
    differences.append(differences_from(tables.labels_only, SOFT_VOTE))
    return {
        "experiment": EXPERIMENT_NAME,
        "datasets": {**_all_facts(tables.trained), **_all_facts(tables.labels_only)},
        "table": [_entry_numbers(entry) for entry in entries],
        "paired_differences": [
            {"dataset": column, **one.to_dict()}
            for by_column in differences
            for column, of_column in by_column.items()
            for one in of_column
        ],
    }


def _entry_numbers(entry: TableEntry) -> dict[str, Any]:
    """Return a cell as a dictionary for JSON."""
    seeds = {str(seed): accuracy for seed, accuracy in entry.by_seed.items()}
    return {
        "dataset": entry.value,
        "method": entry.row,
        "mean": entry.mean,
        "std": entry.std,
        "accuracy_by_seed": seeds,
    }


# ---- differences -----------------------------------------------------------------------------


def differences_from(table: Table, reference: str) -> Differences:
    """Return the difference between each method and the reference, by column. Runs are paired by seed."""
    drawn = {chosen.title for chosen in DATASETS.values() if chosen.draws_test_items}
    found = {
        column: [
            one.reversed() for one in table.paired_differences(reference, [column], same_test_items=column not in drawn)
        ]
        for column in table.values
    }
    return {column: differences for column, differences in found.items() if differences}


def fusion_verdicts(table: Table) -> list[str]:
    """Return sentences: on which data sets fusion is better or worse than a reference, by the intervals."""
    found = []
    for reference, name in REFERENCES.items():
        sorted_by: dict[str, list[str]] = {}
        for column, differences in differences_from(table, reference).items():
            for one in differences:
                if one.method == FUSION:
                    sorted_by.setdefault(_verdict(one), []).append(column)
        if sorted_by:
            verdict_text = "; ".join(f"{verdict} on {', '.join(columns)}" for verdict, columns in sorted_by.items())
            found.append(f"- Against {name}, fusion is {verdict_text}.")
    return found


def _verdict(one: PairedDifference) -> str:
    """Return whether a difference is significant, as text."""
    if one.low is None or one.high is None:
        return "without a verdict (one seed)"
    return "better" if one.low > 0 else "worse" if one.high < 0 else "not significantly different"


# ---- text ------------------------------------------------------------------------------------


def render_markdown(tables: CrowdTables, command: str) -> str:
    """Return the report as Markdown."""
    sections = ["# Real crowds", f"Made by `{command}`.", f"Accuracy in %. {GOLD_USE_NOTE}"]
    if tables.trained.entries:
        sections += _trained(tables.trained)
    if tables.labels_only.entries:
        sections += _labels_only(tables.labels_only)
    return "\n\n".join(sections) + "\n"


def _trained(table: Table) -> list[str]:
    """Return the sections on classifiers that were trained on inputs."""
    notes = [f"- {one.title}: {one.note}." for one in DATASETS.values() if one.note and one.title in table.values]
    sections = [
        "## Trained on inputs",
        f"On a data set all methods have the same network (one hidden layer of {NETWORK_SETTINGS['hidden'][0]} "
        "units) and training "
        f"(AdamW {NETWORK_SETTINGS['learning_rate']:g}, {NETWORK_SETTINGS['schedule']}, weight decay "
        f"{NETWORK_SETTINGS['weight_decay']:g}): the "
        "library's defaults, unless a note below says otherwise. ± is the standard deviation over seeds.",
        _accuracies(table),
        *fusion_verdicts(table),
    ]
    for reference, name in REFERENCES.items():
        differences = differences_from(table, reference)
        if differences:
            sections += [
                f"## Each method minus {name}, in points",
                f"Paired by split, network and seed. {_describe_intervals(differences)}",
                _differences(differences),
            ]
    return [
        *sections,
        "### The data sets",
        _sets(table),
        "\n".join(notes),
    ]


def _labels_only(table: Table) -> list[str]:
    """Return the sections on aggregation without inputs."""
    sections = [
        "## Labels without inputs",
        "The methods of `crowdfuse aggregate` with their defaults, evaluated on the items with gold. The seed "
        "breaks ties "
        "and starts MACE; ± is the standard deviation over seeds.",
        _accuracies(table),
    ]
    differences = differences_from(table, SOFT_VOTE)
    if differences:
        sections += [
            "## Each method minus majority vote, in points",
            f"Paired by seed. {_describe_intervals(differences)}",
            _differences(differences),
        ]
    return [*sections, "### The data sets", _sets(table)]


def _accuracies(table: Table) -> str:
    rows = sorted(table.rows, key=lambda row: row == UPPER_BOUND)
    return markdown_table(
        ["method", *table.values],
        [[row, *(_cell(table.entries.get((row, column))) for column in table.values)] for row in rows],
    )


def _cell(entry: TableEntry | None) -> str:
    if entry is None:
        return "-"
    return f"{entry.mean:.2f}" + ("" if entry.std is None else f" ± {entry.std:.2f}")


def _differences(by_column: Differences) -> str:
    found = {(one.method, column): format_difference(one) for column, of in by_column.items() for one in of}
    rows = dict.fromkeys(row for row, _ in found)
    return markdown_table(
        ["method", *by_column], [[row, *(found.get((row, column), "-") for column in by_column)] for row in rows]
    )


def _describe_intervals(by_column: Differences) -> str:
    """Return a sentence for each kind of interval, with the data sets that have it."""
    columns_by_text: dict[str, list[str]] = {}
    for column, differences in by_column.items():
        columns_by_text.setdefault(describe_intervals(differences), []).append(column)
    return " ".join(f"In brackets for {', '.join(columns)}: {text}." for text, columns in columns_by_text.items())


def _sets(table: Table) -> str:
    header = ["data set", "items", "annotators", "labels", "classes", "right labels (%)"]
    has_network = any("epochs" in record.run["settings"] for record in table.records.values())
    header += ["evaluated on", "standard error", "seeds", *(["batch size", "epochs"] if has_network else [])]
    rows = []
    for column, facts in _all_facts(table).items():
        sizes = [f"{facts[name]:,.0f}" for name in ("n_items", "n_annotators", "n_labels", "n_classes")]
        evaluation = [f"{facts['n_evaluated']:,} items", f"{facts['standard_error']:.1f}", facts["n_seeds"]]
        training = [facts["batch_size"], facts["epochs"]] if has_network else []
        rows.append([column, *sizes, f"{100 * facts['label_accuracy']:.1f}", *evaluation, *training])
    return markdown_table(header, rows)


def _all_facts(table: Table) -> dict[str, dict[str, Any]]:
    return {column: _facts(table, column) for column in table.values}


def _facts(table: Table, column: str) -> dict[str, Any]:
    """Return facts on a data set and on its training. If the seed draws the items, facts are means over seeds."""
    records = [record for (_, of, _), record in table.records.items() if of == column]
    crowd = [record.result["crowd_summary"] for record in records]
    n_evaluated = records[0].result["n_external_evaluated" if column.endswith("external test") else "n_evaluated"]
    entries = [entry for entry in table.entries.values() if entry.value == column]
    best = max(entry.mean for entry in [one for one in entries if one.row != UPPER_BOUND] or entries)
    facts: dict[str, Any] = {name: float(np.mean([one[name] for one in crowd])) for name in crowd[0]}
    facts |= {
        "n_evaluated": n_evaluated,
        "standard_error": standard_error(best, n_evaluated),
        "n_seeds": _span({len(entry.by_seed) for entry in entries}),
    }
    settings = records[0].run["settings"]
    if "epochs" in settings:
        own = (DATASETS[records[0].run["data"]["name"]].training or {})["epochs"]
        trial = "" if settings["epochs"] == own else f" (a trial: its own is {own})"
        facts |= {"batch_size": settings["batch_size"], "epochs": f"{settings['epochs']}{trial}"}
    return facts


def _span(numbers: set[int]) -> str:
    """Return a number, or the range of several.

    >>> _span({3}), _span({3, 10})
    ('3', '3 to 10')
    """
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _points(panels: Differences) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Return mean and ends of the interval by data set and method, for the figure."""
    return {
        column: {
            one.method: (one.mean, one.mean if one.low is None else one.low, one.mean if one.high is None else one.high)
            for one in differences
        }
        for column, differences in panels.items()
    }
