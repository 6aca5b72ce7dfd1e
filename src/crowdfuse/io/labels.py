"""Read labels as `Annotations`, from tables and from exports of labelling tools."""

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

from crowdfuse.io.annotation_building import Source, build_annotations
from crowdfuse.io.bad_rows import drop_or_raise
from crowdfuse.io.column_encoding import Column, drop_blank_names, encode_column
from crowdfuse.io.dictionary_encoding import (
    PartitionedRows,
    encode_partitions,
    has_many_distinct,
    partition_rows,
    trailing_bytes_to_skip,
)
from crowdfuse.io.doccano import is_doccano_folder, read_user_files
from crowdfuse.io.exports import JSON_ENDINGS, ExportRecords, read_json
from crowdfuse.io.file_content import file_ending
from crowdfuse.io.format_detection import READERS, detect_format, detect_record_format, is_wide
from crowdfuse.io.hugging_face import (
    dataset_table,
    is_dataset,
    is_dataset_folder,
    read_dataset_folder,
    with_class_names,
)
from crowdfuse.io.item_fields import ItemFields, table_fields
from crowdfuse.io.label_studio import FLAT_COLUMNS
from crowdfuse.io.tables import (
    BrokenLinesError,
    CutInsideQuotes,
    TableError,
    TableFile,
    as_table,
    choose_columns,
    item_or_text_column,
    usual_columns,
)
from crowdfuse.io.wide import read_wide
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_names, normalize_ids, refuse_repeats
from crowdfuse.labels.reading import Reading

FORMAT_SAMPLE_ROWS = 100  # rows checked for whether a table holds the records of an export
MIN_BYTES_TO_READ_IN_BLOCKS = 1 << 24  # smaller text files are faster to read as a whole


class LabelFile(NamedTuple):
    """The content of a file of labels."""

    annotations: Annotations
    fields: ItemFields  # what the file says about the items apart from labels; empty unless `with_fields` was true


class Request(NamedTuple):
    """What to read."""

    reading: Reading
    classes: NDArray[Any] | None  # the classes that the user gave
    with_fields: bool


def read_labels(path: Path, reading: Reading) -> Annotations:
    """Read labels from a file. Notes, for example on dropped rows, are stored in the result; no warnings are given.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv``, ``.xlsx`` or ``.parquet`` file; an export of a labelling tool (``.json``, ``.jsonl``); an
        export of doccano with one file per annotator, as a ``.zip`` file or as a folder; or the folder of a Hugging
        Face dataset. Text files may be compressed (``.csv.gz``).
    reading : Reading
        The options for reading labels.

    Returns
    -------
    annotations : Annotations
        The labels. The attribute `notes` says which rows were dropped, which labels count as missing, and which classes
        were merged.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TableError
        If the labels cannot be read; the message gives the file, the line and the value.

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
    return read_label_file(path, reading).annotations


def labels_from_table(table: Any, reading: Reading) -> Annotations:
    """Create annotations from a table in memory.

    Notes, for example on dropped rows, are stored in the result; no warnings are given.

    Parameters
    ----------
    table : table
        A pandas, polars or pyarrow table, a Hugging Face dataset, or a dict of arrays.
    reading : Reading
        The options for reading labels.

    Returns
    -------
    annotations : Annotations
        The labels. The attribute `notes` says which rows were dropped, which labels count as missing, and which classes
        were merged.

    Raises
    ------
    TableError
        If the labels cannot be read; the message gives the row and the value.
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
    arrow = dataset_table(table) if is_dataset(table) else as_table(table)
    return _from_arrow(arrow, "the table", Request(reading, _given_classes(reading), False)).annotations


