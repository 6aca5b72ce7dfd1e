"""From runs with drawn settings to three protocols: as methods come, tuned by crowd labels, and tuned by gold.

All three see the same runs. The third needs what people do not have, and is there as a ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from crowdfuse.experiments.fair import DrawnCell
from crowdfuse.experiments.store import Record, key_of
from crowdfuse.experiments.tables import BOUND

DRAWS = 2_000
Place = tuple[str, str, int]
"""Row, arena and seed."""


class Tried(NamedTuple):
    """One draw that has run."""

    draw: int
    record: Record


def _by_crowd(tried: Tried) -> tuple[bool, float]:
    """Guards first, then the likelihood of labels of items that were not trained on."""
    return not tried.record.result["objections"], tried.record.result["crowd score"]


def _by_gold(tried: Tried) -> float:
    score: float = tried.record.result["gold score"]
    return score


CHOICES: dict[str, Callable[[Tried], Any]] = {
    "defaults": lambda tried: -tried.draw,
    "tuned by crowd labels": _by_crowd,
    "tuned by gold": _by_gold,
}


def chosen(cells: Sequence[DrawnCell], records: Sequence[Record]) -> dict[str, dict[Place, Record]]:
    """The run that each protocol keeps, by protocol and place. Tuning counts where all draws have run; the upper
    bound is never tuned, and is the same in all."""
    by_key = {key_of(record.run): record for record in records}
    tried: dict[Place, list[Tried]] = {}
    asked: dict[Place, int] = {}
    for cell in cells:
        place = (cell.row, cell.value, cell.seed)
        asked[place] = asked.get(place, 0) + 1
        record = by_key.get(key_of(cell.run))
        if record is not None:
            tried.setdefault(place, []).append(Tried(cell.draw, record))
    has_draws = any(count > 1 for count in asked.values())
    found: dict[str, dict[Place, Record]] = {}
    for protocol, score in CHOICES.items():
        if protocol != "defaults" and not has_draws:
            continue
        found[protocol] = {
            place: max(of, key=score).record
            for place, of in tried.items()
            if (protocol == "defaults" and of[0].draw == 0) or len(of) == asked[place]
        }
    return {protocol: kept for protocol, kept in found.items() if kept}


def figures_of(kept: Mapping[Place, Record], metric: str) -> dict[str, dict[str, dict[int, float]]]:
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

    In each arena and seed methods are ranked, equal ones sharing the mean of their places. The interval draws arenas
    and seeds anew, 2,000 times.
    """
    rows = sorted({row for arena in by_arena.values() for row in arena} - {BOUND})
    blocks = {}
    for arena, of in by_arena.items():
        seeds = sorted(set.intersection(*(set(of.get(row, {})) for row in rows))) if rows else []
        if seeds:
            values = np.array([[of[row][seed] for row in rows] for seed in seeds])
            blocks[arena] = stats.rankdata(values if ascending else -values, axis=1)
    if len(rows) < 2 or not blocks:
        return None
    by_block = [block.mean(0) for block in blocks.values()]
    mean = np.mean(by_block, axis=0)
    drawn = _drawn(list(blocks.values()))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Ranks(
        {row: float(mean[i]) for i, row in enumerate(rows)},
        {row: (float(low[i]), float(high[i])) for i, row in enumerate(rows)},
        critical_difference(len(rows), len(blocks)),
        len(blocks),
        min(len(block) for block in blocks.values()),
    )


def _drawn(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    """Mean ranks with arenas, and seeds within them, drawn anew, (draws, rows)."""
    generator = np.random.default_rng(0)
    found = np.empty((DRAWS, blocks[0].shape[1]))
    for i in range(DRAWS):
        picked = [blocks[j] for j in generator.integers(len(blocks), size=len(blocks))]
        found[i] = np.mean([block[generator.integers(len(block), size=len(block))].mean(0) for block in picked], axis=0)
    return found


def critical_difference(n_methods: int, n_arenas: int) -> float:
    """How far mean ranks must be apart to differ at 5 %, by Nemenyi (Demsar, 2006).

    >>> round(critical_difference(5, 30), 3)
    1.114
    """
    q = stats.studentized_range.ppf(0.95, n_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_arenas)))


def leaders(by_arena: Mapping[str, Mapping[str, Mapping[int, float]]]) -> dict[str, list[str]]:
    """By arena, the row that is best in the mean, and after it those that it is not surely ahead of: on the same seeds
    the 95 % interval of the difference holds 0. The upper bound is left out.

    >>> leaders({"one": {"a": {0: 0.9, 1: 0.8}, "b": {0: 0.89, 1: 0.81}, "c": {0: 0.5, 1: 0.4}}})
    {'one': ['a', 'b']}
    """
    found = {}
    for arena, of in by_arena.items():
        order = sorted((row for row in of if row != BOUND), key=lambda row: -float(np.mean(list(of[row].values()))))
        if order:
            found[arena] = [row for row in order if row == order[0] or not _surely_ahead(of[order[0]], of[row])]
    return found


def _surely_ahead(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    differences = [one[seed] - other[seed] for seed in set(one) & set(other)]
    if len(differences) < 2:
        return float(np.mean(list(one.values()))) > float(np.mean(list(other.values())))
    return float(np.mean(differences)) > half_width(differences)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % t-interval of a mean."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))


def gains(
    kept: Mapping[Place, Record], reference: str, metric: str = "accuracy"
) -> dict[str, tuple[float, float, float, int]]:
    """Each row minus the reference in points on the same arena and seed: mean, a 95 % t-interval over arenas' means
    and the number of arenas; rows that share fewer than two arenas with the reference are left out."""
    by_arena = figures_of(kept, metric)
    found = {}
    for row in dict.fromkeys(row for row, _, _ in kept):
        means = [
            100 * float(np.mean([of[row][seed] - of[reference][seed] for seed in shared]))
            for of in by_arena.values()
            if row in of and reference in of and (shared := set(of[row]) & set(of[reference]))
        ]
        if row in (reference, BOUND) or len(means) < 2:
            continue
        half = half_width(means)
        found[row] = (float(np.mean(means)), float(np.mean(means)) - half, float(np.mean(means)) + half, len(means))
    return found
