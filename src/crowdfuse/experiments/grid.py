"""A declared grid: methods x values of one knob x seeds, each cell a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crowdfuse.experiments.store import Run
from crowdfuse.registry import estimator_class


@dataclass(frozen=True)
class Cell:
    """One run of a grid and its place in the table: the row, the value of the knob (as text), the seed."""

    row: str
    value: str
    seed: int
    run: Run = field(repr=False)

    @property
    def name(self) -> str:
        """For people: what is being run."""
        return ", ".join(
            part for part in (self.row, "annotators" in self.run and self.value, f"seed {self.seed}") if part
        )


@dataclass(frozen=True)
class Experiment:
    """What is compared, on what, over which values of which knob."""

    name: str
    title: str
    knob: str
    values: tuple[float, ...]
    methods: tuple[str, ...]
    data: dict[str, Any]
    annotators: Callable[[float], dict[str, Any]]
    """What defines the annotators at a value of the knob, names included."""
    recipe: dict[str, Any]
    extras: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """Rows that are run only when named: a method with other settings than the paper's."""
    paper: str | None = None
    """The paper's table that it repeats, as `paper_table` knows it."""

    def cells(
        self, *, values: Sequence[float] = (), methods: Sequence[str] = (), seeds: Sequence[int] = (0,), **changes: Any
    ) -> list[Cell]:
        """The whole grid, or part of it; `changes` go into every run's settings. Cheap runs' order: seed by seed."""
        values = self._known_values(values or self.values)
        cells = []
        for seed in seeds:
            for value in values:
                for method in methods or self.methods:
                    cells += self._cells_of(method, value, seed, changes)
        return cells

    def _cells_of(self, name: str, value: float, seed: int, changes: dict[str, Any]) -> list[Cell]:
        method, other = self.extras.get(name, (name, {}))
        kind = estimator_class(method)
        annotators = self.annotators(value)
        cells = []
        for row, extra in kind.variants(annotators["names"]).items():
            settings = self.recipe | kind.paper_settings | other | extra | changes
            run: Run = {"data": self.data, "method": method, "settings": settings, "seed": seed}
            if kind.trains_on_labels:  # gold is the same at every value of the knob: one run serves all
                run["annotators"] = annotators
            row = name if name in self.extras else row.removeprefix("single-annotator ")
            cells.append(Cell(row, f"{value:g}", seed, run))
        return cells

    def _known_values(self, values: Sequence[float]) -> list[float]:
        for value in values:
            if not value > 0:
                raise ValueError(f"--values: {self.knob} must be above 0, got {value:g}")
        return [int(value) if float(value).is_integer() else value for value in values]  # 30 and 30.0 are one value
