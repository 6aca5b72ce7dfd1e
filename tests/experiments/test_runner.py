from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.experiments import runner
from crowdfuse.experiments.runner import run_grid
from crowdfuse.experiments.store import RunSpec, Store, run_key
from crowdfuse.synthesis import weakness_annotators
from tests.programs import pausing_crowdfuse
from tests.programs.pausing_crowdfuse import PAUSE_VARIABLE

RUNS: list[RunSpec] = [{"method": "toy", "seed": seed} for seed in range(4)]


class Work:
    """Lists the seeds it executed; fails, or is interrupted, at a given seed."""

    def __init__(self, fails: int | None = None, interrupted: int | None = None) -> None:
        self.fails, self.interrupted, self.done = fails, interrupted, []  # type: ignore[var-annotated]

    def check(self, runs: Any, *, download: bool) -> None: ...

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        if run["seed"] == self.fails:
            raise ValueError("it diverged")
        if run["seed"] == self.interrupted:
            raise KeyboardInterrupt
        checkpoint.mkdir(parents=True)
        self.done.append(run["seed"])
        return {"accuracy": run["seed"] / 10}


def grid(store: Store, work: Work, runs: list[RunSpec] = RUNS) -> Any:
    return run_grid(runs, work, store, describe_run=lambda run: f"seed {run['seed']}")


def test_stored_runs_are_not_repeated(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    first, second = Work(), Work()
    assert [record.run["seed"] for record in grid(store, first, RUNS[:2]).records] == [0, 1]
    finished = grid(store, second, [*RUNS, RUNS[3]])  # one run is requested twice
    assert second.done == [2, 3]
    assert [record.result["accuracy"] for record in finished.records] == [0, 0.1, 0.2, 0.3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".runs.jsonl.lock", "runs.jsonl"]


def test_a_failed_run_does_not_stop_the_others_and_is_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    finished = grid(store, Work(fails=1))
    assert finished.failures == ["seed 1: it diverged"]
    assert [record.run["seed"] for record in finished.records] == [0, 2, 3]
    again = Work()
    assert not grid(store, again).failures
    assert again.done == [1]


def test_any_error_of_a_run_fails_only_that_run(tmp_path: Path) -> None:
    class Torn(Work):
        def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
            if run["seed"] == 1:
                raise RuntimeError("out of memory")
            return super().__call__(run, checkpoint)

    finished = grid(Store(tmp_path / "runs.jsonl"), Torn())
    assert finished.failures == ["seed 1: RuntimeError: out of memory"]
    assert len(finished.records) == 3


def test_a_checkpoint_that_cannot_be_continued_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(Work):
        def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
            if checkpoint.exists():
                raise ValueError("damaged")
            return super().__call__(run, checkpoint)

    store = Store(tmp_path / "runs.jsonl")
    (tmp_path / "runs.unfinished").mkdir()
    folder = runner.checkpoint_folder(tmp_path / "runs.unfinished", run_key(RUNS[0]))
    folder.mkdir()
    assert not grid(store, Picky()).failures
    monkeypatch.setattr(runner, "VERSIONS", {"crowdfuse": "9.9"})
    assert runner.checkpoint_folder(tmp_path / "runs.unfinished", run_key(RUNS[0])) != folder


def test_checkpoints_of_stored_runs_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    grid(store, Work())
    runner.checkpoint_folder(tmp_path / "runs.unfinished", run_key(RUNS[0])).mkdir(parents=True)
    grid(store, Work())
    assert not (tmp_path / "runs.unfinished").exists()


def test_ctrl_c_keeps_finished_runs(tmp_path: Path) -> None:
    finished = grid(Store(tmp_path / "runs.jsonl"), Work(interrupted=2))
    assert finished.interrupted
    assert [record.run["seed"] for record in finished.records] == [0, 1]


# ---- whole grids in their own processes, killed ------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write a crowd on blobs, and return the arguments with which `crowdfuse compare` reads it."""
    X, y = make_blobs(240, centers=3, n_features=4, random_state=0)
    np.save(tmp_path / "features.npy", X)
    ann = weakness_annotators(X, y, weakness=[0, 1, 2], epsilon=6).annotations
    rows = zip(ann.item, ann.annotators[ann.annotator], ann.classes[ann.label], strict=True)
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + "".join(f"{i},{a},c{k}\n" for i, a, k in rows))
    (tmp_path / "gold.csv").write_text("item,label\n" + "".join(f"{i},c{k}\n" for i, k in enumerate(y)))
    return [
        "labels.csv",
        "--inputs",
        "features.npy",
        "--gold",
        "gold.csv",
        "--epochs",
        "3",
        "--methods",
        "fusion,trace-reg",
    ]


@contextmanager
def started(folder: Path, arguments: list[str], pause: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start a real `crowdfuse compare`, which may pause; SIGINT has its default action even for a background job."""
    program = [pausing_crowdfuse.__file__] if pause else ["-m", "crowdfuse"]
    command = [sys.executable, *program, "compare", *arguments]
    process = subprocess.Popen(
        command,
        env=os.environ | ({PAUSE_VARIABLE: pause} if pause else {}),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def compare_here(arguments: list[str]) -> str:
    """Run `crowdfuse compare` in this process, which saves the start of another, and return what it prints."""
    result = CliRunner().invoke(app, ["compare", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < limit, "nothing happened in ten minutes"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_grid_killed_twice_gives_the_same_table_and_repeats_nothing(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [*files, "--seeds", "0,1,2"]
    compare_here([*files, "--out", "through"])
    store = tmp_path / "killed" / "runs.jsonl"
    for lines, jobs in ((2, 2), (3, 1)):
        with started(tmp_path, [*files, "--out", "killed", "--jobs", str(jobs)], f"stored:{lines}") as process:
            wait_until(lambda lines=lines: n_lines(store) >= lines)
            workers = children(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        assert n_lines(store) == lines
        if jobs > 1:
            assert len(workers) >= jobs
        wait_until(lambda workers=workers: not any(map(is_alive, workers)))  # no worker survives
    stored = store.read_bytes()
    shown = compare_here([*files, "--out", "killed"])
    assert store.read_bytes().startswith(stored)
    records = [json_line["run"] for json_line in read_lines(store)]
    assert len(records) == len({run_key(run) for run in records}) == 6
    table = [(tmp_path / name / "table.md").read_text() for name in ("through", "killed")]
    assert table[0] == table[1]
    assert "table: killed/table.md" in shown
    assert not (tmp_path / "killed" / "runs.unfinished").exists()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file with one per line."""
    return [json.loads(line) for line in path.read_text().splitlines()]
