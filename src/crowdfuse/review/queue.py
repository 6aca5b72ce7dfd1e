"""Which item comes next: the least sure first, those that were skipped last, and what decisions amount to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crowdfuse.review.ledger import LedgerEntry


@dataclass
class DecisionState:
    """What the lines of a ledger amount to: for every item the last of them that was not undone.

    >>> standing = Standing()
    >>> standing.apply([{"line": 1, "action": "settle", "item": "a", "label": "cat"},
    ...                 {"line": 2, "action": "undo", "item": "a", "undoes": 1}])
    >>> standing.settled()
    {}
    """

    n_lines: int = 0
    version: dict[str, int] = field(default_factory=dict)
    """The last line about each item."""
    _live: dict[str, list[LedgerEntry]] = field(default_factory=dict)

    def apply(self, entries: Iterable[LedgerEntry]) -> None:
        """Go on with further lines."""
        for entry in entries:
            lines = self._live.setdefault(entry["item"], [])
            if entry["action"] == "undo":
                lines[:] = [line for line in lines if line["line"] != entry["undoes"]]
            else:
                lines.append(entry)
            self.version[entry["item"]] = self.n_lines = entry["line"]

    def of(self, item: str) -> LedgerEntry | None:
        """What counts for an item: that it was settled or skipped; None for neither."""
        lines = self._live.get(item)
        return lines[-1] if lines else None

    def is_settled(self, item: str) -> bool:
        """Whether there is a decision on it."""
        entry = self.of(item)
        return entry is not None and entry["action"] == "settle"

    def settled(self) -> dict[str, LedgerEntry]:
        """The decisions that count, by item, in the order in which they were made."""
        tops = [lines[-1] for lines in self._live.values() if lines and lines[-1]["action"] == "settle"]
        return {entry["item"]: entry for entry in sorted(tops, key=lambda entry: int(entry["line"]))}

    def last_of(self, who: str) -> LedgerEntry | None:
        """The last thing that this reviewer did and that counts."""
        tops = [lines[-1] for lines in self._live.values() if lines and lines[-1]["who"] == who]
        return max(tops, key=lambda entry: int(entry["line"]), default=None)


def replay(entries: Iterable[LedgerEntry]) -> DecisionState:
    """The standing after all these lines."""
    standing = DecisionState()
    standing.apply(entries)
    return standing


def next_open_items(order: Sequence[int], names: Sequence[str], standing: DecisionState, count: int) -> list[int]:
    """The first `count` open items of `order`, positions in `names`: untouched ones, then skipped ones by age."""
    found: list[int] = []
    skipped: list[tuple[Any, int]] = []
    for index in order:
        entry = standing.of(names[index])
        if entry is None:
            found.append(index)
            if len(found) == count:
                return found
        elif entry["action"] == "skip":
            skipped.append((entry["line"], index))
    return (found + [index for _, index in sorted(skipped)])[:count]
