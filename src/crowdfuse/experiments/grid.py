"""Declaration of a grid of runs: methods x values of one parameter x seeds."""

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

SweptValue = float | str
"""A value of the parameter that an experiment varies: a number or a name."""


@dataclass(frozen=True)
class Cell:
    """One run of an experiment, with its row and column in the table of results.

    Parameters
    ----------
    row : str
        Row of the table: a method or a variant of a method.
    value : str
        Column of the table: value of the parameter that the experiment varies.
    seed : int
        Seed of the run.
    run : RunSpec
        Everything that defines the run: data, annotators, method, settings, seed.
    same_for_all_values : bool, default=False
        Whether the run does not depend on the value of the varied parameter. Such a run is executed once for all
        values.

    Examples
    --------
    >>> Cell("fusion", "30", 0, {}).name
    'fusion, 30, seed 0'
    """

    row: str
    value: str
    seed: int
    run: RunSpec = field(repr=False)
    same_for_all_values: bool = False

    @property
    def name(self) -> str:
        """Readable name of the run."""
        value = "" if self.same_for_all_values else self.value
        return ", ".join(part for part in (self.row, value, f"seed {self.seed}") if part)


class MethodVariant(NamedTuple):
    """A method with its own settings or its own simulated annotators: one row in the table of results.

    Parameters
    ----------
    method : str
        Name of the method.
    settings : dict, default={}
        Settings of the method that differ from the settings of the experiment.
    annotators : dict, default={}
        Entries of the annotator definition, such as `epsilon`, that differ from the annotator definition of the
        experiment.

    Examples
    --------
    >>> MethodVariant("majority-vote", {"vote": "hard"}).settings
    {'vote': 'hard'}
    """

    method: str
    settings: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    annotators: dict[str, Any] = {}  # noqa: RUF012


@dataclass(frozen=True)
class Scale:
    """The data, training recipe and protocol of an experiment, at the scale of Gao et al. (2022) or at a smaller scale.

    Parameters
    ----------
    title : str
        Name of the data, for titles.
    data : dict
        Name of the data set and number of training items (`n_train`).
    annotators : dict
        Definition of the simulated annotators (see `PaperExecutor.make_annotators`), without the entries that depend on
        the varied parameter.
    recipe : dict
        Settings of the training that all methods share.
    executor : callable
        Function that takes the folder of the data and returns the executor of the runs.
    protocol : str
        Text below the table of results. It says how the model of a run is chosen and evaluated, and how gold (the true
        classes) is used.
    uses_paper_recipe : bool, default=True
        Whether training follows Gao et al. (2022), so that their accuracies can be compared with ours.
    """

    title: str
    data: dict[str, Any]
    annotators: dict[str, Any]
    recipe: dict[str, Any]
    executor: Callable[[Path | None], PaperExecutor]
    protocol: str
    uses_paper_recipe: bool = True


def _no_settings(value: Any) -> dict[str, Any]:
    """Return an empty dict: no setting of the method depends on the varied parameter.

    Parameters
    ----------
    value : object
        Value of the parameter.

    Returns
    -------
    dict
    """
    return {}


