"""Read published CSV files row by row, with errors that name the file, the line and the value."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crowdfuse.labels.ids import format_names

Rows = Iterator[tuple[int, list[str]]]


def read_rows(lines: Iterable[str], where: str, needed: Sequence[str]) -> tuple[list[str], Rows]:
    """The header, which must have the columns `needed`, and the rows, each with its line number.

    >>> header, rows = read_rows(["id,class", "a,rock"], "songs.csv", ["class"])
    >>> header, list(rows)
    (['id', 'class'], [(2, ['a', 'rock'])])
    """
    reader = csv.reader(lines)
    header = next(reader, [])
    if not header:
        raise ValueError(f"{where} is empty; expected the columns {', '.join(needed)}")
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise ValueError(
            f"{where}, line 1: expected the columns {', '.join(needed)}, but the header ({format_names(header)}) "
            f"lacks {', '.join(lacking)}. Is it a file of another data set?"
        )
    return header, _rows(reader, where, len(header))


def _rows(reader: Any, where: str, width: int) -> Rows:
    """The rows that are not blank; an error for a row of another width."""
    is_empty = True
    try:
        for row in reader:
            if row and len(row) != width:
                raise ValueError(
                    f"{where}, line {reader.line_num}: {len(row)} values, but the header has {width}; "
                    "download the file again"
                )
            if row:
                is_empty = False
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{where}, line {reader.line_num}: {error}") from error
    if is_empty:
        raise ValueError(f"{where}: has a header but no rows; download the file again")


def parse_index(text: str, below: int, where: str, line: int, column: str) -> int:
    """The integer in a string of digits; an error unless it is less than `below`.

    >>> parse_index("12", 10, "said.csv", 3, "label")
    Traceback (most recent call last):
    ValueError: said.csv, line 3: label '12' is not an integer from 0 to 9
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else below
    if number >= below:
        raise ValueError(f"{where}, line {line}: {column} {text!r} is not an integer from 0 to {below - 1}")
    return number
