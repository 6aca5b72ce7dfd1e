"""Progress display of a training: a bar with loss, validation figures and time left, or plain lines."""

from __future__ import annotations

import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

MAX_LINES = 5  # per training, if progress is shown as lines
SHOWN_FIGURES = {"validation_accuracy": "validation accuracy", "held_out_log_likelihood": "held-out log-likelihood"}
"""Names on screen of the validation figures in a history record, by key."""


class ProgressReporter(Protocol):
    """Receives the events of a training."""

    def start(self, title: str, n_epochs: int, n_steps: int, n_steps_done: int) -> None:
        """Begin; a resumed training has finished steps."""

    def start_phase(self, name: str) -> None:
        """A phase begins; the name is empty if the method has no phases."""

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None:
        """A step of an epoch, counted from 0, is done; `loss` is the mean of the epoch so far."""

    def end_epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done; `record` is its entry in the history."""

    def stop(self) -> None:
        """End, after the last epoch or an error."""


class SilentReporter:
    """Shows nothing."""

    def start(self, title: str, n_epochs: int, n_steps: int, n_steps_done: int) -> None: ...

    def start_phase(self, name: str) -> None: ...

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None: ...

    def end_epoch(self, record: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


class BarReporter:
    """A live progress bar, for terminals and notebooks."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.validation_text = ""
        self.last_drawn = 0.0

    def start(self, title: str, n_epochs: int, n_steps: int, n_steps_done: int) -> None:
        self.title, self.n_epochs = title, n_epochs
        self.task = self.progress.add_task(title, total=n_steps, completed=n_steps_done, figures="")
        self.progress.start()

    def start_phase(self, name: str) -> None:
        self.description = f"{self.title} {name}".rstrip()
        self.progress.update(self.task, description=self.description)

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None:
        if time.monotonic() - self.last_drawn > 0.1:
            self.last_drawn = time.monotonic()
            self.progress.update(
                self.task,
                completed=n_steps_done,
                description=f"{self.description} epoch {epoch + 1}/{self.n_epochs}",
                figures=f"loss {loss:.3f}{self.validation_text}",
            )

    def end_epoch(self, record: dict[str, Any]) -> None:
        self.validation_text = _format_validation(record)

    def stop(self) -> None:
        self.progress.stop()


class LineReporter:
    """At most five lines per training, each with the time left; for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, title: str, n_epochs: int, n_steps: int, n_steps_done: int) -> None:
        self.title, self.n_epochs = title, n_epochs
        self.start_time = time.monotonic()
        self.first_epoch: int | None = None

    def start_phase(self, name: str) -> None:
        self.description = f"{self.title}  {name}".rstrip()

    def end_step(self, epoch: int, n_steps_done: int, loss: float) -> None: ...

    def end_epoch(self, record: dict[str, Any]) -> None:
        n_done = int(record["epoch"])
        self.first_epoch = n_done - 1 if self.first_epoch is None else self.first_epoch
        if n_done % -(-self.n_epochs // MAX_LINES) and n_done != self.n_epochs:
            return
        seconds_per_epoch = (time.monotonic() - self.start_time) / (n_done - self.first_epoch)
        seconds_left = seconds_per_epoch * (self.n_epochs - n_done)
        figures = f"loss {record['loss']:.4f}{_format_validation(record)}"
        self.console.print(
            f"{self.description}  epoch {n_done}/{self.n_epochs}  {figures}  {seconds_left:.0f} s left",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def stop(self) -> None: ...


def _format_validation(record: dict[str, Any]) -> str:
    """The validation figures of a history record as text; empty without validation."""
    return "".join(f"  {text} {record[key]:.3f}" for key, text in SHOWN_FIGURES.items() if key in record)


def print_message(verbose: int, text: str) -> None:
    """Print a line on standard error if `verbose` is not 0."""
    if verbose:
        Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def prints_lines(verbose: int) -> bool:
    """Return whether progress is shown as lines: neither silent nor a bar in a terminal or notebook."""
    console = Console(stderr=True)
    return bool(verbose) and not (console.is_terminal or console.is_jupyter)


def make_progress_reporter(verbose: int) -> ProgressReporter:
    """Return a silent reporter for 0; otherwise a bar in a terminal or notebook, and lines elsewhere."""
    if not verbose:
        return SilentReporter()
    console = Console(stderr=True)
    return LineReporter(console) if prints_lines(verbose) else BarReporter(console)


def make_progress_bar(verbose: int) -> Progress:
    """Return a progress bar over many trainings, with the time left; hidden if `verbose` is 0."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not verbose,
        transient=True,
    )
