"""The first sheet of an Excel workbook as the text of a CSV file."""

from __future__ import annotations

import csv
import datetime
import io
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

EXCEL_ENDING = ".xlsx"


def read_first_sheet(path: Path) -> bytes:
    """Return the first sheet of a workbook as CSV: one record per row of the sheet, empty rows included.

    Parameters
    ----------
    path : Path
        An ``.xlsx`` file. Formulas are read as the values that Excel stored with them.

    Returns
    -------
    content : bytes
        UTF-8 text, separated by commas. Whole numbers have no decimals. Dates have the format of ISO 8601.

    Raises
    ------
    ValueError
        If openpyxl is not installed, or if the file is not a workbook.
    """
    if find_spec("openpyxl") is None:
        raise ValueError(
            f"{path}: reading Excel files requires openpyxl, which is not installed. Install it with "
            "`pip install 'crowdfuse[excel]'`, or save the sheet as .csv"
        )
    import openpyxl

    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, SyntaxError) as error:  # SyntaxError: broken XML
        raise ValueError(f"{path}: not a readable Excel workbook ({error}); save it again, or as .csv") from error
    try:
        rows = [[_cell_text(value) for value in row] for row in book.worksheets[0].iter_rows(values_only=True)]
    finally:
        book.close()
    header = next((row for row in rows if any(row)), [])
    width = max((at + 1 for at, name in enumerate(header) if name), default=0)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        cells = _without_empty_end(row, width)
        writer.writerow(cells if any(cells) else [])
    return text.getvalue().encode()


def _without_empty_end(row: list[str], width: int) -> list[str]:
    """The cells of a row: as many as the header has, and further cells only if they are not empty."""
    used = max((at + 1 for at, value in enumerate(row) if value), default=0)
    return [*row, *[""] * width][: max(used, width)]


def _cell_text(value: Any) -> str:
    """The text of a cell; a whole number has no decimals."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)
