"""Markdown that shows what it is given and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; what would break it or become HTML is escaped.

    >>> print(table(["a"], [["x|<b>"]]))
    | a |
    |---|
    | x\\|&lt;b&gt; |
    """
    lines = [header, ["---"] * len(header), *rows]
    text = ["| " + " | ".join(cell(value) for value in line) + " |" for line in lines]
    text[1] = "|" + "---|" * len(header)
    return "\n".join(text)


def cell(value: Any) -> str:
    """A value as one safe table cell."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").split())
