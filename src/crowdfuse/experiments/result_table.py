"""From finished runs to a table's numbers: means, spreads, ranks, the paper's beside ours, paired differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.experiments.correct_items import decode_correct
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.store import Record, run_key
from crowdfuse.labels.intervals import bootstrap_interval, t_interval_half_width

UPPER_BOUND = "true-label"  # an upper bound, and no competitor
RowValue = tuple[str, str]  # row and value


@dataclass(frozen=True)
class TableEntry:
    """One place of a table: accuracies (%) by seed, and the paper's number."""

    row: str
    value: str
    by_seed: dict[int, float]
    paper: float | None = None
    rank: int | None = None
    paper_rank: int | None = None

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(list(self.by_seed.values())))

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None of one seed."""
        return float(np.std(list(self.by_seed.values()), ddof=1)) if len(self.by_seed) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "method": self.row,
            "value": self.value,
            "mean": self.mean,
            "spread": self.spread,
            "seeds": {str(seed): value for seed, value in self.by_seed.items()},
            "paper": self.paper,
            "rank": self.rank,
            "paper's rank": self.paper_rank,
        }


@dataclass(frozen=True)
class PairedDifference:
    """How much better one method is than another on the same data, noise and seed, with a 95 % interval."""

    method: str
    baseline: str
    pairs: int
    mean: float
    low: float | None
    high: float | None
    interval_over: str = "seeds"
    """What the interval allows for: the luck of seeds, or of seeds and of the items that judge."""

    def reversed(self) -> PairedDifference:
        """The same difference, seen from the other side.

        >>> Paired("fusion", "mbem", 3, 2.0, 1.0, 3.0).reversed()
        Paired(better='mbem', than='fusion', pairs=3, mean=-2.0, low=-3.0, high=-1.0, over='seeds')
        """
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return PairedDifference(self.baseline, self.method, self.pairs, -self.mean, low, high, self.interval_over)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return dict(vars(self))


@dataclass(frozen=True)
class Table:
    """Entries by row and value, in the order of the grid."""

    entries: dict[RowValue, TableEntry]
    records: dict[tuple[str, str, int], Record] = field(repr=False, default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """Methods, in the order of the grid."""
        return list(dict.fromkeys(row for row, _ in self.entries))

    @property
    def values(self) -> list[str]:
        """Values of the knob, numbers in their order."""
        values = dict.fromkeys(value for _, value in self.entries)
        try:
            return sorted(values, key=float)
        except ValueError:
            return list(values)

    @property
    def seeds(self) -> list[int]:
        """All seeds that any row has."""
        return sorted({seed for entry in self.entries.values() for seed in entry.by_seed})

    def paired_differences(self, reference: str, at: str | None = None) -> list[PairedDifference]:
        """The reference minus every other row but the upper bound, over all values (or `at` one) and seeds of both."""
        found = []
        for row in self.rows:
            if row in (reference, UPPER_BOUND):
                continue
            places = [
                (value, seed)
                for value in (self.values if at is None else [at])
                if (row, value) in self.entries and (reference, value) in self.entries
                for seed in self.entries[row, value].by_seed
                if seed in self.entries[reference, value].by_seed
            ]
            if not places:
                continue
            by_item = self._by_item(reference, row, places)
            if by_item is not None:
                found.append(bootstrapped_difference(reference, row, len(places), by_item))
            else:
                differences = [
                    self.entries[reference, value].by_seed[seed] - self.entries[row, value].by_seed[seed]
                    for value, seed in places
                ]
                found.append(paired_difference(reference, row, np.array(differences)))
        return found

    def _by_item(self, reference: str, row: str, places: list[tuple[str, int]]) -> NDArray[np.float64] | None:
        """Differences in points by seed and judged item, the mean over values; None where runs do not say them."""
        by_seed: dict[int, list[NDArray[np.float64]]] = {}
        for value, seed in places:
            ours, theirs = (self._right(name, value, seed) for name in (reference, row))
            if ours is None or theirs is None or len(ours) != len(theirs):
                return None
            by_seed.setdefault(seed, []).append(100 * (ours - theirs))
        lengths = {len(one) for found in by_seed.values() for one in found}
        if len(lengths) != 1 or len(by_seed) < 2:
            return None
        return np.stack([np.mean(found, axis=0) for found in by_seed.values()])

    def _right(self, row: str, value: str, seed: int) -> NDArray[np.float64] | None:
        """Which items a run got right, if its record says so of the very figure that the table shows."""
        record = self.records.get((row, value, seed))
        if record is None or "right" not in record.result:
            return None
        right = decode_correct(record.result).astype(np.float64)
        return right if np.isclose(100 * right.mean(), self.entries[row, value].by_seed[seed]) else None


def bootstrapped_difference(better: str, than: str, pairs: int, by_item: NDArray[np.float64]) -> PairedDifference:
    """The mean of differences (seeds, items), with a 95 % bootstrap interval: both are drawn anew, 2,000 times.

    Items that are not the same in each seed are drawn by their place in the list: it makes no difference.

    >>> bootstrapped_difference("a", "b", 3, np.ones((3, 50))).low
    1.0
    """
    return PairedDifference(better, than, pairs, float(by_item.mean()), *bootstrap_interval(by_item), "seeds and items")


def paired_difference(better: str, than: str, differences: np.ndarray[Any, Any]) -> PairedDifference:
    """The mean of differences, with a 95 % t-interval where there are several."""
    mean = float(differences.mean())
    if len(differences) < 2:
        return PairedDifference(better, than, len(differences), mean, None, None)
    half = t_interval_half_width(differences)
    return PairedDifference(better, than, len(differences), mean, mean - half, mean + half)


def make_table(
    cells: Sequence[Cell], records: Sequence[Record], metric: str, paper: Mapping[tuple[str, str], float]
) -> Table:
    """The table of a grid as far as it has run; `paper` is keyed by value and row."""
    by_key = {run_key(record.run): record for record in records}
    by_seed: dict[RowValue, dict[int, float]] = {}
    placed: dict[tuple[str, str, int], Record] = {}
    for cell in cells:
        record = by_key.get(run_key(cell.run))
        if record is not None and metric in record.result:
            by_seed.setdefault((cell.row, cell.value), {})[cell.seed] = 100 * record.result[metric]
            placed[cell.row, cell.value, cell.seed] = record
    by_seed = _best_mean_worst(by_seed, paper)
    means = {place: float(np.mean(list(seeds.values()))) for place, seeds in by_seed.items()}
    in_paper = {row for _, row in paper} or {row for row, _ in means}  # beside the paper, its rivals are the rivals
    ours = _ranks({place: mean for place, mean in means.items() if place[0] in in_paper})
    theirs = _ranks({(row, value): paper[value, row] for row, value in by_seed if (value, row) in paper})
    entries = {
        place: TableEntry(*place, seeds, paper.get((place[1], place[0])), ours.get(place), theirs.get(place))
        for place, seeds in by_seed.items()
    }
    return Table(entries, placed)


def _best_mean_worst(
    by_seed: dict[RowValue, dict[int, float]], paper: Mapping[tuple[str, str], float]
) -> dict[RowValue, dict[int, float]]:
    """Where the paper sums up its single annotators by their best, mean and worst, so do we."""
    rows: dict[str, Callable[..., Any]] = {"annotator-max": max, "annotator-mean": np.mean, "annotator-min": min}
    summed_at = {value for value, row in paper if row in rows}
    found = {place: seeds for place, seeds in by_seed.items() if not _is_single(place, summed_at)}
    for value in summed_at:
        of = [seeds for place, seeds in by_seed.items() if _is_single(place, {value})]
        shared = set.intersection(*(set(seeds) for seeds in of)) if of else set()
        for row, summed in rows.items():
            if shared:
                found[row, value] = {seed: float(summed([one[seed] for one in of])) for seed in sorted(shared)}
    return found


def _is_single(place: RowValue, values: set[str]) -> bool:
    return place[1] in values and place[0].startswith("annotator-")


def _ranks(means: Mapping[RowValue, float]) -> dict[RowValue, int]:
    """1 for the best method at each value; equal numbers share a rank; the upper bound has none."""
    ranks = {}
    for row, value in means:
        if row != UPPER_BOUND:
            rivals = [mean for (other, v), mean in means.items() if v == value and other != UPPER_BOUND]
            ranks[row, value] = 1 + sum(rival > means[row, value] for rival in rivals)
    return ranks
