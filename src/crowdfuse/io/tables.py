"""Tables as Arrow: CSV, TSV and Parquet files, data frames, dicts of arrays; and which column is which."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from crowdfuse.ids import INTEGER, few
from crowdfuse.io.encoding import encode_values

USUAL_NAMES = {
    "item": ("item", "task", "example"),
    "annotator": ("annotator", "worker", "rater"),
    "label": ("label", "answer", "response"),
}


class TableError(ValueError):
    """A table that cannot be used, in words that say where and what to do."""


class TableFile:
    """A CSV, TSV or Parquet file: its columns at once, its data when asked, its line numbers for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file")
        if path.is_dir():
            raise TableError(f"{path} is a folder; a .csv, .tsv or .parquet file was expected")
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty; a header and one row a label were expected")
        endings = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".parquet": "", ".pq": ""}
        if path.suffix.lower() not in endings:
            raise TableError(f"{path}: unknown kind of file {path.suffix!r}; give .csv, .tsv or .parquet")
        self.delimiter = endings[path.suffix.lower()]
        self.columns = self._columns()

    @property
    def is_text(self) -> bool:
        return bool(self.delimiter)

    def _columns(self) -> list[str]:
        if not self.is_text:
            try:
                return list(pyarrow.parquet.read_schema(self.path).names)
            except pa.ArrowInvalid as error:
                raise TableError(f"{self.path}: not a readable Parquet file ({error})") from error
        with self.path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
            header = next(csv.reader(lines, delimiter=self.delimiter), [])
        if not header:
            raise TableError(f"{self.path} has no header line")
        return header

    def read(self, columns: Sequence[str] | None = None, *, text: bool = False) -> pa.Table:
        """Some columns, or all. With `text`, a text file's columns come as strings, untouched."""
        names = list(self.columns if columns is None else columns)
        if not self.is_text:
            return pyarrow.parquet.read_table(self.path, columns=names)
        repeated = sorted({name for name in names if self.columns.count(name) > 1})
        if repeated:
            raise TableError(f"{self.path} has two columns called {few(repeated)}; rename one")
        try:
            return pyarrow.csv.read_csv(
                self.path,
                read_options=pyarrow.csv.ReadOptions(block_size=1 << 22),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=self._has_quotes()),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=names,
                    column_types=dict.fromkeys(names, pa.string()) if text else None,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise TableError(f"{self.path}: {_reason(error)}") from error

    def _has_quotes(self) -> bool:
        """Whether a quoted value may hold a line break: only then must reading go one block after another."""
        with self.path.open("rb") as data:
            while block := data.read(1 << 24):
                if b'"' in block:
                    return True
        return False

    def line(self, row: int) -> str:
        """'labels.csv, line 17' for a row number of a text file, 'labels.parquet, row 15' otherwise."""
        if not self.is_text:
            return f"{self.path}, row {row}"
        with self.path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
            reader = csv.reader(lines, delimiter=self.delimiter)
            next(reader)
            seen = -1
            for values in reader:
                seen += bool(values)  # blank lines are no rows
                if seen == row:
                    break
            return f"{self.path}, line {reader.line_num}"


def as_table(table: Any) -> pa.Table:
    """A pyarrow table of anything with `__arrow_c_stream__`, or of a dict of arrays."""
    if isinstance(table, Mapping):
        columns = {str(name): _arrow_array(values, str(name)) for name, values in table.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"the columns differ in length: {lengths}")
        return pa.table(columns)
    if hasattr(table, "__arrow_c_stream__"):
        return pa.table(table)
    raise TypeError(
        f"a table or a dict of arrays was expected, got {type(table).__name__}; "
        "tables are anything with __arrow_c_stream__ (pandas, polars, pyarrow)"
    )


def choose_columns(found: Sequence[str], given: Mapping[str, str | None], where: str) -> dict[str, str]:
    """Which column is the item, the annotator, the label: as given, or by the usual names."""
    chosen: dict[str, str] = {}
    for role, name in given.items():
        if name is not None:
            if name not in found:
                raise TableError(f"{where} has no column {name!r}; its columns are {few(found, 12)}")
            chosen[role] = name
            continue
        usual = USUAL_NAMES[role]
        names = [*usual, *(f"{word}_id" for word in usual), *(f"{word}s" for word in usual)]
        matches = [column for column in found if column.strip().lower() in names]
        if not matches:
            raise TableError(
                f"{where} has no column for the {role}: looked for {', '.join(usual)}; its columns are "
                f"{few(found, 12)}. Name the right one with {role}= (--{role} on the command line)"
            )
        if len(matches) > 1:
            raise TableError(
                f"{where} has several columns that may be the {role}: {few(matches)}. "
                f"Name the right one with {role}= (--{role} on the command line)"
            )
        chosen[role] = matches[0]
    taken = list(chosen.values())
    if len(set(taken)) < len(taken):
        raise TableError(f"{where}: one column cannot serve twice: {chosen}")
    return chosen


def encode(column: Any, name: str, where: str, *, text: bool) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """A column as distinct names in order of appearance and a code a row, -1 where null or empty.

    `text` says that the strings come from a text file, where "12" means the integer 12
    if every value of the column round-trips as one.
    """
    names, codes = encode_values(_usable(column, name, where))
    if pa.types.is_integer(names.type):
        return np.asarray(names.cast(pa.int64())), codes
    empty = pc.index(names, "").as_py()
    if empty >= 0:  # an empty string is no name: take it out
        codes[codes == empty] = -1
        codes[codes > empty] -= 1
        names = pa.concat_arrays([names.slice(0, empty), names.slice(empty + 1)])
    if text and len(names) and pc.all(pc.match_substring_regex(names, INTEGER)).as_py():
        return np.asarray(names.cast(pa.int64())), codes
    return names.to_numpy(zero_copy_only=False).astype(object, copy=False), codes


def _usable(column: Any, name: str, where: str) -> Any:
    """Strings and whole numbers; an integer column with gaps often comes as floats."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _usable(column.cast(kind.value_type), name, where)
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_signed_integer(kind):
        return column
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_unsigned_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise TableError(f"{where}: column {name!r} must hold names or whole numbers ({error})") from error
    raise TableError(f"{where}: column {name!r} holds {kind}; strings or integers were expected")


def _arrow_array(values: Any, name: str) -> Any:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"column {name!r} must hold all strings or all integers ({error})") from error


def _reason(error: pa.ArrowInvalid) -> str:
    text = str(error)
    if "UTF8" in text or "UTF-8" in text:
        return f"not UTF-8 text ({text}); save it as UTF-8"
    return text
