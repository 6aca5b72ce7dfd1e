"""Tables of a comparison on a user's own data: methods and baselines, best first, and differences of methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.experiments.result_table import (
    UPPER_BOUND,
    PairedDifference,
    Table,
    format_difference,
    standard_error,
)
from crowdfuse.io.files import write_json, write_text
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import escape_cell, markdown_table
from crowdfuse.runs.comparison_baselines import MOST_FREQUENT, Baseline
from crowdfuse.runs.comparison_scores import COLUMNS, GOLD_METRIC, UNKNOWN, format_score

EXTRA_METRICS = ("fused_label_accuracy", "train_accuracy", "seconds_per_epoch")  # only in table.json
MAX_NAME_LENGTH = 34  # longer names of methods are cut on the screen, so that the table fits 80 columns
CLEAR_STANDARD_ERRORS = 2  # a difference of fewer standard errors may be chance


def write_comparison(
    table: Table, metric: str, notes: list[str], baselines: Sequence[Baseline], folder: Path
) -> dict[str, Any]:
    """Write `table.md` and `table.json`, and return the content of `table.json`."""
    numbers = collect_numbers(table, metric, notes, baselines)
    write_text(folder / "table.md", render_markdown(table, metric, notes, baselines))
    write_json(folder / "table.json", numbers)
    return numbers


def best_method(table: Table) -> str:
    """Return the method with the highest mean score.

    A method that failed a sanity check is returned only if all methods failed one. The method true-label, which is
    trained on gold labels, is returned only if it is the only method.
    """
    rivals = [row for row in table.rows if row != UPPER_BOUND] or table.rows
    refused = failed_checks(table)
    return max(rivals, key=lambda row: (row not in refused, table.entries[row, ""].mean))


def failed_checks(table: Table) -> dict[str, str]:
    """Return a description of the failed sanity checks for each method that failed any, by name of the method.

    Sanity checks are made only in comparisons without gold labels.
    """
    found = {}
    for (row, *_), record in table.records.items():
        if record.result.get("failed_checks"):
            found[row] = "; ".join(record.result["failed_checks"])
    return found


def collect_numbers(table: Table, metric: str, notes: list[str], baselines: Sequence[Baseline]) -> dict[str, Any]:
    """Return the content of `table.json`: scores, baselines, differences between methods, and notes."""
    names = [*list(COLUMNS[metric])[1:], *EXTRA_METRICS]
    return {
        "metric": metric,
        "methods": [
            entry.to_dict() | {name: _mean(table, entry.row, name) for name in names}
            for entry in table.entries.values()
        ],
        "baselines": [asdict(baseline) for baseline in baselines],
        "best_method": best_method(table),
        "failed_checks": failed_checks(table),
        "paired_differences": [one.to_dict() for one in table.paired_differences(best_method(table))],
        "prediction_agreement": _prediction_agreement(table),
        "notes": notes,
    }


def render_text(table: Table, metric: str, baselines: Sequence[Baseline]) -> str:
    """Return the table as aligned text of at most 80 columns, the best method first. The header takes two lines."""
    header, rows = _table_cells(table, metric, baselines)
    rows = [[_shorten(row[0]), *row[1:]] for row in rows]
    first_line, second_line = zip(*map(_two_lines, header), strict=True)
    widths = [max(map(len, column)) for column in zip(first_line, second_line, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (first_line, second_line, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def render_markdown(table: Table, metric: str, notes: list[str], baselines: Sequence[Baseline]) -> str:
    """Return the comparison as Markdown, with the differences between all pairs of methods."""
    sections = [
        "# Comparison",
        markdown_table(*_table_cells(table, metric, baselines)),
        " ".join(map(escape_cell, conclusions(table, metric, baselines))),
        "\n".join(f"- {escape_cell(note)}" for note in notes),
    ]
    pairs = pair_rows(table)
    if pairs:
        sections += ["## Differences between pairs of methods", markdown_table(*pairs_table(pairs))]
    return "\n\n".join(sections) + "\n"


def render_pairs(table: Table) -> str:
    """Return the differences between all pairs of methods as a Markdown table; empty for a single method."""
    pairs = pair_rows(table)
    return markdown_table(*pairs_table(pairs)) if pairs else ""


def conclusions(table: Table, metric: str, baselines: Sequence[Baseline]) -> list[str]:
    """Return sentences for the reader: what was measured, which method is best, and whether it beats the baseline."""
    n_items = next(iter(table.records.values())).result["n_evaluated"]
    error = (
        "the standard error of an accuracy on that many items"
        if metric == GOLD_METRIC
        else "the standard error of the mean over seeds"
    )
    found = [
        f"Means over {format_count(len(table.seeds), 'seed')}, on {format_count(n_items, 'test item')}; ± is {error}.",
        _recommend(table),
        *_judge_baseline(table, metric, baselines, n_items),
    ]
    found += [f"{row} failed a sanity check, ranked last: {why}." for row, why in failed_checks(table).items()]
    counts = {row: len(table.entries[row, ""].by_seed) for row in table.rows}
    fewer = [f"{row} ({n})" for row, n in counts.items() if n < len(table.seeds)]
    if fewer:
        found.append(f"Not all of the {len(table.seeds)} seeds are finished: {', '.join(fewer)}.")
    return found


def _recommend(table: Table) -> str:
    """Return which method is best, and which others are not significantly worse."""
    top, refused = best_method(table), failed_checks(table)
    differences = [one for one in table.paired_differences(top) if one.baseline not in refused]
    if not differences:
        return f"Only {top} was compared, so there is no choice."
    close = [one.baseline for one in differences if one.low is None or one.low <= 0]
    if not close:
        return f"The best method is {top}: over seeds, it is significantly better than each of the others."
    if len(close) == len(differences) and len(close) > 1:
        return f"The best method is {top}; over seeds, it is not significantly better than any other (see --pairs)."
    return f"The best method is {top}; over seeds, it is not significantly better than {', '.join(close)}."


def _judge_baseline(table: Table, metric: str, baselines: Sequence[Baseline], n_items: int) -> list[str]:
    """Return a sentence if no method is better, or clearly better, than always predicting the most frequent class."""
    floor = next((one.scores.get(metric) for one in baselines if one.name == MOST_FREQUENT), None)
    if floor is None:
        return []
    best = table.entries[best_method(table), ""]
    if best.mean <= 100 * floor:
        return [f"No method beats the trivial baseline '{MOST_FREQUENT}' ({100 * floor:.2f} %)."]
    error = _standard_error(table, best.row, metric, n_items)
    if error is not None and best.mean - 100 * floor < CLEAR_STANDARD_ERRORS * error:
        return [f"No method is clearly better than the trivial baseline '{MOST_FREQUENT}' ({100 * floor:.2f} %)."]
    return []


def _table_cells(table: Table, metric: str, baselines: Sequence[Baseline]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the table, best first; unknown figures and failed methods are last."""
    columns = COLUMNS[metric]
    n_items = next(iter(table.records.values())).result["n_evaluated"]
    refused = failed_checks(table)
    scored: list[tuple[tuple[bool, float], list[str]]] = []
    for row in table.rows:
        mean = table.entries[row, ""].mean
        error = _standard_error(table, row, metric, n_items)
        first = f"{mean:.2f}" + ("" if error is None else f" ± {error:.2f}")
        rest = [format_score(name, _mean(table, row, name)) for name in list(columns)[1:]]
        title = f"{row} (trained on gold)" if row == UPPER_BOUND else row
        scored.append(((row not in refused, mean), [title, first, *rest]))
    for baseline in baselines:
        score = baseline.scores.get(metric)
        cells = [format_score(name, baseline.scores.get(name)) for name in columns]
        scored.append(((score is not None, 100 * (score or 0.0)), [baseline.name, *cells]))
    rows = [cells for _, cells in sorted(scored, key=lambda one: one[0], reverse=True)]
    return ["method", *columns.values()], rows


