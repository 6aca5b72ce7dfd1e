"""Tables of published results beside ours: one table per data set, with the difference and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from crowdfuse.experiments.crowds import ACCURACY
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.published import EXPERIMENT_NAME, N_SEEDS, PROTOCOLS, Protocol, PublishedResult
from crowdfuse.experiments.result_table import Table, TableEntry, make_table
from crowdfuse.experiments.store import Record
from crowdfuse.io.files import write_json, write_text
from crowdfuse.report.markdown import markdown_table

SOURCE = (
    "M. Herde, L. Lührs, D. Huseljic and B. Sick, 'Annot-Mix: Learning with Noisy Class Labels from Multiple "
    "Annotators via a Mixup Extension', ECAI 2024, and the table in their repository "
    "(ies-research/multi-annotator-machine-learning, branch annot-mix)"
)


class Difference(NamedTuple):
    """Our mean accuracy minus the published one, in points, with the ends of its 95 % interval.

    Attributes
    ----------
    mean : float
        The difference.
    low, high : float
        Ends of the interval.
    """

    mean: float
    low: float
    high: float


def difference_of_means(values: Sequence[float], published: PublishedResult, n_published: int = N_SEEDS) -> Difference:
    """Return the difference of our mean from a published mean, with Welch's 95 % interval.

    Parameters
    ----------
    values : sequence of float
        Our accuracies (%), one per seed; at least two.
    published : PublishedResult
        The published mean and standard deviation.
    n_published : int, default=10
        Number of seeds of the published result.

    Returns
    -------
    difference : Difference

    Examples
    --------
    >>> mean, low, high = difference_of_means([70.0, 72.0, 74.0], PublishedResult(71.0, 2.0))
    >>> round(mean, 2), round(low, 2), round(high, 2)
    (1.0, -2.97, 4.97)
    """
    ours, theirs = np.var(values, ddof=1) / len(values), published.std**2 / n_published
    mean = float(np.mean(values)) - published.mean
    error = math.sqrt(ours + theirs)
    if error == 0:
        return Difference(mean, mean, mean)
    freedom = (ours + theirs) ** 2 / (ours**2 / (len(values) - 1) + theirs**2 / (n_published - 1))
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Difference(mean, mean - half, mean + half)


def published_table(cells: Sequence[Cell], records: Sequence[Record]) -> Table:
    """Return the table of the finished runs, with one column per data set."""
    return make_table(cells, records, ACCURACY, {})


def write_published_report(table: Table, folder: Path, command: str) -> dict[str, Any]:
    """Write `table.md` and `table.json`, and return the numbers."""
    numbers = {"experiment": EXPERIMENT_NAME, "table": [_entry_numbers(entry) for entry in table.entries.values()]}
    write_text(folder / "table.md", render_markdown(table, command))
    write_json(folder / "table.json", {"command": command, **numbers})
    return numbers


def render_markdown(table: Table, command: str) -> str:
    """Return the report as Markdown."""
    sections = [
        "# Published results",
        f"Made by `{command}`.",
        f"Accuracy in %, ± the standard deviation over seeds. Source of the published results: {SOURCE}; there, as "
        "here, all methods share the network (hidden layers with batch normalization and dropout 0.5) and the "
        "training (RAdam, learning rate 0.01, cosine schedule over 50 epochs, batches of 64 items), the last epoch is "
        "evaluated, and no gold is used for any choice. Rows without a published result are other methods of "
        "crowdfuse, with the same network and training.",
    ]
    for value in table.values:
        protocol = PROTOCOLS[value]
        sections += [f"## {protocol.title}", f"{protocol.note}.", _table(table, value, protocol)]
        if protocol.has_published_inputs:
            sections.append(
                "difference: ours minus published; in brackets Welch's 95 % interval, from both standard deviations. "
                "Ours agrees with the published result if the interval contains 0."
            )
    return "\n\n".join(sections) + "\n"


def _table(table: Table, value: str, protocol: Protocol) -> str:
    """Return the table of one data set."""
    header = ["method", "published", "ours", "seeds"]
    header += ["difference", "agrees"] if protocol.has_published_inputs else []
    rows = []
    for row in table.rows:
        entry = table.entries.get((row, value))
        if entry is None:
            continue
        published = protocol.results.get(row)
        cells = [row, "-" if published is None else f"{published.mean:.1f} ± {published.std:.1f}", _ours(entry)]
        cells.append(str(len(entry.by_seed)))
        if protocol.has_published_inputs:
            found = _difference(entry, protocol)
            cells += ["-", "-"] if found is None else [_format_difference(found), _agrees(found)]
        rows.append(cells)
    return markdown_table(header, rows)


def _ours(entry: TableEntry) -> str:
    """Return our accuracy with its standard deviation."""
    return f"{entry.mean:.1f}" + ("" if entry.std is None else f" ± {entry.std:.1f}")


def _difference(entry: TableEntry, protocol: Protocol) -> Difference | None:
    """Return the difference from the published result; None without one, with other inputs, or with one seed."""
    published = protocol.results.get(entry.row)
    if published is None or not protocol.has_published_inputs or len(entry.by_seed) < 2:
        return None
    return difference_of_means(list(entry.by_seed.values()), published)


def _format_difference(found: Difference) -> str:
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def _agrees(found: Difference) -> str:
    """Return whether the interval contains 0."""
    return "yes" if found.low <= 0 <= found.high else "no"


def _entry_numbers(entry: TableEntry) -> dict[str, Any]:
    """Return an entry of the table for JSON."""
    protocol = PROTOCOLS[entry.value]
    published, found = protocol.results.get(entry.row), _difference(entry, protocol)
    return {
        "dataset": entry.value,
        "method": entry.row,
        "mean": entry.mean,
        "std": entry.std,
        "accuracy_by_seed": {str(seed): accuracy for seed, accuracy in entry.by_seed.items()},
        "published": None if published is None else published._asdict(),
        "difference": None if found is None else found._asdict(),
    }
