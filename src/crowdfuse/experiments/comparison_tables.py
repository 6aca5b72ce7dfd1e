"""A comparison on a user's own data: who is best, by how much, how surely, at what cost; and what cannot be told."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.experiments.result_table import UPPER_BOUND, PairedDifference, Table
from crowdfuse.io.files import write_json, write_text
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import escape_cell, markdown_table

EXTRAS = ("fused labels right", "predictions right on training items", "agreement with held-out labels")


def write_comparison(table: Table, metric: str, notes: list[str], folder: Path) -> dict[str, Any]:
    """`table.md` and `table.json`; returns the numbers."""
    numbers = collect_numbers(table, metric, notes)
    write_text(folder / "table.md", render_markdown(table, metric, notes))
    write_json(folder / "table.json", numbers)
    return numbers


def best_method(table: Table) -> str:
    """The method with the highest mean; the upper bound, and those that guards object to, only for want of others."""
    rivals = [row for row in table.rows if row != UPPER_BOUND] or table.rows
    refused = failed_checks(table)
    return max(rivals, key=lambda row: (row not in refused, table.entries[row, ""].mean))


def failed_checks(table: Table) -> dict[str, str]:
    """What guards have against methods, in any of their runs, where there is no gold to judge."""
    found = {}
    for (row, *_), record in table.records.items():
        if record.result.get("failed_checks"):
            found[row] = "; ".join(record.result["failed_checks"])
    return found


def collect_numbers(table: Table, metric: str, notes: list[str]) -> dict[str, Any]:
    """All numbers, as JSON holds them."""
    return {
        "metric": metric,
        "methods": [
            entry.to_dict() | {name: _mean(table, entry.row, name) for name in (*EXTRAS, "seconds an epoch")}
            for entry in table.entries.values()
        ],
        "best_method": best_method(table),
        "failed_checks": failed_checks(table),
        "paired differences": [one.to_dict() for one in table.paired_differences(best_method(table))],
        "same prediction": _same(table),
        "notes": notes,
    }


def render_markdown(table: Table, metric: str, notes: list[str]) -> str:
    """The whole comparison as text."""
    top = best_method(table)
    refused = [f"{row} failed a sanity check: {why}" for row, why in failed_checks(table).items()]
    differences = {one.baseline: one for one in table.paired_differences(top)}
    seeds = len(table.seeds)
    judged = next(iter(table.records.values())).result["items judged"]
    rows = []
    for row in sorted(table.rows, key=lambda row: -table.entries[row, ""].mean):
        entry, paired = table.entries[row, ""], differences.get(row)
        spread = "" if entry.spread is None else f" ± {entry.spread:.2f}"
        behind = "" if paired is None else format_difference(paired.reversed())
        extras = [_mean(table, row, name) for name in EXTRAS]
        cost = _mean(table, row, "seconds an epoch")
        rows.append(
            [
                row,
                len(entry.by_seed),
                f"{entry.mean:.2f}{spread}",
                behind,
                *("-" if extra is None else f"{100 * extra:.2f}" for extra in extras),
                f"{cost:.2f}",
            ]
        )
    header = ["method", "seeds", f"{metric} (%)", f"against {top}", *(f"{name} (%)" for name in EXTRAS), "s an epoch"]
    shown = [
        0,
        1,
        2,
        3,
        *(4 + i for i, _ in enumerate(EXTRAS) if any(row[4 + i] != "-" for row in rows)),
        len(header) - 1,
    ]
    luck = f". {_choice(top, {row: one for row, one in differences.items() if row not in failed_checks(table)})}"
    if "accuracy" in metric:
        error = standard_error(table.entries[top, ""].mean, judged)
        luck = f", which alone gives an accuracy a standard error of {error:.1f} points."
    sections = [
        "# Comparison",
        f"Every method is judged by {format_count(judged, 'item')}, over {format_count(seeds, 'seed')}; the last "
        "epoch is kept, "
        "unless a method chooses by held-out labels. ± is the standard deviation over seeds, in brackets the 95 % "
        "interval over seeds of the paired difference: it does not contain the luck of which items judge" + luck,
        markdown_table([header[i] for i in shown], [[row[i] for i in shown] for row in rows]),
        "\n".join(f"- {escape_cell(note)}" for note in [*notes, *refused]),
    ]
    same = _same(table)
    if same:
        pairs = [[one, other, f"{100 * share:.1f}"] for (one, other, share) in same]
        sections += ["## How often two methods predict the same (%)", markdown_table(["method", "and", "same"], pairs)]
    return "\n\n".join(sections) + "\n"


def _choice(top: str, differences: dict[str, PairedDifference]) -> str:
    """Which method labels speak for, and how surely: from the differences of the best to each of the others."""
    if not differences:
        return f"Only {escape_cell(top)} was compared: there is nothing to choose from."
    close = [row for row, one in differences.items() if one.low is None or one.low <= 0]
    said = f"By these figures, choose **{escape_cell(top)}**"
    return f"{said}, though not surely before {', '.join(map(escape_cell, close))}." if close else f"{said}."


def format_difference(paired: PairedDifference) -> str:
    """A difference with its interval, for a cell of a table.

    >>> difference(Paired("fusion", "mbem", 3, 2.0, 1.0, 3.0))
    '+2.00 (+1.00 to +3.00)'
    """
    interval = (
        "" if paired.low is None or paired.high is None else f" ({_signed(paired.low)} to {_signed(paired.high)})"
    )
    return _signed(paired.mean) + interval


def standard_error(accuracy: float, judged: int) -> float:
    """Of an accuracy in %, by the luck of which items judge, in points.

    >>> round(standard_error(80, 400), 1)
    2.0
    """
    return float(np.sqrt(accuracy * (100 - accuracy) / judged))


def _signed(value: float) -> str:
    return f"{value + 0.0 if abs(value) >= 0.005 else 0.0:+.2f}"


def _mean(table: Table, row: str, name: str) -> float | None:
    found = [record.result.get(name) for (r, _, _), record in table.records.items() if r == row]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def _same(table: Table) -> list[tuple[str, str, float]]:
    """For every two methods the share of judged items on which they predict the same class, mean over seeds."""
    found = []
    methods = [row for row in table.rows if not row.startswith("single-annotator")]  # of these there may be many
    for one, other in combinations(methods, 2):
        shares = [
            float(np.mean(np.equal(record.result["predicted"], table.records[other, "", seed].result["predicted"])))
            for (row, _, seed), record in table.records.items()
            if row == one and (other, "", seed) in table.records
        ]
        if shares:
            found.append((one, other, float(np.mean(shares))))
    return found
