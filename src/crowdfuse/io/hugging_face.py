"""Hugging Face datasets as Arrow tables, with the names of their classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_names


def is_dataset(table: Any) -> bool:
    """Whether this is a `datasets.Dataset`, or a dict of them by split, told without importing `datasets`."""
    return hasattr(table, "with_format") and (hasattr(table, "features") or isinstance(table, Mapping))


def dataset_table(dataset: Any) -> pa.Table:
    """The rows of a `datasets.Dataset`, in its order: after `select` or `shuffle` its own table has another one."""
    if isinstance(dataset, Mapping):
        splits = list(dataset)
        raise TableError(
            f"this is a DatasetDict with the splits {format_names(splits)}; give one, such as data[{splits[0]!r}]"
        )
    table = dataset.with_format("arrow")[:]
    if not isinstance(table, pa.Table):
        raise TableError(f"the {type(dataset).__name__} gives no Arrow table of its rows; load it without streaming")
    names = {name: kind.names for name, kind in dataset.features.items() if type(kind).__name__ == "ClassLabel"}
    return name_classes(table, names)


def with_class_names(table: pa.Table) -> pa.Table:
    """Integers that Hugging Face's metadata give names, by these names; -1, which it writes for no label, is null."""
    try:
        metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata["info"]["features"].items()
        names = {name: kind["names"] for name, kind in features if kind.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # not there, or not as Hugging Face writes it
        return table
    return name_classes(table, names)


def name_classes(table: pa.Table, names: Mapping[str, list[str]]) -> pa.Table:
    """The columns of integers in `names` as strings.

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
            raise TableError(f"column {column!r} has names for the classes 0 to {last}, but holds {low} to {high}")
        named = pc.take(pa.array([str(name) for name in classes], pa.string()), codes)
        table = table.set_column(table.column_names.index(column), column, named)
    return table
