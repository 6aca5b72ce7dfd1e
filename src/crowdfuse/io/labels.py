"""Read labels as `Annotations`, and gold labels by item, from tables and from exports of labelling tools."""

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

from crowdfuse.io.bad_rows import MAX_LISTED_ROWS, drop_or_raise
from crowdfuse.io.dictionary_encoding import (
    PartitionedRows,
    encode_partitions,
    has_many_distinct,
    partition_rows,
    trailing_bytes_to_skip,
)
from crowdfuse.io.exports import JSON_ENDINGS, ExportRecords, read_json
from crowdfuse.io.format_detection import READERS, detect_format, detect_record_format, is_wide
from crowdfuse.io.hugging_face import dataset_table, is_dataset, with_class_names
from crowdfuse.io.label_studio import label_studio_gold
from crowdfuse.io.tables import (
    TABLE_ENDINGS,
    BrokenLinesError,
    CutInsideQuotes,
    TableError,
    TableFile,
    as_table,
    choose_columns,
    drop_blank_names,
    encode_column,
    usual_columns,
)
from crowdfuse.io.wide import read_wide
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.encoding import unknown_class_message
from crowdfuse.labels.ids import (
    IntArray,
    format_names,
    normalize_ids,
    parse_integer_ids,
    positions_of,
    refuse_repeats,
    similar_class_notes,
    sort_names,
)
from crowdfuse.labels.reading import Reading
from crowdfuse.labels.triples import ConflictError, sort_triples

__all__ = ["Reading", "column_beside", "labels_from_table", "read_gold", "read_gold_beside_labels", "read_labels"]

FORMAT_SAMPLE_ROWS = 100  # rows checked for whether a table holds the records of an export
MIN_BYTES_TO_READ_IN_BLOCKS = 1 << 24  # smaller text files are faster to read as a whole


class Source(NamedTuple):
    """Where labels come from, for error messages, and how to interpret their ids."""

    name: str
    describe_rows: Callable[[Sequence[int]], list[str]]  # places for messages, such as 'labels.csv, line 17'
    is_text: bool  # the values come from a text file, where "12" may mean the integer 12
    ids_may_be_row_numbers: bool = True  # integer ids may be row numbers of X


class Column(NamedTuple):
    """The distinct names of a column, and the position of each row's name among them, -1 if it is empty."""

    names: NDArray[Any]
    codes: NDArray[np.int32]


def read_labels(path: Path, reading: Reading) -> Annotations:
    """Read labels from a file. Problems are listed in `notes`, without warnings.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv`` or ``.parquet`` file, or an export of a labelling tool (``.json``, ``.jsonl``).
    reading : Reading
        The options.

    Returns
    -------
    annotations : Annotations
        `notes` lists the rows that were dropped, and classes that differ only by case or spaces.

    Raises
    ------
    TableError
        If the labels cannot be read; the message names the file, the line and the value.

    See Also
    --------
    crowdfuse.Annotations.read : The same, with a warning for each note.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("item,annotator,label\\n1,ada,cat\\n1,bob,dog\\n")
    >>> read_labels(path, Reading())
    Annotations(1 items, 2 annotators, 2 classes, 2 labels)
    """
    known = _given_classes(reading)
    if path.suffix.lower() in JSON_ENDINGS:
        return _from_records(read_json(path), reading, known)
    file, notes = TableFile(path), list[str]()
    source = Source(str(path), file.describe_rows, file.is_text)

    def whole() -> pa.Table:
        try:
            return file.read(text=True)
        except BrokenLinesError as error:
            return _read_sound_rows(file, error, None, reading, notes)

    other = _from_other_forms(file.columns, whole, source, reading, known, notes)
    if other is not None:
        return other
    columns = choose_columns(file.columns, _roles(reading), str(path))
    try:
        found = _read(file, columns, source)
    except BrokenLinesError as error:
        found = _encode(_read_sound_rows(file, error, list(columns.values()), reading, notes), columns, source)
    pa.default_memory_pool().release_unused()  # make room for the sort
    return _build(*found, source, known, reading, notes)


