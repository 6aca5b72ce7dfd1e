"""From runs with drawn settings to protocols: as methods come, with the epoch chosen by held-out labels, tuned by crowd
labels, and tuned by gold. The last needs what people do not have, and tells what gold would have chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from crowdfuse.experiments.comparison_results import DEFAULTS, HELD_OUT_EPOCH, TUNED_BY_CROWD, TUNED_BY_GOLD
from crowdfuse.experiments.method_comparison import ComparisonCell
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.experiments.store import Record, run_key
from crowdfuse.labels.intervals import t_interval_half_width

TIE_MARGIN = 0.01  # of accuracy: who is further behind the first is not called level with it
RowDatasetSeed = tuple[str, str, int]
"""Row, arena and seed."""


def _by_crowd(record: Record) -> tuple[bool, float]:
    """Guards first, then the likelihood of labels of items that were not trained on."""
    return not record.result["failed_checks"], record.result["crowd score"]


def _by_gold(record: Record) -> float:
    score: float = record.result["gold score"]
    return score


CHOICES: dict[str, Callable[[Record], Any]] = {TUNED_BY_CROWD: _by_crowd, TUNED_BY_GOLD: _by_gold}


def select_runs(cells: Sequence[ComparisonCell], records: Sequence[Record]) -> dict[str, dict[RowDatasetSeed, Record]]:
    """The run that each protocol keeps, by protocol and place. Tuning counts where all draws have run, and takes none
    that diverged; the upper bound is run once, and is the same in all."""
    by_key = {run_key(record.run): record for record in records}
    found: dict[str, dict[RowDatasetSeed, Record]] = {DEFAULTS: {}, HELD_OUT_EPOCH: {}}
    draws: dict[RowDatasetSeed, list[Record | None]] = {}
    for cell in cells:
        place = (cell.row, cell.value, cell.seed)
        record = by_key.get(run_key(cell.run))
        if not cell.holds_out:
            draws.setdefault(place, []).append(record)
        if record is None or "diverged" in record.result:
            continue
        if cell.draw == 0 and not cell.holds_out:
            found[DEFAULTS][place] = record
        if cell.holds_out or cell.row == UPPER_BOUND:
            found[HELD_OUT_EPOCH][place] = record
    if any(len(of) > 1 for of in draws.values()):
        for protocol, score in CHOICES.items():
            found[protocol] = {}
            for place, of in draws.items():
                usable = [record for record in of if record is not None and "diverged" not in record.result]
                if usable and None not in of:
                    found[protocol][place] = max(usable, key=score)
    return {protocol: kept for protocol, kept in found.items() if any(row != UPPER_BOUND for row, _, _ in kept)}


def metric_by_dataset(kept: Mapping[RowDatasetSeed, Record], metric: str) -> dict[str, dict[str, dict[int, float]]]:
    """A figure by arena, row and seed, where runs have it."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for (row, arena, seed), record in kept.items():
        if metric in record.result:
            found.setdefault(arena, {}).setdefault(row, {})[seed] = record.result[metric]
    return found


class Ranks(NamedTuple):
    """Mean ranks of methods, 1 the best, with 95 % intervals, and how far two must be apart."""

    mean: dict[str, float]
    interval: dict[str, tuple[float, float]]
    critical: float
    """By Nemenyi's test, over arenas, at 5 %."""
    arenas: int
    seeds: int


def ranks(by_arena: Mapping[str, Mapping[str, Mapping[int, float]]], *, ascending: bool = False) -> Ranks | None:
    """Ranks over the arenas and seeds that all methods have; None for fewer than two methods, or nothing in common.

    In each arena and seed methods are ranked, equal ones sharing the mean of their places. The interval is Student's
    over the arenas' means, or over seeds where there is one arena, and ends at the first and the last rank.
    """
    rows = sorted({row for arena in by_arena.values() for row in arena} - {UPPER_BOUND})
    blocks = []
    for of in by_arena.values():
        seeds = sorted(set.intersection(*(set(of.get(row, {})) for row in rows))) if rows else []
        if seeds:
            values = np.array([[of[row][seed] for row in rows] for seed in seeds])
            blocks.append(stats.rankdata(values if ascending else -values, axis=1))
    if len(rows) < 2 or not blocks:
        return None
    samples = blocks[0] if len(blocks) == 1 else np.array([block.mean(0) for block in blocks])
    mean = samples.mean(0)
    half = [t_interval_half_width(samples[:, i]) if len(samples) > 1 else len(rows) for i in range(len(rows))]
    return Ranks(
        {row: float(mean[i]) for i, row in enumerate(rows)},
        {row: (max(1.0, mean[i] - half[i]), min(float(len(rows)), mean[i] + half[i])) for i, row in enumerate(rows)},
        critical_difference(len(rows), len(blocks)),
        len(blocks),
        min(len(block) for block in blocks),
    )


def critical_difference(n_methods: int, n_arenas: int) -> float:
    """How far mean ranks must be apart to differ at 5 %, by Nemenyi (Demsar, 2006).

    >>> round(critical_difference(5, 30), 3)
    1.114
    """
    q = stats.studentized_range.ppf(0.95, n_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_arenas)))


def best_and_tied(by_arena: Mapping[str, Mapping[str, Mapping[int, float]]]) -> dict[str, list[str]]:
    """By arena, the row that is best in the mean, and after it those that are level: less than a point behind, and not
    surely, as on the same seeds the 95 % interval of the difference holds 0. The upper bound is left out.

    >>> leaders({"one": {"a": {0: 0.9, 1: 0.8}, "b": {0: 0.89, 1: 0.805}, "c": {0: 0.5, 1: 0.4}}})
    {'one': ['a', 'b']}
    """
    found = {}
    for arena, of in by_arena.items():
        order = sorted(
            (row for row in of if row != UPPER_BOUND), key=lambda row: -float(np.mean(list(of[row].values())))
        )
        if order:
            found[arena] = [row for row in order if row == order[0] or _is_level(of[order[0]], of[row])]
    return found


def _is_level(first: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """With fewer than two seeds in common nobody is."""
    behind = [first[seed] - other[seed] for seed in set(first) & set(other)]
    return len(behind) > 1 and float(np.mean(behind)) < min(TIE_MARGIN, t_interval_half_width(behind))


def gains(
    kept: Mapping[RowDatasetSeed, Record], reference: str, metric: str = "accuracy"
) -> dict[str, tuple[float, float, float, int]]:
    """Each row minus the reference in points on the same arena and seed: mean, a 95 % t-interval over arenas' means
    and the number of arenas; rows that share fewer than two arenas with the reference are left out."""
    by_arena = metric_by_dataset(kept, metric)
    found = {}
    for row in dict.fromkeys(row for row, _, _ in kept):
        means = [
            100 * float(np.mean([of[row][seed] - of[reference][seed] for seed in shared]))
            for of in by_arena.values()
            if row in of and reference in of and (shared := set(of[row]) & set(of[reference]))
        ]
        if row in (reference, UPPER_BOUND) or len(means) < 2:
            continue
        half = t_interval_half_width(means)
        found[row] = (float(np.mean(means)), float(np.mean(means)) - half, float(np.mean(means)) + half, len(means))
    return found
