"""Read the texts or images of new items, to predict their classes, from the same kinds of files that hold labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.doccano import is_doccano_folder, read_user_files
from crowdfuse.io.exports import JSON_ENDINGS, TOOL_ID_FIELDS, as_name, get_field, read_json
from crowdfuse.io.file_content import file_ending
from crowdfuse.io.hugging_face import is_dataset_folder, read_dataset_folder
from crowdfuse.io.item_fields import ExportInputs, FieldCollector, choose_inputs
from crowdfuse.io.label_studio import FLAT_COLUMNS
from crowdfuse.io.tables import TABLE_ENDINGS, TableError, TableFile, item_or_text_column, usual_columns
from crowdfuse.labels.ids import parse_integer_ids

NESTED_FIELDS = ("data", "fields", "inputs")  # the fields in which Label Studio and Argilla keep what annotators see
METADATA_FIELDS = ("meta", "metadata")
PRODIGY_INPUT_FIELDS = ("image", "text")


def holds_records(path: Path) -> bool:
    """Return whether a file is an export or a table of labels, in which an item may occur several times.

    Parameters
    ----------
    path : Path
        A file or folder.

    Returns
    -------
    holds_records : bool
        False for arrays, folders of images, and tables with one row per item.
    """
    if path.is_dir():
        return is_dataset_folder(path) or any(path.glob("*.jsonl"))  # doccano writes one file per annotator
    if file_ending(path) in JSON_ENDINGS or is_doccano_folder(path):
        return True
    if file_ending(path) not in TABLE_ENDINGS:
        return False
    columns = TableFile(path).columns
    return bool(usual_columns(columns, "annotator")) or set(FLAT_COLUMNS) <= set(columns)


def read_new_items(path: Path, *, item: str | None = None, text: str | None = None) -> ExportInputs:
    """Read the texts or images of items from an export, a dataset folder or a table, with or without labels.

    Parameters
    ----------
    path : Path
        A file or folder of one of the kinds that hold labels.
    item : str, default=None
        Name of the field that identifies items. By default the id of the labelling tool, or a column that is called
        item or similar, so that the ids are the same as in `crowdfuse.io.read_labels`.
    text : str, default=None
        Name of the field that holds the texts or image paths. By default, the field is detected by its name or content.

    Returns
    -------
    inputs : ExportInputs
        Each item once, in the order of the file. An item without a text gets an empty text. If the file has no ids, the
        ids are row numbers.

    Raises
    ------
    TableError
        If the file holds no texts or images, if several fields may hold them, or if an item has two different inputs.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "new.jsonl"
    >>> _ = path.write_text('{"text": "so good", "_input_hash": 7}')
    >>> read_new_items(path)
    ExportInputs(items=array([7]), kind='text', values=['so good'], field='text')
    """
    name, records, id_fields = _read_records(path)
    if not records:
        raise TableError(f"{path} has no records; expected one record per item")
    found_ids = [_item_id(record, item, id_fields) for _, record in records]
    has_ids = any(found is not None for found in found_ids)
    if item is not None and not has_ids:
        raise TableError(f"{path} has no field {item!r}; its fields are {', '.join(map(repr, records[0][1]))}")
    collector, ids = FieldCollector(), dict[str, None]()
    for row, ((number, record), found) in enumerate(zip(records, found_ids, strict=True)):
        if found is None and has_ids:
            raise TableError(
                f"{name}, record {number}: no id, although other records have one; add the id, or remove the record"
            )
        identity = str(row) if found is None else found
        ids.setdefault(identity)
        collector.add(identity, number, _strings(record))
    main = PRODIGY_INPUT_FIELDS if any("_input_hash" in record for _, record in records) else ()
    fields = collector.finish(name, list(ids), lambda number: f"{name}, record {number}", main)
    items = parse_integer_ids(np.array(list(ids), object))
    chosen = choose_inputs(fields, np.arange(len(items)), text)
    if chosen is None:
        raise TableError(
            f"{path}: found no texts or images; choose the field that holds them with text= (--text on the command "
            "line)"
        )
    return _with_all_items(chosen, items, path)


def _read_records(path: Path) -> tuple[str, list[tuple[int, dict[str, Any]]], Sequence[str]]:
    """Return the name of the file, its numbered records, and the fields that may identify items."""
    if path.is_dir() and is_dataset_folder(path):
        table = read_dataset_folder(path)
    elif is_doccano_folder(path) or file_ending(path) in JSON_ENDINGS:
        source = read_user_files(path) if is_doccano_folder(path) else read_json(path)
        if source.broken:
            raise TableError(f"{source.name}, {source.unit} {source.broken[0][0]}: {source.broken[0][1]}")
        records = [(number, record) for number, record in source.records if isinstance(record, dict)]
        names = dict.fromkeys(key for _, record in records for key in record)
        return source.name, records, (*TOOL_ID_FIELDS, *usual_columns(list(names), "item"))
    else:
        table = TableFile(path).read(text=True)
    records = list(enumerate(table.to_pylist(), start=1))
    columns = table.column_names
    if set(FLAT_COLUMNS) <= set(columns):  # Label Studio's CSV
        return str(path), records, ("id",)
    text = item_or_text_column(columns, None) if usual_columns(columns, "annotator") else None
    return str(path), records, [*usual_columns(columns, "item"), *([] if text is None else [text])]


def _item_id(record: dict[str, Any], item: str | None, id_fields: Sequence[str]) -> str | None:
    """Return the id of a record as text; None if it has none."""
    if item is not None:
        return as_name(get_field(record, item, *NESTED_FIELDS, *METADATA_FIELDS))
    return next((name for field in id_fields if (name := as_name(record.get(field))) is not None), None)


def _strings(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says about its item, from the record itself and from the objects inside it."""
    inner = [record[name] for name in NESTED_FIELDS if isinstance(record.get(name), dict)]
    own = {name: value for name, value in record.items() if name not in TOOL_ID_FIELDS and name[:1] != "_"}
    return {name: value for part in (own, *inner) for name, value in part.items()}


def _with_all_items(chosen: ExportInputs, items: NDArray[Any], path: Path) -> ExportInputs:
    """Return the inputs of all items; a missing text is empty, a missing image is an error."""
    values = [""] * len(items)
    for at, value in zip(chosen.items.tolist(), chosen.values, strict=True):
        values[at] = value
    if chosen.kind == "image" and "" in values:
        raise TableError(
            f"{path}: item {items[values.index('')]!r} has no image in {chosen.field!r}; add the "
            "image, or remove the item"
        )
    return chosen._replace(items=items, values=values)
