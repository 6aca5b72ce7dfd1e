"""Tables of a comparison on a user's own data: the best method, differences with intervals, and costs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.experiments.result_table import UPPER_BOUND, PairedDifference, Table
from crowdfuse.io.files import write_json, write_text
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import escape_cell, markdown_table

EXTRA_METRICS = ("fused_label_accuracy", "train_accuracy", "held_out_agreement")
METRIC_TITLES = {
    "test_accuracy": "test accuracy",
    "held_out_likelihood": "likelihood of held-out labels",
    "fused_label_accuracy": "fused labels right",
    "train_accuracy": "accuracy on training items",
    "held_out_agreement": "agreement with held-out labels",
}


def write_comparison(table: Table, metric: str, notes: list[str], folder: Path) -> dict[str, Any]:
    """Write `table.md` and `table.json`, and return the numbers."""
    numbers = collect_numbers(table, metric, notes)
    write_text(folder / "table.md", render_markdown(table, metric, notes))
    write_json(folder / "table.json", numbers)
    return numbers


def best_method(table: Table) -> str:
    """Return the method with the highest mean. Methods that failed a sanity check, and the upper bound, come last."""
    rivals = [row for row in table.rows if row != UPPER_BOUND] or table.rows
    refused = failed_checks(table)
    return max(rivals, key=lambda row: (row not in refused, table.entries[row, ""].mean))


def failed_checks(table: Table) -> dict[str, str]:
    """Return the sanity checks that failed in any run of a method, as text by method; there are none with gold."""
    found = {}
    for (row, *_), record in table.records.items():
        if record.result.get("failed_checks"):
            found[row] = "; ".join(record.result["failed_checks"])
    return found


def collect_numbers(table: Table, metric: str, notes: list[str]) -> dict[str, Any]:
    """Return all numbers, for JSON."""
    return {
        "metric": metric,
        "methods": [
            entry.to_dict() | {name: _mean(table, entry.row, name) for name in (*EXTRA_METRICS, "seconds_per_epoch")}
            for entry in table.entries.values()
        ],
        "best_method": best_method(table),
        "failed_checks": failed_checks(table),
        "paired_differences": [one.to_dict() for one in table.paired_differences(best_method(table))],
        "prediction_agreement": _prediction_agreement(table),
        "notes": notes,
    }


def render_markdown(table: Table, metric: str, notes: list[str]) -> str:
    """Return the comparison as Markdown."""
    top = best_method(table)
    refused = [f"{row} failed a sanity check: {why}" for row, why in failed_checks(table).items()]
    differences = {one.baseline: one for one in table.paired_differences(top)}
    seeds = len(table.seeds)
    n_items = next(iter(table.records.values())).result["n_evaluated"]
    rows = []
    for row in sorted(table.rows, key=lambda row: -table.entries[row, ""].mean):
        entry, paired = table.entries[row, ""], differences.get(row)
        spread = "" if entry.std is None else f" ± {entry.std:.2f}"
        behind = "" if paired is None else format_difference(paired.reversed())
        extras = [_mean(table, row, name) for name in EXTRA_METRICS]
        cost = _mean(table, row, "seconds_per_epoch")
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
    header = ["method", "seeds", f"{METRIC_TITLES[metric]} (%)", f"against {top}"]
    header += [*(f"{METRIC_TITLES[name]} (%)" for name in EXTRA_METRICS), "seconds per epoch"]
    shown = [
        0,
        1,
        2,
        3,
        *(4 + i for i, _ in enumerate(EXTRA_METRICS) if any(row[4 + i] != "-" for row in rows)),
        len(header) - 1,
    ]
    remark = f". {_recommend(top, {row: one for row, one in differences.items() if row not in failed_checks(table)})}"
    if "accuracy" in metric:
        error = standard_error(table.entries[top, ""].mean, n_items)
        remark = f", which alone gives an accuracy a standard error of {error:.1f} points."
    sections = [
        "# Comparison",
        f"Every method is evaluated on {format_count(n_items, 'item')}, over {format_count(seeds, 'seed')}. The last "
        "epoch is used unless a method chooses by held-out labels. ± is the standard deviation over seeds; in brackets "
        "is the 95 % interval of the paired difference over seeds. It does not cover the choice of the items for "
        "evaluation" + remark,
        markdown_table([header[i] for i in shown], [[row[i] for i in shown] for row in rows]),
        "\n".join(f"- {escape_cell(note)}" for note in [*notes, *refused]),
    ]
    same = _prediction_agreement(table)
    if same:
        pairs = [[one, other, f"{100 * share:.1f}"] for (one, other, share) in same]
        sections += [
            "## How often two methods predict the same class (%)",
            markdown_table(["method", "and", "same"], pairs),
        ]
    return "\n\n".join(sections) + "\n"


def _recommend(top: str, differences: dict[str, PairedDifference]) -> str:
    """Return which method to choose, and which others are not significantly worse."""
    if not differences:
        return f"Only {escape_cell(top)} was compared, so there is no choice."
    close = [row for row, one in differences.items() if one.low is None or one.low <= 0]
    choice = f"By these numbers, choose **{escape_cell(top)}**"
    return (
        f"{choice}, which is not significantly better than {', '.join(map(escape_cell, close))}."
        if close
        else f"{choice}."
    )


def format_difference(paired: PairedDifference) -> str:
    """Return a difference with its interval, for a cell of a table.

    Examples
    --------
    >>> format_difference(PairedDifference("fusion", "mbem", 3, 2.0, 1.0, 3.0))
    '+2.00 (+1.00 to +3.00)'
    """
    interval = (
        "" if paired.low is None or paired.high is None else f" ({_signed(paired.low)} to {_signed(paired.high)})"
    )
    return _signed(paired.mean) + interval


def standard_error(accuracy: float, n_items: int) -> float:
    """Return the standard error of an accuracy (%) on `n_items` items, in points.

    Examples
    --------
    >>> round(standard_error(80, 400), 1)
    2.0
    """
    return float(np.sqrt(accuracy * (100 - accuracy) / n_items))


def _signed(value: float) -> str:
    """Return a number with its sign and two digits, without a negative zero."""
    return f"{value + 0.0 if abs(value) >= 0.005 else 0.0:+.2f}"


def _mean(table: Table, row: str, name: str) -> float | None:
    """Return the mean of a result over the runs of a row, or None if no run has it."""
    found = [record.result.get(name) for (r, _, _), record in table.records.items() if r == row]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def _prediction_agreement(table: Table) -> list[tuple[str, str, float]]:
    """Return, for each pair of methods, the share of items with the same predicted class, mean over seeds."""
    found = []
    methods = [row for row in table.rows if not row.startswith("single-annotator")]  # there may be many of these
    for one, other in combinations(methods, 2):
        shares = [
            float(np.mean(np.equal(record.result["predicted"], table.records[other, "", seed].result["predicted"])))
            for (row, _, seed), record in table.records.items()
            if row == one and (other, "", seed) in table.records
        ]
        if shares:
            found.append((one, other, float(np.mean(shares))))
    return found
