"""Detect the format of labels: which tool wrote an export, or whether a table is wide (one column per annotator)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pyarrow as pa

from crowdfuse.io import argilla, doccano, label_studio, prodigy
from crowdfuse.io.column_encoding import encode_column
from crowdfuse.io.exports import ExportLabels, ExportRecords, describe_keys
from crowdfuse.io.tables import TableError, choose_columns, item_or_text_column
from crowdfuse.io.wide import annotator_columns
from crowdfuse.labels.ids import format_count, ids_to_strings, parse_integer_ids

READERS: dict[str, Callable[[ExportRecords, str | None, str | None], ExportLabels]] = {
    "label-studio": label_studio.read,
    "argilla": argilla.read,
    "prodigy": prodigy.read,
    "doccano": doccano.read,
}


def detect_record_format(record: Any) -> str | None:
    """The labelling tool that writes records of this kind; None if the kind is unknown.

    >>> record = {"text": "hi", "label": "GREETING", "answer": "accept", "_input_hash": 7, "_annotator_id": "ada"}
    >>> detect_record_format(record)
    'prodigy'
    """
    tools = {"label-studio": label_studio, "argilla": argilla, "prodigy": prodigy, "doccano": doccano}
    return next((name for name, tool in tools.items() if tool.recognises(record)), None)


def detect_format(source: ExportRecords) -> str:
    """The tool that wrote most of the records; an error if no record is recognised."""
    forms = Counter(form for _, record in source.records if (form := detect_record_format(record)) is not None)
    if forms:
        return forms.most_common(1)[0][0]
    raise TableError(
        f"{source.name}: unknown format. Expected one of\n  {label_studio.EXPECTED}\n  {argilla.EXPECTED}\n  "
        f"{prodigy.EXPECTED}\n  {doccano.EXPECTED}\nFound {_describe_contents(source)}. If this file is a table with "
        "one row per label, save it as .csv, .tsv or .parquet"
    )


def is_wide(table: pa.Table, item: str | None, text: str | None, where: str) -> bool:
    """Whether a table has one row per item and one column per annotator.

    The item column and the columns of texts are set aside. The table is wide if at least two columns remain, and if any
    two of them have a value in common. Call this function only if no column has a usual name for annotators or labels.
    """
    try:
        given = item_or_text_column(table.column_names, item)
        id_column = choose_columns(table.column_names, {"item": given}, where)["item"]
        columns = [
            encode_column(table[name], name, where, text=False)[0] for name in annotator_columns(table, id_column, text)
        ]
    except TableError:
        return False
    values = [
        set(ids_to_strings(parse_integer_ids(names))) for names in columns
    ]  # one column may write 2.0 and another 2
    return len(values) >= 2 and all(one & other for one, other in combinations(values, 2))


def _describe_contents(source: ExportRecords) -> str:
    """What an unrecognised export contains."""
    if not source.records:
        number, reason = source.broken[0]
        return f"no records, only {format_count(len(source.broken), 'broken line')}, such as line {number}: {reason}"
    _, first = source.records[0]
    return f"{format_count(len(source.records), 'record')}, the first with {describe_keys(first)}"
