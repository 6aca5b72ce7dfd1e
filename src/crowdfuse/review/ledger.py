"""Decisions on disk: one line each, only ever appended, on the disk before anybody is told, chained by hashes.

A line is a JSON object that ends in its own hash and names that of the line before. Whoever edits, removes, inserts or
swaps lines breaks the chain there. That lines are missing at the end does not show by the file alone: keep the last
hash, which an export names, to see that too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FIRST_PREVIOUS_HASH = "0" * 64
SEAL = re.compile(rb', "hash": "([0-9a-f]{64})"\}')
SEAL_LENGTH = len(', "hash": ""}') + 64

WORDS = ("item", "who", "when")  # what every line has, as text

LedgerEntry = dict[str, Any]


class LedgerError(ValueError):
    """The file of decisions is not what was written."""


class Ledger:
    """The decisions of one run. Any number of threads and processes may have it open, each sees all lines.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder, "decisions.jsonl"))
    ...     _ = ledger.append(lambda before: {"action": "settle", "item": "a", "label": "cat", "who": "ada"})
    ...     [entry["label"] for entry in Ledger(ledger.path).entries()]
    ['cat']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0
        """Bytes of a last line that was cut off: a decision that was never confirmed to anybody."""
        self._known: list[LedgerEntry] = []
        self._end = 0  # of what is known, in bytes
        self._last = FIRST_PREVIOUS_HASH
        self._one_thread = threading.RLock()

    @property
    def last_hash(self) -> str:
        """The hash of the last line that is known; it stands for all of them."""
        return self._last

    def entries(self, *, from_start: bool = False) -> list[LedgerEntry]:
        """All lines up to now, checked; `from_start` reads and checks again what is known already."""
        with self._one_thread:
            if from_start:
                self._forget()
            if self.path.exists():
                with _locked(self.path, os.O_RDONLY) as file:
                    self._catch_up(file)
            elif self._known:
                raise LedgerError(f"{self.path} is gone, though it was in use; {RECOVERY_HINT}")
            return list(self._known)

    def append(self, compose: Callable[[list[LedgerEntry]], LedgerEntry]) -> LedgerEntry:
        """Write what `compose` returns as the next line, and return the line once it is on the disk.

        `compose` is given all lines, at a moment when nobody else can write, and may refuse by raising. A line that a
        crash cut off is removed first.
        """
        with self._one_thread:
            is_new = not self.path.exists()
            if is_new and self._known:
                raise LedgerError(f"{self.path} is gone, though it was in use; {RECOVERY_HINT}")
            with _locked(self.path, os.O_RDWR | os.O_CREAT) as file:
                self._catch_up(file)
                entry = {
                    "line": len(self._known) + 1,
                    "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    **compose(list(self._known)),
                    "previous": self._last,
                }
                text, seal = _seal(entry)
                try:
                    os.ftruncate(file, self._end)
                    os.lseek(file, self._end, os.SEEK_SET)
                    rest = memoryview(text)
                    while rest:
                        rest = rest[os.write(file, rest) :]
                    os.fsync(file)
                except OSError as error:
                    os.ftruncate(file, self._end)
                    raise OSError(
                        f"{self.path}: the decision could not be written, and does not count: {error}"
                    ) from error
                if is_new:
                    _sync_folder(self.path.parent)
                self.torn = 0
                self._known.append(entry | {"hash": seal})
                self._end += len(text)
                self._last = seal
                return self._known[-1]

    def _forget(self) -> None:
        self._known, self._end, self._last, self.torn = [], 0, FIRST_PREVIOUS_HASH, 0

    def _catch_up(self, file: int) -> None:
        """Read and check the lines that others have written since."""
        if os.fstat(file).st_size < self._end:
            raise LedgerError(f"{self.path} has become shorter while it was in use; {RECOVERY_HINT}")
        os.lseek(file, self._end, os.SEEK_SET)
        data = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
        *lines, rest = data.split(b"\n")
        for line in lines:
            entry, seal = self._checked(line, len(self._known) + 1)
            self._known.append(entry)
            self._end += len(line) + 1
            self._last = seal
        self.torn = len(rest)

    def _checked(self, line: bytes, number: int) -> tuple[LedgerEntry, str]:
        place = f"{self.path}, line {number}"
        found = SEAL.fullmatch(line[-SEAL_LENGTH:])
        if found is None:
            raise LedgerError(f"{place} was changed: it does not end in a hash; {RECOVERY_HINT}")
        body, seal = line[:-SEAL_LENGTH] + b"}", found[1].decode()
        if hashlib.sha256(body).hexdigest() != seal:
            raise LedgerError(f"{place} was changed: its content is not what its hash says; {RECOVERY_HINT}")
        try:
            entry: LedgerEntry = json.loads(body)
            previous, own_number = entry["previous"], entry["line"]
            needed: Any = {"settle": ("label", str), "undo": ("undoes", int), "skip": ("item", str)}[entry["action"]]
            complete = isinstance(entry[needed[0]], needed[1]) and all(type(entry[name]) is str for name in WORDS)
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerError(f"{place} is not what crowdfuse review writes ({error!r}); {RECOVERY_HINT}") from error
        if not complete:
            raise LedgerError(f"{place} is not what crowdfuse review writes; {RECOVERY_HINT}")
        if previous != self._last or own_number != number:
            raise LedgerError(
                f"{place} does not follow the line before it: lines were changed, removed, added or swapped; "
                f"{RECOVERY_HINT}"
            )
        return entry | {"hash": seal}, seal


RECOVERY_HINT = "bring the file back from a copy, or move it away and begin anew"


def _seal(entry: LedgerEntry) -> tuple[bytes, str]:
    """The line of an entry, and its hash."""
    body = json.dumps(entry).encode()  # ASCII, so that any name is written, even of half a character
    seal = hashlib.sha256(body).hexdigest()
    return body[:-1] + f', "hash": "{seal}"}}\n'.encode(), seal


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    """The open file, with no other process or thread in here; the lock goes with whoever is killed."""
    try:
        file = os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o644)
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be opened: {error.strerror}; see who may read and write it") from error
    try:
        if sys.platform == "win32":
            os.lseek(file, 1 << 40, os.SEEK_SET)  # a byte that is never written: on Windows nobody reads locked ones
            msvcrt.locking(file, msvcrt.LK_LOCK, 1)
            try:
                yield file
            finally:
                os.lseek(file, 1 << 40, os.SEEK_SET)
                msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX if flags & os.O_RDWR else fcntl.LOCK_SH)
            yield file
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    """That a new file is there is on the disk as well."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
