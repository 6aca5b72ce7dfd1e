"""The numbers of a table, computed from finished runs: means, standard deviations, ranks and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.experiments.correct_items import decode_correct
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.store import Record, run_key
from crowdfuse.labels.intervals import seeds_and_items_half_width, t_interval_half_width

UPPER_BOUND = "true-label"  # trains on gold, so it is not ranked
RowValue = tuple[str, str]
"""A row of a table, and a value of its parameter."""
SEEDS, SEEDS_AND_ITEMS = "seeds", "seeds and items"
INTERVAL_TEXTS = {
    SEEDS: "the 95 % t-interval of the difference that is expected with other seeds on the same data",
    SEEDS_AND_ITEMS: "the 95 % interval of the difference that is expected with other seeds and other test items of "
    "the same kind",
}
"""What the interval of a difference says, by what it covers."""


@dataclass(frozen=True)
class TableEntry:
    """The accuracies of a method at one value of the varied parameter: one entry of a table of results.

    Parameters
    ----------
    row : str
        The method, or a variant of a method.
    value : str
        Value of the parameter.
    by_seed : dict of int to float
        Accuracy (%) by seed.
    paper_accuracy : float or None, default=None
        The accuracy (%) that Gao et al. (2022) report for this method and value. None if they report none.
    rank : int or None, default=None
        Rank of the method by mean accuracy at this value of the parameter; 1 is the best. The row "true-label" is an
        upper bound, so its rank is None. If Gao et al. (2022) report accuracies for the experiment, methods that they
        do not report have no rank either.
    paper_rank : int or None, default=None
        Rank of `paper_accuracy` among the accuracies that Gao et al. (2022) report at this value. None if they report
        none for this method, and for "true-label".
    """

    row: str
    value: str
    by_seed: dict[int, float]
    paper_accuracy: float | None = None
    rank: int | None = None
    paper_rank: int | None = None

    @property
    def mean(self) -> float:
        """Mean accuracy (%) over seeds."""
        return float(np.mean(list(self.by_seed.values())))

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; None if there is only one seed."""
        return float(np.std(list(self.by_seed.values()), ddof=1)) if len(self.by_seed) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return this table entry as a dictionary for JSON.

        Returns
        -------
        dict of str to object
            The keys are method (row of the table), value (of the parameter), mean and std (over seeds),
            accuracy_by_seed, rank, and the figures of the paper: paper_accuracy and paper_rank.
        """
        return {
            "method": self.row,
            "value": self.value,
            "mean": self.mean,
            "std": self.std,
            "accuracy_by_seed": {str(seed): value for seed, value in self.by_seed.items()},
            "paper_accuracy": self.paper_accuracy,
            "rank": self.rank,
            "paper_rank": self.paper_rank,
        }


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference between the accuracies of two methods, with a 95 % interval.

    The two methods are compared in pairs of runs on the same data, with the same label noise and the same seed.

    Parameters
    ----------
    method, baseline : str
        The difference is the accuracy of `method` minus the accuracy of `baseline`.
    n_pairs : int
        Number of pairs of runs. Each pair has one run of each method.
    n_seeds : int
        Number of seeds. If the experiment varies a parameter, each seed has one pair of runs per value of this
        parameter.
    mean : float
        Mean difference, in percentage points.
    low, high : float or None
        Ends of the interval; None if there is only one seed.
    interval_over : {"seeds", "seeds and items"}, default="seeds"
        Source of the random variation that the interval covers: the choice of seeds, or of seeds and test items.
    """

    method: str
    baseline: str
    n_pairs: int
    n_seeds: int
    mean: float
    low: float | None
    high: float | None
    interval_over: str = SEEDS

    def reversed(self) -> PairedDifference:
        """Return the same difference with method and baseline exchanged.

        Returns
        -------
        PairedDifference

        Examples
        --------
        >>> reversed = PairedDifference("fusion", "mbem", 3, 3, 2.0, 1.0, 3.0).reversed()
        >>> reversed.method, reversed.mean, reversed.low, reversed.high
        ('mbem', -2.0, -3.0, -1.0)
        """
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return replace(self, method=self.baseline, baseline=self.method, mean=-self.mean, low=low, high=high)

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as a dictionary for JSON.

        Returns
        -------
        dict of str to object
        """
        return dict(vars(self))


@dataclass(frozen=True)
class Table:
    """A table of results: one row per method, one column per value of the varied parameter.

    Parameters
    ----------
    entries : dict of (str, str) to TableEntry
        Table entries, in the order of the runs. The key is (name of the row, value of the varied parameter).
    records : dict of (str, str, int) to Record, optional
        Finished runs. The key is (name of the row, value of the varied parameter, seed).
    """

    entries: dict[RowValue, TableEntry]
    records: dict[tuple[str, str, int], Record] = field(repr=False, default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in the order of the entries."""
        return list(dict.fromkeys(row for row, _ in self.entries))

    @property
    def values(self) -> list[str]:
        """The values of the varied parameter. Numbers are sorted; names stay in the order of the entries."""
        values = dict.fromkeys(value for _, value in self.entries)
        try:
            return sorted(values, key=float)
        except ValueError:
            return list(values)

    @property
    def seeds(self) -> list[int]:
        """The seeds of all rows, sorted."""
        return sorted({seed for entry in self.entries.values() for seed in entry.by_seed})

    def paired_differences(
        self, method: str, values: Sequence[str] | None = None, *, same_test_items: bool = True
    ) -> list[PairedDifference]:
        """Return the difference between one row and each other row, without the row "true-label", an upper bound.

        Parameters
        ----------
        method : str
            The row with which the other rows are compared. Each difference is this row minus the other row.
        values : sequence of str or None, default=None
            Values of the parameter at which rows are compared. If None, rows are compared at all values.
        same_test_items : bool, default=True
            Whether all seeds have the same test items. If False, each seed draws its own test items, and the confidence
            intervals account for the variation between seeds alone.

        Returns
        -------
        list of PairedDifference
            One mean difference per other row, with a confidence interval. For each seed, the differences at all values
            are averaged; the interval is computed from these averages. If runs are missing, only a part of the seeds
            and values is compared: the largest part in which both rows have a run for each seed at each value. By
            default, the interval accounts for the variation between seeds and between test items. If a run does not
            store which items it predicted correctly, the interval accounts for the variation between seeds alone. With
            a single seed there is no interval.
        """
        found = []
        for row in self.rows:
            if row in (method, UPPER_BOUND):
                continue
            of_row, seeds = self._shared_runs(method, row, self.values if values is None else values)
            if not seeds:
                continue
            by_item = self._differences_by_item(method, row, of_row, seeds) if same_test_items else None
            if by_item is None:
                ours, theirs = (
                    np.array([[self.entries[name, at].by_seed[seed] for at in of_row] for seed in seeds])
                    for name in (method, row)
                )
                by_seed = (ours - theirs).mean(1)
                mean = float(by_seed.mean())
                half = t_interval_half_width(by_seed) if len(seeds) > 1 else None
            else:
                mean, half = float(by_item.mean()), seeds_and_items_half_width(by_item)
            low, high = (None, None) if half is None else (mean - half, mean + half)
            interval_over = SEEDS if by_item is None else SEEDS_AND_ITEMS
            n_pairs = len(of_row) * len(seeds)
            found.append(PairedDifference(method, row, n_pairs, len(seeds), mean, low, high, interval_over))
        return found

    def _shared_runs(self, method: str, row: str, values: Sequence[str]) -> tuple[list[str], list[int]]:
        """Return the values and seeds of the largest set in which both rows have every seed at every value."""
        shared = {
            value: frozenset(self.entries[method, value].by_seed) & frozenset(self.entries[row, value].by_seed)
            for value in values
            if (method, value) in self.entries and (row, value) in self.entries
        }
        candidates = [
            ([value for value in shared if seeds <= shared[value]], sorted(seeds)) for seeds in shared.values()
        ]
        return max(candidates, key=lambda one: (len(one[0]) * len(one[1]), len(one[1])), default=([], []))

    def _differences_by_item(
        self, method: str, row: str, values: Sequence[str], seeds: Sequence[int]
    ) -> NDArray[np.float64] | None:
        """Return differences (n_seeds, n_items) in points, means over values; None if correct items are not stored."""
        found = [[self._is_correct(name, value, seed) for value in values] for name in (method, row) for seed in seeds]
        known = [is_correct for runs in found for is_correct in runs if is_correct is not None]
        is_complete = len(known) == len(found) * len(values) and len({len(one) for one in known}) == 1
        if len(seeds) < 2 or not is_complete:
            return None
        of_method, of_row = np.mean(np.array(known).reshape(2, len(seeds), len(values), -1), axis=2)
        return np.asarray(100 * (of_method - of_row))

    def _is_correct(self, row: str, value: str, seed: int) -> NDArray[np.float64] | None:
        """Return 1 for each correct item of a run, else 0. None if they are not stored or contradict the table."""
        record = self.records.get((row, value, seed))
        if record is None or "correct_items_hex" not in record.result:
            return None
        is_correct = decode_correct(record.result).astype(np.float64)
        return is_correct if np.isclose(100 * is_correct.mean(), self.entries[row, value].by_seed[seed]) else None


