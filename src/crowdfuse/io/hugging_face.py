"""Hugging Face datasets as Arrow tables, with class names instead of class numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_names

STATE_FILE = "state.json"  # in the folder of a data set
SPLITS_FILE = "dataset_dict.json"  # in a folder with one folder per split


def is_dataset(table: Any) -> bool:
    """Whether an object is a `datasets.Dataset` or a `DatasetDict` (one per split). Does not import `datasets`."""
    return hasattr(table, "with_format") and (hasattr(table, "features") or isinstance(table, Mapping))


def dataset_table(dataset: Any) -> pa.Table:
    """The rows of a `datasets.Dataset`, in the order that `select` or `shuffle` gave them."""
    if isinstance(dataset, Mapping):
        splits = list(dataset)
        raise TableError(
            f"this is a DatasetDict with the splits {format_names(splits)}; pass one split, such as data[{splits[0]!r}]"
        )
    table = dataset.with_format("arrow")[:]
    if not isinstance(table, pa.Table):
        raise TableError(
            f"the {type(dataset).__name__} cannot be converted to an Arrow table; load it without streaming"
        )
    names = {name: kind.names for name, kind in dataset.features.items() if type(kind).__name__ == "ClassLabel"}
    return name_classes(table, names)


def with_class_names(table: pa.Table) -> pa.Table:
    """The table with class names from Hugging Face's metadata in place of class numbers; -1 (no label) becomes null."""
    try:
        metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata["info"]["features"].items()
        names = {name: kind["names"] for name, kind in features if kind.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # no such metadata
        return table
    return name_classes(table, names)


def name_classes(table: pa.Table, names: Mapping[str, list[str]]) -> pa.Table:
    """The table with class names in the integer columns listed in `names`.

    >>> name_classes(pa.table({"label": [1, -1]}), {"label": ["no", "yes"]})["label"].to_pylist()
    ['yes', None]
    """
    for column, classes in names.items():
        if column not in table.column_names or not pa.types.is_integer(table[column].type):
            continue
        codes = pc.if_else(pc.equal(table[column], -1), None, table[column])
        low, high = pc.min_max(codes).as_py().values()
        if low is not None and not 0 <= low <= high < len(classes):
            last = len(classes) - 1
            raise TableError(
                f"column {column!r} has names for the classes 0 to {last}, but its values go from {low} to {high}; "
                "correct the values, or add names to the ClassLabel feature"
            )
        named = pc.take(pa.array([str(name) for name in classes], pa.string()), codes)
        table = table.set_column(table.column_names.index(column), column, named)
    return table


def is_dataset_folder(path: Path) -> bool:
    """Whether a folder holds a data set: written by `save_to_disk`, or as Parquet files."""
    return any((path / name).exists() for name in (STATE_FILE, SPLITS_FILE)) or bool(_parquet_files(path))


def read_dataset_folder(path: Path) -> pa.Table:
    """The rows of a data set in a folder; an error if it has several splits."""
    if (path / SPLITS_FILE).exists():
        splits = _read_state(path / SPLITS_FILE, "splits")
        raise TableError(
            f"{path} holds the splits {format_names(splits)}; pass the folder of one split, such as "
            f"{path / str(splits[0])}"
        )
    if (path / STATE_FILE).exists():
        files = [path / part["filename"] for part in _read_state(path / STATE_FILE, "_data_files")]
        tables = [_read_arrow(file) for file in files]
    else:
        files = _parquet_files(path)
        splits = sorted({file.name.split("-")[0].removesuffix(".parquet") for file in files})
        if len(splits) > 1:
            raise TableError(f"{path} holds the files {format_names([file.name for file in files])}; pass one of them")
        try:
            tables = [pyarrow.parquet.read_table(file) for file in files]
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"{path}: not readable as Parquet ({error})") from error
    try:
        return with_class_names(pa.concat_tables(tables))
    except pa.ArrowInvalid as error:
        raise TableError(f"{path}: its files do not have the same columns ({error})") from error


def _parquet_files(path: Path) -> list[Path]:
    """The Parquet files of a data set, in its folder or in the folder `data`."""
    return sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet"))


def _read_state(path: Path, key: str) -> list[Any]:
    """A list in one of the files that describe a data set."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))[key]
        if not isinstance(found, list) or not found:
            raise ValueError(f"{key} is {format_names([found])}, not a list of values")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise TableError(f"{path}: not the description of a data set ({error}); save the data set again") from error
    return found


def _read_arrow(path: Path) -> pa.Table:
    """The rows of an Arrow file, as `datasets` writes them."""
    try:
        with pa.memory_map(str(path)) as data:
            return pa.ipc.open_stream(data).read_all()
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path}: not a readable Arrow file ({error}); save the data set again") from error
