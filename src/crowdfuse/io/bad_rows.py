"""Rows that cannot be used: raise an error that shows three of them, or drop them and return a note."""

from __future__ import annotations

from collections.abc import Sequence

from crowdfuse.io.tables import TableError

MAX_LISTED_ROWS = 3
DROP_BAD_HINT = "use on_bad='drop' (--on-bad drop on the command line)"


def drop_or_raise(name: str, shown: Sequence[str], count: int, total: int, kind: str, on_bad: str) -> str:
    """Return a note that bad rows were dropped. Raise an error if `on_bad` is 'error', or if all rows are bad.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    shown : sequence of str
        Some of the bad rows, each with its place and reason.
    count, total : int
        The number of bad rows, and the number of all rows.
    kind : str
        What the rows are called, such as 'rows' or 'answers'.
    on_bad : {'error', 'drop'}
        Whether to raise an error or to drop the bad rows.

    Examples
    --------
    >>> drop_or_raise("a.csv", ["a.csv, line 3: the item is empty"], 1, 9, "rows", "drop")
    '1 of 9 rows could not be used and was left out: a.csv, line 3: the item is empty'
    """
    if on_bad == "drop" and count < total:
        was = "was left out:" if count == 1 else "were left out, such as"
        return f"{count:,} of {total:,} {kind} could not be used and {was} {shown[0]}"
    hint = (
        f"To continue without {'it' if count == 1 else 'them'}, {DROP_BAD_HINT}"
        if on_bad != "drop"
        else f"Dropping them would leave no {kind}; correct the file"
    )
    if count == 1:
        raise TableError(f"{shown[0]}. {hint}")
    lines = [
        f"{name}: {count:,} of {total:,} {kind} cannot be used, such as",
        *(f"  {line}" for line in shown[:MAX_LISTED_ROWS]),
    ]
    raise TableError("\n".join([*lines, hint]))
