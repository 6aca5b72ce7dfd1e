"""What people see while a training runs: a bar with loss, validation accuracy and time left, or plain lines."""

from __future__ import annotations

import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN_FIGURES = {"validation_accuracy": "validation accuracy", "held_out_log_likelihood": "held-out log-likelihood"}


class ProgressReporter(Protocol):
    """Told of every phase, every step and every finished epoch."""

    def start(self, title: str, n_epochs: int, n_steps: int, done: int) -> None: ...

    def phase(self, name: str) -> None: ...

    def step(self, epoch: int, done: int, loss: float) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


class SilentReporter:
    """Says nothing."""

    def start(self, title: str, n_epochs: int, n_steps: int, done: int) -> None: ...

    def phase(self, name: str) -> None: ...

    def step(self, epoch: int, done: int, loss: float) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


class BarReporter:
    """A live bar in a terminal."""

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
        self.validation = ""
        self.drawn = 0.0

    def start(self, title: str, n_epochs: int, n_steps: int, done: int) -> None:
        self.title, self.n_epochs = title, n_epochs
        self.task = self.progress.add_task(title, total=n_steps, completed=done, figures="")
        self.progress.start()

    def phase(self, name: str) -> None:
        self.name = f"{self.title} {name}".rstrip()
        self.progress.update(self.task, description=self.name)

    def step(self, epoch: int, done: int, loss: float) -> None:
        if time.monotonic() - self.drawn > 0.1:
            self.drawn = time.monotonic()
            self.progress.update(
                self.task,
                completed=done,
                description=f"{self.name} epoch {epoch + 1}/{self.n_epochs}",
                figures=f"loss {loss:.3f}{self.validation}",
            )

    def epoch(self, record: dict[str, Any]) -> None:
        self.validation = _validation(record)

    def stop(self) -> None:
        self.progress.stop()


class LineReporter:
    """One line now and then, for logs and pipes: about five a training, each with the time left."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, title: str, n_epochs: int, n_steps: int, done: int) -> None:
        self.title, self.n_epochs = title, n_epochs
        self.began = time.monotonic()
        self.first: float | None = None

    def phase(self, name: str) -> None:
        self.name = self.title
        if name:
            self.name = f"{self.title}  {name}"
            self.console.print(self.name, highlight=False)

    def step(self, epoch: int, done: int, loss: float) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None:
        done = int(record["epoch"])
        self.first = done - 1 if self.first is None else self.first
        if done % max(1, self.n_epochs // 5) and done != self.n_epochs:
            return
        left = (time.monotonic() - self.began) / (done - self.first) * (self.n_epochs - done)
        figures = f"loss {record['loss']:.4f}{_validation(record)}"
        self.console.print(
            f"{self.name}  epoch {done}/{self.n_epochs}  {figures}  {left:.0f} s left",
            highlight=False,
        )

    def stop(self) -> None: ...


def _validation(record: dict[str, Any]) -> str:
    return "".join(f"  {text} {record[key]:.3f}" for key, text in SHOWN_FIGURES.items() if key in record)


def print_message(verbose: int, text: str) -> None:
    """A remark on what is being done, where progress is shown."""
    if verbose:
        Console(stderr=True).print(text, highlight=False, markup=False)


def make_progress_reporter(verbose: int) -> ProgressReporter:
    """Nothing at 0; at 1 a bar in a terminal or notebook, lines elsewhere."""
    if not verbose:
        return SilentReporter()
    console = Console(stderr=True)
    return BarReporter(console) if console.is_terminal or console.is_jupyter else LineReporter(console)


def make_progress_bar(verbose: int) -> Progress:
    """A bar over many trainings, with the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not verbose,
        transient=True,
    )
