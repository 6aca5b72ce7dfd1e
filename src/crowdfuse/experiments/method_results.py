"""Results of all methods at their defaults, as shipped with the package in `method_results.json`.

`python benchmarks/default_method.py --tables` makes the file from the stored runs in `docs/results/methods/runs.jsonl`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from crowdfuse.estimators.registry import ESTIMATORS
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.labels.intervals import t_interval_half_width

RESULTS_FILE = "method_results.json"
REFERENCE_METHOD = "majority-vote"  # soft vote: plain training
MIN_DATASET_SHARE = 0.5  # a method that has run on a smaller share of the data sets is not compared yet
METRICS = ("accuracy", "balanced_accuracy", "log_loss", "seconds", "n_steps")
N_DIGITS = 4


class Dataset(NamedTuple):
    """A data set of the comparison.

    Parameters
    ----------
    name : str
        Name in the stored runs and in tables.
    group : str
        Name of the group of data sets.
    note : str
        A description.
    """

    name: str
    group: str
    note: str


@dataclass(frozen=True)
class DatasetResults:
    """Results on one data set: means over the seeds that all compared methods have.

    Parameters
    ----------
    name, group, note : str
        As in `Dataset`.
    n_seeds : int
        Number of seeds.
    figures : dict of str to dict of str to float
        Means over seeds, by metric and then by method. A method is listed under a metric only if this metric was
        measured at every seed. Accuracies are in percent, `seconds` is the CPU time of training and prediction, and
        `n_steps` is the number of optimizer steps.
    """

    name: str
    group: str
    note: str
    n_seeds: int
    figures: dict[str, dict[str, float]]

    @property
    def accuracy(self) -> dict[str, float]:
        """Test accuracy by method, in percent."""
        return self.figures.get("accuracy", {})

    def best_methods(self) -> list[str]:
        """Return the methods with the highest accuracy: several if there is a tie. The upper bound is left out."""
        rivals = {method: value for method, value in self.accuracy.items() if method != UPPER_BOUND}
        return [method for method, value in rivals.items() if value == max(rivals.values())]


class Difference(NamedTuple):
    """Mean difference in accuracy between two methods over data sets.

    Parameters
    ----------
    mean : float
        In percentage points.
    half_width : float or None
        Half the width of the 95 % t-interval over data sets; None with a single data set.
    n_datasets : int
        Number of data sets on which both methods have run.
    smallest : float
        Smallest difference on a single data set.
    smallest_on : str
        Name of the data set with the smallest difference.
    """

    mean: float
    half_width: float | None
    n_datasets: int
    smallest: float
    smallest_on: str


@dataclass(frozen=True)
class MethodResults:
    """Results of all methods.

    Parameters
    ----------
    compared : list of str
        Methods that are ranked, in the order of the registry.
    datasets : list of DatasetResults
        Results by data set.
    """

    compared: list[str]
    datasets: list[DatasetResults]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> MethodResults:
        """Return the results that `to_dict` has stored."""
        return cls(stored["compared"], [DatasetResults(**dataset) for dataset in stored["datasets"]])

    def methods(self) -> list[str]:
        """Return all methods with a result, best mean accuracy first, then those that are not compared."""
        known = {method for dataset in self.datasets for method in dataset.accuracy}
        mean = self.mean("accuracy")
        order = [method for method in ESTIMATORS if method in known]
        return sorted(
            order, key=lambda method: (method not in self.compared, method == UPPER_BOUND, -mean.get(method, 0.0))
        )

    def shared_datasets(self) -> list[DatasetResults]:
        """Return the data sets on which all compared methods have run."""
        return [dataset for dataset in self.datasets if all(method in dataset.accuracy for method in self.compared)]

    def mean(self, metric: str, group: str | None = None) -> dict[str, float]:
        """Return the mean of a metric over the shared data sets, by method, for methods that have it on all of them."""
        shared = [dataset for dataset in self.shared_datasets() if group in (None, dataset.group)]
        found = [dataset.figures.get(metric, {}) for dataset in shared]
        return {
            method: float(np.mean([of[method] for of in found]))
            for method in ESTIMATORS
            if found and all(method in of for of in found)
        }

    def mean_rank(self) -> dict[str, float]:
        """Return the mean rank in accuracy of each compared method over the shared data sets.

        Rank 1 is the best. Ties share the mean of their ranks.
        """
        ranks: dict[str, list[float]] = {}
        for dataset in self.shared_datasets():
            values = np.array([dataset.accuracy[method] for method in self.compared])
            for method, value in zip(self.compared, values, strict=True):
                ranks.setdefault(method, []).append(float((values > value).sum() + ((values == value).sum() + 1) / 2))
        return {method: float(np.mean(of)) for method, of in ranks.items()}

    def relative_time(self) -> dict[str, float]:
        """Return the CPU time of each method divided by that of soft vote: the median over data sets."""
        ratios: dict[str, list[float]] = {}
        for dataset in self.datasets:
            seconds = dataset.figures.get("seconds", {})
            for method, value in seconds.items():
                if seconds.get(REFERENCE_METHOD):
                    ratios.setdefault(method, []).append(value / seconds[REFERENCE_METHOD])
        return {method: float(np.median(of)) for method, of in ratios.items()}

    def first_on(self, method: str) -> list[str]:
        """Return the names of the data sets on which a method has the highest accuracy."""
        return [dataset.name for dataset in self.datasets if method in dataset.best_methods()]

    def difference(self, method: str, other: str) -> Difference | None:
        """Return the accuracy of a method minus that of another one; None if they have no data set in common.

        For two compared methods, only the data sets of `shared_datasets` are used, as in `mean`.
        """
        both_compared = {method, other} <= set(self.compared)
        gains = {
            dataset.name: dataset.accuracy[method] - dataset.accuracy[other]
            for dataset in (self.shared_datasets() if both_compared else self.datasets)
            if method in dataset.accuracy and other in dataset.accuracy
        }
        if not gains:
            return None
        worst = min(gains, key=lambda name: gains[name])
        values = list(gains.values())
        half_width = t_interval_half_width(values) if len(values) > 1 else None
        return Difference(float(np.mean(values)), half_width, len(values), gains[worst], worst)

    def distance_to_best(self, method: str) -> tuple[float, str]:
        """Return the largest gap between a method and the best method of a data set, and the name of this data set.

        The gap is in percentage points. Each data set can have a different best method. If the method has no results,
        the gap is 0 and the name is empty.
        """
        behind = [
            (dataset.accuracy[best] - dataset.accuracy[method], dataset.name)
            for dataset in self.datasets
            if method in dataset.accuracy
            for best in dataset.best_methods()[:1]
        ]
        return max(behind, key=lambda one: one[0], default=(0.0, ""))


def load_method_results() -> MethodResults:
    """Return the results that are shipped with the package.

    Examples
    --------
    >>> "majority-vote" in load_method_results().compared
    True
    """
    text = files("crowdfuse.experiments").joinpath(RESULTS_FILE).read_text(encoding="utf-8")
    return MethodResults.from_dict(json.loads(text))


def collect_results(runs: Sequence[Mapping[str, Any]], datasets: Sequence[Dataset]) -> MethodResults:
    """Return the results of finished runs.

    A method is compared if it has run on at least half of the data sets on which any method has run. On each data set,
    the figures are means over the seeds that all compared methods have, so that all methods have the same seeds. The
    upper bound is never compared.

    Parameters
    ----------
    runs : sequence of mappings
        Finished runs, with `arena` (the name of the data set), `method`, `seed` and metrics. If a run is there twice,
        the last one counts.
    datasets : sequence of Dataset
        The data sets, in the order of the tables. Data sets without common seeds are left out.

    Returns
    -------
    MethodResults

    Examples
    --------
    >>> run = {"arena": "dogs", "method": "gated", "seed": 0, "accuracy": 90.0}
    >>> results = collect_results([run, run | {"seed": 1, "accuracy": 80.0}], [Dataset("dogs", "real crowds", "")])
    >>> results.compared, results.mean("accuracy")
    (['gated'], {'gated': 85.0})
    """
    by_dataset: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for run in runs:
        by_dataset.setdefault(run["arena"], {}).setdefault(run["method"], {})[run["seed"]] = run
    compared = [
        method
        for method in ESTIMATORS
        if method != UPPER_BOUND
        and sum(method in of for of in by_dataset.values()) >= max(1, MIN_DATASET_SHARE * len(by_dataset))
    ]
    found = []
    for dataset in datasets:
        by_method = by_dataset.get(dataset.name, {})
        of_compared = [set(by_method[method]) for method in compared if method in by_method]
        seeds = sorted(set.intersection(*of_compared)) if of_compared else []
        if seeds:
            complete = [method for method in ESTIMATORS if set(by_method.get(method, {})) >= set(seeds)]
            figures = {
                metric: {
                    method: round(float(np.mean([by_method[method][seed][metric] for seed in seeds])), N_DIGITS)
                    for method in complete
                    if all(metric in by_method[method][seed] for seed in seeds)
                }
                for metric in METRICS
            }
            found.append(DatasetResults(*dataset, len(seeds), {metric: of for metric, of in figures.items() if of}))
    return MethodResults(compared, found)
