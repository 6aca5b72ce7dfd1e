"""Real crowds: who is how good on which set, differences with intervals, and where fusion does not win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.experiments.comparison_tables import format_difference, standard_error
from crowdfuse.experiments.correct_items import decode_correct
from crowdfuse.experiments.crowds import ACCURACY, DATASETS, EXTERNAL_ACCURACY, NAME, NETWORK
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.result_table import (
    UPPER_BOUND,
    PairedDifference,
    Table,
    TableEntry,
    make_table,
    paired_difference,
)
from crowdfuse.experiments.store import Record
from crowdfuse.io.files import write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table

FUSION, SOFT, TWO_STAGE = "fusion", "majority-vote", "two-stage"
REFERENCES = {SOFT: "soft vote", TWO_STAGE: "two-stage Dawid-Skene"}
GOLD_USE_NOTE = (
    "Gold judges, and trains true-label, the upper bound; it is used for nothing else. No epoch and no method is "
    "chosen by it: the last epoch is kept, but for gated and the rows that say so, which choose it by held-out labels."
)
Differences = dict[str, list[PairedDifference]]
"""By column, each method minus the reference."""


@dataclass(frozen=True)
class CrowdTables:
    """What was trained on inputs, and what was made of labels alone; a column a set."""

    trained: Table
    alone: Table

    def __bool__(self) -> bool:
        return bool(self.trained.entries or self.alone.entries)


def crowd_tables(cells: Sequence[Cell], records: Sequence[Record]) -> CrowdTables:
    """The tables as far as the grid has run; a foreign test has a column of its own."""
    trained, alone = Table({}), Table({})
    for value, chosen in DATASETS.items():
        of = [cell for cell in cells if cell.value == value]
        for metric, column in ((ACCURACY, chosen.title), (EXTERNAL_ACCURACY, f"{chosen.title}, foreign test")):
            made = make_table([replace(cell, value=column) for cell in of], records, metric, {})
            if chosen.training is None:
                alone = _beside(alone, made)
            else:
                trained = _beside(trained, made)
    return CrowdTables(trained, alone)


def _beside(left: Table, right: Table) -> Table:
    return Table(left.entries | right.entries, left.records | right.records)


def write_crowds_report(tables: CrowdTables, folder: Path, command: str) -> dict[str, Any]:
    """`table.md`, `table.json` and a figure beside the store; returns the numbers."""
    numbers = collect_numbers(tables)
    write_text(folder / "table.md", render_markdown(tables, command))
    write_json(folder / "table.json", {"command": command, **numbers})
    panels = over_seeds(tables.trained, SOFT)
    if panels:
        title = f"Each method minus {REFERENCES[SOFT]}, 95 % interval over seeds and items"
        plots.save_figure(plots.paired_differences(_points(panels), title), folder / "differences.png")
    return numbers


def collect_numbers(tables: CrowdTables) -> dict[str, Any]:
    """All numbers, as JSON holds them."""
    entries = [*tables.trained.entries.values(), *tables.alone.entries.values()]
    found = {("seeds", reference): over_seeds(tables.trained, reference) for reference in REFERENCES}
    found["items", SOFT] = over_items(tables.alone, SOFT)
    return {
        "experiment": NAME,
        "sets": {**_all_facts(tables.trained), **_all_facts(tables.alone)},
        "table": [_entry_figures(entry) for entry in entries],
        "paired differences": [
            {"set": column, "over": over, **one.to_dict()}
            for (over, _), by_column in found.items()
            for column, differences in by_column.items()
            for one in differences
        ],
    }


def _entry_figures(entry: TableEntry) -> dict[str, Any]:
    seeds = {str(seed): accuracy for seed, accuracy in entry.by_seed.items()}
    return {"set": entry.value, "method": entry.row, "mean": entry.mean, "spread": entry.spread, "seeds": seeds}


# ---- differences -----------------------------------------------------------------------------


def over_seeds(table: Table, reference: str) -> Differences:
    """Each method minus the reference on the same split, network and seed; columns without the reference left out."""
    found = {
        column: [one.reversed() for one in table.paired_differences(reference, at=column)] for column in table.values
    }
    return {column: differences for column, differences in found.items() if differences}


def over_items(table: Table, reference: str) -> Differences:
    """Each method minus the reference on the same items, of each the mean over the seeds that both have."""
    found: Differences = {}
    for column in table.values:
        for row in table.rows:
            seeds = [
                seed
                for seed in table.seeds
                if (row, column, seed) in table.records and (reference, column, seed) in table.records
            ]
            if row == reference or not seeds:
                continue
            ours, theirs = (
                np.mean([decode_correct(table.records[name, column, seed].result) for seed in seeds], axis=0)
                for name in (row, reference)
            )
            found.setdefault(column, []).append(paired_difference(row, reference, 100 * (ours - theirs)))
    return found


def verdicts(table: Table) -> list[str]:
    """On which sets fusion is above a reference, below it, or neither, by the intervals."""
    found = []
    for reference, name in REFERENCES.items():
        sorted_by: dict[str, list[str]] = {}
        for column, differences in over_seeds(table, reference).items():
            for one in differences:
                if one.method == FUSION:
                    sorted_by.setdefault(_verdict(one), []).append(column)
        if sorted_by:
            said = "; ".join(f"{verdict} on {', '.join(columns)}" for verdict, columns in sorted_by.items())
            found.append(f"- Against {name}, fusion is {said}.")
    return found


def _verdict(one: PairedDifference) -> str:
    if one.low is None or one.high is None:
        return "not judged (one seed)"
    return "better" if one.low > 0 else "worse" if one.high < 0 else "not told apart"


# ---- text ------------------------------------------------------------------------------------


def render_markdown(tables: CrowdTables, command: str) -> str:
    """The whole report as text."""
    sections = ["# Real crowds", f"Made by `{command}`.", f"Accuracy in %. {GOLD_USE_NOTE}"]
    if tables.trained.entries:
        sections += _trained(tables.trained)
    if tables.alone.entries:
        sections += _alone(tables.alone)
    return "\n\n".join(sections) + "\n"


def _trained(table: Table) -> list[str]:
    notes = [f"- {one.title}: {one.note}." for one in DATASETS.values() if one.note and one.title in table.values]
    sections = [
        "## Trained on inputs",
        f"All methods of a set have the same network (one hidden layer of {NETWORK['hidden'][0]} units) and training "
        f"(AdamW {NETWORK['learning_rate']:g}, {NETWORK['schedule']}, weight decay {NETWORK['weight_decay']:g}): the "
        "library's defaults, but for what is said of a set below. ± is the standard deviation over seeds.",
        _accuracies(table),
        *verdicts(table),
    ]
    for reference, name in REFERENCES.items():
        differences = over_seeds(table, reference)
        if differences:
            sections += [f"## Each method minus {name}, in points", _differences(differences)]
    return [
        *sections,
        "Paired: the same split, network and seed; in brackets the 95 % bootstrap interval over seeds and test items "
        "(of a foreign test and of one seed: the t-interval over seeds alone).",
        "### The sets",
        _sets(table),
        "\n".join(notes),
    ]


def _alone(table: Table) -> list[str]:
    sections = [
        "## Labels alone",
        "The methods of `crowdfuse aggregate`, with their defaults, judged by the items that have gold. Seeds break "
        "ties, and begin MACE's restarts; ± is the standard deviation over them.",
        _accuracies(table),
    ]
    differences = over_items(table, SOFT)
    if differences:
        sections += [
            "## Each method minus majority vote, in points",
            "Paired: the same items, of each the mean over seeds; in brackets the 95 % t-interval over items.",
            _differences(differences),
        ]
    return [*sections, "### The sets", _sets(table)]


def _accuracies(table: Table) -> str:
    rows = sorted(table.rows, key=lambda row: row == UPPER_BOUND)
    return markdown_table(
        ["method", *table.values],
        [[row, *(_cell(table.entries.get((row, column))) for column in table.values)] for row in rows],
    )


def _cell(entry: TableEntry | None) -> str:
    if entry is None:
        return "-"
    return f"{entry.mean:.2f}" + ("" if entry.spread is None else f" ± {entry.spread:.2f}")


def _differences(by_column: Differences) -> str:
    found = {(one.method, column): format_difference(one) for column, of in by_column.items() for one in of}
    rows = dict.fromkeys(row for row, _ in found)
    return markdown_table(
        ["method", *by_column], [[row, *(found.get((row, column), "-") for column in by_column)] for row in rows]
    )


def _sets(table: Table) -> str:
    header = ["set", "items", "annotators", "labels", "classes", "right labels (%)"]
    has_network = any("epochs" in record.run["settings"] for record in table.records.values())
    header += ["judged by", "standard error", "seeds", *(["batch", "epochs"] if has_network else [])]
    rows = []
    for column, facts in _all_facts(table).items():
        sizes = [f"{facts[name]:,.0f}" for name in ("items", "annotators", "labels", "classes")]
        judges = [f"{facts['judged']:,} items", f"{facts['standard error']:.1f}", facts["seeds"]]
        training = [facts["batch"], facts["epochs"]] if has_network else []
        rows.append([column, *sizes, f"{100 * facts['right labels']:.1f}", *judges, *training])
    return markdown_table(header, rows)


def _all_facts(table: Table) -> dict[str, dict[str, Any]]:
    return {column: _facts(table, column) for column in table.values}


def _facts(table: Table, column: str) -> dict[str, Any]:
    """What a set is like, mean over the seeds where these draw the items, and how it was run."""
    records = [record for (_, of, _), record in table.records.items() if of == column]
    crowd = [record.result["crowd"] for record in records]
    judged = records[0].result["foreign judged" if column.endswith("foreign test") else "judged"]
    entries = [entry for entry in table.entries.values() if entry.value == column]
    best = max(entry.mean for entry in [one for one in entries if one.row != UPPER_BOUND] or entries)
    facts: dict[str, Any] = {name: float(np.mean([one[name] for one in crowd])) for name in crowd[0]}
    facts |= {
        "judged": judged,
        "standard error": standard_error(best, judged),
        "seeds": _span({len(entry.by_seed) for entry in entries}),
    }
    settings = records[0].run["settings"]
    if "epochs" in settings:
        own = (DATASETS[records[0].run["data"]["name"]].training or {})["epochs"]
        trial = "" if settings["epochs"] == own else f" (a trial: its own is {own})"
        facts |= {"batch": settings["batch_size"], "epochs": f"{settings['epochs']}{trial}"}
    return facts


def _span(numbers: set[int]) -> str:
    """How many, or from how many to how many.

    >>> _span({3}), _span({3, 10})
    ('3', '3 to 10')
    """
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _points(panels: Differences) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Mean and ends of the interval by set and method, as the figure takes them."""
    return {
        column: {
            one.method: (one.mean, one.mean if one.low is None else one.low, one.mean if one.high is None else one.high)
            for one in differences
        }
        for column, differences in panels.items()
    }
