"""CSV files as others publish them, row by row, so that what is wrong is said with its file, line and value."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crowdfuse.labels.ids import format_names

Rows = Iterator[tuple[int, list[str]]]


def read_rows(lines: Iterable[str], where: str, needed: Sequence[str]) -> tuple[list[str], Rows]:
    """The header, which must hold the columns `needed`, and every row with the number of its line.

    >>> header, rows = read_rows(["id,class", "a,rock"], "songs.csv", ["class"])
    >>> header, list(rows)
    (['id', 'class'], [(2, ['a', 'rock'])])
    """
    reader = csv.reader(lines)
    header = next(reader, [])
    if not header:
        raise ValueError(f"{where} is empty; it needs the columns {', '.join(needed)}")
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise ValueError(
            f"{where}, line 1: needs the columns {', '.join(needed)}; {', '.join(lacking)} not among "
            f"{format_names(header)}. "
            "Is it another data set's file?"
        )
    return header, _rows(reader, where, len(header))


def _rows(reader: Any, where: str, width: int) -> Rows:
    is_empty = True
    try:
        for row in reader:
            if row and len(row) != width:
                raise ValueError(f"{where}, line {reader.line_num}: {len(row)} values, and the header has {width}")
            if row:
                is_empty = False
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{where}, line {reader.line_num}: {error}") from error
    if is_empty:
        raise ValueError(f"{where}: has a header but no rows")


def whole_number(text: str, below: int, where: str, line: int, column: str) -> int:
    """What a text of digits says, if it is less than `below`.

    >>> whole_number("12", 10, "said.csv", 3, "label")
    Traceback (most recent call last):
    ValueError: said.csv, line 3: label '12' is not a whole number from 0 to 9
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else below
    if number >= below:
        raise ValueError(f"{where}, line {line}: {column} {text!r} is not a whole number from 0 to {below - 1}")
    return number
