from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdfuse.experiments import store as module
from crowdfuse.experiments.store import Record, Store, run_key

RUN = {"method": "fusion", "settings": {"epochs": 2}, "seed": 0}


def test_the_key_depends_on_everything_that_defines_a_run() -> None:
    assert run_key(RUN) == run_key(dict(reversed(RUN.items())))
    assert run_key(RUN) != run_key(RUN | {"seed": 1})
    assert run_key(RUN) != run_key(RUN | {"settings": {"epochs": 3}})


def test_added_runs_are_read_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    assert store.read() == ({}, [])
    first, second = Record(RUN, {"accuracy": 0.5}, 1.0), Record(RUN | {"seed": 1}, {"accuracy": 0.6}, 2.0)
    store.add(first)
    store.add(second)
    assert store.read() == ({run_key(first.run): first, run_key(second.run): second}, [])


def test_the_first_of_two_equal_runs_is_used(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(Record(RUN, {"accuracy": 0.5}, 1.0))
    store.add(Record(RUN, {"accuracy": 0.9}, 1.0))
    assert [record.result for record in store.read()[0].values()] == [{"accuracy": 0.5}]


def test_a_kill_at_any_byte_of_a_line_loses_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    Store(path).add(Record(RUN, {"accuracy": 0.5}, 1.0))
    whole = path.read_bytes()
    Store(path).add(Record(RUN | {"seed": 1}, {"accuracy": 0.6}, 1.0))
    both = path.read_bytes()
    for cut in range(len(whole), len(both) - 1):  # the first line is whole
        path.write_bytes(both[:cut])
        found, remarks = Store(path).read()
        assert len(found) == 1
        assert len(remarks) == (cut > len(whole))
        Store(path).add(Record(RUN | {"seed": 2}, {"accuracy": 0.7}, 1.0))
        assert {record.run["seed"] for record in Store(path).read()[0].values()} == {0, 2}


def test_runs_of_another_version_are_reported_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "runs.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(module, "VERSIONS", {"crowdfuse": "0.0.1", "torch": "1.0"})
        store.add(Record(RUN, {"accuracy": 0.5}, 1.0))
    found, remarks = store.read()
    assert found == {}
    assert len(remarks) == 1
    assert "because they were made by crowdfuse 0.0.1, torch 1.0" in remarks[0]
    store.add(Record(RUN, {"accuracy": 0.6}, 1.0))
    assert [record.result["accuracy"] for record in store.read()[0].values()] == [0.6]
    assert len(store.path.read_text().splitlines()) == 2  # nothing is lost


def test_another_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text("mine\n")
    with pytest.raises(ValueError, match="is not a store"):
        Store(tmp_path / "runs.jsonl").read()


def test_a_store_is_locked_by_one_grid(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "runs.jsonl")
    with store.locked(), pytest.raises(ValueError, match="in use by another crowdfuse"), store.locked():
        pass
    with store.locked():
        pass


def test_nonfinite_results_are_null(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(Record(RUN, {"loss": float("nan")}, 1.0))
    assert json.loads(store.path.read_text())["result"] == {"loss": None}
