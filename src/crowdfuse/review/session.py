"""Where reviewing happens, with or without a page: what is shown, what is decided, what it amounts to."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.review.folder import RunFolder
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.ledger import Ledger, LedgerEntry
from crowdfuse.review.queue import DecisionState, next_open_items, replay
from crowdfuse.runs.folder import DECISIONS_FILE

KEYS = "123456789abcdefghijklmnopqrtvwxyz"  # one a class; without s and u, which skip and undo


class RefusedError(ValueError):
    """What was asked cannot be done as things stand now; says why."""


@dataclass(frozen=True)
class ItemFilter:
    """Which items are shown: all, or the disputed ones; labelled by one annotator; said to be of one class."""

    disputed: bool = True
    annotator: int | None = None
    label: int | None = None


class ReviewSession:
    """One run under review by one person; others may be at it in other tabs and processes."""

    def __init__(self, run: RunFolder, exhibits: ItemInputs, who: str) -> None:
        self.run, self.exhibits, self.reviewer = run, exhibits, who
        self.ledger = Ledger(run.path / DECISIONS_FILE)
        self.names = list(run.annotators)
        self._position = {name: index for index, name in enumerate(run.items)}
        self._standing = DecisionState()
        self._one_thread = threading.RLock()
        self._facts = lru_cache(256)(self._make_facts)
        self._orders = lru_cache(64)(self._make_order)
        self.decision_state()

    def about(self) -> dict[str, Any]:
        """What stays the same: classes with their keys, annotators, notes."""
        run = self.run
        return {
            "run": run.path.resolve().name,
            "method": run.job.method,
            "model": run.model,
            "who": self.reviewer,
            "classes": [
                {"name": name, "key": key} for name, key in zip(run.classes, keys_of(run.classes), strict=True)
            ],
            "annotators": [
                {"name": name, "labels": int(row["n_labels"]), "reliability": _number(row["agreement_with_predicted"])}
                for name, row in run.annotators.items()
            ],
            "knowsWhoSaidWhat": run.annotations is not None,
            "decisions": str(self.ledger.path),
            "notes": run.notes + self.exhibits.notes,
        }

    def decision_state(self) -> DecisionState:
        """What all decisions up to now amount to."""
        with self._one_thread:
            return self._up_to(self.ledger.entries())

    def view(self, choice: ItemFilter, at: int | None = None) -> dict[str, Any]:
        """The item to look at now, what comes after it, and how far things are. `at` stays in view while it is open."""
        with self._one_thread:
            standing, order = self.decision_state(), self._orders(choice)
            turn = next_open_items(order, self.run.items, standing, 2)
            if at is not None and not standing.is_settled(self.run.items[at]):
                turn = [at, *(index for index in turn if index != at)]
            of_choice = [standing.of(self.run.items[index]) for index in order]
            last = standing.last_of(self.reviewer)
            return {
                "head": standing.n_lines,
                "item": self._item(turn[0], standing) if turn else None,
                "next_image": turn[1] if len(turn) > 1 and self.exhibits.has_picture(turn[1]) else None,
                "total": len(order),
                "settled": sum(entry is not None and entry["action"] == "settle" for entry in of_choice),
                "skipped": sum(entry is not None and entry["action"] == "skip" for entry in of_choice),
                "decisions": len(standing.settled()),
                "last": None
                if last is None
                else {name: last.get(name) for name in ("line", "action", "item", "label")},
                "torn": self.ledger.torn,
            }

    def settle(self, index: int, label: int, *, shown: str, version: int, choice: ItemFilter) -> LedgerEntry:
        """Decide the class of an item; on disk when this returns."""
        decision = {"action": "settle", "label": self.run.classes[label]}
        return self._append(index, decision, shown, version, choice)

    def skip(self, index: int, *, shown: str, version: int, choice: ItemFilter) -> LedgerEntry:
        """Put an item behind all the others."""
        return self._append(index, {"action": "skip"}, shown, version, choice)

    def undo(self, line: int) -> LedgerEntry:
        """Take back what was done in a line of the ledger, if it still counts; the line itself stays."""

        def compose(entries: list[LedgerEntry]) -> LedgerEntry:
            entry = entries[line - 1] if 0 < line <= len(entries) else None
            counts = None if entry is None else self._up_to(entries).of(entry["item"])
            if entry is None or counts is None or counts["line"] != line:
                raise RefusedError("there is nothing to undo: it was undone already, or something was decided after it")
            return {
                "action": "undo",
                "item": entry["item"],
                "undoes": line,
                "who": self.reviewer,
                "model": self.run.model,
            }

        with self._one_thread:
            return self.ledger.append(compose)

    def position(self, item: str) -> int | None:
        """Where an item stands in the run's order; None where it is not to be reviewed."""
        return self._position.get(item)

    def _append(self, index: int, what: LedgerEntry, shown: str, version: int, choice: ItemFilter) -> LedgerEntry:
        item = self.run.items[index]

        def compose(entries: list[LedgerEntry]) -> LedgerEntry:
            standing = self._up_to(entries)
            if standing.version.get(item, 0) != version:
                entry = standing.of(item)
                if entry is not None and entry["action"] == "settle":
                    raise RefusedError(f"{item} was settled meanwhile, as {entry['label']}, by {entry['who']}")
                raise RefusedError(f"{item} was looked at meanwhile, in another tab; look again")
            facts = self.facts(index)
            if hash_facts(facts) != shown:
                raise RefusedError(f"what is known of {item} has changed since it was shown; look again")
            return {
                **what,
                "item": item,
                "who": self.reviewer,
                "model": self.run.model,
                "shown": facts | self._in_names(choice),
            }

        with self._one_thread:
            return self.ledger.append(compose)

    def _in_names(self, choice: ItemFilter) -> dict[str, Any]:
        annotator = None if choice.annotator is None else self.names[choice.annotator]
        label = None if choice.label is None else self.run.classes[choice.label]
        return {"of": {"disputed": choice.disputed, "annotator": annotator, "class": label}}

    def _up_to(self, entries: list[LedgerEntry]) -> DecisionState:
        if len(entries) > self._standing.n_lines:
            self._standing.apply(entries[self._standing.n_lines :])
        return self._standing

    def _make_order(self, choice: ItemFilter) -> list[int]:
        run = self.run
        keep = np.array([not choice.disputed or run.is_disputed(index) for index in range(len(run.items))], bool)
        if choice.label is not None:
            name = run.classes[choice.label]
            keep &= np.array(
                [name in (row["consensus"], self._fused(row["item"], "fused")) for row in run.rows], bool
            ) | (self._has(lambda said: said.label == choice.label))
        if choice.annotator is not None and run.annotations is not None:
            who = {str(name): r for r, name in enumerate(run.annotations.annotators)}.get(
                self.names[choice.annotator], -1
            )
            keep &= self._has(lambda said: said.annotator == who)
        return [int(index) for index in np.flatnonzero(keep)]

    def _has(self, test: Any) -> Any:
        """Which items have a label that passes the test."""
        found = np.zeros(len(self.run.items), bool)
        if self.run.annotations is not None:
            found[self.run.annotations.item[test(self.run.annotations)]] = True
        return found

    def _item(self, index: int, standing: DecisionState) -> dict[str, Any]:
        facts = self.facts(index)
        item = self.run.items[index]
        version = standing.version.get(item, 0)
        return {"index": index, "item": item, "version": version, "shown": hash_facts(facts), "facts": facts}

    def facts(self, index: int) -> dict[str, Any]:
        """Everything that is shown of an item, and recorded with the decision."""
        return self._facts(index) | {"input": self.exhibits.describe(index)}

    def _make_facts(self, index: int) -> dict[str, Any]:
        run, row = self.run, self.run.rows[index]
        item = row["item"]
        weights = self.exhibits.weights(index)
        said = []
        if run.annotations is not None:
            start, end = run.annotations.indptr[index : index + 2]
            for place, (r, k) in enumerate(
                zip(run.annotations.annotator[start:end], run.annotations.label[start:end], strict=True)
            ):
                name = str(run.annotations.annotators[r])
                figures = run.annotators.get(name, {})
                mean = _number(figures.get("mean_weight", ""))
                said.append(
                    {
                        "annotator": name,
                        "label": run.classes[k],
                        "weight": mean if weights is None else round(weights[place], 4),
                        "reliability": _number(figures.get("agreement_with_predicted", "")),
                    }
                )
            said.sort(key=lambda line: -(line["weight"] or 0))
        return {
            "rank": index + 1,
            "fused": self._fused(item, "fused"),
            "fused_confidence": _number(self._fused(item, "fused_confidence")),
            "predicted": self._fused(item, "predicted"),
            "predicted_confidence": _number(self._fused(item, "predicted_confidence")),
            "consensus": row["consensus"],
            "confidence": _number(row["confidence"]),
            "counts": row["labels"],
            "said": said,
            "weights_are": "here" if weights is not None else "means",
        }

    def _fused(self, item: str, column: str) -> str:
        return self.run.fused.get(item, {}).get(column, "")


