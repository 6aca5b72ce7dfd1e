"""The ledger: appended lines survive any failure, and tampering is detected with its line number."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crowdfuse.review import ledger as ledger_module
from crowdfuse.review.ledger import FIRST_PREVIOUS_HASH, Ledger, LedgerEntry, LedgerError


def settle(ledger: Ledger, item: str, label: str = "cat") -> LedgerEntry:
    return ledger.append(lambda before: {"action": "settle", "item": item, "label": label, "who": "rita"})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Five decisions."""
    made = Ledger(tmp_path / "decisions.jsonl")
    for n in range(5):
        settle(made, f"item {n}")
    return made


def items(path: Path) -> list[str]:
    return [entry["item"] for entry in Ledger(path).entries()]


def test_lines_are_numbered_dated_and_chained(ledger: Ledger) -> None:
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [line["line"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["previous"] for line in lines] == [FIRST_PREVIOUS_HASH, *(line["hash"] for line in lines[:-1])]
    assert lines[-1]["hash"] == ledger.last_hash
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]+\+00:00", line["when"]) for line in lines)
    assert Ledger(ledger.path).entries() == lines


def test_a_missing_file_means_no_decisions_and_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    assert Ledger(path).entries() == []
    assert not path.exists()


def test_any_name_can_be_written(tmp_path: Path) -> None:
    names = ["a\nb", "\u2028", "שלום", '"}\\', "\udcff", ""]
    made = Ledger(tmp_path / "decisions.jsonl")
    for name in names:
        settle(made, name, name)
    assert items(made.path) == names


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda lines: [*lines[:2], lines[2].replace("cat", "dog"), *lines[3:]], 3),
        (lambda lines: [*lines[:4], lines[4].replace("cat", "dog")], 5),  # the last has no line after it
        (lambda lines: [lines[0], *lines[2:]], 2),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),
        (lambda lines: [*lines, lines[4]], 6),
        (lambda lines: [*lines[:3], "", *lines[3:]], 4),
        (lambda lines: [*lines[:3], lines[3][:-5], *lines[4:]], 4),
        (lambda lines: [lines[0].replace("rita", "eve "), *lines[1:]], 1),
    ],
    ids=["edited", "last edited", "removed", "first removed", "swapped", "repeated", "empty", "cut", "who"],
)
def test_the_error_names_the_line_that_was_tampered_with(ledger: Ledger, edit: Any, line: int) -> None:
    lines = ledger.path.read_text().splitlines()
    ledger.path.write_text("".join(f"{text}\n" for text in edit(lines)))
    with pytest.raises(LedgerError, match=rf"decisions\.jsonl, line {line} .*restore the file"):
        Ledger(ledger.path).entries()
    with pytest.raises(LedgerError, match=f"line {line} "):
        settle(Ledger(ledger.path), "new")


def test_a_line_with_a_fresh_hash_breaks_the_one_after_it(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.jsonl")
    settle(other, "item 0", "dog")
    forged = other.path.read_text() + "".join(ledger.path.read_text().splitlines(keepends=True)[1:])
    ledger.path.write_text(forged)
    with pytest.raises(LedgerError, match="line 2 does not follow the line before it"):
        Ledger(ledger.path).entries()


@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_broken_line_is_numbered_in_the_file_however_much_was_read_before(ledger: Ledger, written: int) -> None:
    """A ledger that is open reads on where it stopped; numbers are still those of the file."""
    assert len(ledger.entries()) == 5
    other = Ledger(ledger.path)
    for n in range(written):
        settle(other, f"new {n}")
    with ledger.path.open("a") as file:
        file.write("broken\n")
    with pytest.raises(LedgerError, match=rf"decisions\.jsonl, line {6 + written} was changed"):
        ledger.entries()
    with pytest.raises(LedgerError, match=f"line {6 + written} "):
        settle(ledger, "after")


@pytest.mark.parametrize("number", [5, 7, 1, None])
def test_a_line_with_another_number_is_refused_though_its_hash_is_right(ledger: Ledger, number: int | None) -> None:
    line = {"line": number, "when": "now", "action": "settle", "item": "a", "label": "cat", "who": "eve"}
    body = json.dumps(line | {"previous": ledger.last_hash})
    seal = hashlib.sha256(body.encode()).hexdigest()
    with ledger.path.open("a") as file:
        file.write(f'{body[:-1]}, "hash": "{seal}"}}\n')
    with pytest.raises(LedgerError, match="line 6 does not follow the line before it"):
        Ledger(ledger.path).entries()


def test_a_file_that_shrinks_or_goes_while_in_use_is_noticed(ledger: Ledger) -> None:
    ledger.path.write_bytes(b"".join(ledger.path.read_bytes().splitlines(keepends=True)[:3]))
    with pytest.raises(LedgerError, match="became shorter"):
        settle(ledger, "new")
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="was removed"):
        settle(ledger, "new")
    assert not ledger.path.exists()


