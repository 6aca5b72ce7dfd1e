"""The part that all readers of exports share: the records of a JSON file, and the labels collected from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from crowdfuse.io.bad_rows import MAX_LISTED_ROWS, drop_or_raise
from crowdfuse.io.file_content import describe_encoding, file_ending, read_utf8
from crowdfuse.io.item_fields import FieldCollector, ItemFields
from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import EXACT_FLOAT_LIMIT, format_names

JSON_ENDINGS = {".json", ".jsonl", ".ndjson"}
TOOL_ID_FIELDS = ("_input_hash", "id", "external_id", "doc_id")  # labelling tools identify items by these fields


class ExportRecords(NamedTuple):
    """The records of an export, each with its number, and the lines that are not JSON."""

    name: str  # file name, for messages
    unit: str  # what the numbers count: "line" or "record"
    records: list[tuple[int, Any]]
    broken: list[tuple[int, str]]  # line number and reason
    describe: Callable[[int], str] | None = None  # the place of the record with a number
    annotator_of: Callable[[int], str] | None = None  # the annotator of the record, by file


class ExportLabels:
    """The labels of an export with their places, the unusable answers, and the number of skipped answers.

    Names are kept as text, numbered in order of appearance.
    """

    def __init__(self, source: ExportRecords, input_fields: tuple[str, ...] = ()) -> None:
        self.source = source
        self.input_fields = input_fields  # the fields in which the tool keeps inputs, the preferred field first
        self.collector = FieldCollector()
        self.items: dict[str, int] = {}
        self.annotators: dict[str, int] = {}
        self.classes: dict[str, int] = {}
        self.rows: list[tuple[int, int, int]] = []  # item, annotator, label
        self.numbers: list[int] = []  # record number of each row
        self.bad = list(source.broken)
        self._item_of: dict[int, str] = {}
        self.skipped: Counter[str] = Counter()

    def add_item(self, number: int, value: Any, fields: Mapping[str, Any]) -> str | None:
        """Register an item, even without labels, and return its name; if invalid, add a bad answer and return None.

        `fields` is what the record says about the item itself, possibly including its text or image.
        """
        name = as_name(value)
        if name is None:
            way_out = "; choose the field that identifies items with item= (--item on the command line)"
            self.bad.append((number, _invalid_name_message("item", value) + way_out))
        else:
            self.items.setdefault(name, len(self.items))
            self._item_of[number] = name
            self.collector.add(name, number, fields)
        return name

    def add_label(self, number: int, item: str, annotator: Any, label: Any) -> None:
        """Register one answer. If `label` is a list, it holds the chosen options."""
        annotator_name = as_name(annotator)
        if isinstance(label, list):
            if not label:
                self.skipped["answers without a choice"] += 1
                return
            if len(label) > 1:
                self.bad.append((number, f"expected one choice, got {len(label)} ({format_names(label)})"))
                return
            label = label[0]
        class_name = as_name(label)
        if annotator_name is None:
            self.bad.append((number, _invalid_name_message("annotator", annotator)))
        elif class_name is None:
            self.bad.append((number, _invalid_name_message("label", label)))
        else:
            codes = (
                self.items[item],
                self.annotators.setdefault(annotator_name, len(self.annotators)),
                self.classes.setdefault(class_name, len(self.classes)),
            )
            self.rows.append(codes)
            self.numbers.append(number)

    def place(self, number: int) -> str:
        """The place of a record, for messages: 'export.jsonl, line 17'."""
        return describe_record(self.source, number)

    def item_fields(self) -> ItemFields:
        """What the export says about its items."""
        return self.collector.finish(self.source.name, list(self.items), self.place, self.input_fields)

    def drop_or_raise_bad(self, on_bad: str) -> list[str]:
        """Raise an error for answers that cannot be used, or return a note that they were dropped."""
        if not self.bad:
            return []
        shown = []
        for number, reason in sorted(self.bad)[:MAX_LISTED_ROWS]:
            item = f" (item {self._item_of[number]!r})" if number in self._item_of else ""
            shown.append(f"{self.place(number)}{item}: {reason}")
        total = len(self.bad) + len(self.rows)
        return [drop_or_raise(self.source.name, shown, len(self.bad), total, "answers", on_bad)]

    def notes(self) -> list[str]:
        """The kinds and counts of skipped answers."""
        return [f"left out: {kind} ({count:,})" for kind, count in self.skipped.items()]


def describe_record(source: ExportRecords, number: int) -> str:
    """The place of a record, for messages: 'export.jsonl, line 17'."""
    return f"{source.name}, {source.unit} {number}" if source.describe is None else source.describe(number)


def read_json(path: Path) -> ExportRecords:
    """The records of a `.json` or `.jsonl` file. A `.json` file may also have one record per line."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if path.is_dir():
        raise TableError(f"{path} is a folder; expected a .json or .jsonl file")
    return parse_json(str(path), file_ending(path), read_utf8(path))


