"""Write files and folders atomically: write under a temporary name next to the target, then rename."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Context manager that writes a file atomically: other programs never see a partly written file.

    Parameters
    ----------
    path : Path
        The file to write. An existing file is replaced. Missing parent folders are created.

    Yields
    ------
    temporary : Path
        The path to write to. It is renamed to `path` if the ``with`` block ends without an error, else it is removed.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with atomic_file(path) as temporary:
    ...     _ = temporary.write_text("done")
    >>> path.read_text()
    'done'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    temporary.touch()
    mode = temporary.stat().st_mode  # the user's umask; safetensors would make the file unreadable for others
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Context manager that writes a folder atomically: other programs never see a partly written folder.

    Parameters
    ----------
    path : Path
        The folder to write. Missing parent folders are created.
    force : bool, default=False
        Whether to replace an existing folder.

    Yields
    ------
    temporary : Path
        The folder to fill. It is renamed to `path` if the ``with`` block ends without an error, else it is removed.

    Raises
    ------
    FileExistsError
        If `path` exists and is not an empty folder, and `force` is False.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run"
    >>> with atomic_folder(path) as temporary:
    ...     write_text(temporary / "notes.txt", "done")
    >>> [file.name for file in path.iterdir()]
    ['notes.txt']
    """
    refuse_existing(path, force=force)
    path = path.resolve()  # if the path is a symbolic link, the link stays and its target is replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            _swap(temporary, path)
        else:
            temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, old: Path) -> None:
    """Replace the folder `old` by `new`; if that fails, restore `old`."""
    aside = new.with_suffix(".old")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    shutil.rmtree(aside)


def _temporary_name(path: Path) -> Path:
    """A hidden, unused name next to a path."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files (ours and safetensors' files) that a killed process left in a folder."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{8}\.(tmp|old)|\.tmp\w{6}", path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise an error if an output exists and `force` is False; an empty folder is allowed."""
    empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not empty and not force:
        raise FileExistsError(
            f"{path} exists already; choose another name, or replace it (--force on the command line, overwrite=True "
            "in save)"
        )


def refuse_foreign(path: Path, marker: str) -> None:
    """Raise an error if a path is a file, or a folder without the file `marker` (crowdfuse did not write it)."""
    if path.is_file():
        raise FileExistsError(f"{path} is a file, but a folder must be created with this name; choose another name")
    if path.is_dir() and any(path.iterdir()) and not (path / marker).is_file():
        raise FileExistsError(
            f"{path} will not be replaced, because it was not written by crowdfuse (it has no {marker}); choose "
            "another name"
        )


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, atomically.

    Parameters
    ----------
    path : Path
        The file to write. An existing file is replaced.
    text : str
        The content of the file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> write_text(path, "done")
    >>> path.read_text()
    'done'
    """
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file, atomically.

    Parameters
    ----------
    path : Path
        The file to write. An existing file is replaced.
    header : sequence of str
        The names of the columns.
    rows : iterable of sequences
        The values of each row.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "table.csv"
    >>> write_csv(path, ["item", "label"], [(1, "cat"), (2, "dog")])
    >>> path.read_text()
    'item,label\\n1,cat\\n2,dog\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, atomically. NaN and infinity become null.

    Parameters
    ----------
    path : Path
        The file to write. An existing file is replaced.
    value : Any
        Anything that `json.dumps` takes.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "figures.json"
    >>> write_json(path, {"loss": float("nan")})
    >>> json.loads(path.read_text())
    {'loss': None}
    """
    write_text(path, json.dumps(nonfinite_to_none(value), indent=2, ensure_ascii=False) + "\n")


def nonfinite_to_none(value: Any) -> Any:
    """Replace NaN and infinity by None, because JSON does not allow them.

    >>> nonfinite_to_none({"loss": [0.5, float("nan")]})
    {'loss': [0.5, None]}
    """
    if isinstance(value, dict):
        return {name: nonfinite_to_none(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [nonfinite_to_none(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256(path: Path) -> str:
    """The SHA-256 hash of the content of a file, or of the names and contents of a folder, as hexadecimal text."""
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()}\0{sha256(file)}\0".encode(errors="surrogateescape"))
        return digest.hexdigest()
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
