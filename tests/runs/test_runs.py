"""Run folders: files are joined by item, results are correct, and a run stopped at any moment resumes exactly."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from crowdfuse import Annotations, load
from crowdfuse.estimators.cross_fitting import FoldTraining
from crowdfuse.estimators.registry import estimator_class
from crowdfuse.labels.reading import Reading
from crowdfuse.methods.consensus_training import ConsensusTraining
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.runs import Job, RunFormatError, fitting, resume, start
from crowdfuse.runs import fold_trainings as run_fold_trainings
from crowdfuse.runs.job import make_classifier
from crowdfuse.runs.job_data import read_job_data
from crowdfuse.training.checkpoints import FILE_NAME as CHECKPOINT_FILE
from tests.programs import pausing_crowdfuse
from tests.programs.pausing_crowdfuse import PAUSE_VARIABLE

N = 36
NAMES = ["ada", "bob", "cy"]
EPOCHS = 6  # enough to be stopped three times on the way
TIMEOUT_SECONDS = 600.0  # on a busy machine a process may take long to start


def write_rows(path: Path, header: str, rows: Any) -> str:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def make_crowd(folder: Path) -> dict[str, Any]:
    """Write the features of N items and the labels of three annotators; return them with the gold labels."""
    generator = np.random.default_rng(7)
    X = generator.normal(size=(N, 3)).astype(np.float32)
    items = [f"i{n:02}" for n in range(N)]
    truth = np.where(X[:, 0] > 0, "cat", "dog")
    triples = [
        (item, name, gold if generator.random() < skill else "dog")
        for item, gold in zip(items, truth, strict=True)
        for name, skill in (("ada", 0.95), ("bob", 0.8), ("cy", 0.2))
        if name == "ada" or generator.random() < 0.7
    ]
    np.savez(folder / "f.npz", X=X, items=np.array(items))
    return {
        "X": X,
        "items": items,
        "truth": dict(zip(items, truth.tolist(), strict=True)),
        "triples": triples,
        "labels": write_rows(folder / "labels.csv", "item,annotator,label", triples),
        "inputs": str(folder / "f.npz"),
    }


@pytest.fixture
def crowd(tmp_path: Path) -> dict[str, Any]:
    return make_crowd(tmp_path)


def job(crowd: dict[str, Any], **changed: Any) -> Job:
    settings = {"epochs": 2, "batch_size": 16, "random_state": 0}
    plain = Job(labels=crowd["labels"], inputs=crowd["inputs"], method="gated", settings=settings, folds=0)
    return replace(plain, **changed)


def gold(crowd: dict[str, Any], tmp_path: Path, name: str, items: Any) -> str:
    return write_rows(tmp_path / name, "item,label", [(item, crowd["truth"][item]) for item in items])


# ---- joining ---------------------------------------------------------------------------------------


def test_all_arrays_have_the_same_item_in_each_row(crowd: dict[str, Any], tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(N)
    np.savez(tmp_path / "f.npz", X=crowd["X"][order], items=np.array(crowd["items"])[order])
    material = read_job_data(job(crowd))
    assert material.items.tolist() == [crowd["items"][n] for n in order]
    table = material.train_annotations.to_table()
    found = set(zip(*(table[name].to_pylist() for name in ("item", "annotator", "label")), strict=True))
    assert found == set(crowd["triples"])


def test_held_out_items_are_scored_and_never_trained_on(crowd: dict[str, Any], tmp_path: Path) -> None:
    validation = gold(crowd, tmp_path, "validation.csv", crowd["items"][:5])
    test = gold(crowd, tmp_path, "test.csv", crowd["items"][5:12])
    asked = job(crowd, validation=validation, test=test)
    material = read_job_data(asked)
    assert np.diff(material.train_annotations.indptr)[:12].sum() == 0
    assert material.all_annotations.n_labels == len(crowd["triples"])
    assert any(
        "5 labelled items are used for validation, so their labels are not used for training" in note
        for note in material.notes
    )
    summary = start(asked, tmp_path / "run", force=False, verbose=0)
    assert summary["n_test_items"] == 7
    assert summary["n_labelled_items"] == N - 12
    assert summary["best_epoch"] in (1, 2)
    assert summary["gold_used_for"] == "choosing the epoch"
    predicted = load(tmp_path / "run" / "model").predict(crowd["X"][5:12])
    truth = [crowd["truth"][item] for item in crowd["items"][5:12]]
    assert summary["test_accuracy"] == np.mean(predicted == truth)
    assert sorted(row["item"] for row in read_rows(tmp_path / "run" / "consensus.csv")) == crowd["items"]


def test_gold_to_train_on_leaves_out_what_is_held_out(crowd: dict[str, Any], tmp_path: Path) -> None:
    everything = gold(crowd, tmp_path, "gold.csv", crowd["items"])
    test = gold(crowd, tmp_path, "test.csv", crowd["items"][:10])
    material = read_job_data(job(crowd, method="true-label", gold=everything, test=test))
    assert material.gold is not None
    assert material.gold[0].tolist() == list(range(10, N))
    assert any("10 items with gold labels for training are also" in note for note in material.notes)


def test_a_note_counts_items_in_both_validation_and_test(crowd: dict[str, Any], tmp_path: Path) -> None:
    both = {name: gold(crowd, tmp_path, f"{name}.csv", crowd["items"][:3]) for name in ("validation", "test")}
    assert any(
        "3 items are both in the validation file and in the test file" in note
        for note in read_job_data(job(crowd, **both)).notes
    )


def test_an_item_with_only_empty_labels_needs_no_drop_option(crowd: dict[str, Any], tmp_path: Path) -> None:
    triples = [(item, name, "" if item == "i03" else said) for item, name, said in crowd["triples"]]
    count = sum(item == "i03" for item, _, _ in triples)
    material = read_job_data(job(crowd, labels=write_rows(tmp_path / "gaps.csv", "item,annotator,label", triples)))
    assert any(note.startswith(f"{count} ") and "empty" in note for note in material.notes)
    assert np.diff(material.train_annotations.indptr)[3] == 0


def test_column_names_of_the_labels_are_used_in_other_files_that_have_them(
    crowd: dict[str, Any], tmp_path: Path
) -> None:
    """Each table below has a misleading usual column name, or lacks the name that was given."""
    triples = [(item, "x", name, said, "?") for item, name, said in crowd["triples"]]
    labels = write_rows(tmp_path / "odd.csv", "photo,item,annotator,said,label", triples)
    reading = Reading(item="photo", label="said")
    features = [(item, "x", *x) for item, x in zip(crowd["items"], crowd["X"], strict=True)]
    asked = job(
        crowd, labels=labels, reading=reading, inputs=write_rows(tmp_path / "f.csv", "photo,kind,a,b,c", features)
    )
    with pytest.raises(ValueError, match="column 'kind' holds 'x'"):
        read_job_data(asked)
    for header in ("photo,item,label", "item,photo_by,label", "photo,label,said"):
        swapped = {"photo": "i03", "item": "i03", "photo_by": "x", "label": "cat", "said": "cat"}
        if "photo" in header.split(","):
            swapped["item"] = "x"
        if "said" in header.split(","):
            swapped["label"] = "?"
        test = write_rows(tmp_path / "gold.csv", header, [[swapped[name] for name in header.split(",")]])
        material = read_job_data(job(crowd, labels=labels, reading=reading, test=test))
        assert material.test is not None
        assert material.test[0].tolist() == [3]
        assert material.test[1].tolist() == ["cat"]


def test_settings_are_checked_by_name_and_type() -> None:
    def make(method: str = "fusion", /, **settings: Any) -> Any:
        return make_classifier(Job("l", "i", method, settings), Path("out"), 0)

    made = make(hidden=[8, 4], head_hidden=[], standardize=None, penalty=2, weights="uniform", backbone="mlp")
    assert made.hidden == (8, 4)
    assert make("single-annotator", annotator=7).annotator == 7
    for settings in (
        {"hidden": 64},
        {"hidden": ["a"]},
        {"hidden": None},
        {"penalty": "x"},
        {"penalty": True},
        {"dropout": float("nan")},
        {"epochs": 2.0},
        {"standardize": "yes"},
        {"weights": "mine"},
        {"backbone": 3},
    ):
        with pytest.raises(ValueError, match=f"--set {next(iter(settings))}: .* was expected, got"):
            make(**settings)
    with pytest.raises(ValueError, match="'learned' or 'uniform' was expected, got 'mine'"):
        make(weights="mine")
    with pytest.raises(ValueError, match=r"a list of whole numbers such as \[64,32\] or null was expected"):
        make(head_hidden="x")
    for name in ("checkpoint", "verbose", "classes"):
        with pytest.raises(ValueError, match=f"--set {name} cannot be used here; use --"):
            make("fusion", **{name: 1})
    for seed in (-1, None, "x", 0.5):
        with pytest.raises(ValueError, match="random_state must be a whole number of at least 0"):
            make(random_state=seed)


# ---- results ---------------------------------------------------------------------------------------


def assert_rows_equal(rows: list[dict[str, str]], table: Any) -> None:
    """Check that a CSV file has the rows of a table, in the same order and with six digits of each fraction."""
    expected = [
        {
            name: "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]
    assert rows == expected


@pytest.mark.parametrize(("method", "folds"), [("majority-vote", 0), ("majority-vote", 3), ("gated", 3)])
@pytest.mark.parametrize("with_gold", [False, True])
def test_all_files_of_a_run_hold_the_consensus_of_python(
    crowd: dict[str, Any], tmp_path: Path, method: str, folds: int, with_gold: bool
) -> None:
    known = crowd["items"][:12] if with_gold else []
    path = gold(crowd, tmp_path, "gold.csv", known) if with_gold else None
    asked = job(crowd, method=method, folds=folds, gold=path)
    run = tmp_path / "run"
    summary = start(asked, run, force=False, verbose=0)
    stored = load_consensus(run / "posterior.safetensors")

    truth: Any = [crowd["truth"][item] if item in known else None for item in crowd["items"]] if with_gold else None
    ann = Annotations.from_table(
        dict(zip(("item", "annotator", "label"), zip(*crowd["triples"], strict=True), strict=True))
    )
    fresh = estimator_class(method)(**asked.settings).fit(crowd["X"], ann, gold=truth, items=crowd["items"])
    loaded = load(run / "model")
    for clf in (fresh, loaded):
        found = clf.consensus(crowd["X"], ann, items=crowd["items"], gold=truth, folds=folds)
        assert found.items.tolist() == stored.items.tolist() == crowd["items"]
        assert found.annotators.tolist() == stored.annotators.tolist()
        assert found.n_folds == stored.n_folds == summary["n_folds"] == folds
        assert (found.limitations, found.findings) == (stored.limitations, stored.findings)
        for name in (
            "class_probabilities",
            "consensus_codes",
            "label_confidence",
            "annotator_accuracy",
            "annotator_accuracy_interval",
            "predicted_probabilities",
        ):
            np.testing.assert_array_equal(getattr(found, name), getattr(stored, name), err_msg=name)

    assert_rows_equal(read_rows(run / "consensus.csv"), stored.to_table())
    assert_rows_equal(read_rows(run / "suspicious_labels.csv"), stored.suspicious_labels())
    annotators = read_rows(run / "annotators.csv")
    columns = stored.annotator_table().column_names
    assert_rows_equal([{name: row[name] for name in columns} for row in annotators], stored.annotator_table())
    assert set(annotators[0]) == set(columns)
    assert ("mean_weight" in columns) == (method == "gated")


def test_tables_are_sorted_and_hold_every_label_once(crowd: dict[str, Any], tmp_path: Path) -> None:
    start(job(crowd, folds=2), tmp_path / "run", force=False, verbose=0)
    labels = read_rows(tmp_path / "run" / "suspicious_labels.csv")
    assert list(labels[0]) == ["item", "annotator", "label", "consensus", "suspicion"]
    assert sorted((row["item"], row["annotator"], row["label"]) for row in labels) == sorted(crowd["triples"])
    suspicion = [float(row["suspicion"]) for row in labels]
    assert suspicion == sorted(suspicion, reverse=True)

    items = read_rows(tmp_path / "run" / "consensus.csv")
    assert sorted(row["item"] for row in items) == crowd["items"]
    confidence = [float(row["confidence"]) for row in items]
    assert confidence == sorted(confidence)
    for row in items:
        own = [label for item, _, label in crowd["triples"] if item == row["item"]]
        assert int(row["n_labels"]) == len(own)
        assert float(row["share_of_votes"]) == pytest.approx(own.count(row["label"]) / len(own), abs=1e-6)

    annotators = read_rows(tmp_path / "run" / "annotators.csv")
    assert list(annotators[0]) == [
        "annotator",
        "n_labels",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "mean_weight",
    ]
    high = [float(row["accuracy_high"]) for row in annotators]
    assert high == sorted(high)
    for row in annotators:
        assert int(row["n_labels"]) == sum(name == row["annotator"] for _, name, _ in crowd["triples"])
        assert float(row["accuracy_low"]) <= float(row["accuracy"]) <= float(row["accuracy_high"])


def test_the_mean_weight_is_relative_to_an_even_share(crowd: dict[str, Any], tmp_path: Path) -> None:
    start(job(crowd), tmp_path / "run", force=False, verbose=0)
    ann = read_job_data(job(crowd)).all_annotations
    n_labels = np.diff(ann.indptr)
    weights = load(tmp_path / "run" / "model").annotator_weights(crowd["X"], ann) * n_labels[:, None]
    assert (n_labels == 1).any()
    for row in read_rows(tmp_path / "run" / "annotators.csv"):
        column = weights[n_labels > 1, NAMES.index(row["annotator"])]
        assert float(row["mean_weight"]) == pytest.approx(column[column > 0].mean(), abs=1e-4)


def test_an_annotator_whose_labels_a_method_ignores_has_mean_weight_0(crowd: dict[str, Any], tmp_path: Path) -> None:
    settings = {"epochs": 2, "annotator": "bob"}
    start(job(crowd, method="single-annotator", settings=settings), tmp_path / "run", force=False, verbose=0)
    rows = {row["annotator"]: float(row["mean_weight"]) for row in read_rows(tmp_path / "run" / "annotators.csv")}
    assert rows["bob"] > 1
    assert rows["ada"] == rows["cy"] == 0


def test_gold_that_is_trained_on_is_certain_in_the_tables(crowd: dict[str, Any], tmp_path: Path) -> None:
    other = {"cat": "dog", "dog": "cat"}
    unlabelled = crowd["items"][5]  # gold, and no labels
    triples = [triple for triple in crowd["triples"] if triple[0] != unlabelled]
    write_rows(Path(crowd["labels"]), "item,annotator,label", triples)
    gold_labels = {item: other[crowd["truth"][item]] for item in crowd["items"][:6]}  # the opposite of most labels
    known = write_rows(tmp_path / "gold.csv", "item,label", gold_labels.items())
    start(job(crowd, gold=known, folds=2), tmp_path / "run", force=False, verbose=0)
    rows = {row["item"]: row for row in read_rows(tmp_path / "run" / "consensus.csv")}
    assert {item: (rows[item]["label"], rows[item]["confidence"]) for item in gold_labels} == {
        item: (label, "1.000000") for item, label in gold_labels.items()
    }
    assert (rows[unlabelled]["n_labels"], rows[unlabelled]["share_of_votes"]) == ("0", "")
    for row in read_rows(tmp_path / "run" / "suspicious_labels.csv"):
        if row["item"] in gold_labels:
            assert float(row["suspicion"]) == (row["label"] != gold_labels[row["item"]])


def test_a_run_without_cross_fitting_says_so(crowd: dict[str, Any], tmp_path: Path) -> None:
    for folds in (0, 2):
        summary = start(job(crowd, folds=folds), tmp_path / f"run-{folds}", force=False, verbose=0)
        assert summary["n_folds"] == folds
        assert any("no cross-fitting" in note for note in summary["notes"]) is (folds == 0)


@pytest.mark.parametrize("column", ["item", "image", "file"])
def test_results_use_the_image_names_of_the_labels(tmp_path: Path, column: str) -> None:
    generator = np.random.default_rng(0)
    for n in range(8):
        path = tmp_path / "images" / "sub" / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (24, 20), np.uint8)).save(path)
    names = [f"sub/{n}" if n % 2 else f"sub/{n}.png" for n in range(8)]
    labels = write_rows(
        tmp_path / "l.csv", f"{column},annotator,label", [(name, "a", n % 2) for n, name in enumerate(names)]
    )
    asked = Job(labels, str(tmp_path / "images"), "majority-vote", {"epochs": 1}, folds=0)
    start(asked, tmp_path / "run", force=False, verbose=0)
    assert sorted(row["item"] for row in read_rows(tmp_path / "run" / "consensus.csv")) == sorted(names)
    assert load(tmp_path / "run" / "model").input_shape_ == (1, 24, 20)


def test_two_names_for_one_image_are_refused(crowd: dict[str, Any], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.new("L", (20, 20)).save(tmp_path / "images" / f"{name}.png")
    rows = [("a", "x", 0), ("a.png", "y", 1), ("b", "x", 1)]
    labels = write_rows(tmp_path / "l.csv", "item,annotator,label", rows)
    with pytest.raises(ValueError, match=r"l\.csv uses several ids for the same input: 'a', 'a\.png'"):
        read_job_data(Job(labels, str(tmp_path / "images")))
    labels = write_rows(tmp_path / "l.csv", "item,annotator,label", [("a", "x", 0), ("b", "x", 1)])
    test = write_rows(tmp_path / "g.csv", "item,label", [("a", 0), ("a.png", 1)])
    with pytest.raises(ValueError, match=r"g\.csv uses several ids for the same input: 'a', 'a\.png'"):
        read_job_data(Job(labels, str(tmp_path / "images"), test=test))


# ---- stopping and resuming -------------------------------------------------------------------------

TABLES = ("annotators.csv", "consensus.csv", "suspicious_labels.csv")
RESULTS = ("model/weights.safetensors", "posterior.safetensors", *TABLES)


def results(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in RESULTS}


def files(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


FINISHED = sorted([*TABLES, "log.jsonl", "model", "posterior.safetensors", "settings.json", "summary.json"])


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("long")
    crowd = make_crowd(folder)
    settings = {"epochs": EPOCHS, "batch_size": 16, "random_state": 3, "dropout": 0.2}
    return job(crowd, settings=settings, validation=gold(crowd, folder, "validation.csv", crowd["items"][:6]), folds=2)


@pytest.fixture(scope="module")
def expected(long_job: Job, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the results of the long job if it is not stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    start(long_job, run, force=False, verbose=0)
    assert files(run) == FINISHED
    return results(run)


def begin(arguments: list[str], pause: str) -> subprocess.Popen[str]:
    """Start `crowdfuse fit`, which waits at a checkpoint for the signal; it reacts to Ctrl-C even in the background."""
    return subprocess.Popen(
        [sys.executable, pausing_crowdfuse.__file__, "fit", *arguments, "--quiet"],
        env=os.environ | {PAUSE_VARIABLE: pause},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )


def arguments(asked: Job, out: Path) -> list[str]:
    given = [asked.labels, "--inputs", str(asked.inputs), "--out", str(out), "--validation", str(asked.validation)]
    given += ["--method", asked.method, "--folds", str(asked.folds)]
    return given + [part for name, value in asked.settings.items() for part in ("--set", f"{name}={value}")]


def stop_when(process: subprocess.Popen[str], happened: Callable[[], bool], how: signal.Signals) -> str:
    """Send a signal once something has happened, wait for the end, and return the output."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while not happened():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(how)
        return process.communicate(timeout=TIMEOUT_SECONDS)[0]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_run_killed_several_times_ends_with_the_same_bits(
    long_job: Job, expected: dict[str, bytes], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    checkpoint = run / CHECKPOINT_FILE

    def changed_since(before: int) -> Callable[[], bool]:
        return lambda: checkpoint.exists() and checkpoint.stat().st_mtime_ns != before

    def written() -> int:
        return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0

    for started in (arguments(long_job, run), ["--resume", str(run)]):
        process = begin(started, "checkpoint:1")
        stop_when(process, changed_since(written()), signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not (run / "summary.json").exists()
    summary = resume(run, verbose=0)
    assert results(run) == expected
    assert summary["n_epochs"] == EPOCHS
    assert files(run) == FINISHED


def test_ctrl_c_leaves_a_working_model_and_a_run_that_can_be_resumed(
    long_job: Job, expected: dict[str, bytes], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = begin(arguments(long_job, run), "checkpoint:1")
    said = stop_when(process, (run / CHECKPOINT_FILE).exists, signal.SIGINT)
    assert process.returncode == 130, said
    assert f"continue with: crowdfuse fit --resume {run}" in said
    assert "Traceback" not in said
    assert "Warning" not in said
    model = load(run / "model")
    assert model.interrupted_
    assert set(model.predict(np.load(str(long_job.inputs))["X"])) <= {"cat", "dog"}
    assert json.loads((run / "interrupted.json").read_text())["interrupted"] is True
    assert len(read_rows(run / "consensus.csv")) == N
    resume(run, verbose=0)
    assert results(run) == expected
    assert files(run) == FINISHED


@pytest.mark.parametrize(
    "step", [1, 3, 5]
)  # of 6, 3 per epoch: before the first update, within the first epoch, in the second
def test_ctrl_c_at_any_step_can_be_resumed(
    crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    start(job(crowd), tmp_path / "whole", force=False, verbose=0)
    zero_grad, steps = torch.optim.Optimizer.zero_grad, 0

    def interrupt(self: Any, *given: Any, **named: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            raise KeyboardInterrupt
        zero_grad(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.Optimizer, "zero_grad", interrupt)
        summary = start(job(crowd), tmp_path / "run", force=False, verbose=0)
    assert steps == step
    assert summary["interrupted"]
    assert summary["n_epochs"] == (step - 1) // 3
    assert load(tmp_path / "run" / "model").predict(crowd["X"]).shape == (N,)
    resume(tmp_path / "run", verbose=0)
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert files(tmp_path / "run") == FINISHED


class Killed(BaseException):
    """Simulates the end of the process: nothing catches it."""


@pytest.mark.parametrize(
    "moment",
    [CHECKPOINT_FILE, "posterior.safetensors", *TABLES, "log.jsonl", "model", "summary.json", "unlink"],
)
def test_a_run_killed_while_it_writes_a_file_ends_the_same(
    crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    asked = job(crowd, folds=2)
    start(asked, tmp_path / "whole", force=False, verbose=0)
    run = tmp_path / "run"
    rename, unlink = os.replace, Path.unlink

    def stop_before(self: Path, target: Path) -> Any:
        if Path(target).name == moment:
            raise Killed
        return rename(self, target)

    def stop_before_unlink(self: Path, missing_ok: bool = False) -> None:
        if moment == "unlink" and self.name == CHECKPOINT_FILE:
            raise Killed
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop_before)
        patch.setattr(Path, "rename", stop_before)
        patch.setattr(Path, "unlink", stop_before_unlink)
        with pytest.raises(Killed):
            start(asked, run, force=False, verbose=0)
    (run / ".model.0123abcd.tmp").mkdir()  # leftovers of kill -9
    (run / ".consensus.csv.0123abcd.tmp").write_text("half")
    resume(run, verbose=0)
    assert results(run) == results(tmp_path / "whole")
    assert files(run) == FINISHED


# ---- cross-fitting -----------------------------------------------------------------------------------


@pytest.fixture
def folds_job(crowd: dict[str, Any], tmp_path: Path) -> Job:
    """Return a job with gold, validation and four folds."""
    files = {
        "gold": gold(crowd, tmp_path, "gold.csv", crowd["items"][5:12]),
        "validation": gold(crowd, tmp_path, "validation.csv", crowd["items"][:5]),
    }
    return job(crowd, method="gated", folds=4, **files)


@pytest.mark.parametrize("error", [KeyboardInterrupt, Killed])
def test_finished_folds_are_not_trained_again(
    folds_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    start(folds_job, tmp_path / "whole", force=False, verbose=0)
    run, trained = tmp_path / "run", list[str]()
    train = FoldTraining._train

    def stop_at_fold_3(training: FoldTraining, checkpoint: Path | None) -> Any:
        if training.number == 3:
            raise error
        trained.append(training.title)
        return train(training, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(FoldTraining, "_train", stop_at_fold_3)
        with pytest.raises(error):
            start(folds_job, run, force=False, verbose=0)
    assert [title.split(", ")[1] for title in trained] == ["fold 1 of 4", "fold 2 of 4"]
    assert not (run / "summary.json").exists()
    stored = {path.name: path.stat().st_mtime_ns for path in (run / "folds").glob("*.npz")}
    assert sorted(stored) == ["gated-1.npz", "gated-2.npz"]

    def check_then_remove(out: Path) -> None:
        kept = {path.name: path.stat().st_mtime_ns for path in (out / "folds").glob("*.npz")}
        assert len(kept) == 4
        assert kept | stored == kept
        remove_checkpoints(out)

    remove_checkpoints = fitting._remove_checkpoints
    monkeypatch.setattr(fitting, "_remove_checkpoints", check_then_remove)
    resume(run, verbose=0)
    assert results(run) == results(tmp_path / "whole")
    assert files(run) == FINISHED


@pytest.mark.parametrize("n_steps", [2, 3])  # of 4, 2 per epoch
def test_ctrl_c_within_a_fold_can_be_resumed(
    crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_steps: int
) -> None:
    asked = job(crowd, method="majority-vote", folds=3)
    start(asked, tmp_path / "whole", force=False, verbose=0)
    zero_grad, train, steps_left = torch.optim.Optimizer.zero_grad, FoldTraining._train, -1

    def begin_fold(training: FoldTraining, checkpoint: Path | None) -> Any:
        nonlocal steps_left
        steps_left = n_steps if training.number == 2 else -1
        return train(training, checkpoint)

    def interrupt(self: Any, *given: Any, **named: Any) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left == 0:
            raise KeyboardInterrupt
        zero_grad(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(FoldTraining, "_train", begin_fold)
        patch.setattr(torch.optim.Optimizer, "zero_grad", interrupt)
        summary = start(asked, tmp_path / "run", force=False, verbose=0)
    assert steps_left == 0
    assert summary["interrupted"]
    assert summary["n_folds"] == 0  # the consensus of an interrupted run is that of the model alone
    resume(tmp_path / "run", verbose=0)
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert files(tmp_path / "run") == FINISHED


def test_the_number_of_processes_does_not_change_the_results(folds_job: Job, tmp_path: Path) -> None:
    asked = replace(folds_job, folds=3)
    for jobs in (1, 2):
        start(asked, tmp_path / f"jobs-{jobs}", force=False, verbose=0, jobs=jobs)
        assert files(tmp_path / f"jobs-{jobs}") == FINISHED
    assert results(tmp_path / "jobs-1") == results(tmp_path / "jobs-2")


def test_folds_that_come_before_the_model_are_trained_in_processes_and_resumed(
    crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job(crowd, method="consensus-training", folds=2, settings={"epochs": 3, "random_state": 0})
    start(asked, tmp_path / "whole", force=False, verbose=0)
    train = FoldTraining._train

    def stop_after_gated(training: FoldTraining, checkpoint: Path | None) -> Any:
        return train(training, checkpoint) if training.title.startswith("gated,") else None

    with monkeypatch.context() as patch:
        patch.setattr(FoldTraining, "_train", stop_after_gated)
        summary = start(asked, tmp_path / "run", force=False, verbose=0)
    assert summary["interrupted"]
    assert sorted(path.name for path in (tmp_path / "run" / "folds").glob("*.npz")) == ["gated-1.npz", "gated-2.npz"]
    resume(tmp_path / "run", verbose=0, jobs=2)
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert files(tmp_path / "run") == FINISHED


def test_ctrl_c_after_the_folds_keeps_their_consensus(
    crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job(crowd, method="consensus-training", folds=2, settings={"epochs": 3, "random_state": 0})
    whole = start(asked, tmp_path / "whole", force=False, verbose=0)
    zero_grad, loss = torch.optim.Optimizer.zero_grad, ConsensusTraining.crowd_loss
    n_steps = 0

    def count(method: ConsensusTraining, *given: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        return loss(method, *given)

    def interrupt(self: Any, *given: Any, **named: Any) -> None:
        if n_steps == 2:  # of the last training, which comes after the folds
            raise KeyboardInterrupt
        zero_grad(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(ConsensusTraining, "crowd_loss", count)
        patch.setattr(torch.optim.Optimizer, "zero_grad", interrupt)
        summary = start(asked, tmp_path / "run", force=False, verbose=0)
    assert summary["interrupted"]
    assert summary["n_folds"] == 2
    assert any("predictions are preliminary. The consensus is complete" in note for note in summary["notes"])
    assert not any("before its folds" in note for note in summary["notes"])
    assert summary["mean_confidence"] == whole["mean_confidence"]
    assert not (tmp_path / "run" / "summary.json").exists()
    resume(tmp_path / "run", verbose=0)
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert files(tmp_path / "run") == FINISHED


@pytest.mark.parametrize(
    ("method", "n_before", "n_trainings"), [("consensus-training", 0, 11), ("majority-vote", 1, 3)]
)
def test_lines_of_folds_in_processes_count_all_trainings(
    crowd: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    n_before: int,
    n_trainings: int,
) -> None:
    monkeypatch.setattr(run_fold_trainings, "_train_fold", lambda out, number: True)
    monkeypatch.setattr(run_fold_trainings, "ProcessPoolExecutor", lambda n, context: ThreadPoolExecutor(n))
    asked = job(crowd, method=method, folds=2, settings={"epochs": 2})
    start(asked, tmp_path / "run", force=False, jobs=2)
    lines = [line for line in capsys.readouterr().err.splitlines() if ", fold " in line]
    n_folds = n_trainings - 1
    for number, line in enumerate(lines[:n_folds], 1 + n_before):
        assert line.startswith(f"training {number} of {n_trainings} finished: ")
        is_last = number == n_trainings
        assert (" left" in line) is not is_last  # the network of consensus-training follows its folds


def test_an_interrupted_fold_starts_no_further_ones(
    crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def interrupted_fold(out: Path, number: int) -> bool:
        begun.append(number)
        return False

    monkeypatch.setattr(run_fold_trainings, "_train_fold", interrupted_fold)
    monkeypatch.setattr(run_fold_trainings, "ProcessPoolExecutor", lambda n, context: ThreadPoolExecutor(n))
    asked = job(crowd, method="majority-vote", folds=6)
    assert start(asked, tmp_path / "run", force=False, verbose=0, jobs=2)["interrupted"]
    assert sorted(begun) == [0, 1]
    monkeypatch.undo()
    assert resume(tmp_path / "run", verbose=0)["n_folds"] == 6


# ---- files that changed or are damaged ---------------------------------------------------------------


@pytest.fixture
def stopped(crowd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run that has a checkpoint and no results."""
    test = gold(crowd, tmp_path, "test.csv", crowd["items"][:4])

    def stop(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "write_results", stop)
        with pytest.raises(Killed):
            start(job(crowd, test=test), tmp_path / "run", force=False, verbose=0)
    assert files(tmp_path / "run") == [CHECKPOINT_FILE, "settings.json"]
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("labels.csv", lambda text: text.replace("cat", "dog", 1), "labels changed since the run was started"),
        ("labels.csv", lambda text: text + "i00,ada,bird\ni00,ada,fish\n", "labels changed since the run was started"),
        ("test.csv", lambda text: text.replace("i00", "i20"), "test changed since the run was started"),
    ],
)
def test_the_error_names_the_changed_table(stopped: Path, name: str, change: Any, words: str) -> None:
    path = stopped.parent / name
    path.write_text(change(path.read_text()))
    before = files(stopped)
    with pytest.raises(ValueError, match=words):
        resume(stopped, verbose=0)
    assert files(stopped) == before


@pytest.mark.parametrize("change", ["a value", "an id", "a row less"])
def test_the_error_names_the_changed_inputs(stopped: Path, crowd: dict[str, Any], change: str) -> None:
    X, items = crowd["X"].copy(), np.array(crowd["items"])
    if change == "a value":
        X[3, 1] += 1e-3
    elif change == "an id":
        items[[0, 1]] = items[[1, 0]]
    else:
        X, items = X[1:], items[1:]
    np.savez(stopped.parent / "f.npz", X=X, items=items)
    with pytest.raises(ValueError, match=r"inputs changed since the run was started.*settings\.json.*start a new run"):
        resume(stopped, verbose=0)


def test_the_same_inputs_in_a_new_file_are_accepted(stopped: Path, crowd: dict[str, Any]) -> None:
    np.savez_compressed(stopped.parent / "f.npz", X=crowd["X"], items=np.array(crowd["items"]), more=1)
    assert resume(stopped, verbose=0)["n_epochs"] == 2


def test_the_error_names_a_missing_file(stopped: Path) -> None:
    (stopped.parent / "f.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"f\.npz does not exist.*resume from the folder in which"):
        resume(stopped, verbose=0)


def test_a_changed_setting_is_refused(stopped: Path) -> None:
    stored = json.loads((stopped / "settings.json").read_text())
    stored["job"]["settings"]["learning_rate"] = 0.5
    (stopped / "settings.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="learning_rate"):
        resume(stopped, verbose=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format_version": 3, "job": 3, "hashes": {}}',
        '{"format_version": 3, "job": {"x": 1}, "hashes": {}}',
    ],
)
def test_the_error_names_damaged_settings(stopped: Path, text: str) -> None:
    (stopped / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json is damaged"):
        resume(stopped, verbose=0)


@pytest.mark.parametrize(
    ("version", "words"), [(None, "an older version.*fit' again"), (99, "a newer version.*Install")]
)
def test_a_run_folder_of_another_format_says_what_to_do(
    crowd: dict[str, Any], stopped: Path, version: int | None, words: str
) -> None:
    stored = json.loads((stopped / "settings.json").read_text())
    del stored["format_version"]
    (stopped / "settings.json").write_text(
        json.dumps(stored | ({} if version is None else {"format_version": version}))
    )
    with pytest.raises(RunFormatError, match=words):
        resume(stopped, verbose=0)
    start(job(crowd), stopped, force=True, verbose=0)  # it is a run folder all the same, and may be replaced
    assert files(stopped) == FINISHED


def test_the_error_names_a_damaged_checkpoint(stopped: Path) -> None:
    path = stopped / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged"):
        resume(stopped, verbose=0)


def test_a_folder_without_settings_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a run folder and cannot be resumed"):
        resume(tmp_path, verbose=0)


def test_resuming_a_finished_run_changes_nothing(crowd: dict[str, Any], tmp_path: Path) -> None:
    summary = start(job(crowd), tmp_path / "run", force=False, verbose=0)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    Path(crowd["labels"]).unlink()  # not read
    assert resume(tmp_path / "run", verbose=0) == summary
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before
    shutil.copy(tmp_path / "f.npz", tmp_path / "run" / "summary.json")
    with pytest.raises(ValueError, match=r"summary\.json is damaged"):
        resume(tmp_path / "run", verbose=0)
