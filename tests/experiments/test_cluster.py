from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.datasets.data_folder import DATA_FOLDER_VARIABLE
from crowdfuse.experiments import cluster
from crowdfuse.experiments.cluster import DriverContext, make_ray_backend
from crowdfuse.experiments.mnist import MnistExecutor
from crowdfuse.experiments.runner import GridResult, run_grid
from crowdfuse.experiments.store import VERSIONS, Record, RunSpec, Store, run_key
from tests.experiments.test_runner import (
    compare_here,
    files,
    is_alive,
    n_lines,
    read_lines,
    started,
    wait_until,
)

__all__ = ["files"]  # a fixture

# workers of the cluster cannot import the modules of the tests
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module", autouse=True)
def own_ray_folder() -> Iterator[None]:
    """Give Ray its own folder, as another Ray may run on this machine. (Sockets need a short path.)"""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        yield


# ---- on this machine, from the command line -----------------------------------------------------------


def of_session(leader: int) -> list[int]:
    """Return all living processes of the session that a process leads."""
    numbers = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in numbers if is_alive(pid) and session(pid) == leader]


def session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def test_ray_interrupted_and_continued_gives_the_results_of_one_process(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = [*files, "--seeds", "0,1"]
    compare_here([*few, "--out", "here"])
    store = tmp_path / "ray" / "runs.jsonl"
    arguments = [*few, "--out", "ray", "--cluster", "local", "--jobs", "2"]
    with started(tmp_path, arguments, "ray:1") as process:
        wait_until(lambda: n_lines(store) >= 1)
        assert len(of_session(process.pid)) > 2
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert "interrupted; run the same command again to continue" in said
    wait_until(lambda: not of_session(process.pid))  # no process survives
    stored = store.read_bytes()
    assert n_lines(store) == 1
    with started(tmp_path, arguments) as process:
        shown, said = process.communicate()
    assert process.returncode == 0, said
    wait_until(lambda: not of_session(process.pid))
    assert store.read_bytes().startswith(stored)
    assert len(read_lines(store)) == 4
    assert results(store) == results(tmp_path / "here" / "runs.jsonl")
    table = [(tmp_path / name / "table.md").read_text() for name in ("here", "ray")]
    assert table[0] == table[1]
    assert "table: ray/table.md" in shown
    assert not (tmp_path / "ray" / "runs.unfinished").exists()


def results(store: Path) -> dict[str, Any]:
    """Return the exact results of each run, without the time it took."""
    lines = {run_key(line["run"]): line["result"] for line in read_lines(store)}
    for result in lines.values():
        del result["seconds_per_epoch"]
    return lines


# ---- on a running cluster ---------------------------------------------------------------


@pytest.fixture(scope="module")
def client_port() -> Iterator[int]:
    """Start a cluster with two CPUs, put its address into RAY_ADDRESS, and return the port of its client server."""
    with pytest.MonkeyPatch.context() as patch, reserved_port() as port:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 * 2**20}
        if find_spec("grpc") is not None:
            head["ray_client_server_port"] = port
        machines = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", machines.address)
        try:
            yield port
        finally:
            machines.shutdown()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a free port: only servers with SO_REUSEPORT, such as those of gRPC, can listen on it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])


class Work:
    """Counts in a folder how often each seed was tried; the method says what goes wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self, runs: Any, *, download: bool) -> None: ...

    def tried(self, seed: int) -> int:
        path = self.folder / f"tried-{seed}"
        return path.stat().st_size if path.exists() else 0

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        with (self.folder / f"tried-{run['seed']}").open("a") as notes:
            notes.write("x")
        continued = checkpoint.exists()
        checkpoint.mkdir(exist_ok=True)
        trouble = run["method"]
        if trouble == "fails":
            raise ValueError("it diverged")
        if trouble == "dies" or (trouble == "dies once" and self.tried(run["seed"]) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "sleeps":
            (self.folder / f"pid-{run['seed']}").write_text(str(os.getpid()))
            time.sleep(1000)
        store = self.folder / "runs.jsonl"
        n_stored = store.read_bytes().count(b"\n") if store.exists() else 0
        return {"continued": continued, "folder": os.getcwd(), "pid": os.getpid(), "n_stored": n_stored}


def grid(work: Work, methods: list[str], *, address: str = "auto", jobs: int | None = None) -> GridResult:
    runs: list[RunSpec] = [{"method": method, "seed": seed} for seed, method in enumerate(methods)]
    store = Store(work.folder / "runs.jsonl")
    return run_grid(
        runs,
        work,
        store,
        n_jobs=jobs,
        backend=make_ray_backend(address),
        describe_run=lambda run: f"seed {run['seed']}",
    )


def test_a_run_whose_worker_died_is_tried_again(
    client_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "MAX_RETRIES_PER_RUN", 1)
    monkeypatch.chdir(tmp_path)
    work = Work(Path("."))
    finished = grid(work, ["fine", "fails", "dies once", "dies", "fine"])
    assert [record.run["seed"] for record in finished.records] == [0, 2, 4]
    assert [record.result["continued"] for record in finished.records] == [False, True, False]
    assert {record.result["folder"] for record in finished.records} == {str(tmp_path)}
    died = "its process died in every attempt (killed, or out of memory)"
    assert sorted(finished.failures) == ["seed 1: it diverged", f"seed 3: {died}"]
    assert [work.tried(seed) for seed in range(5)] == [1, 1, 2, 2, 1]
    assert n_lines(Path("runs.jsonl")) == 3
    finished = grid(work, ["fine", "fine", "dies once", "fine", "fine"])
    assert len(finished.records) == n_lines(Path("runs.jsonl")) == 5
    assert [work.tried(seed) for seed in range(5)] == [1, 2, 2, 3, 1]  # stored runs are not repeated


def test_n_jobs_limits_parallel_runs(client_port: int, tmp_path: Path) -> None:
    finished = grid(Work(tmp_path), ["fine"] * 8, jobs=1)
    assert not finished.failures
    # a run begins when the ones before it are stored, although there are two CPUs
    assert [record.result["n_stored"] for record in finished.records] == list(range(8))


def test_runs_on_a_cluster_end_with_the_command(client_port: int, tmp_path: Path) -> None:
    work = Work(tmp_path)
    runs: dict[str, RunSpec] = {str(seed): {"method": "sleeps" if seed else "fine", "seed": seed} for seed in range(3)}
    outcomes = make_ray_backend("auto")(runs, work, tmp_path / "unfinished", None)
    assert next(outcomes)[0] == "0"
    pids = [tmp_path / f"pid-{seed}" for seed in (1, 2)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in pids))
    outcomes.close()
    wait_until(lambda: not any(is_alive(int(path.read_text())) for path in pids))
    assert not ray.is_initialized()


@pytest.mark.skipif(find_spec("grpc") is None, reason="Ray's client is not installed")
def test_a_cluster_is_reached_by_its_address(client_port: int, tmp_path: Path) -> None:
    finished = grid(Work(tmp_path), ["fine", "fails", "fine"], address=f"ray://127.0.0.1:{client_port}")
    assert [record.run["seed"] for record in finished.records] == [0, 2]
    assert finished.failures == ["seed 1: it diverged"]


# ---- a worker, without Ray ---------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a context as sent from another machine, whose folders do not exist here."""
    monkeypatch.setattr(cluster, "_unpickled", lambda work: work)
    monkeypatch.chdir(tmp_path)
    there = Path("/not/on/this/machine")
    return {
        "versions": VERSIONS,
        "host": "laptop",
        "folder": there,
        "data_folder": None,
        "checkpoints": there / "unfinished",
    }