def read_label_file(path: Path, reading: Reading, *, with_fields: bool = False) -> LabelFile:
    """Read labels from a file. If `with_fields` is true, also read what the file says about the items."""
    request = Request(reading, _given_classes(reading), with_fields)
    if path.is_dir() and is_dataset_folder(path):
        return _from_arrow(read_dataset_folder(path), str(path), request)
    if is_doccano_folder(path):
        return _from_records(read_user_files(path), request)
    if file_ending(path) in JSON_ENDINGS:
        return _from_records(read_json(path), request)
    file, notes = TableFile(path, reading.sep), list[str]()
    source = Source(str(path), file.describe_rows, file.is_text)

    def whole() -> pa.Table:
        try:
            return file.read(text=True)
        except BrokenLinesError as error:
            return _read_sound_rows(file, error, None, reading, notes)

    other = _from_other_forms(file.columns, whole, source, request, notes)
    if other is not None:
        return other
    if with_fields:
        return _from_long(whole(), source, request, notes)
    columns = _choose_columns(file.columns, reading, str(path))
    try:
        found = _read(file, columns, source)
    except BrokenLinesError as error:
        found = _encode(_read_sound_rows(file, error, list(columns.values()), reading, notes), columns, source)
    pa.default_memory_pool().release_unused()  # make room for the sort
    _refuse_row_ids(found[0], columns["item"], source, reading)
    return LabelFile(build_annotations(*found, source, request.classes, reading, notes), ItemFields(str(path)))


def _given_classes(reading: Reading) -> NDArray[Any] | None:
    """The classes that the user gave, if any; an error if a class is given twice."""
    if reading.classes is None:
        return None
    names = normalize_ids(reading.classes, "classes")
    refuse_repeats(names, "classes")
    return names


def _roles(reading: Reading) -> dict[str, str | None]:
    """The column that the user chose for each role; an error if a question is chosen, because tables have none."""
    if reading.question is not None:
        raise ValueError(
            f"question={reading.question!r} applies only to exports of labelling tools; to choose columns of a "
            "table, use item= and label="
        )
    return {"item": reading.item, "annotator": reading.annotator, "label": reading.label}


def _choose_columns(names: Sequence[str], reading: Reading, where: str) -> dict[str, str]:
    """The columns of items, annotators and labels. If there is no item column, the texts identify the items."""
    return choose_columns(names, _roles(reading) | {"item": item_or_text_column(names, reading.item)}, where)


def _from_arrow(table: pa.Table, name: str, request: Request) -> LabelFile:
    """The labels of a table in memory."""
    source = Source(name, lambda rows: [f"{name}, row {row}" for row in rows], False)
    other = _from_other_forms(table.column_names, lambda: table, source, request, [])
    return _from_long(table, source, request, []) if other is None else other


def _from_other_forms(
    columns: list[str], read: Callable[[], pa.Table], source: Source, request: Request, notes: list[str]
) -> LabelFile | None:
    """The labels of a wide table or of a table of export records; None if the table has one row per label."""
    reading = request.reading
    is_flat_export = set(FLAT_COLUMNS) <= set(columns)  # Label Studio's CSV
    if source.is_text and reading.format in READERS and not (reading.format == "label-studio" and is_flat_export):
        raise TableError(f"{source.name}: format={reading.format!r} needs a .json, .jsonl or .parquet file")
    roles = [bool(usual_columns(columns, role)) for role in ("annotator", "label")]
    named = reading.annotator or reading.label
    if reading.format == "table" or (reading.format == "auto" and (named or (all(roles) and not is_flat_export))):
        return None
    if reading.format == "auto" and any(roles) and source.is_text and not is_flat_export:
        return None
    table = with_class_names(read())
    may_hold_records = reading.format == "auto" and (is_flat_export or not source.is_text)
    if reading.format in READERS or (
        may_hold_records and any(map(detect_record_format, table.slice(0, FORMAT_SAMPLE_ROWS).to_pylist()))
    ):
        records = list(enumerate(table.to_pylist()))
        described = ExportRecords(source.name, "row", records, [], lambda row: source.describe_rows([row])[0])
        return _from_records(described, request, notes)
    if reading.format == "wide" or (not any(roles) and is_wide(table, reading.item, reading.text, source.name)):
        return _from_wide(table, source, request, notes)
    return None


def _from_long(table: pa.Table, source: Source, request: Request, notes: list[str]) -> LabelFile:
    """The labels of a table with one row per label."""
    columns = _choose_columns(table.column_names, request.reading, source.name)
    found = _encode(table, columns, source)
    _refuse_row_ids(found[0], columns["item"], source, request.reading)
    fields = ItemFields(source.name)
    if request.with_fields:
        others = [name for name in table.column_names if name not in (columns["annotator"], columns["label"])]
        fields = _fields_of(table, others, found[0], source, columns["item"])
    return LabelFile(build_annotations(*found, source, request.classes, request.reading, notes), fields)


