"""Progress of a grid on the screen: number of finished runs, the last finished run, and the estimated time left."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from crowdfuse.checks.durations import format_duration


class GridProgress:
    """Progress on stderr: a bar if stderr is a terminal, otherwise one line per finished run.

    Parameters
    ----------
    verbose : int
        0 prints nothing.
    title : str
        Name of the grid.
    n_runs : int
        Number of runs in the grid.
    n_done : int
        Number of runs that were already finished at the start.
    """

    def __init__(self, verbose: int, title: str, n_runs: int, n_done: int) -> None:
        self.title, self.n_runs, self.n_done = title, n_runs, n_done
        self.began, self.n_before = time.monotonic(), n_done
        self.console = Console(stderr=True, quiet=not verbose, highlight=False, soft_wrap=True, emoji=False)
        self.bar: Progress | None = None
        if n_done and n_done < n_runs:
            self.console.print(f"{title}: {n_done} of {n_runs} runs are already finished", markup=False)
        if self.console.is_terminal and n_done < n_runs and verbose:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=28), MofNCompleteColumn())
            self.bar = Progress(*columns, TextColumn("{task.fields[left]}"), console=self.console, transient=True)
            self.task = self.bar.add_task(title, total=n_runs, completed=n_done, left="")
            self.bar.start()

    def run_finished(self, name: str, seconds: float) -> None:
        """Show that a run is finished, and how long it took."""
        self._advance(f"{name}: {format_duration(seconds)}")

    def run_failed(self, name: str) -> None:
        """Show that a run failed. The reason is printed when the grid ends."""
        self._advance(f"{name}: failed")

    def _advance(self, message: str) -> None:
        self.n_done += 1
        left = f"about {format_duration(self.seconds_left())} left" if self.n_done < self.n_runs else ""
        if self.bar is not None:
            self.bar.update(self.task, completed=self.n_done, left=left)
        line = f"{self.title}  {self.n_done}/{self.n_runs}  {message}"
        self.console.print(f"{line}  {left}" if self.bar is None else line, markup=False)

    def seconds_left(self) -> float:
        """Return the estimated time to the end, from the mean time per run so far."""
        return (time.monotonic() - self.began) / (self.n_done - self.n_before) * (self.n_runs - self.n_done)

    def stop(self) -> None:
        """Remove the progress bar."""
        if self.bar is not None:
            self.bar.stop()