def _standard_error(table: Table, row: str, metric: str, n_items: int) -> float | None:
    """Return the standard error of the mean of a row in points: over items if there is gold, else over seeds."""
    entry = table.entries[row, ""]
    if metric == GOLD_METRIC:
        return standard_error(entry.mean, n_items)
    return None if entry.std is None else float(entry.std / np.sqrt(len(entry.by_seed)))


def _two_lines(title: str) -> tuple[str, str]:
    """Return the title of a column in two lines, the second with the unit: "macro" and "F1 (%)"."""
    first, _, second = title.removesuffix(" (%)").rpartition(" ")
    return first, second + title[len(title.removesuffix(" (%)")) :]


def _shorten(name: str) -> str:
    """Return the name of a method, cut to the width of its column."""
    return name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…"


def pair_rows(table: Table) -> list[tuple[PairedDifference, float | None]]:
    """Return the difference of each pair of methods, and the share of items for which both predict the same class."""
    same = {(one, other): share for one, other, share in _prediction_agreement(table)}
    order = {row: at for at, row in enumerate(table.rows)}
    found = []
    for one in table.rows:
        for paired in table.paired_differences(one):
            if order[paired.baseline] > order[one]:
                found.append((paired, same.get((one, paired.baseline))))
    return found


def pairs_table(pairs: Sequence[tuple[PairedDifference, float | None]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the table of pairs."""
    header = ["method", "minus", "difference (95 % interval)", "same prediction (%)"]
    rows = [
        [one.method, one.baseline, format_difference(one), UNKNOWN if share is None else f"{100 * share:.1f}"]
        for one, share in pairs
    ]
    return header, rows


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
