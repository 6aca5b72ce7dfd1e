"""Execution of a grid, on this machine or another backend. A finished run is stored at once and never repeated."""

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
    """Interface of the objects that execute single runs: they are called with a run and its checkpoint folder.

    If runs are executed in several processes, each process receives a copy of the executor. To keep this copy small, an
    executor does not load data before a run needs them.
    """

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Execute a run and return its results.

        Parameters
        ----------
        run : RunSpec
            Everything that defines the run.
        checkpoint : Path
            Folder for the checkpoint of the training. If the folder exists, training continues from its checkpoint.

        Returns
        -------
        dict of str to object
            Results by name, ready for JSON.
        """
        ...

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Before any run starts, raise an error if data or settings are wrong.

        Parameters
        ----------
        runs : sequence of RunSpec
            The runs to check.
        download : bool
            Whether to download missing data.
        """
        ...


@dataclass(frozen=True)
class GridResult:
    """The outcome of `run_grid`.

    Parameters
    ----------
    records : list of Record
        Finished runs, in the order in which they were requested.
    failures : list of str
        One sentence per failed run, with its name and the error.
    interrupted : bool
        Whether Ctrl-C stopped the execution before all runs had ended.
    """

    records: list[Record]
    failures: list[str]
    interrupted: bool


Outcomes = Generator[tuple[str, Record | str], None, None]
"""Yields the key of each run when it ends, with the record of the run or with the error message."""

Backend = Callable[[dict[str, RunSpec], RunExecutor, Path, "int | None"], Outcomes]
"""Executes runs, given runs by key, the executor, the folder for checkpoints, and the number of parallel runs."""


def run_locally(missing: dict[str, RunSpec], executor: RunExecutor, checkpoints: Path, n_jobs: int | None) -> Outcomes:
    """Execute runs on this machine, and yield the outcome of each run as it ends. This is the default `Backend`.

    Parameters
    ----------
    missing : dict of str to RunSpec
        The runs to execute: those that are missing in the store. The keys are from `run_key`.
    executor : RunExecutor
        Executes one run.
    checkpoints : Path
        Folder in which each unfinished run has its own folder for the checkpoint.
    n_jobs : int or None
        Number of processes, with one thread each. If None or 1, the runs are executed one after the other in the
        calling process.

    Returns
    -------
    generator of (str, Record or str)
        The key of each run, with its record or the error message.

    Raises
    ------
    ValueError
        If a worker process dies.
    """
    n_jobs = min(n_jobs or 1, len(missing))
    if n_jobs <= 1:
        torch.set_num_threads(1)
        for key, run in missing.items():
            yield key, execute_run(executor, run, checkpoint_folder(checkpoints, key))
        return
    pool = ProcessPoolExecutor(n_jobs, multiprocessing.get_context("spawn"), _init_process, (executor,))
    try:
        with ignore_sigint():
            futures = {
                pool.submit(_execute_in_process, run, checkpoint_folder(checkpoints, key)): key
                for key, run in missing.items()
            }
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise ValueError(
            "a worker process of the grid died: it was killed or ran out of memory (in that case, try a smaller number "
            "of --jobs). Finished runs are stored; repeat the command to continue"
        ) from error
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()  # an unfinished run continues from its checkpoint
        pool.shutdown(wait=True, cancel_futures=True)


_process_executor: RunExecutor | None = None


def _init_process(executor: RunExecutor) -> None:
    """Prepare a worker process of the pool."""
    global _process_executor
    _process_executor = executor
    torch.set_num_threads(1)
    init_worker_process()


def _execute_in_process(run: RunSpec, checkpoint: Path) -> Record | str:
    """Return the outcome of a run in a worker process."""
    assert _process_executor is not None
    return execute_run(_process_executor, run, checkpoint)


