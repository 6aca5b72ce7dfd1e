"""Refits with the decisions as gold labels: their training, their folder, and the changes."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crowdfuse import runs
from crowdfuse.quality.consensus_file import load_consensus, save_consensus
from crowdfuse.review.changes import compare_run_folders
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.refit import Refit, job_with_gold, list_refits, next_refit_folder, read_progress
from crowdfuse.review.review_order import ItemFilter
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.session import ReviewSession
from tests.review.conftest import make_run, read_rows, write_rows


def settle(run: Path, count: int) -> dict[str, str]:
    """Settle the first items, with the class that their number tells."""
    folder = read_run(run)
    session, made = ReviewSession(folder, ItemInputs(folder), "rita"), {}
    for _ in range(count):
        item = session.view(ItemFilter())["item"]
        label = int("".join(filter(str.isdigit, item["item"]))) % len(folder.classes)
        session.settle(
            item["index"], label, facts_hash=item["facts_hash"], version=item["version"], item_filter=ItemFilter()
        )
        made[item["item"]] = folder.classes[label]
    return made


def hold_processes(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Let Python processes that start from here wait until something is written to the pipe that is returned."""
    gate, program = folder / "gate", folder / "python"
    os.mkfifo(gate)
    program.write_text(f'#!/bin/sh\nread -r line < "{gate}"\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    patch.setattr(sys, "executable", str(program))
    return gate


def test_a_refit_trains_on_the_decisions_and_reports_the_changes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run / "summary.json").read_bytes()
    made = settle(run, 6)
    refit = Refit(read_run(run))
    assert refit.status() == {"state": "none"}
    with monkeypatch.context() as patch:
        gate = hold_processes(patch, run.parent)
        refit.start()
        with pytest.raises(ValueError, match="already running"):
            refit.start()
        assert refit.status()["state"] == "running"
        gate.write_text("go\n")
    while (status := refit.status())["state"] == "running":
        time.sleep(0.1)
    assert status["state"] == "done", status
    out = run.parent / "run-refit-1"
    assert status["out"] == str(out)
    assert dict(read_rows(run.parent / "run-refit-1-gold.csv")[1:]) == made
    summary = json.loads((out / "summary.json").read_text())
    assert summary["gold_used_for"] == "training"
    assert summary["n_labels"] == 24 * 3
    assert summary["n_folds"] == 2  # as in the run
    consensus = {row[0]: row[1] for row in read_rows(out / "consensus.csv")[1:]}
    assert made.items() <= consensus.items()
    assert (run / "summary.json").read_bytes() == before
    assert status["changes"] == compare_run_folders(run, out)
    assert Refit(read_run(run)).status() == status  # as after a restart
    monkeypatch.chdir(run.parent)
    assert Refit(read_run(run)).status()["out"] == "run-refit-1"  # relative to the current folder
    assert next_refit_folder(run).name == "run-refit-2"
    assert not set(made) & set(read_run(out).items)  # settled items are not reviewed again


def test_changes_between_two_runs_are_counted(run: Path, tmp_path: Path) -> None:
    made = settle(run, 2)
    after = tmp_path / "after"
    after.mkdir()
    old = load_consensus(run / "posterior.safetensors")
    assert old.predicted_probabilities is not None
    items = old.items.tolist()
    settled = items.index(next(iter(made)))
    news = next(row for row, item in enumerate(items) if item not in made)
    codes, predicted = old.consensus_codes.copy(), old.predicted_probabilities.copy()
    accuracy = old.annotator_accuracy.copy()
    codes[[settled, news]] = (codes[[settled, news]] + 1) % 3
    predicted[news] = np.roll(predicted[news], 1)
    accuracy[1] = 0.0123
    new = replace(old, consensus_codes=codes, predicted_probabilities=predicted, annotator_accuracy=accuracy)
    save_consensus(new, after / "posterior.safetensors")
    summary = json.loads((run / "summary.json").read_text())
    (after / "summary.json").write_text(json.dumps(summary | {"test_accuracy": 0.5, "n_test_items": 4}))
    found = compare_run_folders(run, after)
    expected = [
        {"item": items[row], "before": old.consensus[row], "after": new.consensus[row], "settled": made.get(items[row])}
        for row in (news, settled)  # items that were not settled come first
    ]
    assert found["consensus"] == {"n_changed": 2, "rows": expected}
    assert found["predicted"]["n_changed"] == 1
    name, before = old.annotators[1], float(old.annotator_accuracy[1])
    assert found["annotators"] == {
        "n_changed": 1,
        "n_annotators": 3,
        "rows": [{"annotator": name, "before": before, "after": 0.0123}],
    }
    assert found["test_accuracy"] == [None, 0.5]
    assert found["n_agreeing"]["consensus"] == [
        sum(result.consensus[items.index(item)] == label for item, label in made.items()) for result in (old, new)
    ]


def test_progress_counts_the_training_of_the_model_and_of_every_fold() -> None:
    lines = [
        "about 40 s for 4 training runs",
        "training 1 of 4 finished: gated",
        "training 2 of 4 finished: gated, fold 1",
    ]
    found = [read_progress(lines[:count]) for count in range(4)]
    assert [status["progress"] for status in found] == [None, None, 0.25, 0.5]
    assert found[1]["message"] == lines[0]
    assert "2 of 4" in found[3]["message"]


def test_earlier_gold_labels_are_kept_unless_a_decision_replaces_them(tmp_path: Path) -> None:
    items = [f"{n}" for n in range(12)]
    write_rows(tmp_path / "gold.csv", ("item", "label"), [("3", "8"), ("4", "7")])
    run = make_run(
        tmp_path, items=items, classes=["7", "8"], annotators=["x", "y"], kind="table", gold=str(tmp_path / "gold.csv")
    )
    job = job_with_gold(read_run(run), [("5", "8"), ("3", "7")], tmp_path / "run-refit-1")
    assert dict(read_rows(tmp_path / "run-refit-1-gold.csv")[1:]) == {"3": "7", "4": "7", "5": "8"}
    assert job.gold == str(tmp_path / "run-refit-1-gold.csv")
    assert read_rows(tmp_path / "gold.csv")[1:] == [["3", "8"], ["4", "7"]]
    runs.start(job, tmp_path / "run-refit-1", force=False, verbose=0)
    assert list_refits(run) == [tmp_path / "run-refit-1"]


def test_a_refit_that_cannot_start_says_why(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refit = Refit(read_run(run))
    with pytest.raises(ValueError, match="nothing is settled yet"):
        refit.start()
    settle(run, 1)
    labels = (run.parent / "labels.csv").read_bytes()
    (run.parent / "labels.csv").write_bytes(labels + b"photo-00.png,new,cat\n")
    with pytest.raises(ValueError, match=r"labels.csv \(labels\) is missing or has changed.*crowdfuse fit --gold"):
        refit.start()
    (run.parent / "labels.csv").write_bytes(labels)
    assert not (run.parent / "run-refit-1-gold.csv").exists()
    hold_processes(monkeypatch, run.parent)
    refit.start()
    assert refit.stop() == run.parent / "run-refit-1"
    assert refit.status()["state"] == "failed"
    assert refit.stop() is None
