"""The numbers of stored results, for tests that compare tables and pages with them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

PROJECT = Path(__file__).parents[1]
RESULTS = PROJECT / "docs" / "results"


class Difference(NamedTuple):
    """A mean difference in points, with the ends of its interval (NaN if there is none)."""

    mean: float
    low: float
    high: float


class StoredTable:
    """The numbers in the table.json of a folder below docs/results."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        stored = json.loads((RESULTS / folder / "table.json").read_text(encoding="utf-8"))
        self.cells = {(one["method"], one.get("value", one.get("dataset"))): one for one in stored["table"]}
        self.differences = stored["paired_differences"]
        self.annotator_accuracy = stored.get("true_annotator_accuracy", {})
        self.auroc = stored.get("auroc", {})

    @property
    def values(self) -> list[str]:
        """The values of the parameter, or the data sets."""
        return list(dict.fromkeys(value for _, value in self.cells))

    def mean(self, method: str, value: str) -> float:
        """Return the mean accuracy (%) over seeds."""
        return float(self.cells[method, value]["mean"])

    def paper(self, method: str, value: str) -> float:
        """Return the paper's accuracy (%)."""
        return float(self.cells[method, value]["paper_accuracy"])

    def by_seed(self, method: str, value: str) -> dict[str, float]:
        """Return the accuracy (%) by seed."""
        return dict(self.cells[method, value]["accuracy_by_seed"])

    def gains(self, method: str, other: str, value: str) -> list[float]:
        """Return the differences in points of two methods, for each seed that both have."""
        ours, theirs = self.by_seed(method, value), self.by_seed(other, value)
        return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]

    def gain(self, method: str, other: str, value: str) -> float:
        """Return the mean of `gains`."""
        return float(np.mean(self.gains(method, other, value)))

    def overall(self, method: str, values: list[str]) -> float:
        """Return the mean accuracy (%) over several values."""
        return float(np.mean([self.mean(method, value) for value in values]))

    def overall_paper(self, method: str, values: list[str]) -> float:
        """Return the paper's mean accuracy (%) over several values."""
        return float(np.mean([self.paper(method, value) for value in values]))

    def difference(self, method: str, baseline: str, dataset: str | None = None) -> Difference:
        """Return a stored difference with its interval."""
        (one,) = (
            one
            for one in self.differences
            if (one["method"], one["baseline"], one.get("dataset")) == (method, baseline, dataset)
        )
        ends = [np.nan if end is None else end for end in (one["low"], one["high"])]
        return Difference(one["mean"], *ends)


def read_json(name: str) -> Any:
    """Return the content of a JSON file in docs/results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def read_lines(name: str) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file in docs/results."""
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def load_benchmark(name: str) -> ModuleType:
    """Return a script of the folder benchmarks as a module."""
    spec = importlib.util.spec_from_file_location(name, PROJECT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module
