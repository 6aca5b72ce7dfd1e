"""A declared grid: methods x values of one knob x seeds, each cell a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.registry import estimator_class
from crowdfuse.experiments.paper import paper_table
from crowdfuse.experiments.run_executor import PaperExecutor
from crowdfuse.experiments.store import RunSpec

Value = float | str
"""A value of a grid's knob: a number, or the name of a protocol."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid and its place in the table: the row, the value of the knob (as text), the seed."""

    row: str
    value: str
    seed: int
    run: RunSpec = field(repr=False)
    serves_all: bool = False
    """Whether the run is the same at every value of the knob."""

    @property
    def name(self) -> str:
        """For people: what is being run."""
        value = "" if self.serves_all else self.value
        return ", ".join(part for part in (self.row, value, f"seed {self.seed}") if part)


class MethodVariant(NamedTuple):
    """A row of a table that is a method with other settings than usual, or with other annotators."""

    method: str
    settings: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    annotators: dict[str, Any] = {}  # noqa: RUF012


@dataclass(frozen=True)
class Scale:
    """The size that an experiment is run at: the paper's own, or one for a desk."""

    title: str
    data: dict[str, Any]
    """Which data, and how many items of it to train on."""
    annotators: dict[str, Any]
    """What all annotators have in common that are made up of this data."""
    recipe: dict[str, Any]
    executor: Callable[[Path | None], PaperExecutor]
    """What does a run, given the folder of the data."""
    protocol: str
    """How the model of a run is chosen and judged, and what gold is used for, in a sentence for the table."""
    is_papers_recipe: bool = True
    """Whether it is trained as in the paper, so that the two numbers of a cell should be alike."""


@dataclass(frozen=True)
class Experiment:
    """What is compared, on what, over which values of which knob."""

    name: str
    description: str
    parameter: str
    values: tuple[Value, ...]
    methods: tuple[str, ...]
    scale: Scale
    annotators: Callable[[Any], dict[str, Any]]
    """What defines the annotators at a value of the knob, beside what the scale says; names included, here or there."""
    settings: Callable[[Any], dict[str, Any]] = lambda value: {}
    """What the knob sets in the method, where it is not about annotators."""
    counts: tuple[int, int] | None = None
    """Where the knob counts something: from how many to how many."""
    by_method: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that a method has in this experiment, over those of `paper_settings`."""
    extra_rows: dict[str, MethodVariant] = field(default_factory=dict)
    """Rows that are no method's name, and can be named like one."""
    paper: str | None = None
    """The paper's table that it repeats, as `paper_table` knows it."""
    paper_values: dict[str, str] = field(default_factory=dict)
    """What the paper calls our values, where it calls them otherwise."""
    main_method: str = "fusion"
    """The method that the others are compared with."""
    is_logarithmic: bool = False
    """Whether the knob is drawn on a logarithmic axis."""
    papers_best: float | None = None
    """The value of the knob that the paper found best, where it gives no other numbers."""

    @property
    def title(self) -> str:
        """What is done on which data."""
        return f"{self.scale.title}, {self.description}"

    def cells(
        self,
        *,
        values: Sequence[Value] = (),
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (0,),
        data: dict[str, Any] | None = None,
        **changes: Any,
    ) -> list[Cell]:
        """The whole grid, or part of it, seed by seed.

        `changes` go into every run's settings, and `data` into what it says of its data.
        """
        values = self._known_values(values or self.values)
        cells = []
        for seed in seeds:
            for value in values:
                for method in methods or self.methods:
                    cells += self._cells_of(method, value, seed, self.scale.data | (data or {}), changes)
        return cells

    def paper_numbers(self) -> dict[tuple[str, str], float]:
        """The paper's numbers by our value and row; none where it has no such table."""
        if self.paper is None:
            return {}
        ours = {theirs: value for value, theirs in self.paper_values.items()}
        return {(ours.get(value, value), row): number for (value, row), number in paper_table(self.paper).items()}

    def _cells_of(
        self, name: str, value: Value, seed: int, data: dict[str, Any], changes: dict[str, Any]
    ) -> list[Cell]:
        named = self.extra_rows[name] if name in self.extra_rows else MethodVariant(name)
        kind = estimator_class(named.method, others=self.extra_rows)
        annotators = self.scale.annotators | self.annotators(value) | named.annotators
        cells = []
        for row, extra in kind.variants(annotators["names"]).items():
            usual = self.scale.recipe | kind.paper_settings | self.by_method.get(named.method, {})
            settings = usual | named.settings | extra | self.settings(value) | changes
            run: RunSpec = {"data": data, "method": named.method, "settings": settings, "seed": seed}
            if kind.trains_on_labels:  # gold is the same at every value of the knob: one run serves all
                run["annotators"] = annotators
            row = name if name in self.extra_rows else row.removeprefix("single-annotator ")
            said = value if isinstance(value, str) else f"{value:g}"
            cells.append(Cell(row, said, seed, run, serves_all=not kind.trains_on_labels))
        return cells

    def _known_values(self, values: Sequence[Value]) -> list[Value]:
        known = [value for value in self.values if isinstance(value, str)]
        if known:
            return [check_choice(f"--values: {self.parameter}", value, known) for value in values]
        return [self._number(value) for value in values]

    def _number(self, value: Value) -> float:
        """30, 30.0 and "30" are one value."""
        try:
            number = float(value)
        except ValueError as error:
            raise ValueError(f"--values: {self.parameter} must be a number, got {value!r}") from error
        if not 0 <= number < math.inf:
            raise ValueError(f"--values: {self.parameter} must be at least 0, got {value}")
        if self.counts and not (number.is_integer() and self.counts[0] <= number <= self.counts[1]):
            least, most = self.counts
            raise ValueError(f"--values: {self.parameter} must be a whole number from {least} to {most}, got {value}")
        return int(number) if number.is_integer() else number
