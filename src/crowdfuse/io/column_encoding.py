"""Encode a column of a table as distinct names and one code per row."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdfuse.io.dictionary_encoding import encode_values
from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import ALLOWED_IDS, EXACT_FLOAT_LIMIT, merge_equal_names, parse_integer_ids, parse_integers


class Column(NamedTuple):
    """The distinct names of a column, and one code per row: the position of its name, or -1 if the row is empty."""

    names: NDArray[Any]
    codes: NDArray[np.int32]

    def renamed(self, names: NDArray[Any]) -> Column:
        """The column with new names; equal names are merged."""
        distinct, position = merge_equal_names(names)
        return Column(distinct, np.append(position, -1).astype(np.int32)[self.codes])

    def with_integers(self) -> Column:
        """The column with integers as names if all of them are whole numbers, such as "1" or "1.0"."""
        numbers = parse_integer_ids(self.names)
        return self if numbers is self.names else self.renamed(numbers)


def encode_column(
    column: pa.ChunkedArray, name: str, where: str, *, text: bool
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Encode a column as distinct names and one code per row. The code is -1 for null, empty and blank values.

    Names are in order of appearance. In a categorical column, they are in the order of its categories. If `text` is
    true, the strings come from a text file: if all values are whole numbers, they are read as integers ("12" or "12.0"
    as 12).
    """
    if pa.types.is_dictionary(column.type) and not pa.types.is_primitive(column.type.value_type):
        return _encode_dictionary(column, name, where, text=text)
    return drop_blank_names(*encode_values(_usable(column, name, where)), text=text)


def drop_blank_names(
    names: pa.Array, codes: NDArray[np.int32], *, text: bool
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Distinct names and one code per row, without empty names."""
    if pa.types.is_integer(names.type):
        return np.asarray(names.cast(pa.int64())), codes
    blank = np.asarray(pc.or_(pc.equal(names, ""), pc.utf8_is_space(names)))
    if blank.any():  # empty strings and strings of spaces count as missing
        position = np.where(blank, -1, np.cumsum(~blank) - 1).astype(np.int32)
        codes = np.append(position, np.int32(-1))[codes]
        names = names.filter(pa.array(~blank))
    numbers = parse_integers(names) if text else None
    if numbers is None:
        return names.to_numpy(zero_copy_only=False).astype(object, copy=False), codes
    if len(np.unique(numbers)) == len(numbers):
        return numbers, codes
    return Column(names, codes).renamed(numbers)  # "1" and "1.0"


def _encode_dictionary(
    column: pa.ChunkedArray, name: str, where: str, *, text: bool
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Encode a dictionary column. It has one dictionary per chunk, and a dictionary may have empty or unused values."""
    dictionaries = pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)
    names, of_value = encode_column(dictionaries, name, where, text=text)
    first_row = np.cumsum([0, *(len(chunk) for chunk in column.chunks)])
    first_value = np.cumsum([0, *(len(dictionary) for dictionary in dictionaries.chunks)])
    codes = np.empty(len(column), np.int32)

    def place(index: int) -> None:
        chunk = column.chunk(index)
        position = chunk.indices.cast(pa.int32()).fill_null(-1) if chunk.null_count else chunk.indices
        of_chunk = np.append(of_value[first_value[index] : first_value[index + 1]], np.int32(-1))
        codes[first_row[index] : first_row[index + 1]] = of_chunk[np.asarray(position)]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(place, range(column.num_chunks)))
    if text:  # these dictionaries were built from the rows, so all their values are used
        return names, codes
    is_used = np.zeros(len(names) + 1, bool)  # one more entry, for the code -1
    is_used[codes] = True
    is_used[-1] = False
    renumbered = np.where(is_used, np.cumsum(is_used) - 1, -1).astype(np.int32)
    return names[is_used[:-1]], renumbered[codes]


def _usable(column: pa.ChunkedArray, name: str, where: str) -> pa.ChunkedArray:
    """The column as strings or signed integers; an error for other types."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_signed_integer(kind):
        return column
    if pa.types.is_dictionary(kind):
        return _usable(column.cast(kind.value_type), name, where)
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_unsigned_integer(kind):
        fits = pc.less_equal(column, pa.scalar(np.iinfo(np.int64).max, pa.uint64()))
    elif pa.types.is_floating(kind):  # integers with missing values often have this type
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        fits = pc.and_(pc.less(pc.abs(column), float(EXACT_FLOAT_LIMIT)), pc.equal(column, pc.floor(column)))
    else:
        raise TableError(f"{where}: column {name!r} holds {kind} values; expected strings or integers")
    row = pc.index(fits, False).as_py()
    if row >= 0:
        raise TableError(
            f"{where}, row {row}: {name} {column[row].as_py()!r} cannot be an id or a class name; use {ALLOWED_IDS}"
        )
    return column.cast(pa.int64())