def _from_wide(table: pa.Table, source: Source, request: Request, notes: list[str]) -> LabelFile:
    """The labels of a table with one row per item and one column per annotator."""
    roles = _roles(request.reading)
    if roles["annotator"] or roles["label"]:
        raise ValueError(
            "a wide table has one column of labels per annotator, so it has no annotator column and no single label "
            "column; leave out annotator= and label="
        )
    found = read_wide(table, request.reading.item, request.reading.text, source.name, text=source.is_text)

    def places(labels: Sequence[int]) -> list[str]:
        lines = source.describe_rows([int(found.row[label]) for label in labels])
        names = [format_names([found.annotators[found.annotator[label]]]) for label in labels]
        return [f"{line}, column {name}" for line, name in zip(lines, names, strict=True)]

    label = Column(found.classes, found.label)
    annotations = build_annotations(
        Column(found.items, found.item),
        Column(found.annotators, found.annotator),
        label.with_integers() if source.is_text else label,
        source._replace(describe_rows=places),
        request.classes,
        request.reading,
        notes,
    )
    fields = ItemFields(source.name)
    if request.with_fields:
        item_of_row = Column(found.items, found.item_of_row)
        fields = _fields_of(table, [found.id_column, *found.other_columns], item_of_row, source, found.id_column)
    return LabelFile(annotations, fields)


def _from_records(records: ExportRecords, request: Request, notes: Sequence[str] = ()) -> LabelFile:
    """The labels of the records of an export."""
    reading = request.reading
    if reading.format in ("table", "wide"):
        raise TableError(f"{records.name}: format={reading.format!r} needs a .csv, .tsv, .xlsx or .parquet file")
    if reading.annotator or reading.label:
        raise ValueError(
            "annotator= and label= apply only to tables; for an export of a labelling tool, use item= and question="
        )
    if not records.records and not records.broken:
        raise TableError(f"{records.name} has no records; expected an export of a labelling tool")
    form = detect_format(records) if reading.format == "auto" else reading.format
    found = READERS[form](records, reading.item, reading.question)
    all_notes = [*notes, *found.notes(), *found.drop_or_raise_bad(reading.on_bad)]
    codes = np.array(found.rows, np.int32).reshape(-1, 3)
    item, annotator, label = (
        Column(np.array(list(names), object), codes[:, at]).with_integers()
        for at, names in enumerate((found.items, found.annotators, found.classes))
    )
    source = Source(
        records.name,
        lambda rows: [found.place(found.numbers[row]) for row in rows],
        is_text=True,
        ids_may_be_row_numbers=reading.item is not None,  # the tool's own ids are numbers of tasks, not of rows of X
    )
    annotations = build_annotations(item, annotator, label, source, request.classes, reading, all_notes)
    return LabelFile(annotations, found.item_fields() if request.with_fields else ItemFields(records.name))


def _fields_of(table: pa.Table, names: Sequence[str], item: Column, source: Source, id_column: str) -> ItemFields:
    """The string columns among `names`, by item. The id column is the input only if no other column can be."""
    columns = {name: table[name].to_pylist() for name in names if _holds_strings(table[name].type)}
    fields = table_fields(columns, item, source.name, source.describe_rows)
    fields.fallback = id_column
    return fields


def _holds_strings(kind: pa.DataType) -> bool:
    """Whether a column holds strings."""
    if pa.types.is_dictionary(kind):
        return _holds_strings(kind.value_type)
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _refuse_row_ids(item: Column, name: str, source: Source, reading: Reading) -> None:
    """Raise an error if the item column was not chosen by the user, is called id, and numbers the labels."""
    if reading.item is None and name.strip().lower() == "id" and 1 < len(item.codes) == len(item.names):
        raise TableError(
            f"{source.name} seems to have no item column: {name!r} has a different value in every row, so it seems to "
            "number the labels, not the items. Choose the item column with item= (--item on the command line). If "
            f"{name!r} is the item column after all, choose {name!r}"
        )


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
    """The same for many items. The file is partitioned block by block, so that it is never in memory as a whole."""
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
