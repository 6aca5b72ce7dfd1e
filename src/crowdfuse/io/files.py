"""Writing so that a file or folder is there whole or not at all: under a temporary name beside it, then renamed."""

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
    """A temporary path to write to; when all went well it takes the place of `path`, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    temporary.touch()
    mode = temporary.stat().st_mode  # as the user's umask has it; safetensors would close the file to others
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
    """A temporary folder to fill; when all went well it becomes `path`. An existing one is kept unless `force`."""
    refuse_existing(path, force=force)
    path = path.resolve()  # a link keeps pointing to the folder it points to
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
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
    aside = new.with_suffix(".old")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    shutil.rmtree(aside)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def remove_leftovers(folder: Path) -> None:
    """Clear away what a killed process had begun to write in this folder, under our names or safetensors'."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{8}\.(tmp|old)|\.tmp\w{6}", path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def refuse_existing(path: Path, *, force: bool) -> None:
    """An output that exists is never overwritten unless the user says so."""
    empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not empty and not force:
        raise FileExistsError(
            f"{path} exists already; choose another name, or say --force (overwrite=True) to replace it"
        )


def refuse_foreign(path: Path, marker: str) -> None:
    """Force replaces an empty folder or one of ours, known by the file `marker` in it; never anything else."""
    if path.is_file():
        raise FileExistsError(f"{path} is a file, and a folder was to be written; choose another name")
    if path.is_dir() and any(path.iterdir()) and not (path / marker).is_file():
        raise FileExistsError(
            f"{path} has no {marker}, so crowdfuse did not write it and will not replace it; choose another name"
        )


def write_text(path: Path, text: str) -> None:
    """Text as UTF-8, whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_json(path: Path, value: Any) -> None:
    """JSON, indented, whole or not at all."""
    write_text(path, json.dumps(nonfinite_to_none(value), indent=2, ensure_ascii=False) + "\n")


def nonfinite_to_none(value: Any) -> Any:
    """The same with null for NaN and infinity, which JSON does not have and other readers refuse.

    >>> nonfinite_to_none({"loss": [0.5, float("nan")]})
    {'loss': [0.5, None]}
    """
    if isinstance(value, dict):
        return {name: nonfinite_to_none(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [nonfinite_to_none(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
