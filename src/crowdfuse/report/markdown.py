"""Markdown tables whose cells show exactly the given text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table. Characters that would break the table or become HTML are escaped.

    Parameters
    ----------
    header : sequence of str
        Title of each column.
    rows : iterable of sequences
        The cells of each row, as many as the header has.

    Returns
    -------
    str
        The table, without a final newline.

    Examples
    --------
    >>> print(markdown_table(["a"], [["x|<b>"]]))
    | a |
    |---|
    | x\\|&lt;b&gt; |
    """
    lines = [header, ["---"] * len(header), *rows]
    text = ["| " + " | ".join(escape_cell(value) for value in line) + " |" for line in lines]
    text[1] = "|" + "---|" * len(header)
    return "\n".join(text)


def escape_cell(value: Any) -> str:
    """Return a value as one table cell: one line, with `|`, backticks, backslashes and HTML escaped."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").split())
