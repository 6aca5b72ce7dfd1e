"""Labels and gold from tables: rows (item, annotator, label) -> Annotations; rows (item, label) -> gold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdfuse.annotations import Annotations, OnConflict
from crowdfuse.ids import few, find, tidy
from crowdfuse.io.tables import TableError, TableFile, as_table, choose_columns, encode
from crowdfuse.triples import ConflictError, sort_triples

Place = Callable[[int], str]


def read_labels(
    path: Path,
    *,
    item: str | None,
    annotator: str | None,
    label: str | None,
    classes: Sequence[Any] | None,
    on_conflict: OnConflict,
) -> Annotations:
    """Annotations from a CSV, TSV or Parquet file; see `Annotations.read`."""
    file = TableFile(path)
    columns = choose_columns(file.columns, {"item": item, "annotator": annotator, "label": label}, str(path))
    return _build(file.read(list(columns.values()), text=True), columns, str(path), file.line, file.is_text, classes, on_conflict)


def table_labels(
    table: Any,
    *,
    item: str | None,
    annotator: str | None,
    label: str | None,
    classes: Sequence[Any] | None,
    on_conflict: OnConflict,
) -> Annotations:
    """Annotations from a table in memory; see `Annotations.from_table`."""
    arrow = as_table(table)
    columns = choose_columns(arrow.column_names, {"item": item, "annotator": annotator, "label": label}, "the table")
    return _build(arrow, columns, "the table", lambda row: f"the table, row {row}", False, classes, on_conflict)


def read_gold(path: Path, *, item: str | None = None, label: str | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Item ids and their true classes, from a table with an item and a label column."""
    file = TableFile(path)
    columns = choose_columns(file.columns, {"item": item, "label": label}, str(path))
    table = file.read(list(columns.values()), text=True)
    ids, row = encode(table[columns["item"]], columns["item"], str(path), text=file.is_text)
    names, code = encode(table[columns["label"]], columns["label"], str(path), text=file.is_text)
    for column, codes in ((columns["item"], row), (columns["label"], code)):
        if (codes < 0).any():
            raise TableError(f"{file.line(int(np.argmax(codes < 0)))}: {column} is empty")
    if not len(row):
        raise TableError(f"{path} has a header but no rows")
    values, first, count = np.unique(row, return_index=True, return_counts=True)
    for value in values[count > 1]:
        said = code[row == value]
        if (said != said[0]).any():
            at = int(np.flatnonzero(row == value)[1])
            raise TableError(f"{file.line(at)}: item {ids[value]!r} has two different gold labels")
    return ids[values], names[code[first]]


def _build(
    table: pa.Table,
    columns: dict[str, str],
    where: str,
    place: Place,
    text: bool,
    classes: Sequence[Any] | None,
    on_conflict: OnConflict,
) -> Annotations:
    if on_conflict not in ("error", "first", "last", "drop"):
        raise ValueError(f"on_conflict must be 'error', 'first', 'last' or 'drop', got {on_conflict!r}")
    if not table.num_rows:
        raise TableError(f"{where} has a header but no rows")
    with ThreadPoolExecutor(2) as pool:
        small = [columns["label"], columns["annotator"]]
        (names, label), (annotators, annotator) = pool.map(
            lambda column: encode(table[column], column, where, text=text), small
        )
    table = table.select([columns["item"]])  # the largest last, when the others' strings have gone
    pa.default_memory_pool().release_unused()
    items, item = encode(table[0], columns["item"], where, text=text)
    del table
    pa.default_memory_pool().release_unused()
    for role, codes in (("item", item), ("annotator", annotator)):
        if (codes < 0).any():
            raise TableError(f"{place(int(np.argmax(codes < 0)))}: the {role} is empty")

    if classes is None:
        order = np.argsort(names)
        names, position = names[order], np.argsort(order)
    else:
        given = tidy(np.asarray(classes), "classes")
        position = find(names, given)
        if (position < 0).any():
            code = int(np.argmax(position < 0))
            raise TableError(
                f"{place(int(np.argmax(label == code)))}: label {names[code]!r} is not one of the "
                f"{len(given)} classes ({few(given)})"
            )
        names = given
    label = np.append(position, -1).astype(np.int32)[label]
    by_name = np.argsort(annotators)
    annotators, annotator = annotators[by_name], np.argsort(by_name).astype(np.int32)[annotator]

    missing = label < 0
    n_missing = int(missing.sum())
    rows = np.flatnonzero(~missing) if n_missing else None
    if rows is not None:
        item, annotator, label = item[rows], annotator[rows], label[rows]
    try:
        triples = sort_triples(item, annotator, label, len(items), on_conflict)
    except ConflictError as error:
        shown = []
        for one, other in error.rows:
            lines = [place(int(row if rows is None else rows[row])) for row in (one, other)]
            shown.append(
                f"  item {items[item[one]]!r}, annotator {annotators[annotator[one]]!r}: "
                f"{names[label[one]]!r} ({lines[0]}) and {names[label[other]]!r} ({lines[1]})"
            )
        raise TableError(
            f"{where}: {error.count:,} (item, annotator) pairs have two different labels, such as\n"
            + "\n".join(shown)
            + "\nSay what to keep with on_conflict='first', 'last' or 'drop' (--on-conflict on the command line)"
        ) from error
    return Annotations(
        indptr=triples.indptr,
        annotator=triples.annotator,
        label=triples.label,
        items=items,
        annotators=annotators,
        classes=names,
        by_row=False,
        dropped=(n_missing, triples.n_duplicates, triples.n_conflicts),
    )
