"""Finished runs on disk: one line of JSON per run. A run is found by its definition."""

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
"""Everything that defines a run, ready for JSON: data, annotators, method, settings, seed."""

VERSIONS = {"crowdfuse": __version__, "torch": version("torch").split("+")[0]}
"""The versions that are stored with a finished run. Runs of other versions are not used."""


def run_key(run: RunSpec) -> str:
    """Return a hash of a run. The order of the run's entries does not change the hash.

    Parameters
    ----------
    run : RunSpec
        Everything that defines the run.

    Returns
    -------
    str
        24 hexadecimal digits.

    Examples
    --------
    >>> run_key({"seed": 0, "method": "fusion"}) == run_key({"method": "fusion", "seed": 0})
    True
    """
    text = json.dumps(run, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Record:
    """A finished run.

    Parameters
    ----------
    run : RunSpec
        Everything that defines the run.
    result : dict
        The results, by metric.
    seconds : float
        How long the run took, in seconds.

    Examples
    --------
    >>> Record({"method": "fusion", "seed": 0}, {"accuracy": 0.9}, 12.5).result["accuracy"]
    0.9
    """

    run: RunSpec
    result: dict[str, Any]
    seconds: float


class Store:
    """A file of finished runs, with one line of JSON per run.

    New runs are appended. Existing lines are never changed. If a crash leaves an incomplete line, this line is not read
    as a run.

    Parameters
    ----------
    path : Path
        The file, which need not exist yet.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = Store(Path(folder, "runs.jsonl"))
    ...     store.add(Record({"method": "fusion", "seed": 0}, {"accuracy": 0.9}, 12.5))
    ...     [record.run["method"] for record in store.read()[0].values()]
    ['fusion']
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[dict[str, Record], list[str]]:
        """Return the runs made with the installed versions of crowdfuse and torch, and notes on lines left out.

        Returns
        -------
        records : dict of str to Record
            Finished runs by `run_key`.
        notes : list of str
            Runs made with other versions are left out: one sentence per combination of versions. Unreadable lines are
            left out too: one sentence about the first of them. Empty if no line was left out.

        Raises
        ------
        ValueError
            If the file has lines, but none of them is a finished run of any version.
        """
        if not self.path.exists():
            return {}, []
        records: dict[str, Record] = {}
        n_by_version: dict[str, int] = {}
        broken = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                record = Record(entry["run"], entry["result"], entry["seconds"])
                versions = entry["versions"]
            except (ValueError, KeyError, TypeError):
                broken.append(number)
                continue
            if versions == VERSIONS:
                records.setdefault(run_key(record.run), record)
            else:
                name = _format_versions(versions)
                n_by_version[name] = n_by_version.get(name, 0) + 1
        notes = [
            f"{self.path}: {count:,} runs are neither counted nor shown here, because they were made by {name}, not by "
            f"{_format_versions(VERSIONS)}; they stay in the file"
            for name, count in n_by_version.items()
        ]
        if broken and not records and not n_by_version:
            raise ValueError(f"{self.path} is not a store of finished runs; choose another folder with --out")
        if broken:
            notes.append(
                f"{self.path}, line {broken[0]}: this line was left out because it is not a finished run (perhaps the "
                "process was killed while writing)"
            )
        return records, notes

    def add(self, record: Record) -> None:
        """Append a run. When the method returns, the run is on disk.

        Parameters
        ----------
        record : Record
            The finished run. Numbers that are not finite (NaN or infinity) are stored as null.
        """
        entry = {
            "versions": VERSIONS,
            "run": record.run,
            "result": nonfinite_to_none(record.result),
            "seconds": record.seconds,
        }
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        with self.path.open("ab+") as file:
            if file.tell() and not _ends_with_newline(file.fileno(), file.tell()):
                line = (
                    b"\n" + line
                )  # a killed process left half a line: the half line stays in the file and is not read
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the store, so that only one process executes its runs at a time.

        Without the lock, two processes that use the same store could execute the same runs twice.

        Returns
        -------
        context manager
            Releases the lock at the end of the block.

        Raises
        ------
        ValueError
            If another process has locked the store.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()  # first, so that the folder counts as a folder of runs even if an error follows
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(
                    f"{self.path} is in use by another crowdfuse process; wait until it ends, or choose "
                    "another folder with --out"
                ) from error
            yield


def _ends_with_newline(descriptor: int, size: int) -> bool:
    """Return whether the last byte of an open file is a newline."""
    return os.pread(descriptor, 1, size - 1) == b"\n"


def _format_versions(versions: Any) -> str:
    """Return versions as text, such as "crowdfuse 0.1.0, torch 2.4.0"."""
    if not isinstance(versions, dict):
        return "another version"
    return ", ".join(f"{name} {number}" for name, number in versions.items())