def labels_from_table(table: Any, reading: Reading) -> Annotations:
    """Create annotations from a table in memory. Problems are listed in `notes`, without warnings.

    Parameters
    ----------
    table : table
        A pandas, polars or pyarrow table, a Hugging Face dataset, or a dict of arrays.
    reading : Reading
        The options.

    Returns
    -------
    annotations : Annotations
        `notes` lists the rows that were dropped, and classes that differ only by case or spaces.

    Raises
    ------
    TableError
        If the labels cannot be read; the message names the row and the value.
    TypeError
        If `table` is not a table.

    See Also
    --------
    crowdfuse.Annotations.from_table : The same, with a warning for each note.

    Examples
    --------
    >>> labels_from_table({"item": [1, 1], "annotator": ["ada", "bob"], "label": ["cat", "dog"]}, Reading())
    Annotations(1 items, 2 annotators, 2 classes, 2 labels)
    """
    known = _given_classes(reading)
    arrow = dataset_table(table) if is_dataset(table) else as_table(table)
    source = Source("the table", lambda rows: [f"the table, row {row}" for row in rows], False)
    other = _from_other_forms(arrow.column_names, lambda: arrow, source, reading, known, [])
    if other is not None:
        return other
    columns = choose_columns(arrow.column_names, _roles(reading), source.name)
    return _build(*_encode(arrow, columns, source), source, known, reading, [])


def column_beside(path: Path, name: str | None) -> str | None:
    """Return a column name that was given for the labels if it also applies to the file `path`, else None.

    The name applies to a table that has a column of this name. Other tables must use one of the usual names. The name
    always applies to an export, because all exports of a tool have the same fields.
    """
    if name is None or path.suffix.lower() in JSON_ENDINGS:
        return name
    return name if path.suffix.lower() in TABLE_ENDINGS and name in TableFile(path).columns else None


def read_gold_beside_labels(path: Path, reading: Reading) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read gold labels with the options that were given for reading the annotators' labels.

    A column named in the options is used only if the gold file has it. Otherwise the gold file must use one of the
    usual column names.

    Parameters
    ----------
    path : Path
        A table or a Label Studio export, as in `read_gold`.
    reading : Reading
        The options for the labels. Only `item`, `label`, `question` and `on_bad` are used.

    Returns
    -------
    items : ndarray of shape (n_items,)
        Item ids.
    classes : ndarray of shape (n_items,)
        The true class of each item.

    Raises
    ------
    TableError
        As in `read_gold`.

    See Also
    --------
    read_gold : The same, but it raises an error if a named column does not exist.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "gold.csv"
    >>> _ = path.write_text("item,label\\n1,cat\\n")
    >>> read_gold_beside_labels(path, Reading(item="page"))  # the item column is called page only in the labels
    (array([1]), array(['cat'], dtype=object))
    """
    return read_gold(
        path,
        item=column_beside(path, reading.item),
        label=column_beside(path, reading.label),
        question=reading.question,
        on_bad=reading.on_bad,
    )


def read_gold(
    path: Path,
    *,
    item: str | None = None,
    label: str | None = None,
    question: str | None = None,
    on_bad: str = "error",
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read gold labels from a table, or the ground truth from an export of Label Studio.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv`` or ``.parquet`` file with an item and a label column, or a Label Studio export (``.json``).
    item : str, default=None
        Name of the item column; for an export, name of the field that identifies items. By default a column with a
        usual name, or the tool's own id.
    label : str, default=None
        Name of the label column of a table; by default a column with a usual name. Not used for an export.
    question : str, default=None
        The question whose answers are read from an export. Required if there are several questions.
    on_bad : {'error', 'drop'}, default='error'
        What to do with answers of an export that cannot be used: raise an error or drop them.

    Returns
    -------
    items : ndarray of shape (n_items,)
        Item ids, in the order of the file, each once.
    classes : ndarray of shape (n_items,)
        The true class of each item.

    Raises
    ------
    TableError
        If a value is empty, or if an item has two different gold labels.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "gold.csv"
    >>> _ = path.write_text("task,label\\n10,cat\\n9,dog\\n")
    >>> read_gold(path)
    (array([10,  9]), array(['cat', 'dog'], dtype=object))
    """
    if path.suffix.lower() in JSON_ENDINGS:
        gold = label_studio_gold(path, item, question, on_bad)
        return parse_integer_ids(np.array(list(gold), object)), parse_integer_ids(np.array(list(gold.values()), object))
    file = TableFile(path)
    columns = choose_columns(file.columns, {"item": item, "label": label}, str(path))
    table = with_class_names(file.read(list(columns.values()), text=True))
    if not table.num_rows:
        raise TableError(f"{path} has a header but no rows; expected one row per item")
    ids, row = encode_column(table[columns["item"]], columns["item"], str(path), text=file.is_text)
    names, code = encode_column(table[columns["label"]], columns["label"], str(path), text=file.is_text)
    for role, codes in (("item", row), ("label", code)):
        if (codes < 0).any():
            raise TableError(
                f"{file.describe_row(int(np.argmax(codes < 0)))}: the {role} is empty; fill it in or remove the row"
            )
    _, first = np.unique(row, return_index=True)
    differing = np.flatnonzero(code != code[first][row])
    if len(differing):
        rows = [int(first[row[differing[0]]]), int(differing[0])]
        places = [
            f"{format_names([names[code[at]]])} ({place})"
            for at, place in zip(rows, file.describe_rows(rows), strict=True)
        ]
        raise TableError(
            f"item {format_names([ids[row[rows[0]]]])} has two different gold labels, "
            f"{' and '.join(places)}; remove one of them"
        )
    return ids, names[code[first]]


