"""Hugging Face datasets as Arrow tables, with class names instead of class numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_names


def is_dataset(table: Any) -> bool:
    """Whether this is a `datasets.Dataset`, or a dict of them by split. Does not import `datasets`."""
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
        raise TableError(f"the {type(dataset).__name__} does not give an Arrow table; load it without streaming")
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
