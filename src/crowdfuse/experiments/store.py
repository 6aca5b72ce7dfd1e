"""Finished runs, one line of JSON each, keyed by everything that defines the run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crowdfuse import __version__
from crowdfuse.io.files import nonfinite_to_none

RunSpec = dict[str, Any]
"""What defines a run, as JSON holds it: data, annotators, method, settings, seed."""

VERSIONS = {"crowdfuse": __version__, "torch": version("torch").split("+")[0]}


def run_key(run: RunSpec) -> str:
    """A name for a run: the same for the same run, whatever the order of its parts.

    >>> key_of({"seed": 0, "method": "fusion"}) == key_of({"method": "fusion", "seed": 0})
    True
    """
    text = json.dumps(run, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Record:
    """A finished run: what it was, what came out, how long it took."""

    run: RunSpec
    result: dict[str, Any]
    seconds: float


class Store:
    """A file of finished runs. Lines are only ever added, each whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[dict[str, Record], list[str]]:
        """Runs by key, and remarks on what was left out: lines of another version, or broken ones."""
        if not self.path.exists():
            return {}, []
        found: dict[str, Record] = {}
        others: dict[str, int] = {}
        broken = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                record = Record(entry["run"], entry["result"], entry["seconds"])
                made_by = entry["made by"]
            except (ValueError, KeyError, TypeError):
                broken.append(number)
                continue
            if made_by == VERSIONS:
                found.setdefault(run_key(record.run), record)
            else:
                others[_in_words(made_by)] = others.get(_in_words(made_by), 0) + 1
        remarks = [
            f"{self.path}: {count:,} runs were made by {maker}, not by {_in_words(VERSIONS)}: they are kept, "
            "but neither counted nor shown here"
            for maker, count in others.items()
        ]
        if broken and not found and not others:
            raise ValueError(f"{self.path} is not a store of finished runs; choose another --out")
        if broken:
            remarks.append(f"{self.path}, line {broken[0]}: not a finished run (a kill while writing?); left out")
        return found, remarks

    def add(self, record: Record) -> None:
        """Append a run, on disk before this returns."""
        entry = {
            "made by": VERSIONS,
            "run": record.run,
            "result": nonfinite_to_none(record.result),
            "seconds": record.seconds,
        }
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        with self.path.open("ab+") as file:
            if file.tell() and not _ends_with_newline(file.fileno(), file.tell()):
                line = b"\n" + line  # a kill left half a line: it stays, and is not read
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else adds runs meanwhile: two grids over one store would do the same runs twice."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()  # first, so that the folder is known as ours whatever happens
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(
                    f"{self.path} is in use by another crowdfuse; wait for it, or give another --out"
                ) from error
            yield


def _ends_with_newline(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


def _in_words(made_by: Any) -> str:
    return ", ".join(f"{name} {number}" for name, number in made_by.items()) if isinstance(made_by, dict) else "another"