def _given_classes(reading: Reading) -> NDArray[Any] | None:
    """The classes that the user gave, if any; an error if a class is given twice."""
    if reading.classes is None:
        return None
    names = normalize_ids(reading.classes, "classes")
    refuse_repeats(names, "classes")
    return names


def _roles(reading: Reading) -> dict[str, str | None]:
    """The column named for each role; an error if a question is named, which tables do not have."""
    if reading.question is not None:
        raise ValueError(
            f"question={reading.question!r} applies only to exports of labelling tools; to choose columns of a "
            "table, use item= and label="
        )
    return {"item": reading.item, "annotator": reading.annotator, "label": reading.label}


def _from_other_forms(
    columns: list[str],
    read: Callable[[], pa.Table],
    source: Source,
    reading: Reading,
    classes: NDArray[Any] | None,
    notes: list[str],
) -> Annotations | None:
    """The labels of a wide table or of a table of export records; None if the table has one row per label."""
    if source.is_text and reading.format in READERS:
        raise TableError(f"{source.name}: format={reading.format!r} needs a .json, .jsonl or .parquet file")
    roles = [bool(usual_columns(columns, role)) for role in ("annotator", "label")]
    if reading.format == "table" or (reading.format == "auto" and (reading.annotator or reading.label or all(roles))):
        return None
    if reading.format == "auto" and any(roles) and source.is_text:
        return None
    table = with_class_names(read())
    may_hold_records = reading.format == "auto" and not source.is_text
    if reading.format in READERS or (
        may_hold_records and any(map(detect_record_format, table.slice(0, FORMAT_SAMPLE_ROWS).to_pylist()))
    ):
        records = list(enumerate(table.to_pylist()))
        return _from_records(ExportRecords(source.name, "row", records, []), reading, classes)
    if reading.format == "wide" or (not any(roles) and is_wide(table, reading.item, source.name)):
        return _from_wide(table, source, reading, classes, notes)
    return None


