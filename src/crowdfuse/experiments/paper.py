"""Every number that the paper prints, as data."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

ValueMethod = tuple[str, str]  # a value of the table's knob, and a method


@cache
def paper_table(table: str) -> dict[ValueMethod, float]:
    """Accuracies (%) of one table, by value and method.

    >>> paper_table("1")["30", "fusion"]
    92.49
    """
    text = files("crowdfuse.experiments").joinpath("paper.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["value"], row["method"]): float(row["accuracy"]) for row in rows if row["table"] == table}
