"""Labels and gold from tables: rows (item, annotator, label) -> Annotations; rows (item, label) -> gold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdfuse.annotations import Annotations, OnConflict, not_a_class
from crowdfuse.ids import IntArray, few, find, refuse_repeats, sort_names, tidy
from crowdfuse.io.encoding import Dealt, are_many, bytes_to_pass, deal, encode_dealt
from crowdfuse.io.tables import CutInsideQuotes, TableError, TableFile, as_names, as_table, choose_columns, encode
from crowdfuse.triples import ConflictError, sort_triples

LARGE = 1 << 24  # bytes from which on it pays to read a text file block by block


class Source(NamedTuple):
    """Where a table comes from, for messages, and whether its strings are text that may mean integers."""

    name: str
    places: Callable[[Sequence[int]], list[str]]  # row numbers in words: 'labels.csv, line 17'
    is_text: bool


class Column(NamedTuple):
    """A column's distinct names, and the position of each row's name among them, -1 where it is empty."""

    names: NDArray[Any]
    codes: NDArray[np.int32]


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
    known = _check(classes, on_conflict)
    file = TableFile(path)
    columns = choose_columns(file.columns, {"item": item, "annotator": annotator, "label": label}, str(path))
    source = Source(str(path), file.lines, file.is_text)
    found = _read(file, columns, source)
    pa.default_memory_pool().release_unused()  # make room for the sort
    return _build(*found, source, known, on_conflict)


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
    known = _check(classes, on_conflict)
    arrow = as_table(table)
    source = Source("the table", lambda rows: [f"the table, row {row}" for row in rows], False)
    columns = choose_columns(arrow.column_names, {"item": item, "annotator": annotator, "label": label}, source.name)
    return _build(*_encode(arrow, columns, source), source, known, on_conflict)


def read_gold(path: Path, *, item: str | None = None, label: str | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Item ids and their true classes, from a table with an item and a label column."""
    file = TableFile(path)
    columns = choose_columns(file.columns, {"item": item, "label": label}, str(path))
    table = file.read(list(columns.values()), text=True)
    if not table.num_rows:
        raise TableError(f"{path} has a header but no rows")
    ids, row = encode(table[columns["item"]], columns["item"], str(path), text=file.is_text)
    names, code = encode(table[columns["label"]], columns["label"], str(path), text=file.is_text)
    for role, codes in (("item", row), ("label", code)):
        if (codes < 0).any():
            raise TableError(
                f"{file.line(int(np.argmax(codes < 0)))}: the {role} is empty; fill it in or remove the row"
            )
    _, first = np.unique(row, return_index=True)
    differing = np.flatnonzero(code != code[first][row])
    if len(differing):
        rows = [int(first[row[differing[0]]]), int(differing[0])]
        said = [f"{few([names[code[at]]])} ({place})" for at, place in zip(rows, file.lines(rows), strict=True)]
        raise TableError(
            f"item {few([ids[row[rows[0]]]])} has two different gold labels, {' and '.join(said)}; remove one"
        )
    return ids, names[code[first]]


def _check(classes: Sequence[Any] | None, on_conflict: OnConflict) -> NDArray[Any] | None:
    """The given classes, if there are any; an error before any work if they or `on_conflict` cannot be used."""
    if on_conflict not in ("error", "first", "last", "drop"):
        raise ValueError(f"on_conflict must be 'error', 'first', 'last' or 'drop', got {on_conflict!r}")
    if classes is None:
        return None
    names = tidy(classes, "classes")
    refuse_repeats(names, "classes")
    return names


def _read(file: TableFile, columns: dict[str, str], source: Source) -> tuple[Column, Column, Column]:
    """Items, annotators and labels of each row of a file."""
    names = [columns[role] for role in ("item", "annotator", "label")]
    if file.is_text and file.size > LARGE:
        with suppress(CutInsideQuotes):
            if are_many(sample := file.head(columns["item"])):
                return _read_many(file, columns, bytes_to_pass(sample.combine_chunks()))
            return _encode(pa.concat_tables(file.map(lambda table: table, names, names)), columns, source)
    return _encode(file.read(names, text=True, dictionary=names[1:]), columns, source)