def _from_wide(
    table: pa.Table, source: Source, reading: Reading, classes: NDArray[Any] | None, notes: list[str]
) -> Annotations:
    """Annotations from a table with one row per item and one column per annotator."""
    roles = _roles(reading)
    if roles["annotator"] or roles["label"]:
        raise ValueError(
            "in a wide table every column except the item column is an annotator; leave out annotator= and label="
        )
    found = read_wide(table, reading.item, source.name, text=source.is_text)

    def places(labels: Sequence[int]) -> list[str]:
        lines = source.describe_rows([int(found.row[label]) for label in labels])
        names = [format_names([found.annotators[found.annotator[label]]]) for label in labels]
        return [f"{line}, column {name}" for line, name in zip(lines, names, strict=True)]

    return _build(
        Column(found.items, found.item),
        Column(found.annotators, found.annotator),
        Column(found.classes, found.label),
        source._replace(describe_rows=places),
        classes,
        reading,
        notes,
    )


def _from_records(records: ExportRecords, reading: Reading, classes: NDArray[Any] | None) -> Annotations:
    """Annotations from the records of an export."""
    if reading.format in ("table", "wide"):
        raise TableError(f"{records.name}: format={reading.format!r} needs a .csv, .tsv or .parquet file")
    if reading.annotator or reading.label:
        raise ValueError("annotator= and label= apply only to tables; for an export use item= and question=")
    if not records.records and not records.broken:
        raise TableError(f"{records.name} has no records; expected an export of a labelling tool")
    form = detect_format(records) if reading.format == "auto" else reading.format
    found = READERS[form](records, reading.item, reading.question)
    notes = [*found.notes(), *found.drop_or_raise_bad(reading.on_bad)]
    codes = np.array(found.rows, np.int32).reshape(-1, 3)
    item, annotator, label = (
        Column(parse_integer_ids(np.array(list(names), object)), codes[:, at])
        for at, names in enumerate((found.items, found.annotators, found.classes))
    )
    source = Source(
        records.name,
        lambda rows: [found.place(found.numbers[row]) for row in rows],
        is_text=True,
        ids_may_be_row_numbers=reading.item is not None,  # a tool's own ids number its tasks, not rows of X
    )
    return _build(item, annotator, label, source, classes, reading, notes)


def _read_sound_rows(
    file: TableFile, error: BrokenLinesError, columns: Sequence[str] | None, reading: Reading, notes: list[str]
) -> pa.Table:
    """The rows of a file without its broken lines, or an error unless `on_bad` is "drop"."""
    notes.append(drop_or_raise(str(file.path), error.places, len(error.broken), error.n_rows, "rows", reading.on_bad))
    return file.read_sound(error, columns)


def _read(file: TableFile, columns: dict[str, str], source: Source) -> tuple[Column, Column, Column]:
    """The item, annotator and label columns of a file."""
    names = [columns[role] for role in ("item", "annotator", "label")]
    if file.is_text and file.size > MIN_BYTES_TO_READ_IN_BLOCKS:
        with suppress(CutInsideQuotes):
            if has_many_distinct(sample := file.head(columns["item"])):
                return _read_many(file, columns, trailing_bytes_to_skip(sample.combine_chunks()))
            return _encode(pa.concat_tables(file.map(lambda table: table, names, names)), columns, source)
    return _encode(file.read(names, text=True, dictionary=names[1:]), columns, source)


def _read_many(file: TableFile, columns: dict[str, str], skipped_bytes: int) -> tuple[Column, Column, Column]:
    """The same for many items: partitioned block by block, so that the whole file is never in memory."""
    item, *others = (columns[role] for role in ("item", "annotator", "label"))

    def partition_block(table: pa.Table) -> tuple[list[PartitionedRows], pa.Table]:
        return [partition_rows(chunk, skipped_bytes) for chunk in table[item].chunks], table.select(others)

    partitioned, tables = zip(*file.map(partition_block, [item, *others], others), strict=True)
    with ThreadPoolExecutor(2) as pool:
        encoded = pool.map(
            lambda column: Column(*encode_column(column, "", "", text=True)), pa.concat_tables(tables).columns
        )
        names, codes = encode_partitions(list(chain.from_iterable(partitioned)))
        del partitioned, tables
        pa.default_memory_pool().release_unused()  # make room for the names as Python objects
        items = Column(*drop_blank_names(names, codes, text=True))
        annotator, label = encoded
    return items, annotator, label