def run_grid(
    runs: Sequence[RunSpec],
    executor: RunExecutor,
    store: Store,
    *,
    n_jobs: int | None = None,
    backend: Backend = run_locally,
    title: str = "runs",
    describe_run: Callable[[RunSpec], str],
    verbose: int = 0,
) -> GridResult:
    """Execute those of the given runs that are not yet in the store, and add each run to the store when it finishes.

    Ctrl-C stops all runs, but the finished runs are in the store already. To execute the remaining runs, call
    `run_grid` again. A run that fails does not stop the other runs; its error message is part of the result.

    Parameters
    ----------
    runs : sequence of RunSpec
        The runs that are wanted. A run that occurs twice is executed once.
    executor : RunExecutor
        Executes one run.
    store : Store
        The store of finished runs. It is locked until the function returns.
    n_jobs : int or None, default=None
        Number of runs that are executed at the same time. If None, the default of the backend.
    backend : Backend, default=run_locally
        Function that executes the runs: on this machine (`run_locally`) or on a cluster.
    title : str, default="runs"
        Name of the whole set of runs, for the progress bar.
    describe_run : callable
        Function that takes a run and returns its name, for progress and error messages.
    verbose : int, default=0
        Whether to show progress: 0 (no) or 1 (yes).

    Returns
    -------
    GridResult

    Raises
    ------
    ValueError
        If another process uses the store, or if the backend fails. The failure of a single run raises no error.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> class Toy:
    ...     def check(self, runs, *, download): ...
    ...     def __call__(self, run, checkpoint):
    ...         return {"accuracy": 1 / run["seed"]}
    >>> with TemporaryDirectory() as folder:
    ...     store = Store(Path(folder, "runs.jsonl"))
    ...     result = run_grid([{"seed": 0}, {"seed": 2}], Toy(), store, describe_run=lambda run: f"seed {run['seed']}")
    >>> [record.result for record in result.records], result.failures
    ([{'accuracy': 0.5}], ['seed 0: ZeroDivisionError: division by zero'])
    """
    by_key = {run_key(run): run for run in runs}
    with store.locked():
        finished, _ = store.read()
        checkpoints = store.path.with_name(f"{store.path.stem}.unfinished")
        _remove_finished_checkpoints(checkpoints, finished)
        missing = {key: run for key, run in by_key.items() if key not in finished}
        progress = GridProgress(verbose, title, len(by_key), len(by_key) - len(missing))
        failures: list[str] = []
        interrupted = False
        try:
            with closing(backend(missing, executor, checkpoints, n_jobs)) as outcomes:
                for key, outcome in outcomes:
                    name = describe_run(missing[key])
                    if isinstance(outcome, Record):
                        store.add(outcome)
                        shutil.rmtree(checkpoint_folder(checkpoints, key), ignore_errors=True)
                        progress.run_finished(name, outcome.seconds)
                    else:
                        failures.append(f"{name}: {outcome}")
                        progress.run_failed(name)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            progress.stop()
        if checkpoints.is_dir() and not any(checkpoints.iterdir()):
            checkpoints.rmdir()
        finished, _ = store.read()
    return GridResult([finished[key] for key in by_key if key in finished], failures, interrupted)


def _remove_finished_checkpoints(checkpoints: Path, finished: dict[str, Record]) -> None:
    """Remove checkpoints of stored runs. They remain if the process is killed right after it stored a run."""
    for key in finished:
        shutil.rmtree(checkpoint_folder(checkpoints, key), ignore_errors=True)


def checkpoint_folder(checkpoints: Path, key: str) -> Path:
    """Return the folder for the checkpoint of a run. It depends on the version, as no other version can continue it."""
    return checkpoints / f"{key}-{run_key(VERSIONS)[:8]}"


def execute_run(executor: RunExecutor, run: RunSpec, checkpoint: Path) -> Record | str:
    """Return the record of a run, or the error message if the run fails, because other runs may still succeed."""
    began = time.monotonic()
    continued = checkpoint.exists()
    try:
        result = executor(run, checkpoint)
    except Exception as error:  # torch, NumPy and the system raise errors of any type; each concerns this run only
        if continued:  # the checkpoint may be damaged, or may have settings that no longer exist
            shutil.rmtree(checkpoint, ignore_errors=True)
            return execute_run(executor, run, checkpoint)
        return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return Record(run, result, round(time.monotonic() - began, 1))