def hash_facts(facts: dict[str, Any]) -> str:
    """A short name for what was shown."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def read_gold_rows(run: Path) -> tuple[list[tuple[str, str]], str]:
    """Item and class of every decision that counts, and the hash of the last line; the whole file is checked."""
    ledger = Ledger(run / DECISIONS_FILE)
    settled = replay(ledger.entries(from_start=True)).settled()
    return [(item, entry["label"]) for item, entry in settled.items()], ledger.last_hash


def gold_csv(rows: list[tuple[str, str]]) -> str:
    """Gold as crowdfuse and others read it.

    >>> gold_csv([("a", "cat")])
    'item,label\\na,cat\\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("item", "label"), *rows])
    return text.getvalue()


def keys_of(classes: Sequence[str]) -> Sequence[str | None]:
    """The key that decides for each class; none where there are too many classes.

    A class whose name is a key has that one: who sees a 7 presses 7. The others take what is free, in order.

    >>> keys_of(["cat", "dog"]), keys_of(["0", "1", "many"]), keys_of(["A", "B", "other"])
    (['1', '2'], ['0', '1', '2'], ['a', 'b', '1'])
    """
    if len(classes) > len(KEYS):
        return [None] * len(classes)
    names = [name.lower() for name in classes]
    own = {name for name in names if name in {"0", *KEYS} and names.count(name) == 1}
    free = (key for key in KEYS if key not in own)
    return [name if name in own else next(free) for name in names]


def _number(text: str) -> float | None:
    return float(text) if text else None