def _encode(table: pa.Table, columns: dict[str, str], source: Source) -> tuple[Column, Column, Column]:
    """The item, annotator and label columns of a table."""
    if not table.num_rows:
        raise TableError(f"{source.name} has a header but no rows; expected one row per label")
    table = with_class_names(table)

    def column(role: str) -> Column:
        return Column(*encode_column(table[columns[role]], columns[role], source.name, text=source.is_text))

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
    reading: Reading,
    notes: list[str],
) -> Annotations:
    """Annotations from three columns, without rows that are missing, bad or repeated."""
    label = _sorted(label) if classes is None else _among(classes, label, source)
    annotator = _sorted(annotator)
    n_rows = len(label.codes)
    present: Sequence[int] | IntArray = range(n_rows)
    if (label.codes < 0).any():
        present = np.flatnonzero(label.codes >= 0)
        item, annotator, label = (Column(names, codes[present]) for names, codes in (item, annotator, label))
    n_missing = n_rows - len(present)
    if (item.codes < 0).any() or (annotator.codes < 0).any():
        bad = (item.codes < 0) | (annotator.codes < 0)
        places = source.describe_rows([int(present[row]) for row in np.flatnonzero(bad)[:MAX_LISTED_ROWS]])
        roles = ["item" if item.codes[row] < 0 else "annotator" for row in np.flatnonzero(bad)[:MAX_LISTED_ROWS]]
        shown = [f"{place}: the {role} is empty" for place, role in zip(places, roles, strict=True)]
        notes.append(drop_or_raise(source.name, shown, int(bad.sum()), n_rows, "rows", reading.on_bad))
        present = np.asarray(present)[~bad]
        item, annotator, label = (Column(names, codes[~bad]) for names, codes in (item, annotator, label))
    notes += similar_class_notes(label.names) if classes is None else []
    try:
        triples = sort_triples(item.codes, annotator.codes, label.codes, len(item.names), reading.on_conflict)
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
        ids_may_be_row_numbers=source.ids_may_be_row_numbers,
        dropped=(n_missing, triples.n_duplicates, triples.n_conflicts),
        notes=tuple(notes),
    )


def _sorted(column: Column) -> Column:
    """The column with its names sorted."""
    names, position = sort_names(column.names)
    return Column(names, _renumber(column.codes, position))


def _among(classes: NDArray[Any], label: Column, source: Source) -> Column:
    """The label column in terms of the given classes; an error for a label that is not one of them."""
    position = positions_of(label.names, classes)
    if (position < 0).any():
        code = int(np.argmax(position < 0))  # names are in order of appearance, so its first row is the first bad row
        place = source.describe_rows([int(np.argmax(label.codes == code))])[0]
        raise TableError(f"{place}: {unknown_class_message(format_names([label.names[code]]), classes)}")
    return Column(classes, _renumber(label.codes, position))


def _renumber(codes: NDArray[np.int32], position: IntArray) -> NDArray[np.int32]:
    """The codes after their names moved to these positions; -1 stays."""
    return np.append(position, -1).astype(np.int32)[codes]


def _conflicts(
    error: ConflictError,
    item: Column,
    annotator: Column,
    label: Column,
    present: Sequence[int] | IntArray,
    source: Source,
) -> str:
    """The message for annotators who gave two different labels to one item."""
    places = source.describe_rows([int(present[row]) for pair in error.rows for row in pair])
    shown = [
        f"  item {format_names([item.names[item.codes[one]]])}, annotator "
        f"{format_names([annotator.names[annotator.codes[one]]])}: "
        f"{format_names([label.names[label.codes[one]]])} ({place}) and "
        f"{format_names([label.names[label.codes[other]]])} ({other_place})"
        for (one, other), place, other_place in zip(error.rows, places[::2], places[1::2], strict=True)
    ]
    return (
        f"{source.name}: {error.count:,} (item, annotator) pairs have two different labels, such as\n"
        + "\n".join(shown)
        + "\nChoose what to keep with on_conflict= (--on-conflict on the command line): 'first' or 'last' keeps "
        "that label, 'drop' keeps none of them"
    )