def make_table(
    cells: Sequence[Cell], records: Sequence[Record], metric: str, paper: Mapping[tuple[str, str], float]
) -> Table:
    """Return the table of results of an experiment, from its finished runs.

    Parameters
    ----------
    cells : sequence of Cell
        The cells of the experiment, from `Experiment.cells`. Cells without a finished run are left out.
    records : sequence of Record
        Finished runs.
    metric : str
        Name of the result to show, such as "test_accuracy". The result must be a share from 0 to 1; the table shows it
        in percent.
    paper : mapping of (str, str) to float
        The accuracies (%) that Gao et al. (2022) report, by (value of the parameter, row).

    Returns
    -------
    Table
    """
    by_key = {run_key(record.run): record for record in records}
    by_seed: dict[RowValue, dict[int, float]] = {}
    placed: dict[tuple[str, str, int], Record] = {}
    for cell in cells:
        record = by_key.get(run_key(cell.run))
        if record is not None and metric in record.result:
            by_seed.setdefault((cell.row, cell.value), {})[cell.seed] = 100 * record.result[metric]
            placed[cell.row, cell.value, cell.seed] = record
    by_seed = _summarize_single_annotators(by_seed, paper)
    means = {place: float(np.mean(list(seeds.values()))) for place, seeds in by_seed.items()}
    in_paper = {row for _, row in paper} or {
        row for row, _ in means
    }  # if the paper has ranks, rank only the paper's methods
    ours = _ranks({place: mean for place, mean in means.items() if place[0] in in_paper})
    theirs = _ranks({(row, value): paper[value, row] for row, value in by_seed if (value, row) in paper})
    entries = {
        place: TableEntry(*place, seeds, paper.get((place[1], place[0])), ours.get(place), theirs.get(place))
        for place, seeds in by_seed.items()
    }
    return Table(entries, placed)


