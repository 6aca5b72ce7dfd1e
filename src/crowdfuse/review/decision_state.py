"""The decisions that are valid after all lines of a ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from crowdfuse.review.ledger import LedgerEntry


@dataclass
class DecisionState:
    """The current decision of the reviewers on each item.

    It is computed from the ledger, the file of all decisions; see `Ledger`. A line of the ledger settles an item
    (decides its class), skips an item, or undoes an earlier line. The current decision on an item is the last "settle"
    or "skip" line about the item that has not been undone. `apply` updates the current decisions by new lines.

    Parameters
    ----------
    n_lines : int, default=0
        Number of lines of the ledger that have been applied.
    version : dict of str to int, default={}
        For each item, the number of the last ledger line about the item. If this number has changed since the review
        page showed the item, there is a newer line about the item, and the page is outdated.

    Examples
    --------
    >>> state = DecisionState()
    >>> state.apply([{"line": 1, "action": "settle", "item": "a", "label": "cat"}])
    >>> state.is_settled("a")
    True
    >>> state.apply([{"line": 2, "action": "undo", "item": "a", "undoes": 1}])
    >>> state.settled()
    {}
    """

    n_lines: int = 0
    version: dict[str, int] = field(default_factory=dict)
    _valid: dict[str, list[LedgerEntry]] = field(default_factory=dict)

    def apply(self, entries: Iterable[LedgerEntry]) -> None:
        """Update the state by further lines of the ledger, the file of all decisions.

        Parameters
        ----------
        entries : iterable of dict
            The next lines of the ledger, after those already applied.
        """
        for entry in entries:
            lines = self._valid.setdefault(entry["item"], [])
            if entry["action"] == "undo":
                lines[:] = [line for line in lines if line["line"] != entry["undoes"]]
            else:
                lines.append(entry)
            self.version[entry["item"]] = self.n_lines = entry["line"]

    def decision_on(self, item: str) -> LedgerEntry | None:
        """Return the current decision on an item: the latest one, not counting decisions that were undone.

        A decision either settles the item (decides its class) or skips the item. Each decision is a line of the ledger,
        the file in which the review page records what reviewers do.

        Parameters
        ----------
        item : str
            The item.

        Returns
        -------
        entry : dict or None
            The decision. Its key `action` is "settle" or "skip". None if there is no decision on the item, or if all
            decisions on the item were undone.
        """
        lines = self._valid.get(item)
        return lines[-1] if lines else None

    def is_settled(self, item: str) -> bool:
        """Return whether an item is settled: the current decision on the item decides its class.

        An item is not settled if the current decision is a skip, or if there is no decision. The current decision is
        the latest one, not counting decisions that were undone.

        Parameters
        ----------
        item : str
            The item.

        Returns
        -------
        settled : bool
        """
        entry = self.decision_on(item)
        return entry is not None and entry["action"] == "settle"

    def settled(self) -> dict[str, LedgerEntry]:
        """Return the current decision on each settled item (item whose class was decided), without skipped items.

        Returns
        -------
        decisions : dict of str to dict
            Maps the name of each settled item to the decision, with the oldest decision first.
        """
        last = [lines[-1] for lines in self._valid.values() if lines and lines[-1]["action"] == "settle"]
        return {entry["item"]: entry for entry in sorted(last, key=lambda entry: int(entry["line"]))}

    def last_of(self, reviewer: str) -> LedgerEntry | None:
        """Return the latest decision of a reviewer, not counting decisions that were undone or replaced.

        A decision is replaced if there is a later decision on the same item.

        Parameters
        ----------
        reviewer : str
            Name of the reviewer.

        Returns
        -------
        entry : dict or None
            The decision. None if the reviewer has made no decision, or if all of them were undone or replaced.
        """
        last = [lines[-1] for lines in self._valid.values() if lines and lines[-1]["who"] == reviewer]
        return max(last, key=lambda entry: int(entry["line"]), default=None)


def replay(entries: Iterable[LedgerEntry]) -> DecisionState:
    """Return the current decision on each item, from all lines of a ledger (the file of all decisions).

    Parameters
    ----------
    entries : iterable of dict
        All lines of the ledger, starting with the first.

    Returns
    -------
    state : DecisionState
        The state after these lines.

    Examples
    --------
    >>> replay([{"line": 1, "action": "settle", "item": "a", "label": "cat"}]).decision_on("a")["label"]
    'cat'
    """
    state = DecisionState()
    state.apply(entries)
    return state