@dataclass(frozen=True)
class Experiment:
    """A comparison of methods over the values of one parameter.

    Parameters
    ----------
    name : str
        Name of the experiment on the command line.
    description : str
        Second half of the title of the experiment. The first half is the title of the data (`scale.title`).
    parameter : str
        The parameter that the experiment varies.
    values : tuple of float or str
        The values of the parameter.
    methods : tuple of str
        Rows of the table that are run by default: names of methods, or names of rows that `extra_rows` defines.
    scale : Scale
        Data, recipe and protocol.
    annotators : callable
        Function that takes a value of the parameter and returns the entries of the annotator definition that depend on
        this value. The entries are added to `scale.annotators`.
    settings : callable, optional
        Function that takes a value of the parameter and returns the settings of the method that depend on this value.
        By default, no setting depends on the value.
    count_range : tuple of (int, int) or None, default=None
        Smallest and largest allowed value of a parameter that must be a whole number. None for all other parameters.
    method_settings : dict of str to dict, optional
        Maps the name of a method to its settings in this experiment. They override the class attribute `paper_settings`
        of the method's estimator.
    extra_rows : dict of str to MethodVariant, optional
        Further rows of the table. Maps the name of each row to its variant of a method. The rows can be requested by
        name, like methods.
    paper_table_id : str or None, default=None
        Table in Gao et al. (2022) that the experiment repeats, such as "1". None if it repeats no table.
    paper_value_names : dict of str to str, optional
        Maps values of the parameter to their names in the table of Gao et al. (2022). Needed only for values whose
        names differ.
    main_method : str, default="fusion"
        The method with which all other methods are compared.
    is_logarithmic : bool, default=False
        Whether figures show the parameter on a logarithmic axis.
    paper_best_value : float or None, default=None
        The value of the parameter that Gao et al. (2022) found best. Figures mark this value. Only
        for experiments that repeat no table.
    """

    name: str
    description: str
    parameter: str
    values: tuple[SweptValue, ...]
    methods: tuple[str, ...]
    scale: Scale
    annotators: Callable[[Any], dict[str, Any]]
    settings: Callable[[Any], dict[str, Any]] = _no_settings
    count_range: tuple[int, int] | None = None
    method_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra_rows: dict[str, MethodVariant] = field(default_factory=dict)
    paper_table_id: str | None = None
    paper_value_names: dict[str, str] = field(default_factory=dict)
    main_method: str = "fusion"
    is_logarithmic: bool = False
    paper_best_value: float | None = None

    @property
    def title(self) -> str:
        """Title of the experiment: the name of its data set and network (`scale.title`), then the description."""
        return f"{self.scale.title}, {self.description}"

    def cells(
        self,
        *,
        values: Sequence[SweptValue] = (),
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (0,),
        data: dict[str, Any] | None = None,
        **changes: Any,
    ) -> list[Cell]:
        """Return the cells (runs) of the grid, or of a part of the grid, ordered by seed.

        Parameters
        ----------
        values : sequence of float or str, default=()
            Values of the parameter that the experiment varies. If empty, the attribute `values` is used.
        methods : sequence of str, default=()
            Rows of the table of results: names of learning methods, or names of rows that the experiment defines in
            `extra_rows`. If empty, the attribute `methods` is used.
        seeds : sequence of int, default=(0,)
            Seeds.
        data : dict or None, default=None
            Settings of the data to replace, such as `n_train`. Other settings keep the values of the experiment.
        **changes : object
            Settings to change in every run, such as `epochs`.

        Returns
        -------
        list of Cell

        Raises
        ------
        ValueError
            If a method is unknown, or if a value is out of range.
        """
        values = self._known_values(values or self.values)
        cells = []
        for seed in seeds:
            for value in values:
                for method in methods or self.methods:
                    cells += self._cells_of(method, value, seed, self.scale.data | (data or {}), changes)
        return cells

    def paper_numbers(self) -> dict[tuple[str, str], float]:
        """Return the accuracies that Gao et al. (2022) report for this experiment.

        Returns
        -------
        dict of (str, str) to float
            Accuracy in percent, by (value of the varied parameter, row). Empty if the paper has no table for this
            experiment.
        """
        if self.paper_table_id is None:
            return {}
        our_values = {theirs: value for value, theirs in self.paper_value_names.items()}
        return {
            (our_values.get(value, value), row): number
            for (value, row), number in paper_table(self.paper_table_id).items()
        }

    def _cells_of(
        self, name: str, value: SweptValue, seed: int, data: dict[str, Any], changes: dict[str, Any]
    ) -> list[Cell]:
        """Return the cells of one row, or of several rows if the method has one row per annotator."""
        variant = self.extra_rows[name] if name in self.extra_rows else MethodVariant(name)
        estimator = estimator_class(variant.method, others=self.extra_rows)
        annotators = self.scale.annotators | self.annotators(value) | variant.annotators
        cells = []
        for row, extra in estimator.variants(annotators["names"]).items():
            usual = self.scale.recipe | estimator.paper_settings | self.method_settings.get(variant.method, {})
            settings = usual | variant.settings | extra | self.settings(value) | changes
            run: RunSpec = {"data": data, "method": variant.method, "settings": settings, "seed": seed}
            if estimator.trains_on_labels:  # training on gold is the same at every value
                run["annotators"] = annotators
            row = name if name in self.extra_rows else row.removeprefix("single-annotator ")
            text = value if isinstance(value, str) else f"{value:g}"
            cells.append(Cell(row, text, seed, run, same_for_all_values=not estimator.trains_on_labels))
        return cells

    def _known_values(self, values: Sequence[SweptValue]) -> list[SweptValue]:
        """Return the values after a check. Equal numbers, such as 30 and 30.0, get the same form."""
        known = [value for value in self.values if isinstance(value, str)]
        if known:
            return [check_choice(f"--values: {self.parameter}", value, known) for value in values]
        return [self._number(value) for value in values]

    def _number(self, value: SweptValue) -> float:
        """Return a value as a number: 30, 30.0 and "30" are the same value."""
        try:
            number = float(value)
        except ValueError as error:
            raise ValueError(f"--values: {self.parameter} must be a number, got {value!r}") from error
        if not 0 <= number < math.inf:
            raise ValueError(f"--values: {self.parameter} must be at least 0, got {value}")
        if self.count_range and not (number.is_integer() and self.count_range[0] <= number <= self.count_range[1]):
            least, most = self.count_range
            raise ValueError(f"--values: {self.parameter} must be a whole number from {least} to {most}, got {value}")
        return int(number) if number.is_integer() else number
