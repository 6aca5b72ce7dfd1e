"""Selection of one run per method by each protocol, and ranks of methods over data sets.

There are four protocols:

- default settings;
- default settings, with the epoch chosen by held-out labels;
- settings tuned by the annotators' labels of held-out items;
- settings tuned by the gold of held-out items. This is a ceiling, because in practice there is no gold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from crowdfuse.experiments.method_comparison import ComparisonCell
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.experiments.store import Record, run_key
from crowdfuse.labels.intervals import t_interval_half_width

DEFAULTS, HELD_OUT_EPOCH = "defaults", "held_out_epoch"
TUNED_BY_CROWD, TUNED_BY_GOLD = "tuned_by_crowd", "tuned_by_gold"
PROTOCOL_TITLES = {
    DEFAULTS: "defaults",
    HELD_OUT_EPOCH: "epoch by held-out labels",
    TUNED_BY_CROWD: "tuned by crowd labels",
    TUNED_BY_GOLD: "tuned by gold",
}
RowDatasetSeed = tuple[str, str, int]
"""Row, data set and seed."""


def _by_crowd(record: Record) -> tuple[bool, float]:
    """Return the score of a run by labels: first whether it passed the sanity checks, then the held-out likelihood."""
    return not record.result["failed_checks"], record.result["held_out_log_likelihood"]


def _by_gold(record: Record) -> float:
    """Return the score of a run by gold of held-out items."""
    score: float = record.result["held_out_accuracy"]
    return score


SELECTION_SCORES: dict[str, Callable[[Record], Any]] = {TUNED_BY_CROWD: _by_crowd, TUNED_BY_GOLD: _by_gold}


def select_runs(cells: Sequence[ComparisonCell], records: Sequence[Record]) -> dict[str, dict[RowDatasetSeed, Record]]:
    """Return the runs that each protocol selects. The protocols are the keys of `PROTOCOL_TITLES`.

    Parameters
    ----------
    cells : sequence of ComparisonCell
        The cells of the comparison.
    records : sequence of Record
        Finished runs.

    Returns
    -------
    dict of str to dict of (str, str, int) to Record
        Selected runs, by protocol and then by row, data set and seed. The two tuning protocols select a run only if all
        draws of settings are finished. Draws that diverged are ignored. The upper bound has one run, which all
        protocols share.
    """
    by_key = {run_key(record.run): record for record in records}
    found: dict[str, dict[RowDatasetSeed, Record]] = {DEFAULTS: {}, HELD_OUT_EPOCH: {}}
    draws: dict[RowDatasetSeed, list[Record | None]] = {}
    for cell in cells:
        place = (cell.row, cell.value, cell.seed)
        record = by_key.get(run_key(cell.run))
        if not cell.uses_held_out_epoch:
            draws.setdefault(place, []).append(record)
        if record is None or "diverged" in record.result:
            continue
        if cell.draw == 0 and not cell.uses_held_out_epoch:
            found[DEFAULTS][place] = record
        if cell.uses_held_out_epoch or cell.row == UPPER_BOUND:
            found[HELD_OUT_EPOCH][place] = record
    if any(len(of) > 1 for of in draws.values()):
        for protocol, score in SELECTION_SCORES.items():
            found[protocol] = {}
            for place, of in draws.items():
                usable = [record for record in of if record is not None and "diverged" not in record.result]
                if usable and None not in of:
                    found[protocol][place] = max(usable, key=score)
    return {
        protocol: selected for protocol, selected in found.items() if any(row != UPPER_BOUND for row, _, _ in selected)
    }


def metric_by_dataset(selected: Mapping[RowDatasetSeed, Record], metric: str) -> dict[str, dict[str, dict[int, float]]]:
    """Return a metric by data set, row and seed, where the runs have it."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for (row, dataset, seed), record in selected.items():
        if metric in record.result:
            found.setdefault(dataset, {}).setdefault(row, {})[seed] = record.result[metric]
    return found


