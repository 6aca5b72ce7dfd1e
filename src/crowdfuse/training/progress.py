"""Progress display of training runs: a bar with the remaining time, or one line per run for logs and pipes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crowdfuse.checks.durations import format_duration

MIN_ESTIMATE_SECONDS = 10.0  # shorter trainings are not announced with an estimate of their time
MIN_ESTIMATE_STEPS, MIN_ESTIMATE_SHARE = 10, 0.03  # steps, and share of the steps, after which the time is estimated
MAX_UNDERESTIMATE = 1.5  # times that the time left may exceed the printed estimate before it is printed again
SHOWN_FIGURES = {"validation_accuracy": "validation accuracy", "held_out_log_likelihood": "held-out log-likelihood"}
"""Names on screen of the validation figures in a history record, by key."""


# ---- several trainings in a row --------------------------------------------------------------------


@dataclass
class _Series:
    """Training runs that belong together, such as a model and the folds of its cross-fitting."""

    costs: tuple[float, ...]
    n_parallel: int
    n_started: int = 0


_current_series: ContextVar[_Series | None] = ContextVar("current_series", default=None)


@contextmanager
def training_series(costs: tuple[float, ...], n_parallel: int = 1) -> Iterator[None]:
    """Within this context, the progress display shows the time left for a whole series of training runs.

    `costs` holds the expected time of each training run, in an arbitrary unit. The first training run runs alone; of
    the later ones, `n_parallel` run at the same time. Within another `training_series`, this context has no effect.
    """
    if _current_series.get() is not None:
        yield
        return
    token = _current_series.set(_Series(costs, n_parallel))
    try:
        yield
    finally:
        _current_series.reset(token)


class SeriesPosition(NamedTuple):
    """Position of a training run in its series.

    Attributes
    ----------
    number : int, default=1
        Number of the training run, from 1.
    costs : tuple of float, default=(1.0,)
        Expected time of each training run of the series, in an arbitrary unit.
    n_parallel : int, default=1
        How many of the later training runs run at the same time.
    """

    number: int = 1
    costs: tuple[float, ...] = (1.0,)
    n_parallel: int = 1

    @property
    def n_trainings(self) -> int:
        """Number of training runs in the series."""
        return len(self.costs)

    @property
    def later_cost(self) -> float:
        """Expected time of all later training runs, as a multiple of the time of this training run."""
        later = self.costs[self.number :]
        return max(sum(later) / self.n_parallel, max(later, default=0.0)) / self.costs[self.number - 1]


ALONE = SeriesPosition()


def next_training() -> SeriesPosition:
    """Count the next training run as started (or as skipped), and return its position in the series."""
    series = _current_series.get()
    if series is None or not series.costs:
        return ALONE
    series.n_started = min(series.n_started + 1, len(series.costs))
    return SeriesPosition(series.n_started, series.costs, series.n_parallel)


@dataclass(frozen=True)
class TrainingPlan:
    """What the progress display knows about a training run when it starts.

    Attributes
    ----------
    title : str
        Name of the training run.
    n_epochs : int
        Number of epochs.
    n_steps_per_epoch : int
        Number of steps of each epoch.
    n_steps_done : int, default=0
        Number of steps that were done before this start; above 0 if training was resumed.
    series : SeriesPosition, default=ALONE
        Position of the training run in its series.
    max_time : float or None, default=None
        Time limit of each training run, in seconds.
    """

    title: str
    n_epochs: int
    n_steps_per_epoch: int
    n_steps_done: int = 0
    series: SeriesPosition = ALONE
    max_time: float | None = None

    @property
    def n_steps(self) -> int:
        """Number of steps of the training run."""
        return self.n_epochs * self.n_steps_per_epoch

    @property
    def position(self) -> str:
        """Position in the series as text, such as "training 2 of 6"."""
        if self.series.n_trainings == 1:
            return "training"
        return f"training {self.series.number} of {self.series.n_trainings}"

    def seconds_left(self, n_steps_done: int, seconds: float) -> float:
        """Return the estimated time to the end of the series, in seconds.

        The time per step so far, and the costs in `series`, determine the estimate.

        Parameters
        ----------
        n_steps_done : int
            Number of steps done so far, including the steps that were done before this start. At least one step must
            have been done since this start.
        seconds : float
            Seconds since this start.

        Returns
        -------
        seconds_left : float

        Examples
        --------
        >>> TrainingPlan("gated", 10, 20, series=SeriesPosition(1, (1.0,) * 6)).seconds_left(50, 5.0)
        115.0
        """
        seconds_per_step = seconds / (n_steps_done - self.n_steps_done)
        left, whole = seconds_per_step * (self.n_steps - n_steps_done), seconds_per_step * self.n_steps
        if self.max_time is not None:
            left, whole = min(left, max(0.0, self.max_time - seconds)), min(whole, self.max_time)
        return left + whole * self.series.later_cost


# ---- reporters -------------------------------------------------------------------------------------


class ProgressReporter(Protocol):
    """Receives the events of a training run."""

    def start(self, plan: TrainingPlan) -> None:
        """A training run begins."""

    def start_phase(self, name: str) -> None:
        """A phase begins; the name is empty if the method has no phases."""

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None:
        """A step of an epoch, counted from 0, is done; `loss` is the mean of the epoch so far."""

    def end_epoch(self, record: dict[str, Any], kept: dict[str, Any] | None) -> None:
        """An epoch is done; `record` is its entry in the history, `kept` that of the epoch kept so far, if any."""

    def shorten(self, n_epochs: int) -> None:
        """The time limit has shortened the training to this many epochs."""

    def stop(self) -> None:
        """The training run has ended, after the last epoch or with an error."""


class SilentReporter:
    """Shows nothing."""

    def start(self, plan: TrainingPlan) -> None: ...

    def start_phase(self, name: str) -> None: ...

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None: ...

    def end_epoch(self, record: dict[str, Any], kept: dict[str, Any] | None) -> None: ...

    def shorten(self, n_epochs: int) -> None: ...

    def stop(self) -> None: ...


class BarReporter:
    """A live progress bar, for terminals and notebooks, with the time left for all training runs of the series."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
        )
        self.validation_text = ""
        self.last_drawn = 0.0

    def start(self, plan: TrainingPlan) -> None:
        self.plan, self.start_time = plan, time.monotonic()
        self.title = plan.title if plan.series.n_trainings == 1 else f"{plan.position}: {plan.title}"
        self.task = self.progress.add_task(self.title, total=plan.n_steps, completed=plan.n_steps_done, figures="")
        self.progress.start()

    def start_phase(self, name: str) -> None:
        self.description = f"{self.title} {name}".rstrip()
        self.progress.update(self.task, description=self.description)

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.last_drawn > 0.1:
            self.last_drawn = now
            left = format_duration(self.plan.seconds_left(n_steps_done, now - self.start_time))
            self.progress.update(
                self.task,
                completed=n_steps_done,
                description=f"{self.description} epoch {epoch + 1}/{self.plan.n_epochs}",
                figures=f"loss {loss:.3f}{self.validation_text}  about {left} left",
            )

    def end_epoch(self, record: dict[str, Any], kept: dict[str, Any] | None) -> None:
        self.validation_text = _format_validation(record)

    def shorten(self, n_epochs: int) -> None:
        self.plan = replace(self.plan, n_epochs=n_epochs)
        self.progress.update(self.task, total=self.plan.n_steps)

    def stop(self) -> None:
        self.progress.stop()


