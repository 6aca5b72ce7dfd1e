"""Exports of doccano: the classes of documents or images, one JSONL file per annotator.

If annotators work separately, doccano exports a zip file with one file per annotator, named after the annotator. A
record has `id`, `text` (or `filename`), `label` with a list of classes (`cats` if there are spans, too), and the
metadata of the document. In older versions, the record has the name of the annotator (`username`, or `user` within
`annotations`). If annotators share their labels, doccano exports `all.jsonl`, which does not say who gave which label.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from crowdfuse.io.exports import (
    JSON_ENDINGS,
    ExportLabels,
    ExportRecords,
    describe_keys,
    describe_record,
    get_field,
    parse_json,
)
from crowdfuse.io.file_content import file_ending, read_utf8
from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_names

EXPECTED = "doccano: records with 'label' and 'text' or 'filename', in one .jsonl file per annotator"
INPUT_FIELDS = ("text", "filename")
LABEL_FIELDS = ("label", "cats", "labels")
SHARED_FILE = "all"  # doccano's name for the labels of all annotators together
ZIP_ENDING = ".zip"


def is_doccano_folder(path: Path) -> bool:
    """Whether a path is a folder or a zip file; either may hold one file per annotator."""
    return path.is_dir() or (path.suffix.lower() == ZIP_ENDING and path.is_file())


def recognises(record: Any) -> bool:
    """Whether a record looks like a record of doccano."""
    if not isinstance(record, dict) or not any(name in record for name in INPUT_FIELDS):
        return False
    labels = record.get(_label_field(record))
    return _is_old(record) or (isinstance(labels, list) and not any(isinstance(label, dict) for label in labels))


def read_user_files(path: Path) -> ExportRecords:
    """The records of all files of a folder or zip file, with the file and the annotator of each record."""
    files = sorted(_files(path))
    if not files:
        raise TableError(
            f"{path} is a folder or zip file without .json or .jsonl files; expected one file per annotator, as "
            "doccano exports them, or the folder of a Hugging Face dataset"
        )
    records: list[tuple[int, Any]] = []
    broken: list[tuple[int, str]] = []
    origins: list[tuple[str, str]] = []  # place and annotator of each record
    for name, ending, data in files:
        if not data.strip():
            continue  # an annotator without labels
        part = parse_json(f"{path}/{name}", ending, data)
        lines = [(number, records, record) for number, record in part.records]
        lines += [(number, broken, reason) for number, reason in part.broken]
        for number, target, content in sorted(lines, key=lambda line: line[0]):
            target.append((len(origins), content))
            origins.append((describe_record(part, number), PurePosixPath(name).name.split(".")[0]))
    return ExportRecords(str(path), "record", records, broken, lambda at: origins[at][0], lambda at: origins[at][1])


def read(source: ExportRecords, item: str | None, question: str | None) -> ExportLabels:
    """The classes of each record. The annotator is in the record, or else is the name of the file.

    Items are identified by the id of their record, or by the field `item`.
    """
    if question is not None:
        raise ValueError(f"question={question!r} does not apply to doccano, which asks only one question; leave it out")
    found = ExportLabels(source, INPUT_FIELDS)
    for number, record in source.records:
        if not isinstance(record, dict) or not recognises(record):
            found.bad.append((number, f"expected 'label' and 'text' or 'filename', got {describe_keys(record)}"))
            continue
        shown = {key: value for key, value in record.items() if key not in ("id", "doc_id", "username", *LABEL_FIELDS)}
        identity = get_field(record, item or "id", "meta", "metadata")
        name = found.add_item(number, record.get("doc_id") if identity is None and item is None else identity, shown)
        if name is None:
            continue
        for annotator, labels in _answers(source, number, record):
            if not labels:
                continue  # the file of an annotator lists all documents
            if any(isinstance(label, list) for label in labels):
                found.bad.append((number, f"expected a class, got the span {format_names([labels[0]])}"))
            else:
                found.add_label(number, name, annotator, labels)
    return found


def _answers(source: ExportRecords, number: int, record: dict[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Annotators and their classes."""
    if _is_old(record):
        by_user: dict[Any, list[Any]] = {}
        for annotation in record["annotations"]:
            by_user.setdefault(annotation["user"], []).append(annotation["label"])
        yield from by_user.items()
        return
    yield record.get("username") or _annotator_of_file(source, number), record[_label_field(record)]


def _annotator_of_file(source: ExportRecords, number: int) -> str:
    """The annotator from the name of a file; an error for the file of all annotators."""
    name = PurePosixPath(source.name).name.split(".")[0] if source.annotator_of is None else source.annotator_of(number)
    if name == SHARED_FILE:
        raise TableError(
            f"{describe_record(source, number)}: all.jsonl holds the labels of all annotators, but does not say who "
            "gave which label. In doccano, turn off the sharing of annotations between users, and export again"
        )
    return name


def _files(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """The name, ending and content of each JSON file."""
    if path.is_dir():
        for file in path.iterdir():
            if file_ending(file) in JSON_ENDINGS:
                yield file.name, file_ending(file), read_utf8(file)
        return
    try:
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                if file_ending(Path(name)) in JSON_ENDINGS and not name.startswith("__MACOSX"):
                    yield name, file_ending(Path(name)), packed.read(name)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:  # the last two: encrypted
        raise TableError(f"{path}: not a readable zip file ({error}); unpack it, and pass the folder") from error


def _label_field(record: dict[str, Any]) -> str:
    """The name of the field with the classes."""
    return next((name for name in LABEL_FIELDS if name in record), "label")


def _is_old(record: dict[str, Any]) -> bool:
    """Whether a record has a list of annotations that name their users."""
    found = record.get("annotations")
    return isinstance(found, list) and all(isinstance(one, dict) and {"user", "label"} <= one.keys() for one in found)
