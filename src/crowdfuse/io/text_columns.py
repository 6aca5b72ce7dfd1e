"""Find the column of a table that holds texts, by its name or by its content."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from crowdfuse.io.tables import TEXT_NAMES, TableError, TableFile
from crowdfuse.io.texts import is_number
from crowdfuse.labels.ids import format_names

MAX_SAMPLED_ROWS = 1_000  # number of rows that are read to judge the content of a column
MIN_MEAN_CHARACTERS = 15  # minimum for a column of texts without spaces, such as Chinese texts


def named_text_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns with a usual name for texts.

    >>> named_text_columns(["id", "Text", "length"])
    ['Text']
    """
    return [name for name in columns if name.strip().lower() in TEXT_NAMES]


def looks_like_texts(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds texts: strings that are not numbers, most of which are long or have several words.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        The column.

    Returns
    -------
    is_text : bool

    Examples
    --------
    >>> looks_like_texts(pa.chunked_array([["a good film", "not bad"]])), looks_like_texts(pa.chunked_array([["cat"]]))
    (True, False)
    """
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    values = [value.strip() for value in column.slice(0, MAX_SAMPLED_ROWS).to_pylist() if value and value.strip()]
    if not values or any(is_number(value) for value in values):
        return False
    several_words = np.mean([any(character.isspace() for character in value) for value in values])
    return bool(several_words > 0.5 or np.mean([len(value) for value in values]) > MIN_MEAN_CHARACTERS)


def choose_text_column(file: TableFile, given: str | None, others: Sequence[str]) -> str:
    """Return the column that holds the texts.

    Parameters
    ----------
    file : TableFile
        The table.
    given : str or None
        Name of the column that the user gave. If None, the column is detected by its name, then by its content.
    others : sequence of str
        Columns that are not texts, such as the item column.

    Returns
    -------
    column : str

    Raises
    ------
    TableError
        If there is no column of texts, or if there are several.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "texts.csv"
    >>> _ = path.write_text("item,remark,text\\n1,nice to see,a good film\\n")
    >>> choose_text_column(TableFile(path), None, ["item"])
    'text'
    """
    columns = [name for name in file.columns if name not in others]
    if given is not None:
        if given not in file.columns:
            raise TableError(f"{file.path} has no column {given!r}; its columns are {format_names(file.columns, 12)}")
        return given
    found = named_text_columns(columns)
    if not found:
        table = file.read(columns)
        found = [name for name in columns if looks_like_texts(table[name])]
    if len(found) > 1:
        raise TableError(
            f"{file.path} has several columns of texts: {format_names(found)}. Choose one with text= (--text on the "
            "command line)"
        )
    if not found:
        raise TableError(
            f"{file.path} has no column of texts; its columns are {format_names(file.columns, 12)}. Choose one with "
            "text= (--text on the command line)"
        )
    return found[0]
