"""A backend that executes runs on Ray, on one or many machines. Workers send their results here to be stored."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
import torch
from ray import cloudpickle
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayError, WorkerCrashedError

from crowdfuse.datasets.data_folder import DATA_FOLDER_VARIABLE
from crowdfuse.experiments.runner import Backend, Outcomes, RunExecutor, checkpoint_folder, execute_run
from crowdfuse.experiments.store import VERSIONS, Record, RunSpec
from crowdfuse.io.interrupts import ignore_sigint

MAX_RETRIES_PER_RUN = 3  # after the death of the worker or of its machine
MEGABYTE = 2**20
GPU_BACKBONES = ("resnet18",)  # backbones that are much faster on a GPU


def make_ray_backend(address: str) -> Backend:
    """Return a backend that executes runs on Ray.

    Parameters
    ----------
    address : str
        "local" starts Ray on this machine with `n_jobs` CPUs, for this grid only. "ray://host:port" connects to a
        cluster. "auto" connects to Ray if it already runs on this machine, or to the address in the environment
        variable RAY_ADDRESS.

    Returns
    -------
    Backend
        The backend, for `run_grid`. Unless the address is "local", its argument `n_jobs` limits how many runs are
        submitted at the same time. If `n_jobs` is None, all runs are submitted; Ray executes as many at a time as the
        cluster has CPUs.
    """

    def outcomes(missing: dict[str, RunSpec], executor: RunExecutor, checkpoints: Path, n_jobs: int | None) -> Outcomes:
        if not missing:
            return
        pickled = cloudpickle.dumps(executor)
        if address == "local":
            n_jobs = min(n_jobs or 1, len(missing))
        with _connected(address, n_jobs, len(pickled)):
            checkpoints.mkdir(exist_ok=True)
            context = DriverContext(
                versions=VERSIONS,
                host=socket.gethostname(),
                folder=Path.cwd(),
                data_folder=os.environ.get(DATA_FOLDER_VARIABLE),
                checkpoints=checkpoints.absolute(),
            )
            remote = ray.remote(max_retries=MAX_RETRIES_PER_RUN)(_execute_on_worker)
            n_gpus = ray.cluster_resources().get("GPU", 0)
            shared = ray.put(context), [ray.put(pickled)]
            waiting = iter(missing.items())
            running: dict[Any, str] = {}
            while True:
                for key, run in islice(waiting, (n_jobs or len(missing)) - len(running)):
                    running[remote.options(**_required_resources(run, n_gpus)).remote(*shared, key, run)] = key
                if not running:
                    return
                for ref in ray.wait(list(running))[0]:
                    yield running.pop(ref), _get_outcome(ref)

    return outcomes


def _required_resources(run: RunSpec, n_gpus: float) -> dict[str, int]:
    """Return the resources of a run: one CPU, and one GPU if the cluster has any and the run trains on images.

    >>> _required_resources({"settings": {"backbone": "resnet18"}}, n_gpus=4)
    {'num_cpus': 1, 'num_gpus': 1}
    """
    needs_gpu = n_gpus >= 1 and run.get("settings", {}).get("backbone") in GPU_BACKBONES
    return {"num_cpus": 1, "num_gpus": int(needs_gpu)}


@contextmanager
def _connected(address: str, n_jobs: int | None, executor_bytes: int) -> Iterator[None]:
    """Connect to Ray, without its output, until the end of the block. All runs on Ray end there, too."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics to its developers
    if ray.is_initialized():
        raise ValueError(
            "this process is already connected to Ray, and the grid would close this connection at its end; call "
            "ray.shutdown() first"
        )
    options: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 gives all other processes priority
        store_bytes = 100 * MEGABYTE + 2 * executor_bytes
        options = {"num_cpus": n_jobs, "include_dashboard": False, "object_store_memory": store_bytes}
    try:
        _connect(address, options)
        with redirect_stdout(sys.stderr):  # Ray prints which workers died; stdout is for the table
            yield
    except (ConnectionError, ImportError, RayError) as error:  # of the connection or the head node, not of one run
        raise ValueError(
            f"--cluster {address}: Ray failed: {_last_line(error)}. Finished runs are stored; give the same command "
            "again to continue"
        ) from error
    finally:
        with ignore_sigint():
            ray.shutdown()


def _connect(address: str, options: dict[str, Any], attempts: int = 3) -> None:
    """Connect to Ray, in several attempts: a cluster starts one server per client, which can be late or die."""
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ConnectionAbortedError) and attempts > 1:
            ray.shutdown()
            _connect(address, options, attempts - 1)
            return
        raise ValueError(
            f"--cluster {address}: Ray does not answer ({_last_line(error)}); check the address, and that "
            "Ray is running there"
        ) from error


def _get_outcome(ref: Any) -> Record | str:
    """Return the record of a run, or the error message."""
    try:
        outcome: Record | str = ray.get(ref)
    except (WorkerCrashedError, NodeDiedError, OutOfMemoryError):
        return "its process died in every attempt (killed, or out of memory)"
    except RayError as error:
        return f"Ray could not execute the run: {_last_line(error)}"
    return outcome


def _last_line(error: Exception) -> str:
    """Return the last line of a message of Ray. The lines above it are a traceback from another machine."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


# ---- on a worker -----------------------------------------------------------------------------


@dataclass(frozen=True)
class DriverContext:
    """The place where the grid was started. A worker on another machine uses the same folders if they exist there.

    Parameters
    ----------
    versions : dict of str to str
        Versions of the packages that determine the results of the runs.
    host : str
        Name of the machine.
    folder : Path
        Working directory.
    data_folder : str or None
        Value of the environment variable ``CROWDFUSE_DATA``, the path of the data folder.
    checkpoints : Path
        Folder with one checkpoint folder per run.
    """

    versions: dict[str, str]
    host: str
    folder: Path
    data_folder: str | None
    checkpoints: Path


def _execute_on_worker(context: DriverContext, executor: list[Any], key: str, run: RunSpec) -> Record | str:
    """Return the outcome of a run, executed in the working directory of the driver if this machine has it."""
    host = socket.gethostname()
    if context.versions != VERSIONS:  # the store would record the wrong versions for this run
        return f"{host} has {VERSIONS}, but the store needs {context.versions}: install the same versions there"
    torch.set_num_threads(1)
    if context.folder.is_dir():
        os.chdir(context.folder)
    if context.data_folder is not None:
        os.environ.setdefault(DATA_FOLDER_VARIABLE, context.data_folder)
    if context.checkpoints.is_dir():
        outcome = execute_run(_unpickled(executor[0]), run, checkpoint_folder(context.checkpoints, key))
    else:  # no shared disk: if this worker dies, the run starts again
        with TemporaryDirectory() as folder:
            outcome = execute_run(_unpickled(executor[0]), run, Path(folder, "checkpoint"))
    return f"on {host}: {outcome}" if isinstance(outcome, str) and host != context.host else outcome


@cache
def _unpickled(ref: Any) -> RunExecutor:
    """Return the executor. It is unpickled once per process, so that it keeps its data; Ray's arrays are read-only."""
    executor: RunExecutor = cloudpickle.loads(ray.get(ref))
    return executor