class MeanRanks(NamedTuple):
    """Mean ranks of methods over data sets.

    Parameters
    ----------
    mean : dict of str to float
        Mean rank of each row (method); 1 is the best.
    interval : dict of str to (float, float)
        95 % interval of the mean rank of each row.
    critical_difference : float
        Smallest difference between two mean ranks that is significant at the 5 % level, by Nemenyi's test over data
        sets.
    n_datasets : int
        Number of data sets.
    n_seeds : int
        Number of seeds of the data set with the fewest seeds.
    """

    mean: dict[str, float]
    interval: dict[str, tuple[float, float]]
    critical_difference: float
    n_datasets: int
    n_seeds: int


def rank_methods(
    by_dataset: Mapping[str, Mapping[str, Mapping[int, float]]],
) -> MeanRanks | None:
    """Return mean ranks over the data sets and seeds that all methods have.

    Methods are ranked for each data set and seed. Tied methods share the mean of their ranks. The interval is Student's
    t-interval over the mean ranks of the data sets, or over seeds if there is only one data set. The interval is
    clipped to the range of possible ranks.

    Parameters
    ----------
    by_dataset : mapping
        A metric by data set, row and seed; higher is better.

    Returns
    -------
    MeanRanks or None
        None if there are fewer than two methods, or if the methods share no data set and seed.
    """
    rows = sorted({row for by_row in by_dataset.values() for row in by_row} - {UPPER_BOUND})
    blocks = []
    for of in by_dataset.values():
        seeds = sorted(set.intersection(*(set(of.get(row, {})) for row in rows))) if rows else []
        if seeds:
            values = np.array([[of[row][seed] for row in rows] for seed in seeds])
            blocks.append(stats.rankdata(-values, axis=1))
    if len(rows) < 2 or not blocks:
        return None
    samples = blocks[0] if len(blocks) == 1 else np.array([block.mean(0) for block in blocks])
    mean = samples.mean(0)
    half = [t_interval_half_width(samples[:, i]) if len(samples) > 1 else len(rows) for i in range(len(rows))]
    return MeanRanks(
        {row: float(mean[i]) for i, row in enumerate(rows)},
        {row: (max(1.0, mean[i] - half[i]), min(float(len(rows)), mean[i] + half[i])) for i, row in enumerate(rows)},
        nemenyi_critical_difference(len(rows), len(blocks)),
        len(blocks),
        min(len(block) for block in blocks),
    )


def nemenyi_critical_difference(n_methods: int, n_datasets: int) -> float:
    """Return the smallest difference of mean ranks that is significant at 5 % by Nemenyi's test (Demsar, 2006).

    Examples
    --------
    >>> round(nemenyi_critical_difference(5, 30), 3)
    1.114
    """
    q = stats.studentized_range.ppf(0.95, n_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets)))


def gains_over(
    selected: Mapping[RowDatasetSeed, Record], reference: str, metric: str = "accuracy"
) -> dict[str, tuple[float, float, float, int]]:
    """Return the difference in a metric between each row and a reference row, on the same data sets and seeds.

    Parameters
    ----------
    selected : mapping of (str, str, int) to Record
        Selected runs by row, data set and seed.
    reference : str
        The reference row.
    metric : str, default="accuracy"
        The metric.

    Returns
    -------
    dict of str to (float, float, float, int)
        For each row: mean difference in percentage points, lower and upper end of the 95 % t-interval over the means of
        the data sets, and number of data sets. Rows that share fewer than two data sets with the reference are left
        out.
    """
    by_dataset = metric_by_dataset(selected, metric)
    found = {}
    for row in dict.fromkeys(row for row, _, _ in selected):
        means = [
            100 * float(np.mean([of[row][seed] - of[reference][seed] for seed in shared]))
            for of in by_dataset.values()
            if row in of and reference in of and (shared := set(of[row]) & set(of[reference]))
        ]
        if row in (reference, UPPER_BOUND) or len(means) < 2:
            continue
        half = t_interval_half_width(means)
        found[row] = (float(np.mean(means)), float(np.mean(means)) - half, float(np.mean(means)) + half, len(means))
    return found
