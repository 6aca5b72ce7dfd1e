"""Rows that cannot be used: counted, three of them shown, refused unless the user says to drop them."""

from __future__ import annotations

from collections.abc import Sequence

from crowdfuse.io.tables import TableError

MAX_LISTED_ROWS = 3
DROP_BAD_HINT = "say on_bad='drop' (--on-bad drop on the command line)"


def drop_or_raise(name: str, shown: Sequence[str], count: int, total: int, what: str, on_bad: str) -> str:
    """A note that `count` of `total` rows were dropped, or an error: as `on_bad` says, or if nothing would be left.

    `shown` has a few of them, each with its place and reason; `what` they are called, such as 'rows'.

    >>> drop_or_raise("a.csv", ["a.csv, line 3: the item is empty"], 1, 9, "rows", "drop")
    '1 of 9 rows could not be used and was left out: a.csv, line 3: the item is empty'
    """
    if on_bad == "drop" and count < total:
        was = "was left out:" if count == 1 else "were left out, such as"
        return f"{count:,} of {total:,} {what} could not be used and {was} {shown[0]}"
    hint = (
        f"To go on without {'it' if count == 1 else 'them'}, {DROP_BAD_HINT}" if on_bad != "drop" else "Nothing is left"
    )
    if count == 1:
        raise TableError(f"{shown[0]}. {hint}")
    lines = [
        f"{name}: {count:,} of {total:,} {what} cannot be used, such as",
        *(f"  {line}" for line in shown[:MAX_LISTED_ROWS]),
    ]
    raise TableError("\n".join([*lines, hint]))
