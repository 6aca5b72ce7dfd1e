"""Wide tables: one row per item, one column per annotator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdfuse.io.column_encoding import encode_column
from crowdfuse.io.item_fields import looks_like_inputs
from crowdfuse.io.tables import TableError, choose_columns, item_or_text_column
from crowdfuse.labels.ids import ids_to_strings, parse_integer_ids, positions_of


class WideLabels(NamedTuple):
    """The labels of a wide table, row by row: names, and three codes per label. Item code -1 means an empty id."""

    id_column: str
    other_columns: list[str]  # columns that are neither items nor annotators, such as texts

    items: NDArray[Any]
    annotators: NDArray[Any]
    classes: NDArray[Any]
    item: NDArray[np.int32]
    annotator: NDArray[np.int32]
    label: NDArray[np.int32]
    row: NDArray[np.int64]  # row of the table
    item_of_row: NDArray[np.int32]  # item code of each row of the table


def annotator_columns(table: pa.Table, id_column: str, text: str | None) -> list[str]:
    """The columns with labels: all except the item column and the columns of texts or image paths."""
    return [name for name in table.column_names if name not in (id_column, text) and not _is_input(name, table[name])]


def _is_input(name: str, column: pa.ChunkedArray) -> bool:
    """Whether a column holds texts or paths of images, by its name or its values."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return False
    return looks_like_inputs(name, [value for value in column.to_pylist() if value is not None and value.strip()])


def read_wide(table: pa.Table, item: str | None, text_column: str | None, where: str, *, text: bool) -> WideLabels:
    """The labels of a wide table; empty cells are missing labels."""
    id_column = choose_columns(table.column_names, {"item": item_or_text_column(table.column_names, item)}, where)[
        "item"
    ]
    names = annotator_columns(table, id_column, text_column)
    if not names:
        has = "only the column" if table.num_columns == 1 else "no column of labels beside"
        raise TableError(f"{where} has {has} {id_column!r}; add one column per annotator")
    if not all(name.strip() for name in names):
        raise TableError(f"{where}: a column has no name; give it the id of its annotator as its name, or remove it")
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
        id_column,
        [name for name in table.column_names if name not in (id_column, *names)],
        items,
        parse_integer_ids(np.array(names, object)),
        classes,
        rows[row].astype(np.int32),
        annotator.astype(np.int32),
        label[row, annotator],
        row,
        rows.astype(np.int32),
    )