@pytest.mark.parametrize("kept", [1, 40, 9_000])
def test_a_torn_last_line_was_never_confirmed_and_is_removed(ledger: Ledger, kept: int) -> None:
    settle(ledger, "x" * 10_000)  # longer than what is written over it
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(b"".join(lines[:4]) + lines[5][:kept])
    again = Ledger(ledger.path)
    assert [entry["line"] for entry in again.entries()] == [1, 2, 3, 4]
    assert again.torn_bytes == kept
    settle(again, "new")
    assert items(ledger.path) == ["item 0", "item 1", "item 2", "item 3", "new"]
    assert again.torn_bytes == 0


def test_an_error_while_composing_writes_nothing(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()

    def refuse(entries: list[LedgerEntry]) -> LedgerEntry:
        raise RuntimeError(f"{len(entries)}")

    with pytest.raises(RuntimeError, match="5"):
        ledger.append(refuse)
    assert ledger.path.read_bytes() == before


def test_a_failing_disk_leaves_no_half_line(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = ledger.path.read_bytes(), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:7]))  # short writes are gone on with
        settle(ledger, "in pieces")
    assert items(ledger.path)[-1] == "in pieces"
    before = ledger.path.read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"the decision was not saved.*No space left.*decide again"):
            settle(ledger, "lost")
    assert ledger.path.read_bytes() == before
    settle(ledger, "kept")
    assert items(ledger.path)[-2:] == ["in pieces", "kept"]


def test_a_line_is_on_the_disk_before_it_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def watched(name: str, call: Any) -> Any:
        def watching(*given: Any) -> Any:
            calls.append(name)
            return call(*given)

        return watching

    monkeypatch.setattr(os, "write", watched("write", os.write))
    monkeypatch.setattr(os, "fsync", watched("sync", os.fsync))
    settle(Ledger(tmp_path / "decisions.jsonl"), "a")
    assert calls == ["write", "sync", "sync"]  # the file, and the folder that has a new file


WRITER = """
import sys
from pathlib import Path
from runpy import run_path
Ledger = run_path(sys.argv[4])["Ledger"]  # not imported, since the package would import torch
ledger = Ledger(Path(sys.argv[1]))
for n in range(int(sys.argv[3])):
    line = {"action": "settle", "item": f"{sys.argv[2]} {n}", "label": "cat", "who": "rita"}
    made = ledger.append(lambda before: line)
    print(made["line"], made["item"], flush=True)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count), str(ledger_module.__file__)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_keep_all_lines_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    both = [writer(path, name, 60) for name in ("one", "two")]
    answers = [process.communicate()[0].splitlines() for process in both]
    entries = Ledger(path).entries()
    assert [entry["line"] for entry in entries] == list(range(1, 121))
    found = {f"{entry['line']} {entry['item']}" for entry in entries}
    assert found == {line for answer in answers for line in answer}


def test_confirmed_lines_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    process = writer(path, "x", 10**6)
    assert process.stdout is not None
    confirmed = [process.stdout.readline().strip() for _ in range(25)]
    process.send_signal(signal.SIGKILL)
    confirmed += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.wait()
    process.stdout.close()
    again = Ledger(path)
    found = [f"{entry['line']} {entry['item']}" for entry in again.entries()]
    assert found[: len(confirmed)] == confirmed
    assert len(found) <= len(confirmed) + 1  # one may be on the disk and not yet confirmed
    settle(again, "after")  # and the lock went with the process
    assert len(Ledger(path).entries()) == len(found) + 1