def test_without_a_shared_disk_a_run_has_a_temporary_checkpoint(command: dict[str, Any], tmp_path: Path) -> None:
    seen = []

    class Noting(Work):
        def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
            seen.append(checkpoint)
            return super().__call__(run, checkpoint)

    outcome = cluster._execute_on_worker(
        DriverContext(**command), [Noting(tmp_path)], "key", {"method": "fine", "seed": 0}
    )
    assert isinstance(outcome, Record)
    assert not seen[0].parent.exists()
    assert not Path("/not").exists()


def test_missing_data_of_a_worker_are_named_with_its_host(
    command: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: RunSpec = {"data": {"train": 10}, "method": "fusion", "seed": 0, "settings": {}}
    monkeypatch.setenv(DATA_FOLDER_VARIABLE, "")  # so that monkeypatch restores it
    monkeypatch.delenv(DATA_FOLDER_VARIABLE)
    for folder, data, named in ((Path("/no/such"), None, "/no/such"), (None, "/the/laptops", "/the/laptops")):
        outcome = cluster._execute_on_worker(
            DriverContext(**command | {"data_folder": data}), [MnistExecutor(folder)], "key", run
        )
        assert str(outcome).startswith(f"on {socket.gethostname()}: FileNotFoundError: mnist: no train-images")
        assert named in str(outcome)


def test_a_worker_with_another_version_refuses_runs(command: dict[str, Any], tmp_path: Path) -> None:
    other = DriverContext(**command | {"versions": VERSIONS | {"crowdfuse": "9.9"}})
    work = Work(tmp_path)
    outcome = cluster._execute_on_worker(other, [work], "key", {"method": "fine", "seed": 0})
    assert "install the same versions there" in str(outcome)
    assert "9.9" in str(outcome)
    assert not work.tried(0)


# ---- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "absent", "said"),
    [
        ("here", None, "local or auto, got 'here'"),
        ("ray://head", None, "got 'ray://head'"),
        ("local", "ray", "pip install 'crowdfuse[cluster]'"),
        ("ray://head:10001", "grpc", "pip install 'crowdfuse[cluster]'"),
    ],
)
def test_bad_addresses_are_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, absent: str | None, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if absent is not None:
        monkeypatch.setitem(sys.modules, absent, None)
    result = CliRunner().invoke(app, ["reproduce", "table1", "--cluster", address, "--data", "nowhere"])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("a long story\nray client connection timeout")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ValueError, match=r"ray://head:1: Ray does not answer \(ray client connection timeout\)"):
        grid(Work(tmp_path), ["fine"], address="ray://head:1")


def test_a_ray_connection_of_the_caller_is_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("it was shut down"))
    with pytest.raises(ValueError, match="already connected to Ray"):
        grid(Work(tmp_path), ["fine"])


def test_ray_is_imported_only_for_a_cluster() -> None:
    code = "import sys, crowdfuse.cli, crowdfuse.experiments.catalog; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("why", ["Starting Ray client server failed.", "psutil.ZombieProcess: PID still exists"])
def test_connecting_is_retried_if_the_client_server_is_late_or_dies(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def late(address: str, **_: Any) -> None:
        tries.append(address)
        if len(tries) < 3:
            raise ConnectionAbortedError(f"Initialization failure from server: {why}")

    monkeypatch.setattr(ray, "init", late)
    cluster._connect("ray://there:1", {})
    assert len(tries) == 3
    tries[:] = []
    with pytest.raises(ValueError, match=rf"--cluster ray://there:1: Ray does not answer \(.*{why}"):
        cluster._connect("ray://there:1", {}, attempts=2)
    assert len(tries) == 2
