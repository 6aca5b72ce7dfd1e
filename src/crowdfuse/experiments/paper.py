"""The accuracies in the tables of Gao et al. (2022), read from `paper.csv`."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

ValueMethod = tuple[str, str]
"""A pair: a value of the parameter that a table varies, and the name of a method."""


@cache
def paper_table(table: str) -> dict[ValueMethod, float]:
    """Return the accuracies (%) in one table of Gao et al. (2022), by value of the varied parameter and by method.

    Parameters
    ----------
    table : str
        The table: "1", "2", "3", "supp-1", "supp-2" or "supp-3".

    Returns
    -------
    dict of (str, str) to float

    Examples
    --------
    >>> paper_table("1")["30", "fusion"]
    92.49
    """
    text = files("crowdfuse.experiments").joinpath("paper.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["value"], row["method"]): float(row["accuracy"]) for row in rows if row["table"] == table}
