"""Refits with the decisions as gold labels: their training, their folder, and the changes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from crowdfuse import runs
from crowdfuse.review.changes import compare_run_folders
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.refit import Refit, job_with_gold, list_refits, next_refit_folder
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.session import ItemFilter, ReviewSession
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
        with pytest.raises(ValueError, match="running already"):
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
    fused, people = read_rows(run / "fused.csv"), read_rows(run / "annotators.csv")
    other = {row[0]: row for row in fused[1:]}
    settled, news = next(iter(made)), next(name for name in other if name not in made)
    old_settled, old_news = other[settled][1], other[news][1]
    other[settled][1], other[news][1], other[news][4] = "new", "newer", "newest"
    write_rows(after / "fused.csv", tuple(fused[0]), list(other.values()))
    agreement = float(people[1][2])
    people[1][2] = "0.0123"
    write_rows(after / "annotators.csv", tuple(people[0]), people[1:])
    summary = json.loads((run / "summary.json").read_text())
    (after / "summary.json").write_text(json.dumps(summary | {"test_accuracy": 0.5, "n_test_items": 4}))
    found = compare_run_folders(run, after)
    assert found["fused"] == {
        "n_changed": 2,
        "rows": [  # items that were not settled come first
            {"item": news, "before": old_news, "after": "newer", "settled": None},
            {"item": settled, "before": old_settled, "after": "new", "settled": made[settled]},
        ],
    }
    assert found["predicted"]["n_changed"] == 1
    assert found["annotators"]["rows"] == [{"annotator": people[1][0], "before": agreement, "after": 0.0123}]
    assert found["test_accuracy"] == [None, 0.5]
    right = sum(row[1] == made.get(row[0]) for row in read_rows(run / "fused.csv")[1:])
    assert found["n_agreeing"]["fused"] == [right, right - (old_settled == made[settled])]


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