def _read_many(file: TableFile, columns: dict[str, str], passed: int) -> tuple[Column, Column, Column]:
    """The same for many items: they are dealt block by block, so that the file is never in memory as a whole."""
    item, *others = (columns[role] for role in ("item", "annotator", "label"))

    def take_apart(table: pa.Table) -> tuple[list[Dealt], pa.Table]:
        return [deal(chunk, passed) for chunk in table[item].chunks], table.select(others)

    dealt, tables = zip(*file.map(take_apart, [item, *others], others), strict=True)
    with ThreadPoolExecutor(2) as pool:
        encoded = pool.map(lambda column: Column(*encode(column, "", "", text=True)), pa.concat_tables(tables).columns)
        names, codes = encode_dealt(list(chain.from_iterable(dealt)))
        del dealt, tables
        pa.default_memory_pool().release_unused()  # make room for the names as Python has them
        items = Column(*as_names(names, codes, text=True))
        annotator, label = encoded
    return items, annotator, label


def _encode(table: pa.Table, columns: dict[str, str], source: Source) -> tuple[Column, Column, Column]:
    """Items, annotators and labels of each row of a table."""
    if not table.num_rows:
        raise TableError(f"{source.name} has a header but no rows")

    def column(role: str) -> Column:
        return Column(*encode(table[columns[role]], columns[role], source.name, text=source.is_text))

    with ThreadPoolExecutor(2) as pool:
        others = pool.map(column, ("annotator", "label"))
        item = column("item")
        annotator, label = others
    return item, annotator, label


def _build(
    item: Column,
    annotator: Column,
    label: Column,
    source: Source,
    classes: NDArray[Any] | None,
    on_conflict: OnConflict,
) -> Annotations:
    label = _sorted(label) if classes is None else _among(classes, label, source)
    annotator = _sorted(annotator)
    n_rows = len(label.codes)
    present: Sequence[int] | IntArray = range(n_rows)
    if (label.codes < 0).any():
        present = np.flatnonzero(label.codes >= 0)
        item, annotator, label = (Column(names, codes[present]) for names, codes in (item, annotator, label))
    for role, (_, codes) in (("item", item), ("annotator", annotator)):
        if (codes < 0).any():
            place = source.places([int(present[int(np.argmax(codes < 0))])])[0]
            raise TableError(f"{place}: the {role} is empty; fill it in, or empty the label too to leave the row out")
    try:
        triples = sort_triples(item.codes, annotator.codes, label.codes, len(item.names), on_conflict)
    except ConflictError as error:
        raise TableError(_conflicts(error, item, annotator, label, present, source)) from error
    return Annotations(
        indptr=triples.indptr,
        annotator=triples.annotator,
        label=triples.label,
        items=item.names,
        annotators=annotator.names,
        classes=label.names,
        by_row=False,
        numbered=True,
        dropped=(n_rows - len(present), triples.n_duplicates, triples.n_conflicts),
    )


def _sorted(column: Column) -> Column:
    names, position = sort_names(column.names)
    return Column(names, _renumber(column.codes, position))


def _among(classes: NDArray[Any], label: Column, source: Source) -> Column:
    position = find(label.names, classes)
    if (position < 0).any():
        code = int(np.argmax(position < 0))  # names come as they appear, so this one's row is the first bad one
        place = source.places([int(np.argmax(label.codes == code))])[0]
        raise TableError(f"{place}: {not_a_class(few([label.names[code]]), classes)}")
    return Column(classes, _renumber(label.codes, position))


def _renumber(codes: NDArray[np.int32], position: IntArray) -> NDArray[np.int32]:
    return np.append(position, -1).astype(np.int32)[codes]


def _conflicts(
    error: ConflictError,
    item: Column,
    annotator: Column,
    label: Column,
    present: Sequence[int] | IntArray,
    source: Source,
) -> str:
    places = source.places([int(present[row]) for pair in error.rows for row in pair])
    shown = [
        f"  item {few([item.names[item.codes[one]]])}, annotator {few([annotator.names[annotator.codes[one]]])}: "
        f"{few([label.names[label.codes[one]]])} ({place}) and {few([label.names[label.codes[other]]])} ({other_place})"
        for (one, other), place, other_place in zip(error.rows, places[::2], places[1::2], strict=True)
    ]
    return (
        f"{source.name}: {error.count:,} (item, annotator) pairs have two different labels, such as\n"
        + "\n".join(shown)
        + "\nSay what to keep with on_conflict='first', 'last' or 'drop' (--on-conflict on the command line)"
    )