def _summarize_single_annotators(
    by_seed: dict[RowValue, dict[int, float]], paper: Mapping[tuple[str, str], float]
) -> dict[RowValue, dict[int, float]]:
    """Replace the rows of single annotators by their best, mean and worst at values where the paper does so."""
    statistics: dict[str, Callable[..., Any]] = {"annotator-max": max, "annotator-mean": np.mean, "annotator-min": min}
    summarized_values = {value for value, row in paper if row in statistics}
    summarized = {place: seeds for place, seeds in by_seed.items() if not _is_single(place, summarized_values)}
    for value in summarized_values:
        singles = [seeds for place, seeds in by_seed.items() if _is_single(place, {value})]
        shared = set.intersection(*(set(seeds) for seeds in singles)) if singles else set()
        for row, statistic in statistics.items():
            if shared:
                summarized[row, value] = {
                    seed: float(statistic([accuracies[seed] for accuracies in singles])) for seed in sorted(shared)
                }
    return summarized


def _is_single(place: RowValue, values: set[str]) -> bool:
    """Return whether a cell is a single annotator at one of these values."""
    return place[1] in values and place[0].startswith("annotator-")


def _ranks(means: Mapping[RowValue, float]) -> dict[RowValue, int]:
    """Return ranks, 1 for the best method at each value; equal means share a rank; the upper bound has none."""
    ranks = {}
    for row, value in means:
        if row != UPPER_BOUND:
            rivals = [mean for (other, v), mean in means.items() if v == value and other != UPPER_BOUND]
            ranks[row, value] = 1 + sum(rival > means[row, value] for rival in rivals)
    return ranks


def format_difference(paired: PairedDifference) -> str:
    """Return a difference with its interval, for a cell of a table.

    Examples
    --------
    >>> format_difference(PairedDifference("fusion", "mbem", 3, 3, 2.0, 1.0, 3.0))
    '+2.00 (+1.00 to +3.00)'
    """
    interval = (
        "" if paired.low is None or paired.high is None else f" ({_signed(paired.low)} to {_signed(paired.high)})"
    )
    return _signed(paired.mean) + interval


def describe_intervals(differences: Iterable[PairedDifference]) -> str:
    """Return what the intervals of differences say, for the text beside a table.

    Examples
    --------
    >>> describe_intervals([PairedDifference("fusion", "mbem", 1, 1, 2.0, None, None)])
    'no interval, because there is a single seed'
    """
    covered = dict.fromkeys(one.interval_over for one in differences if one.low is not None)
    return " or ".join(INTERVAL_TEXTS[of] for of in covered) or "no interval, because there is a single seed"


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
