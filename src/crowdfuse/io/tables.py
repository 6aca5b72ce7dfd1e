"""Tables as Arrow: CSV, TSV, Excel and Parquet files, data frames and dicts of arrays; choosing columns."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from crowdfuse.io.excel import EXCEL_ENDING, read_first_sheet
from crowdfuse.io.file_content import GZIP_ENDING, describe_encoding, file_ending, is_utf8_file, read_utf8
from crowdfuse.labels.ids import format_names

T = TypeVar("T")

DEFAULT_COLUMN_NAMES = {
    "item": ("item", "task", "example"),
    "annotator": ("annotator", "worker", "rater", "labeller", "labeler"),
    "label": ("label", "answer", "response"),
}
TEXT_NAMES = frozenset(  # columns and fields that hold the texts of items
    (
        *("text", "texts", "sentence", "sentences", "review", "comment", "tweet", "document", "content", "message"),
        *("body", "title", "headline", "abstract", "passage", "utterance", "question"),
    )
)
IMAGE_NAMES = ("image", "file", "filename", "file_name")  # item columns if no other column fits
CLASS_NAME = "class"  # the label column if no other column fits
TABLE_ENDINGS = {  # with the delimiter that is usual in text files
    ".csv": ",",
    ".tsv": "\t",
    ".tab": "\t",
    EXCEL_ENDING: ",",
    ".parquet": "",
    ".pq": "",
}
DELIMITERS = (",", ";", "\t", "|")
QUOTED = re.compile(r'"[^"]*"')
HEADER_BYTES = 1 << 16  # read to find the delimiter of a text file
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t"}  # ways to type a tab
CSV_BLOCK_BYTES = 1 << 22  # parsed at a time; fits the processor's cache


class TableError(ValueError):
    """Error in a table or an export. The message says where the error is and how to correct it.

    Examples
    --------
    >>> issubclass(TableError, ValueError)
    True
    """


class BrokenLinesError(TableError):
    """Error: lines of a text file cannot be parsed; `broken` maps their line numbers to reasons."""

    def __init__(self, path: Path, unit: str, broken: dict[int, str], n_rows: int) -> None:
        self.places = [f"{path}, {unit} {line}: {reason}" for line, reason in list(broken.items())[:3]]
        super().__init__(self.places[0])
        self.broken = broken
        self.n_rows = n_rows


class CutInsideQuotes(Exception):  # noqa: N818  # a signal to read the file differently, not an error
    """Raised when a block ends at a line break that may be part of a quoted value."""


class TableFile:
    """A CSV, TSV, Excel or Parquet file: its column names, its data (read on request), and line numbers for messages.

    A text file may be compressed (``.csv.gz``) or be UTF-16. Such files and the sheet of an Excel file are held in
    memory. The delimiter is `sep`. By default, it is the member of `DELIMITERS` that gives the header the most columns.
    """

    def __init__(self, path: Path, sep: str | None = None) -> None:
        self.path = path
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file")
        if path.is_dir():
            raise TableError(f"{path} is a folder; expected a .csv, .tsv, .xlsx or .parquet file")
        ending = file_ending(path)
        usual = TABLE_ENDINGS.get(ending)
        if usual is None or (path.suffix.lower() == GZIP_ENDING and not (usual and ending != EXCEL_ENDING)):
            known = "a .csv, .tsv, .xlsx or .parquet file, or an export as .json or .jsonl"
            raise TableError(f"{path}: unknown file type {path.suffix!r}; expected {known}")
        self.unit = "row" if ending == EXCEL_ENDING else "line"
        self._content = None
        if ending == EXCEL_ENDING and path.stat().st_size:
            self._content = read_first_sheet(path)
        elif usual and not is_utf8_file(path):
            self._content = read_utf8(path)
        self.size = path.stat().st_size if self._content is None else len(self._content)
        if not self.size:
            raise TableError(f"{path} is empty; expected a header and at least one row")
        self.delimiter = self._find_delimiter(usual, sep if ending != EXCEL_ENDING else None)
        self.columns = self._columns()
        self._skipped_lines: frozenset[int] = frozenset()

    def _find_delimiter(self, usual: str, sep: str | None) -> str:
        """The given delimiter, else the delimiter with the most columns. In a tie, the file ending decides."""
        if sep is not None or not usual or self.unit == "row":
            return usual if sep is None or not usual else DELIMITER_NAMES.get(sep, sep)

        with self._open() as data:
            start = data.read(HEADER_BYTES).decode("utf-8-sig", "replace")
        header = next((line for line in QUOTED.sub("", start).splitlines() if line.strip()), "")
        return max((usual, *DELIMITERS), key=header.count)  # the first of several with the same number

    @property
    def is_text(self) -> bool:
        """Whether this is a CSV, TSV or Excel file, whose values are text."""
        return bool(self.delimiter)

    def _columns(self) -> list[str]:
        """The column names, from the header."""
        if not self.is_text:
            try:
                return list(pyarrow.parquet.read_schema(self.path).names)
            except (pa.ArrowException, OSError) as error:
                raise TableError(f"{self.path}: not a readable Parquet file ({error})") from error
        line, header = next(self._records(), (0, []))
        if not header:
            raise TableError(f"{self.path} has no header; expected column names in the first line")
        if not _is_utf8(header):
            raise TableError(f"{self.path}, {self.unit} {line}: {_describe_bytes(header)}")
        return header

    def read(
        self, columns: Sequence[str] | None = None, *, text: bool = False, dictionary: Sequence[str] = ()
    ) -> pa.Table:
        """Read the table.

        Parameters
        ----------
        columns : sequence of str, default=None
            The columns to read; by default all.
        text : bool, default=False
            Whether to read the columns of a text file as unchanged strings.
        dictionary : sequence of str, default=()
            Text columns to dictionary-encode while parsing. They should have few distinct values.
        """
        names = self._distinct(columns)
        with self._arrow_errors_explained():
            if self.is_text:
                return self._parse(_conversion(names, dictionary) if text else _conversion(names), CSV_BLOCK_BYTES)
            return pyarrow.parquet.read_table(self.path, columns=names)

    def read_sound(self, error: BrokenLinesError, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a text file without its broken lines, as strings. Afterwards, `describe_rows` skips these lines, too."""
        names = self._distinct(columns)
        self._skipped_lines = frozenset(error.broken)
        records = (values for _, values in self._rows(strict=True))
        values = list(zip(*records, strict=True)) or [()] * len(self.columns)
        return pa.table({name: pa.array(values[self.columns.index(name)], pa.string()) for name in names})

    def _distinct(self, columns: Sequence[str] | None) -> list[str]:
        """The columns to read, by default all; an error if the file has one of them twice."""
        names = list(self.columns if columns is None else columns)
        repeated = sorted({name for name in names if self.columns.count(name) > 1})
        if repeated:
            raise TableError(f"{self.path} has two columns called {format_names(repeated)}; rename one of them")
        return names

    def _parse(self, conversion: pyarrow.csv.ConvertOptions, block: int) -> pa.Table:
        """Parse the whole file, `block` bytes at a time."""
        try:
            return pyarrow.csv.read_csv(
                self.path if self._content is None else pa.BufferReader(self._content),
                pyarrow.csv.ReadOptions(block_size=block),
                pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                conversion,
            )
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error) or block > self.size:
                raise
            return self._parse(conversion, 64 * block)  # a row has to fit into a block

    def map(self, work: Callable[[pa.Table], T], columns: Sequence[str], dictionary: Sequence[str]) -> list[T]:
        """Apply `work` to blocks of rows of a text file, in threads.

        Each thread parses a block and works on it while it is in the cache. Columns are strings, as from
        `read(text=True)`. Raises `CutInsideQuotes` if quoted values may contain line breaks; in that case, use `read`.
        """
        conversion = _conversion(columns, dictionary)
        with self._arrow_errors_explained(), ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(
                pool.map(lambda block: work(self._parse_block(block, conversion)), self._blocks(CSV_BLOCK_BYTES))
            )

    def head(self, column: str) -> pa.ChunkedArray:
        """A column of the first rows of a text file, as strings."""
        with self._arrow_errors_explained():
            return self._parse_block(next(self._blocks(CSV_BLOCK_BYTES // 16)), _conversion([column], []))[column]

    def _open(self) -> IO[bytes]:
        """The bytes of a text file."""
        return self.path.open("rb") if self._content is None else BytesIO(self._content)

    def _blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """The first and last byte of blocks of whole lines."""
        begin = 0
        with self._open() as data:
            while begin < self.size:
                data.seek(begin + size)
                data.readline()
                end = min(data.tell(), self.size)
                yield begin, end
                begin = end

    def _parse_block(self, block: tuple[int, int], conversion: pyarrow.csv.ConvertOptions) -> pa.Table:
        """The rows of one block."""
        begin, end = block
        with self._open() as data:
            data.seek(begin)
            lines = data.read(end - begin)
        quoted = b'"' in lines
        after_end = []

        def invalid_row(row: pyarrow.csv.InvalidRow) -> str:
            after_end.append(row)
            return "skip" if row.text == "\0" else "error"

        if quoted:  # Arrow does not report an open quote but swallows the next line; an added line makes this visible
            lines += b"\n\0"
        names = self.columns if begin else None  # the first block has the header
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(lines),
                pyarrow.csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=names),
                pyarrow.csv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=invalid_row if quoted else None),
                conversion,
            )
        except pa.ArrowInvalid as error:
            if quoted:
                raise CutInsideQuotes from error
            raise
        if quoted and len(after_end) != 1:
            raise CutInsideQuotes
        return table

    @contextmanager
    def _arrow_errors_explained(self) -> Iterator[None]:
        """Turn errors of Arrow into errors that name the broken lines."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            n_rows, broken = 0, {}
            for line, values in self._rows() if self.is_text else ():
                n_rows += 1
                if reason := self._fault(values):
                    broken[line] = reason
            if broken:
                raise BrokenLinesError(self.path, self.unit, broken, n_rows) from error
            raise TableError(f"{self.path}: {error}") from error

    def describe_row(self, row: int) -> str:
        """'labels.csv, line 17' for a row number of a text file, 'labels.parquet, row 15' for Parquet."""
        return self.describe_rows([row])[0]

    def describe_rows(self, rows: Sequence[int]) -> list[str]:
        """The places of several rows, in one pass over the file."""
        if not self.is_text:
            return [f"{self.path}, row {row}" for row in rows]
        wanted, last = set(rows), max(rows)
        found = {}
        for row, (line, _) in enumerate(self._rows()):
            if row in wanted:
                found[row] = f"{self.path}, {self.unit} {line}"
            if row == last:
                break
        return [found.get(row, f"{self.path}, row {row}") for row in rows]

    def _fault(self, values: list[str]) -> str:
        """What is wrong with a line; empty if nothing is. Arrow, which parses in parallel, does not know it."""
        if len(values) != len(self.columns):
            return (
                f"it has {len(values)} values, but the header has {len(self.columns)} columns "
                f"({format_names(self.columns, 12)}); correct the line, or quote a value that contains the delimiter"
            )
        return "" if _is_utf8(values) else _describe_bytes(values)

    def _rows(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The rows of a text file without the header and the skipped lines."""
        return (record for record in islice(self._records(strict), 1, None) if record[0] not in self._skipped_lines)

    def _records(self, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The records of a text file, the header first, each with the number of its first line or its row in Excel.

        If `strict` is true, a value of over 128 KB is an error. Otherwise, reading stops there, which is acceptable
        because the records are only used in messages.
        """
        with TextIOWrapper(self._open(), "utf-8-sig", "surrogateescape", newline="") as lines:
            reader = csv.reader(lines, delimiter=self.delimiter)
            begin = 1
            try:
                for values in reader:
                    if values:  # skip blank lines
                        yield begin, values
                    begin = begin + 1 if self.unit == "row" else reader.line_num + 1
            except csv.Error as error:
                if strict:
                    raise TableError(f"{self.path}, {self.unit} {begin}: {error}; correct this line first") from error


def _conversion(columns: Sequence[str], dictionary: Sequence[str] | None = None) -> pyarrow.csv.ConvertOptions:
    """Options to read columns as strings and to encode the columns in `dictionary`. If None, Arrow infers the types."""
    types = {}
    if dictionary is not None:
        types = dict.fromkeys(columns, pa.string())
        types |= dict.fromkeys(dictionary, pa.dictionary(pa.int32(), pa.string()))
    return pyarrow.csv.ConvertOptions(include_columns=columns, column_types=types, strings_can_be_null=False)


def as_table(table: Any) -> pa.Table:
    """A pyarrow table from anything with `__arrow_c_stream__`, or from a dict of arrays."""
    if isinstance(table, Mapping):
        columns = {str(name): _arrow_array(values, str(name)) for name, values in table.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"the columns must have the same length, got {lengths}")
        return pa.table(columns)
    if hasattr(table, "__arrow_c_stream__"):
        try:
            return pa.table(table)
        except (pa.ArrowException, TypeError, ValueError) as error:
            reason = "; ".join(str(argument) for argument in error.args)
            raise TableError(f"the {type(table).__name__} is not a table of strings and integers ({reason})") from error
    raise TypeError(
        "expected a dict of arrays, or a table of pandas, polars or pyarrow (any object with __arrow_c_stream__), "
        f"got {type(table).__name__}"
    )


def choose_columns(found: Sequence[str], given: Mapping[str, str | None], where: str) -> dict[str, str]:
    """The column for each role (item, annotator, label): the given one, or a column with a usual name."""
    chosen: dict[str, str] = {}
    missing: list[str] = []
    for role, name in given.items():
        if name is not None:
            if name not in found:
                raise TableError(f"{where} has no column {name!r}; its columns are {format_names(found, 12)}")
            if found.count(name) > 1:
                raise TableError(f"{where} has two columns called {name!r}; rename one of them")
            chosen[role] = name
            continue
        matches = usual_columns(found, role)
        if not matches:
            missing.append(role)
            continue
        if len(matches) > 1:
            raise TableError(
                f"{where} has several columns that may be the {role}: {format_names(matches)}. "
                f"Choose one with {role}= (--{role} on the command line)"
            )
        chosen[role] = matches[0]
    if missing:
        raise TableError(_describe_missing_columns(missing, found, where))
    taken = list(chosen.values())
    if len(set(taken)) < len(taken):
        named = ", ".join(f"{role}={name!r}" for role, name in chosen.items())
        raise TableError(f"{where}: the same column was chosen twice ({named}); choose different columns")
    return chosen


def _describe_missing_columns(roles: Sequence[str], found: Sequence[str], where: str) -> str:
    """The message that there are no columns for these roles."""
    further = {"item": (*IMAGE_NAMES, "id"), "label": (CLASS_NAME,)}
    usual = (
        f"no column for the {role}: expected one of {', '.join((*DEFAULT_COLUMN_NAMES[role], *further.get(role, ())))}"
        for role in roles
    )
    options = " and ".join(f"{role}= (--{role} on the command line)" for role in roles)
    wide = ""
    if "item" not in roles and not any(usual_columns(found, name) for name in ("annotator", "label")):
        wide = "; if there is one column per annotator, use format='wide' (--format wide)"
    return (
        f"{where} has {'; '.join(usual)}; its columns are {format_names(found, 12)}. Choose "
        f"{'one' if len(roles) == 1 else 'them'} with {options}{wide}"
    )


def usual_columns(columns: Sequence[str], role: str) -> list[str]:
    """The columns with a usual name for a role."""
    found = _called(columns, DEFAULT_COLUMN_NAMES[role])
    if role == "label":
        return found or _with_name(columns, CLASS_NAME)
    if role != "item" or found:
        return found
    return _called(columns, IMAGE_NAMES) or _with_name(columns, "id")


def item_or_text_column(columns: Sequence[str], item: str | None) -> str | None:
    """The given item column. If no column has a usual name for items, the only column with a usual name for texts."""
    texts = [column for column in columns if column.strip().lower() in TEXT_NAMES]
    return texts[0] if item is None and len(texts) == 1 and not usual_columns(columns, "item") else item


def _called(columns: Sequence[str], words: Sequence[str]) -> list[str]:
    """The columns named like one of the words, also in the plural or with "_id"."""
    names = [*words, *(f"{word}_id" for word in words), *(f"{word}s" for word in words)]
    return [column for column in columns if column.strip().lower() in names]


def _with_name(columns: Sequence[str], name: str) -> list[str]:
    """The columns with this name, in upper or lower case."""
    return [column for column in columns if column.strip().lower() == name]


def _arrow_array(values: Any, name: str) -> Any:
    """A column of a dict as an Arrow array."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        raise TableError(f"column {name!r} must be an array of strings or of integers ({error})") from error


def _describe_bytes(values: list[str]) -> str:
    """The message about values that are not valid UTF-8."""
    return describe_encoding(" ".join(values).encode(errors="surrogateescape"))


def _is_utf8(values: list[str]) -> bool:
    """Whether the values were valid UTF-8: no byte had to be escaped."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return False
    return True
