"""Wide tables: one row per item, one column per annotator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdfuse.io.tables import TableError, choose_columns, encode_column
from crowdfuse.labels.ids import ids_to_strings, parse_integer_ids, positions_of


class WideLabels(NamedTuple):
    """The labels of a wide table, row by row: names, and three codes per label. An item code of -1 means no item id."""

    items: NDArray[Any]
    annotators: NDArray[Any]
    classes: NDArray[Any]
    item: NDArray[np.int32]
    annotator: NDArray[np.int32]
    label: NDArray[np.int32]
    row: NDArray[np.int64]  # row of the table


def read_wide(table: pa.Table, item: str | None, where: str, *, text: bool) -> WideLabels:
    """The labels of a wide table; empty cells are missing labels."""
    id_column = choose_columns(table.column_names, {"item": item}, where)["item"]
    names = [name for name in table.column_names if name != id_column]
    if not names:
        raise TableError(f"{where} has only the column {id_column!r}; add one column per annotator")
    if not all(name.strip() for name in names):
        raise TableError(f"{where}: a column has no name; name it after its annotator, or remove it")
    if not table.num_rows:
        raise TableError(f"{where} has a header but no rows; expected one row per item")
    items, rows = encode_column(table[id_column], id_column, where, text=text)
    columns = [encode_column(table[name], name, where, text=False) for name in names]
    labels = [values for values, _ in columns]
    has_words = any(len(values) and values.dtype.kind == "O" for values in labels)
    if has_words:
        labels = [ids_to_strings(values) for values in labels]
    distinct = dict.fromkeys(value for values in labels for value in values.tolist())
    classes = np.array(list(distinct), object if has_words else np.int64)
    codes = [
        np.append(positions_of(values, classes), -1)[code] for values, (_, code) in zip(labels, columns, strict=True)
    ]
    label = np.stack(codes, axis=1).astype(np.int32)
    row, annotator = np.nonzero(label >= 0)
    return WideLabels(
        items,
        parse_integer_ids(np.array(names, object)),
        parse_integer_ids(classes) if text else classes,
        rows[row].astype(np.int32),
        annotator.astype(np.int32),
        label[row, annotator],
        row,
    )