def parse_json(name: str, ending: str, content: bytes) -> ExportRecords:
    """The records in the content of a file. `name` is the file's name, for messages."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{name}: {describe_encoding(content)}") from error
    if not text.strip():
        raise TableError(f"{name} is empty; expected an export of a labelling tool")
    if ending != ".json":
        return _read_lines(name, text)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = _read_lines(name, text)
        if len(lines.records) > 1:
            return lines
        raise TableError(f"{name}: not JSON ({error}); export it again from the labelling tool") from error
    return ExportRecords(name, "record", list(enumerate(_records(name, parsed), start=1)), [])


def _read_lines(name: str, text: str) -> ExportRecords:
    """The records of a text with one record per line."""
    records, broken = [], []
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() would also split at U+2028
        if line.strip():
            try:
                records.append((number, json.loads(line)))
            except (ValueError, RecursionError) as error:
                broken.append((number, f"not JSON ({error})"))
    return ExportRecords(name, "line", records, broken)


def _records(name: str, content: Any) -> list[Any]:
    """The records in a JSON value: a list of records, records by id, columns by name, or a single record."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict) or not content:
        raise TableError(f"{name} holds {format_names([content])}; expected a list of records")
    values = list(content.values())
    if all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]
    if all(isinstance(value, dict) for value in values):
        return [{"id": key, **value} for key, value in content.items()]
    return [content]


def as_name(value: Any) -> str | None:
    """A JSON value as the text of a name; None if it is not a string or an integer.

    >>> as_name("cat"), as_name(3), as_name(4.0), as_name("  "), as_name(True), as_name(0.5)
    ('cat', '3', '4', None, None, None)
    """
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT_FLOAT_LIMIT:
        return str(int(value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _invalid_name_message(role: str, value: Any) -> str:
    """The message for a value that is not a name."""
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return f"the {role} is empty"
    return f"the {role} is {format_names([value])}; expected a string or an integer"


def get_field(record: Mapping[str, Any], name: str, *inside: str) -> Any:
    """A field of a record, or of an object in one of its fields `inside`; None if there is no such field."""
    for part in (record, *(record.get(key) for key in inside)):
        if isinstance(part, dict) and part.get(name) is not None:
            return part[name]
    return None


def describe_keys(record: Any) -> str:
    """The keys of a record, for messages."""
    return f"the keys {format_names(record, 8)}" if isinstance(record, dict) else format_names([record])


def choose_question(names: Iterable[str], question: str | None, where: str) -> str | None:
    """The given question, which must exist; by default the only question, or None if there are no questions."""
    known = list(dict.fromkeys(names))
    if question is not None and question not in known:
        existing = (
            f"choose one of {format_names(known, 12)}" if known else "it has no questions, so leave out question="
        )
        raise TableError(f"{where} has no question {question!r}; {existing}")
    if question is None and len(known) > 1:
        raise TableError(
            f"{where} has answers to several questions: {format_names(known, 12)}. "
            "Choose one with question= (--question on the command line)"
        )
    return question or (known[0] if known else None)
