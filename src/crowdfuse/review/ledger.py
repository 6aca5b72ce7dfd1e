"""The ledger: an append-only file with one line per decision. The lines are chained by hashes.

Each line is a JSON object that contains the hash of the previous line and, at its end, its own hash. If lines are
edited, removed, inserted or swapped, the chain is broken, and the next reader raises an error. If lines are removed at
the end, the file alone does not show it. To detect this, too, note the last hash, which `crowdfuse review --export`
prints.
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
HASH_SUFFIX = re.compile(rb', "hash": "([0-9a-f]{64})"\}')
HASH_SUFFIX_LENGTH = len(', "hash": ""}') + 64

REQUIRED_TEXT_FIELDS = ("item", "who", "when")
RECOVERY_ADVICE = (
    "restore the file from a copy, or move it away and start 'crowdfuse review' again, which creates a new file"
)
REMOVED_ADVICE = "restore the file from a copy, or start 'crowdfuse review' again, which creates a new file"

LedgerEntry = dict[str, Any]


class LedgerError(ValueError):
    """Raised if the ledger file was edited, shortened or removed. If a line is faulty, the message gives its number."""


class Ledger:
    """The ledger of a run: the file of all decisions of reviewers, with one line per decision.

    Several threads and processes may read and write the file at the same time.

    Parameters
    ----------
    path : Path
        The ledger file. The first decision creates it.

    Attributes
    ----------
    torn_bytes : int
        Length in bytes of an incomplete last line that a crash left behind; 0 if there is no such line. The reviewer
        never got a confirmation for the decision in this line. The next decision overwrites the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder, "decisions.jsonl"))
    ...     _ = ledger.append(lambda before: {"action": "settle", "item": "a", "label": "cat", "who": "ada"})
    ...     [entry["label"] for entry in Ledger(ledger.path).entries()]
    ['cat']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_bytes = 0
        self._known: list[LedgerEntry] = []
        self._end = 0  # length in bytes of the lines read so far
        self._last = FIRST_PREVIOUS_HASH
        self._lock = threading.RLock()

    @property
    def last_hash(self) -> str:
        """Hash (SHA-256) of the last line that was read or written. The hash depends on all earlier lines, too."""
        return self._last

    def entries(self, *, from_start: bool = False) -> list[LedgerEntry]:
        """Read and check the lines that were added since the last call, and return all lines.

        Parameters
        ----------
        from_start : bool, default=False
            Whether to read and check all lines again, not only the added lines.

        Returns
        -------
        entries : list of dict
            One dict per line, from the first line to the last.

        Raises
        ------
        LedgerError
            If the file was edited, shortened or removed.
        """
        with self._lock:
            if from_start:
                self._forget()
            if self.path.exists():
                with _locked(self.path, os.O_RDONLY) as file:
                    self._catch_up(file)
            elif self._known:
                raise LedgerError(f"{self.path} was removed while it was in use; {REMOVED_ADVICE}")
            return list(self._known)

    def append(self, compose: Callable[[list[LedgerEntry]], LedgerEntry]) -> LedgerEntry:
        """Append a line to the file, and return the line after it is on disk. An incomplete last line is removed first.

        Parameters
        ----------
        compose : callable
            Function that receives all existing lines (a list of dicts) and returns the new line (a dict). While the
            function runs, no other process can write. If the function raises an error, nothing is written.

        Returns
        -------
        entry : dict of str to Any
            The new line, with the added keys `line` (its number), `when`, `previous` (the hash of the previous line)
            and `hash` (the hash of the new line).

        Raises
        ------
        LedgerError
            If the file was edited, shortened or removed.
        OSError
            If the line cannot be written. The ledger then stays as it was.
        """
        with self._lock:
            is_new = not self.path.exists()
            if is_new and self._known:
                raise LedgerError(f"{self.path} was removed while it was in use; {REMOVED_ADVICE}")
            with _locked(self.path, os.O_RDWR | os.O_CREAT) as file:
                self._catch_up(file)
                entry = {
                    "line": len(self._known) + 1,
                    "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    **compose(list(self._known)),
                    "previous": self._last,
                }
                text, line_hash = _encode_line(entry)
                self._write(file, text)
                if is_new:
                    _sync_folder(self.path.parent)
                self.torn_bytes = 0
                self._known.append(entry | {"hash": line_hash})
                self._end += len(text)
                self._last = line_hash
                return self._known[-1]

    def _write(self, file: int, text: bytes) -> None:
        """Write a line to disk after the lines read so far. If this fails, remove what was written of the line."""
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
                f"{self.path}: the decision was not saved ({error}); solve this problem, then decide again"
            ) from error

    def _forget(self) -> None:
        """Forget all lines read so far."""
        self._known, self._end, self._last, self.torn_bytes = [], 0, FIRST_PREVIOUS_HASH, 0

    def _catch_up(self, file: int) -> None:
        """Read and check the lines that other processes have written since the last call."""
        if os.fstat(file).st_size < self._end:
            raise LedgerError(f"{self.path} became shorter while it was in use; {RECOVERY_ADVICE}")
        os.lseek(file, self._end, os.SEEK_SET)
        data = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
        *lines, rest = data.split(b"\n")
        for line in lines:
            entry, line_hash = self._check_line(line, len(self._known) + 1)
            self._known.append(entry)
            self._end += len(line) + 1
            self._last = line_hash
        self.torn_bytes = len(rest)

    def _check_line(self, line: bytes, number: int) -> tuple[LedgerEntry, str]:
        """Return the entry of a line and its hash; raise `LedgerError` if it was changed."""
        place = f"{self.path}, line {number}"
        suffix = HASH_SUFFIX.fullmatch(line[-HASH_SUFFIX_LENGTH:])
        if suffix is None:
            raise LedgerError(f"{place} was changed: the hash at its end is missing; {RECOVERY_ADVICE}")
        body, line_hash = line[:-HASH_SUFFIX_LENGTH] + b"}", suffix[1].decode()
        if hashlib.sha256(body).hexdigest() != line_hash:
            raise LedgerError(f"{place} was changed: it does not match the hash at its end; {RECOVERY_ADVICE}")
        try:
            entry: LedgerEntry = json.loads(body)
            previous, own_number = entry["previous"], entry["line"]
            required: Any = {"settle": ("label", str), "undo": ("undoes", int), "skip": ("item", str)}[entry["action"]]
            complete = isinstance(entry[required[0]], required[1]) and all(
                type(entry[name]) is str for name in REQUIRED_TEXT_FIELDS
            )
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerError(
                f"{place} was not written by 'crowdfuse review' ({error!r}); {RECOVERY_ADVICE}"
            ) from error
        if not complete:
            raise LedgerError(f"{place} was not written by 'crowdfuse review'; {RECOVERY_ADVICE}")
        if previous != self._last or own_number != number:
            raise LedgerError(
                f"{place} does not follow the line before it: lines were changed, removed, added or swapped; "
                f"{RECOVERY_ADVICE}"
            )
        return entry | {"hash": line_hash}, line_hash


def _encode_line(entry: LedgerEntry) -> tuple[bytes, str]:
    """Return the line of an entry, and its hash."""
    body = json.dumps(entry).encode()  # ASCII, so that any name can be written, even a lone surrogate
    line_hash = hashlib.sha256(body).hexdigest()
    return body[:-1] + f', "hash": "{line_hash}"}}\n'.encode(), line_hash


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    """Open the file under a lock that excludes other processes. If a process is killed, its lock is released."""
    try:
        file = os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o644)
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be opened: {error.strerror}; check its permissions") from error
    try:
        if sys.platform == "win32":
            # lock a byte that is never written: Windows does not let others read locked bytes
            os.lseek(file, 1 << 40, os.SEEK_SET)
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
    """Write the entry of a new file in its folder to the disk."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
