"""Two processes give the results of one: weights, evaluation, checkpoints, errors; a killed process ends the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessRaisedException

from crowdfuse import FusionClassifier, MajorityVoteClassifier
from crowdfuse.methods.base import Loss
from crowdfuse.methods.data import Batch
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.runs import Job, resume, start
from crowdfuse.training import loop as training
from crowdfuse.training.batches import rows_of_rank, split_into_batches
from crowdfuse.training.checkpoints import FILE_NAME
from crowdfuse.training.distributed import launched_processes
from crowdfuse.training.launching import run_in_processes, synchronize_batch_norm
from tests.programs import pausing_crowdfuse
from tests.programs.pausing_crowdfuse import PAUSE_VARIABLE
from tests.runs.test_runs import make_crowd as make_files
from tests.training import in_two_processes as two

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TIMEOUT_SECONDS = 600.0  # on a busy machine a process may take long to start
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

needs_proc = pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked up in /proc")


def begin(command: list[str], **more: str) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, env=ENVIRONMENT | more, **pipes)


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((tensor.double() - other[name].double()).abs().max().item() for name, tensor in one.items())


# ---- one launch of torchrun, checked by several tests --------------------------------------------


class StopError(Exception):
    """Simulates the end of the process."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `in_two_processes` wrote; one training in it resumes within an epoch of a single process."""
    folder = tmp_path_factory.mktemp("together")
    zero_grad, steps = torch.optim.Optimizer.zero_grad, 0

    def stop(self: Any, *given: Any, **named: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > 22:  # of 52 steps, 4 per epoch
            raise StopError
        zero_grad(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # after every step
        patch.setattr(torch.optim.Optimizer, "zero_grad", stop)
        with pytest.raises(StopError):
            two.trained(FusionClassifier(**two.SETTINGS, checkpoint=folder / "stopped"))
    process = begin([*TORCHRUN, str(two.__file__), str(folder)])
    output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert process.returncode == 0, output
    return folder


def notes(folder: Path, number: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"notes.{number}.json").read_text())
    return content


def weights(folder: Path, name: str, number: int = 0) -> dict[str, Tensor]:
    return load_file(folder / f"{name}.{number}.safetensors")


@pytest.mark.parametrize("name", two.CASES)
def test_two_processes_take_the_steps_of_one(folder: Path, name: str) -> None:
    """52 steps in double precision, with uneven missing labels and a batch that is too small to be split."""
    alone = two.trained(two.CASES[name])
    assert largest_difference(weights(folder, name), alone.weights) < 1e-10
    together = notes(folder, 0)[name]
    assert together["best"] == alone.best_epoch
    figure = "validation_accuracy" if "validation_accuracy" in alone.history[0] else "held_out_log_likelihood"
    np.testing.assert_allclose(
        [record[figure] for record in together["history"]], [record[figure] for record in alone.history], rtol=1e-12
    )
    np.testing.assert_allclose([r["loss"] for r in together["history"]], [r["loss"] for r in alone.history], rtol=1e-12)


def test_the_test_data_has_uneven_label_counts_and_batches() -> None:
    _, _, Y = two.make_crowd()
    counts = (Y >= 0).sum(1)
    assert set(counts.tolist()) == {0, 1, 2, 3, 4, 5, 6}
    assert [len(batch) for batch in split_into_batches(np.flatnonzero(counts), two.BATCH)] == [32, 32, 32, 2]


@pytest.mark.parametrize("name", [*two.CASES, "own backbone", "batch norm", "resumed", "interrupted"])
def test_all_processes_end_with_the_same_bits(folder: Path, name: str) -> None:
    assert largest_difference(weights(folder, name, 0), weights(folder, name, 1)) == 0
    if name != "interrupted":
        first, second = (notes(folder, number)[name] for number in (0, 1))
        assert first["best"] == second["best"]
        for one, other in zip(first["history"], second["history"], strict=True):
            assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_all_processes_start_from_the_backbone_of_rank_zero_and_unused_layers_stay_unchanged(folder: Path) -> None:
    classifier = two.with_own_backbone(0)
    alone = two.trained(classifier)
    assert largest_difference(weights(folder, "own backbone"), alone.weights) < 1e-10
    assert isinstance(classifier.backbone, two.Own)
    assert torch.equal(
        weights(folder, "own backbone")["trunk.unused.weight"].float(), classifier.backbone.unused.weight
    )


def test_two_processes_resume_the_checkpoint_of_one(folder: Path) -> None:
    alone = two.trained(FusionClassifier(**two.SETTINGS))
    assert largest_difference(weights(folder, "resumed"), alone.weights) < 1e-10


def test_an_error_in_one_process_is_raised_in_all(folder: Path) -> None:
    for number in (0, 1):
        found = notes(folder, number)
        assert found["refusals"] == ["labels.csv is not there", "process 2 of 2: labels.csv is not there"]
        assert "settings.penalty was 1.0, now 0.5" in found["another training"]
        assert "training diverged" in found["diverged"]


def test_ctrl_c_in_one_process_ends_all_at_the_same_step(folder: Path) -> None:
    assert [notes(folder, number)["interrupted"] for number in (0, 1)] == [[True, 1]] * 2  # step 7: in the second epoch


# ---- the command ---------------------------------------------------------------------------------


def fit(job: Job, out: Path, *more: str) -> list[str]:
    settings = [f"--set={name}={value}" for name, value in job.settings.items()]
    program = str(pausing_crowdfuse.__file__)
    files = [job.labels, "--inputs", str(job.inputs), "--out", str(out)]
    return [program, "fit", *files, "--method", job.method, "--folds", str(job.folds), *settings, *more]


PAUSE = {PAUSE_VARIABLE: "checkpoint:1"}  # the process that saves checkpoints waits to be killed, the other for it


@pytest.fixture
def job(tmp_path: Path) -> Job:
    crowd = make_files(tmp_path)
    settings = {"epochs": 5, "batch_size": 10, "precision": "64-true"}
    return Job(labels=crowd["labels"], inputs=crowd["inputs"], method="gated", settings=settings, folds=0)


@needs_proc
def test_a_killed_process_ends_the_run_and_one_process_resumes_it(job: Job, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = begin([*TORCHRUN, *fit(job, run)], **PAUSE)
    try:
        wait_for(process, (run / FILE_NAME).exists)
        workers = children(process)
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert "SIGKILL" in output
    wait_until_ended(workers)
    assert not (run / "summary.json").exists()

    again = begin([*TORCHRUN, *fit(job, run)])
    output = again.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert again.returncode not in (0, None)
    assert output.count("error: ") == 1  # rank 0 reports the error for both
    assert "holds an unfinished run" in output

    resume(run, verbose=0)
    start(job, tmp_path / "whole", force=False, verbose=0)
    found, expected = (load_file(path / "model" / "weights.safetensors") for path in (run, tmp_path / "whole"))
    assert largest_difference(found, expected) < 1e-6


@needs_proc
def test_processes_started_here_end_when_one_is_killed(job: Job, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = begin([sys.executable, *fit(job, run, "--set=devices=2", "--quiet")], **PAUSE)
    try:
        wait_for(process, (run / FILE_NAME).exists)
        workers = [pid for pid in children(process) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    finally:
        process.kill()
    assert process.returncode == 2, output
    assert "Traceback" not in output
    assert "a training process died" in output
    wait_until_ended(workers)


def test_processes_started_here_take_the_steps_of_one() -> None:
    X, truth, Y = two.make_crowd()
    settings: dict[str, Any] = {"batch_size": 32, "epochs": 3, "device": "cpu", "optimizer": "sgd"}
    one, both = (FusionClassifier(**settings, devices=n).fit(X, Y, validation=(X, truth)) for n in (1, 2))
    assert largest_difference(one.method_.state_dict(), both.method_.state_dict()) < 1e-5
    assert [r["validation_accuracy"] for r in one.history_] == [r["validation_accuracy"] for r in both.history_]


def test_an_error_in_a_started_process_keeps_its_message() -> None:
    def refuse(fabric: Any) -> None:
        raise ValueError("the inputs' scale is wrong")

    class Fabric:
        """Runs the function in this process, and raises errors as torch does for its processes."""

        global_rank, world_size = 1, 2

        def launch(self, run: Any) -> None:
            try:
                run(self)
            except ValueError as error:
                raise ProcessRaisedException("a traceback", 1, 4711) from error

    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE"):
            patch.setenv(name, "0")  # so that monkeypatch restores it
        with pytest.raises(ValueError, match=r"^the inputs' scale is wrong$"):
            run_in_processes(Fabric(), refuse)  # type: ignore[arg-type]


# ---- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", range(1, 12))
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_every_row_of_a_batch_counts_once_and_no_process_has_a_single_one(n_rows: int, world_size: int) -> None:
    batch = np.arange(n_rows)
    parts = [rows_of_rank(batch, rank, world_size) for rank in range(world_size)]
    counted = [rows for rows, counts in parts if counts]
    assert sorted(np.concatenate(counted).tolist()) == batch.tolist()
    assert min(len(rows) for rows, _ in parts) >= min(2, n_rows)
    assert all(len(rows) == n_rows for rows, counts in parts if not counts)


def test_a_batch_of_weight_zero_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, Y = two.make_crowd()
    loss = MajorityVote.loss

    def half(self: MajorityVote, batch: Batch) -> Loss:
        total, weight = loss(self, batch)
        counts = float(batch.row.min() < 60)
        return Loss(total * counts, weight * counts)

    monkeypatch.setattr(MajorityVote, "loss", half)
    clf = MajorityVoteClassifier(epochs=2, batch_size=1).fit(X, Y)
    assert np.isfinite([record["loss"] for record in clf.history_]).all()
    assert np.isfinite(clf.predict_proba(X)).all()
    Y[:60] = -1  # if no item has a weight, the loss is NaN
    assert np.isnan(MajorityVoteClassifier(epochs=1).fit(X, Y).history_[0]["loss"])


def test_batch_norm_is_synchronized_only_on_gpus() -> None:
    """Checks the converted network without training it, since this needs no GPU."""
    for device, world_size, expected in (("cuda", 2, True), ("cuda", 1, False), ("cpu", 2, False)):
        method = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3, affine=False)))
        before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
        synchronize_batch_norm(method, torch.device(device), world_size)
        assert [isinstance(part, nn.SyncBatchNorm) for part in (method[1], method[2][0])] == [expected] * 2  # type: ignore[index]
        assert largest_difference(before, method.state_dict()) == 0


def test_the_number_of_processes_is_read_from_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_processes() is None
    for name, value in {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert launched_processes() == (4, 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="give every machine the same --nproc-per-node"):
        launched_processes()
