"""Runs of a grid on Ray, on one machine or many: workers send back results, and this process alone stores them."""

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
from crowdfuse.experiments.runner import Backend, Outcomes, RunExecutor, checkpoint_of, do_run
from crowdfuse.experiments.store import VERSIONS, Record, RunSpec
from crowdfuse.io.interrupts import ignore_sigint

RETRIES = 3  # of a run whose worker, or whose machine, died
MEGABYTE = 2**20
GPU_BACKBONES = ("resnet18",)  # backbones that a GPU is worth it for


def make_ray_backend(address: str) -> Backend:
    """A place for runs: `local` (a Ray of `jobs` CPUs, for this grid alone), `ray://host:port`, or `auto`.

    `auto` is the Ray that runs on this machine already, or the one in RAY_ADDRESS. There `jobs` is how many runs may be
    sent at a time; None sends all, and Ray makes as many at once as the cluster has CPUs.
    """

    def outcomes(missing: dict[str, RunSpec], work: RunExecutor, unfinished: Path, jobs: int | None) -> Outcomes:
        if not missing:
            return
        packed = cloudpickle.dumps(work)
        if address == "local":
            jobs = min(jobs or 1, len(missing))
        with _connected(address, jobs, len(packed)):
            unfinished.mkdir(exist_ok=True)
            command = Command(
                made_by=VERSIONS,
                host=socket.gethostname(),
                folder=Path.cwd(),
                data=os.environ.get(DATA_FOLDER_VARIABLE),
                unfinished=unfinished.absolute(),
            )
            remote = ray.remote(max_retries=RETRIES)(_on_worker)
            n_gpus = ray.cluster_resources().get("GPU", 0)
            given = ray.put(command), [ray.put(packed)]
            waiting = iter(missing.items())
            running: dict[Any, str] = {}
            while True:
                for key, run in islice(waiting, (jobs or len(missing)) - len(running)):
                    running[remote.options(**_needs(run, n_gpus)).remote(*given, key, run)] = key
                if not running:
                    return
                for ref in ray.wait(list(running))[0]:
                    yield running.pop(ref), _outcome(ref)

    return outcomes


def _needs(run: RunSpec, n_gpus: float) -> dict[str, int]:
    """What a run takes of the cluster: a CPU, and a GPU as well if there are any and it trains on images.

    >>> _needs({"settings": {"backbone": "resnet18"}}, n_gpus=4)
    {'num_cpus': 1, 'num_gpus': 1}
    """
    wants = n_gpus >= 1 and run.get("settings", {}).get("backbone") in GPU_BACKBONES
    return {"num_cpus": 1, "num_gpus": int(wants)}


@contextmanager
def _connected(address: str, jobs: int | None, size: int) -> Iterator[None]:
    """Ray, quiet, until the end of the block; what runs there then is ended too."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
    if ray.is_initialized():
        raise ValueError("this process uses Ray already, and the end of the grid would end that; ray.shutdown() first")
    own: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 would let all else on this machine go first
        own = {"num_cpus": jobs, "include_dashboard": False, "object_store_memory": 100 * MEGABYTE + 2 * size}
    try:
        _connect(address, own)
        with redirect_stdout(sys.stderr):  # Ray prints which workers died; stdout is for the table
            yield
    except (ConnectionError, ImportError, RayError) as error:  # not of one run: the connection, or the head node
        raise ValueError(
            f"--cluster {address}: Ray gave up: {_last_line(error)}. What is finished is stored; the same command goes "
            "on from there"
        ) from error
    finally:
        with ignore_sigint():
            ray.shutdown()


def _connect(address: str, own: dict[str, Any], attempts: int = 3) -> None:
    """A cluster starts a server for each client; that can come too late or die, and is worth another try."""
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **own)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ConnectionAbortedError) and attempts > 1:
            ray.shutdown()
            _connect(address, own, attempts - 1)
            return
        raise ValueError(f"--cluster {address}: Ray does not answer: {_last_line(error)}") from error


def _outcome(ref: Any) -> Record | str:
    try:
        outcome: Record | str = ray.get(ref)
    except (WorkerCrashedError, NodeDiedError, OutOfMemoryError):
        return "its process died (killed, or out of memory), also when it was tried again"
    except RayError as error:
        return f"Ray could not do it: {_last_line(error)}"
    return outcome


def _last_line(error: Exception) -> str:
    """What Ray's messages come down to: above it stands a traceback of another machine."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


# ---- on a worker -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """Where and by what the grid was started: what a worker finds again, or does without."""

    made_by: dict[str, str]
    host: str
    folder: Path
    data: str | None
    unfinished: Path


def _on_worker(command: Command, work: list[Any], key: str, run: RunSpec) -> Record | str:
    """One run, as if in the folder of the command; if there is none, a machine with its own data can do it too."""
    host = socket.gethostname()
    if command.made_by != VERSIONS:  # the store would say that this run was made by what it was not
        return f"{host} has {VERSIONS}, and the store is made by {command.made_by}: install the same there"
    torch.set_num_threads(1)
    if command.folder.is_dir():
        os.chdir(command.folder)
    if command.data is not None:
        os.environ.setdefault(DATA_FOLDER_VARIABLE, command.data)
    if command.unfinished.is_dir():
        outcome = do_run(_unpacked(work[0]), run, checkpoint_of(command.unfinished, key))
    else:  # no shared disk: should this worker die, the run begins anew
        with TemporaryDirectory() as folder:
            outcome = do_run(_unpacked(work[0]), run, Path(folder, "checkpoint"))
    return f"on {host}: {outcome}" if isinstance(outcome, str) and host != command.host else outcome


@cache
def _unpacked(work: Any) -> RunExecutor:
    """The work, fetched once in each process, with data that it may load once. (Ray's own arrays are read-only.)"""
    unpacked: RunExecutor = cloudpickle.loads(ray.get(work))
    return unpacked
