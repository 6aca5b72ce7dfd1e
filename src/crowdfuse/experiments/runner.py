"""Runs a grid, on this machine or elsewhere; what is finished is stored at once and never done again."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from crowdfuse.experiments.grid_progress import GridProgress
from crowdfuse.experiments.store import VERSIONS, Record, RunSpec, Store, run_key
from crowdfuse.io.interrupts import ignore_sigint, init_worker_process


class RunExecutor(Protocol):
    """Does one run. It is sent to every process once, so data is loaded when first asked for."""

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """The results of a run; the state of its training is kept in the folder `checkpoint`."""
        ...

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Say what is wrong with data or settings before any work; fetch data that is not there, if `download`."""
        ...


@dataclass(frozen=True)
class GridResult:
    """A grid that ran: its records in the order asked for, and what went wrong."""

    records: list[Record]
    failed: list[str]
    interrupted: bool


Outcomes = Generator[tuple[str, Record | str], None, None]
"""The keys of runs as these are finished, each with its record or with what was wrong with it."""

Backend = Callable[[dict[str, RunSpec], RunExecutor, Path, "int | None"], Outcomes]
"""What does runs: given them by key, the work, the folder of unfinished trainings, and how many may run at a time."""


def run_locally(missing: dict[str, RunSpec], work: RunExecutor, unfinished: Path, jobs: int | None) -> Outcomes:
    """Each run as it is finished: right here, or in `jobs` processes of one thread each."""
    jobs = min(jobs or 1, len(missing))
    if jobs <= 1:
        torch.set_num_threads(1)
        for key, run in missing.items():
            yield key, do_run(work, run, checkpoint_of(unfinished, key))
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_process, (work,))
    try:
        with ignore_sigint():
            futures = {
                pool.submit(_in_process, run, checkpoint_of(unfinished, key)): key for key, run in missing.items()
            }
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise ValueError(
            "a process of the grid died (killed, or out of memory: try fewer --jobs). What is finished is stored; "
            "the same command goes on from there"
        ) from error
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()  # an unfinished run goes on from its checkpoint
        pool.shutdown(wait=True, cancel_futures=True)


_work: RunExecutor | None = None


def _start_process(work: RunExecutor) -> None:
    global _work
    _work = work
    torch.set_num_threads(1)
    init_worker_process()


def _in_process(run: RunSpec, checkpoint: Path) -> Record | str:
    assert _work is not None
    return do_run(_work, run, checkpoint)


def run_grid(
    runs: Sequence[RunSpec],
    executor: RunExecutor,
    store: Store,
    *,
    jobs: int | None = None,
    backend: Backend = run_locally,
    title: str = "runs",
    name: Callable[[RunSpec], str],
    verbose: int = 0,
) -> GridResult:
    """Do the runs that the store lacks. Killed at any moment and started again, it goes on where it was.

    A run that fails is reported at the end and does not stop the others; Ctrl-C stops all, and keeps what is done.
    """
    by_key = {run_key(run): run for run in runs}  # a run that is asked for twice is done once
    with store.locked():
        found, _ = store.read()
        unfinished = _clear(store.path.with_name(f"{store.path.stem}.unfinished"), found)
        missing = {key: run for key, run in by_key.items() if key not in found}
        watcher = GridProgress(verbose, title, len(by_key), len(by_key) - len(missing))
        failed: list[str] = []
        interrupted = False
        try:
            with closing(backend(missing, executor, unfinished, jobs)) as outcomes:
                for key, outcome in outcomes:
                    said = name(missing[key])
                    if isinstance(outcome, Record):
                        store.add(outcome)
                        shutil.rmtree(checkpoint_of(unfinished, key), ignore_errors=True)
                        watcher.done(said, outcome.seconds)
                    else:
                        failed.append(f"{said}: {outcome}")
                        watcher.failed(said)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            watcher.stop()
        if unfinished.is_dir() and not any(unfinished.iterdir()):
            unfinished.rmdir()
        found, _ = store.read()
    return GridResult([found[key] for key in by_key if key in found], failed, interrupted)


def _clear(unfinished: Path, found: dict[str, Record]) -> Path:
    """Remove what a kill between the storing of a run and the end of its checkpoint left behind."""
    for key in found:
        shutil.rmtree(checkpoint_of(unfinished, key), ignore_errors=True)
    return unfinished


def checkpoint_of(unfinished: Path, key: str) -> Path:
    """Where the state of a run's training is kept: another version never goes on with it."""
    return unfinished / f"{key}-{run_key(VERSIONS)[:8]}"


def do_run(work: RunExecutor, run: RunSpec, checkpoint: Path) -> Record | str:
    """Do one run; whatever goes wrong there, the other runs may well work."""
    began = time.monotonic()
    continued = checkpoint.exists()
    try:
        result = work(run, checkpoint)
    except Exception as error:  # torch, NumPy and the system raise what they like: it is this run's, not the grid's
        if continued:  # perhaps the state cannot be continued: damaged, or of settings that are no more
            shutil.rmtree(checkpoint, ignore_errors=True)
            return do_run(work, run, checkpoint)
        return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return Record(run, result, round(time.monotonic() - began, 1))