class LineReporter:
    """Prints a line when a training run ends. If the series takes long, a line at the start shows the estimated time.

    If this estimate turns out to be much too low, a second estimate follows at the end of an epoch.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, plan: TrainingPlan) -> None:
        self.plan, self.start_time = plan, time.monotonic()
        self.is_estimated = plan.series.number > 1 and not plan.n_steps_done  # the lines before have the time left
        self.first_step_end = self.start_time
        self.estimated_end: float | None = None  # of the series, by the estimate that was printed

    def start_phase(self, name: str) -> None: ...

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None:
        n_steps_here, now = n_steps_done - self.plan.n_steps_done, time.monotonic()
        if n_steps_here == 1:  # the first step is slower than all others, so the estimate leaves it out
            self.first_step_end = now
        if self.is_estimated or n_steps_here < max(MIN_ESTIMATE_STEPS, MIN_ESTIMATE_SHARE * self.plan.n_steps):
            return
        self.is_estimated = True
        later_steps = replace(self.plan, n_steps_done=self.plan.n_steps_done + 1)
        seconds = later_steps.seconds_left(n_steps_done, now - self.first_step_end)
        if seconds >= MIN_ESTIMATE_SECONDS:
            self.estimated_end = now + seconds
            n_left = self.plan.series.n_trainings - self.plan.series.number + 1
            self._print(f"about {format_duration(seconds)} for {n_left} training run{'s' * (n_left > 1)}")

    def end_epoch(self, record: dict[str, Any], kept: dict[str, Any] | None) -> None:
        n_done = int(record["epoch"])
        if n_done < self.plan.n_epochs:
            self._correct_estimate(n_done)
            return
        seconds = time.monotonic() - self.start_time
        left = ""
        if self.plan.series.number < self.plan.series.n_trainings:
            left = f"; about {format_duration(self.plan.seconds_left(self.plan.n_steps, seconds))} left"
        shown = record if kept is None else kept
        chosen = "" if kept is None else f"kept epoch {kept['epoch']}, "
        figures = f"{chosen}loss {shown['loss']:.4f}{_format_validation(shown)}"
        self._print(
            f"{self.plan.position} finished: {self.plan.title}, {n_done} epochs, {figures}, "
            f"{format_duration(seconds)}{left}"
        )

    def _correct_estimate(self, n_epochs_done: int) -> None:
        """Print the time left if it is much longer than the estimate that was printed."""
        n_steps_done, now = n_epochs_done * self.plan.n_steps_per_epoch, time.monotonic()
        if self.estimated_end is None or n_steps_done <= self.plan.n_steps_done:
            return
        left = self.plan.seconds_left(n_steps_done, now - self.start_time)
        if left > MAX_UNDERESTIMATE * max(self.estimated_end - now, MIN_ESTIMATE_SECONDS):
            self.estimated_end = now + left
            self._print(f"longer than estimated: about {format_duration(left)} left")

    def shorten(self, n_epochs: int) -> None:
        self.plan = replace(self.plan, n_epochs=n_epochs)

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None: ...


def _format_validation(record: dict[str, Any]) -> str:
    """Return the validation figures of a history record as text; empty if there was no validation."""
    return "".join(f", {text} {record[key]:.3f}" for key, text in SHOWN_FIGURES.items() if key in record)


def print_message(verbose: int, text: str) -> None:
    """Print a line on standard error if `verbose` is not 0."""
    if verbose:
        Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def make_progress_reporter(verbose: int) -> ProgressReporter:
    """Return a silent reporter if `verbose` is 0; otherwise a bar in a terminal or notebook, and lines elsewhere."""
    if not verbose:
        return SilentReporter()
    console = Console(stderr=True)
    return BarReporter(console) if console.is_terminal or console.is_jupyter else LineReporter(console)


def make_progress_bar(verbose: int) -> Progress:
    """Return a progress bar over many training runs, with the time left; hidden if `verbose` is 0."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not verbose,
        transient=True,
    )
