"""Atomic writes: a file or folder appears when it is complete, and a failure leaves the old one unchanged."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdfuse.io.files import (
    atomic_file,
    atomic_folder,
    refuse_existing,
    refuse_foreign,
    remove_leftovers,
    sha256,
    write_csv,
    write_json,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


def test_failure_keeps_the_old_file_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic_file(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    with atomic_file(tmp_path / "file") as temporary:  # a writer that makes the file anew, closed to others
        temporary.unlink()
        temporary.touch(0o600)
    with atomic_folder(tmp_path / "folder"):
        pass
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask


def test_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "above" / "folder"
    with atomic_folder(path) as place:
        (place / "a").write_text("a")
        assert not path.exists()
    assert names(path) == ["a"]
    assert names(path.parent) == ["folder"]


def test_a_failure_leaves_no_folder(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "folder") as place:
            (place / "a").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path) == []


def test_existing_folder_is_replaced_only_with_force(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    with pytest.raises(FileExistsError, match="exists already"), atomic_folder(path):
        pass
    with pytest.raises(RuntimeError), atomic_folder(path, force=True):
        raise RuntimeError
    assert names(path) == ["old"]
    with atomic_folder(path, force=True) as place:
        (place / "new").write_text("new")
    assert names(path) == ["new"]
    assert names(tmp_path) == ["folder"]


def test_if_the_swap_fails_the_old_folder_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    rename = Path.rename

    def fail_for_the_new(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError("disk gone")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(OSError, match="disk gone"), atomic_folder(path, force=True):
        pass
    assert names(path) == ["old"]
    assert names(tmp_path) == ["folder"]


def test_a_link_keeps_pointing_to_the_folder_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link", force=True) as place:
        (place / "new").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["new"]
    assert names(tmp_path) == ["link", "real"]


def test_existing_output_is_refused_without_force(tmp_path: Path) -> None:
    path = tmp_path / "file"
    refuse_existing(path, force=False)
    path.write_text("x")
    refuse_existing(path, force=True)
    with pytest.raises(FileExistsError, match=r"file exists already.*--force"):
        refuse_existing(path, force=False)


def test_only_own_and_empty_folders_can_be_replaced(tmp_path: Path) -> None:
    refuse_foreign(tmp_path / "absent", "model.json")
    refuse_foreign(tmp_path, "model.json")  # empty
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match=r"model\.json"):
        refuse_foreign(tmp_path, "model.json")
    with pytest.raises(FileExistsError, match="is a file"):
        refuse_foreign(tmp_path / "thesis.tex", "model.json")
    (tmp_path / "model.json").write_text("{}")
    refuse_foreign(tmp_path, "model.json")


def test_only_temporary_files_are_removed(tmp_path: Path) -> None:
    keep = [".gitignore", ".notes.tmp", "checkpoint.safetensors", "run.0123abcd.tmp", ".tmp"]
    for name in keep:
        (tmp_path / name).write_text("x")
    (tmp_path / ".checkpoint.safetensors.0123abcd.tmp").write_text("x")
    (tmp_path / ".tmpAb1_x9").write_text("x")  # safetensors' own
    for name in (".model.0123abcd.old", ".model.89abcdef.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text("x")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted(keep)


def test_json_holds_no_nan(tmp_path: Path) -> None:
    value = {"loss": float("nan"), "rate": (1.5, float("inf")), "name": "Zoë", "deep": [{"x": -float("inf")}], "n": 3}
    write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(text, parse_constant=refuse)
    assert found == {"loss": None, "rate": [1.5, None], "name": "Zoë", "deep": [{"x": None}], "n": 3}


def test_tables_keep_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    rows = [["a,b", 'say "x"'], ["two\nlines", "Zoë"]]
    write_csv(tmp_path / "t.csv", ("item", "label"), rows)
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as lines:
        assert list(csv.reader(lines)) == [["item", "label"], *rows]


def test_sha256_is_of_the_content(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
