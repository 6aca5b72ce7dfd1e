"""A review session, independent of the web page: items to show, decisions, and gold labels from decisions."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import threading
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.labels.ids import ids_to_strings, positions_of
from crowdfuse.report.item_explanation import explain_item, explain_weights
from crowdfuse.review.decision_state import DecisionState, replay
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.ledger import Ledger, LedgerEntry
from crowdfuse.review.review_order import ItemFilter, next_open_items, select_items
from crowdfuse.review.run_folder import RunFolder
from crowdfuse.runs.folder import DECISIONS_FILE

CLASS_KEYS = "123456789abcdefghijklmnopqrtvwxyz"  # one key per class; s and u are for skip and undo


class RefusedError(ValueError):
    """Raised if a decision or undo is refused, for example because the item changed after it was shown."""


class ReviewSession:
    """The review of one run by one person. Other browser tabs and processes may review the run at the same time.

    Parameters
    ----------
    run : RunFolder
        The run.
    item_inputs : ItemInputs
        The inputs and the model of the run.
    reviewer : str
        Name of the reviewer, recorded with each decision.

    Attributes
    ----------
    ledger : Ledger
        The file of all decisions.
    annotator_names : list of str
        Names of the annotators with labels, sorted by the upper end of the interval of their accuracy, lowest first.
        `annotators.csv` in the run folder has the same order.
    """

    def __init__(self, run: RunFolder, item_inputs: ItemInputs, reviewer: str) -> None:
        self.run, self.item_inputs, self.reviewer = run, item_inputs, reviewer
        self.ledger = Ledger(run.path / DECISIONS_FILE)
        self._annotators = run.consensus.annotator_table().to_pylist()
        self.annotator_names = [str(row["annotator"]) for row in self._annotators]
        self._codes = positions_of(
            np.array(self.annotator_names, dtype=object), ids_to_strings(run.consensus.annotators)
        )
        self._position = {name: index for index, name in enumerate(run.items)}
        self._state = DecisionState()
        self._lock = threading.RLock()
        self._cached_facts = lru_cache(256)(self._make_facts)
        self._cached_order = lru_cache(64)(self._select)
        self.decision_state()

    def about(self) -> dict[str, Any]:
        """Return the facts that do not change during the session: classes with their keyboard keys, annotators, notes.

        Returns
        -------
        about : dict of str to Any
            The keys are:

            - `run`, `method`, `reviewer`: names of the run folder, the method and the reviewer.
            - `model_sha256`: SHA-256 of the weights of the model.
            - `classes`: list with the `name` of each class and its keyboard `key` (None if there are too many classes).
            - `annotators`: list with the `name`, `n_labels`, `accuracy`, `accuracy_low` and `accuracy_high` of each
              annotator with labels, sorted by `accuracy_high`, lowest first. `accuracy_low` and `accuracy_high` are the
              ends of the 95 % interval of the accuracy.
            - `decisions_file`: path of the ledger, the file of all decisions.
            - `notes`: messages for the reviewer.
        """
        run = self.run
        return {
            "run": run.path.resolve().name,
            "method": run.job.method,
            "model_sha256": run.model_sha256,
            "reviewer": self.reviewer,
            "classes": [
                {"name": name, "key": key} for name, key in zip(run.classes, assign_keys(run.classes), strict=True)
            ],
            "annotators": [
                {"name": name, "n_labels": row["n_labels"]}
                | {key: _known(row[key]) for key in ("accuracy", "accuracy_low", "accuracy_high")}
                for name, row in zip(self.annotator_names, self._annotators, strict=True)
            ],
            "decisions_file": str(self.ledger.path),
            "notes": run.notes + self.item_inputs.notes,
        }

    def decision_state(self) -> DecisionState:
        """Return the current decision on each item, including decisions in other tabs and processes.

        Returns
        -------
        state : DecisionState
        """
        with self._lock:
            return self._state_after(self.ledger.entries())

    def view(self, item_filter: ItemFilter, at: int | None = None) -> dict[str, Any]:
        """Return the item to decide next, and the progress of the review.

        Parameters
        ----------
        item_filter : ItemFilter
            Which items are shown.
        at : int, default=None
            Position in `run.items` of the item to show. If None, or if this item is already settled (its class was
            decided), the next item that is not settled is shown.

        Returns
        -------
        view : dict of str to Any
            The keys are:

            - `n_ledger_lines`: number of lines of the ledger, the file of all decisions.
            - `item`: dict about the item to decide; None if all selected items are settled. Its keys are `index` (the
              position in `run.items`), `item` (the name), `facts` (the result of the method `facts`), and `facts_hash`
              and `version`, which a decision on the item must pass to `settle` or `skip`.
            - `next_image`: position of the item to decide after `item`; None if there is none, or if it has no image.
            - `n_items`: number of items that the filter selects.
            - `n_settled`, `n_skipped`: how many of these items are settled, and how many are skipped.
            - `n_decisions`: number of settled items in the whole run.
            - `last_decision`: dict about the reviewer's latest decision or skip, not counting those that were undone or
              replaced by a later decision. None if no decision is left.
            - `torn_bytes`: length in bytes of an incomplete last line of the ledger; see `Ledger`.
        """
        with self._lock:
            state, order = self.decision_state(), self._cached_order(item_filter)
            upcoming = next_open_items(order, self.run.items, state, 2)
            if at is not None and not state.is_settled(self.run.items[at]):
                upcoming = [at, *(index for index in upcoming if index != at)]
            decisions = [state.decision_on(self.run.items[index]) for index in order]
            last = state.last_of(self.reviewer)
            has_next_image = len(upcoming) > 1 and self.item_inputs.has_picture(upcoming[1])
            return {
                "n_ledger_lines": state.n_lines,
                "item": self._item(upcoming[0], state) if upcoming else None,
                "next_image": upcoming[1] if has_next_image else None,
                "n_items": len(order),
                "n_settled": sum(entry is not None and entry["action"] == "settle" for entry in decisions),
                "n_skipped": sum(entry is not None and entry["action"] == "skip" for entry in decisions),
                "n_decisions": len(state.settled()),
                "last_decision": None
                if last is None
                else {name: last.get(name) for name in ("line", "action", "item", "label")},
                "torn_bytes": self.ledger.torn_bytes,
            }

    def settle(self, index: int, label: int, *, facts_hash: str, version: int, item_filter: ItemFilter) -> LedgerEntry:
        """Decide the class of an item. The decision is on disk when this method returns.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.
        label : int
            Position of the class in `run.classes`.
        facts_hash : str
            Hash of the facts about the item that the reviewer saw: the value `facts_hash` that `view` returned.
        version : int
            Number of the last ledger line about the item when the reviewer saw it: the value `version` that `view`
            returned.
        item_filter : ItemFilter
            The filter in use. It is recorded with the decision.

        Returns
        -------
        entry : dict of str to Any
            The decision, as the new line of the ledger (the file of all decisions).

        Raises
        ------
        RefusedError
            If something changed after the item was shown: someone settled or skipped the item or undid a decision on
            it, or the facts about the item changed.
        """
        decision = {"action": "settle", "label": self.run.classes[label]}
        return self._append(index, decision, facts_hash, version, item_filter)

    def skip(self, index: int, *, facts_hash: str, version: int, item_filter: ItemFilter) -> LedgerEntry:
        """Skip an item. It is shown again after all items that are neither settled nor skipped.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.
        facts_hash : str
            Hash of the facts about the item that the reviewer saw: the value `facts_hash` that `view` returned.
        version : int
            Number of the last ledger line about the item when the reviewer saw it: the value `version` that `view`
            returned.
        item_filter : ItemFilter
            The filter in use. It is recorded with the decision.

        Returns
        -------
        entry : dict of str to Any
            The decision, as the new line of the ledger (the file of all decisions).

        Raises
        ------
        RefusedError
            If something changed after the item was shown: someone settled or skipped the item or undid a decision on
            it, or the facts about the item changed.
        """
        return self._append(index, {"action": "skip"}, facts_hash, version, item_filter)

    def undo(self, line: int) -> LedgerEntry:
        """Undo a decision or a skip by adding a line to the ledger, the file of all decisions. No line is removed.

        Parameters
        ----------
        line : int
            Number of the ledger line to undo, from 1.

        Returns
        -------
        entry : dict of str to Any
            The new line of the ledger.

        Raises
        ------
        RefusedError
            If the line does not exist, was already undone, or was replaced by a later decision on the same item.
        """

        def compose(entries: list[LedgerEntry]) -> LedgerEntry:
            entry = entries[line - 1] if 0 < line <= len(entries) else None
            valid = None if entry is None else self._state_after(entries).decision_on(entry["item"])
            if entry is None or valid is None or valid["line"] != line:
                raise RefusedError(
                    f"line {line} of the decisions cannot be undone: it does not exist, was undone already, or was "
                    "replaced by a later decision"
                )
            return {
                "action": "undo",
                "item": entry["item"],
                "undoes": line,
                "who": self.reviewer,
                "model": self.run.model_sha256,
            }

        with self._lock:
            return self.ledger.append(compose)

    def position(self, item: str) -> int | None:
        """Return the position of an item in `run.items`.

        Parameters
        ----------
        item : str
            Name of the item.

        Returns
        -------
        position : int or None
            The position; None if the item is not among the items to review.
        """
        return self._position.get(item)

    def facts(self, index: int) -> dict[str, Any]:
        """Return everything that the page shows about an item. The same dict is saved with the reviewer's decision.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.

        Returns
        -------
        facts : dict of str to Any
            The keys are:

            - `rank`: 1 for the item with the lowest confidence, 2 for the next, and so on.
            - `consensus`, `confidence`: the consensus label and its confidence.
            - `predicted`, `predicted_confidence`: the class that the classifier predicts, and its probability. Both are
              None if there is no classifier.
            - `explanation`: text that lists the evidence for and against the consensus. None if there is nothing to
              explain: the consensus is the most frequent label (or one of several equally frequent labels), and it
              equals the prediction (if there is a classifier).
            - `weight_note`: text about the annotator whose label has the largest weight. Only given if another
              annotator of the item gave a different label and is clearly more accurate (the two accuracy intervals do
              not overlap); otherwise None.
            - `label_counts`: list with one dict per class among the item's labels, the most frequent class first. Its
              keys are `label`, `n_labels` and `probability` (of the class).
            - `labels`: list with one dict per label of the item, the label that is most probably right first. Its keys
              are `annotator`, `label`, `accuracy`, `accuracy_low`, `accuracy_high`, `weight` and `suspicion`. The
              `weight` is the influence of the label on the training, divided by the mean influence of the item's
              labels. The `suspicion` is the probability that the label is wrong. Unknown numbers are None.
            - `input`: the result of `ItemInputs.describe`.
        """
        return self._cached_facts(index) | {"input": self.item_inputs.describe(index)}

    def _append(
        self, index: int, decision: LedgerEntry, facts_hash: str, version: int, item_filter: ItemFilter
    ) -> LedgerEntry:
        """Append a decision to the ledger and return its line, unless something changed since the item was shown."""
        item = self.run.items[index]

        def compose(entries: list[LedgerEntry]) -> LedgerEntry:
            state = self._state_after(entries)
            if state.version.get(item, 0) != version:
                entry = state.decision_on(item)
                if entry is not None and entry["action"] == "settle":
                    raise RefusedError(
                        f"meanwhile, {entry['who']} settled {item} as {entry['label']}, so your decision was not saved"
                    )
                raise RefusedError(
                    f"meanwhile, {item} was skipped or undone in another tab; look at the item again, then decide"
                )
            facts = self.facts(index)
            if hash_facts(facts) != facts_hash:
                raise RefusedError(
                    f"the facts about {item} have changed since the item was shown; look at it again, then decide"
                )
            return {
                **decision,
                "item": item,
                "who": self.reviewer,
                "model": self.run.model_sha256,
                "shown": facts | {"item_filter": self._filter_names(item_filter)},
            }

        with self._lock:
            return self.ledger.append(compose)

    def _filter_names(self, item_filter: ItemFilter) -> dict[str, Any]:
        """Return the filter with names instead of positions."""
        annotator = None if item_filter.annotator is None else self.annotator_names[item_filter.annotator]
        label = None if item_filter.label is None else self.run.classes[item_filter.label]
        return {"disputed": item_filter.disputed, "annotator": annotator, "class": label}

    def _state_after(self, entries: list[LedgerEntry]) -> DecisionState:
        """Return the state after all these lines. Only the new lines are applied, to the previous state."""
        if len(entries) > self._state.n_lines:
            self._state.apply(entries[self._state.n_lines :])
        return self._state

    def _select(self, item_filter: ItemFilter) -> list[int]:
        """Return the positions of the items that pass the filter."""
        annotator = None if item_filter.annotator is None else self._codes[item_filter.annotator]
        return select_items(self.run, item_filter, annotator)

    def _item(self, index: int, state: DecisionState) -> dict[str, Any]:
        """Return an item with its facts, and with the values that a decision on it must send back."""
        facts = self.facts(index)
        item = self.run.items[index]
        version = state.version.get(item, 0)
        return {"index": index, "item": item, "version": version, "facts_hash": hash_facts(facts), "facts": facts}

    def _make_facts(self, index: int) -> dict[str, Any]:
        """Return the facts about an item, without its input."""
        run, result, row = self.run, self.run.consensus, int(self.run.rows[index])
        ann = result.annotations
        predicted = None if result.predicted_probabilities is None else result.predicted_probabilities[row]
        shares = self.item_inputs.weights(index)
        return {
            "rank": index + 1,
            "consensus": run.classes[result.consensus_codes[row]],
            "confidence": _known(result.class_probabilities[row].max()),
            "predicted": None if predicted is None else run.classes[predicted.argmax()],
            "predicted_confidence": None if predicted is None else _known(predicted.max()),
            "explanation": explain_item(result, row),
            "weight_note": None if shares is None or np.isnan(shares).any() else explain_weights(result, row, shares),
            "label_counts": [
                {
                    "label": run.classes[code],
                    "n_labels": count,
                    "probability": _known(result.class_probabilities[row, code]),
                }
                for code, count in Counter(ann.label[ann.indptr[row] : ann.indptr[row + 1]].tolist()).most_common()
            ],
            "labels": self._labels(index, shares),
        }

    def _labels(self, index: int, shares: list[float] | None) -> list[dict[str, Any]]:
        """Return the labels of an item, the most probably right first; among equals the most accurate annotator."""
        run, result, ann = self.run, self.run.consensus, self.run.consensus.annotations
        start, end = ann.indptr[run.rows[index]], ann.indptr[run.rows[index] + 1]
        labels = []
        for place in range(start, end):
            annotator = ann.annotator[place]
            low, high = result.annotator_accuracy_interval[annotator]
            labels.append(
                {
                    "annotator": str(ann.annotators[annotator]),
                    "label": run.classes[ann.label[place]],
                    "accuracy": _known(result.annotator_accuracy[annotator]),
                    "accuracy_low": _known(low),
                    "accuracy_high": _known(high),
                    "weight": None if shares is None else _known(shares[place - start] * (end - start)),
                    "suspicion": _known(1 - result.label_confidence[place]),
                }
            )
        labels.sort(key=lambda line: (line["suspicion"] or 0, -(line["accuracy"] or 0)))
        return labels


def hash_facts(facts: dict[str, Any]) -> str:
    """Return a short hash of the facts that are shown about an item."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def read_gold_rows(run: Path) -> tuple[list[tuple[str, str]], str]:
    """Read the decisions on a run as gold labels. The whole ledger (the file of all decisions) is checked first.

    Skips are left out, and so are decisions that were undone or replaced by a later decision.

    Parameters
    ----------
    run : Path
        The run folder.

    Returns
    -------
    rows : list of tuple of str
        Item and class of each decision, in the order in which the decisions were made.
    last_hash : str
        The hash of the last line of the ledger. It depends on the content of all lines.

    Raises
    ------
    LedgerError
        If the ledger was edited.
    """
    ledger = Ledger(run / DECISIONS_FILE)
    settled = replay(ledger.entries(from_start=True)).settled()
    return [(item, entry["label"]) for item, entry in settled.items()], ledger.last_hash


def gold_csv(rows: list[tuple[str, str]]) -> str:
    r"""Return gold labels as the text of a CSV file with columns `item` and `label`.

    Parameters
    ----------
    rows : list of tuple of str
        Item and class of each gold label.

    Returns
    -------
    text : str

    Examples
    --------
    >>> gold_csv([("a", "cat")])
    'item,label\na,cat\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("item", "label"), *rows])
    return text.getvalue()


def assign_keys(classes: Sequence[str]) -> Sequence[str | None]:
    """Return the keyboard key of each class; None for every class if there are more classes than keys.

    A class whose name is a key gets that key, such as 7 for class 7. All other classes get the remaining keys in order.

    >>> assign_keys(["cat", "dog"]), assign_keys(["0", "1", "many"]), assign_keys(["A", "B", "other"])
    (['1', '2'], ['0', '1', '2'], ['a', 'b', '1'])
    """
    if len(classes) > len(CLASS_KEYS):
        return [None] * len(classes)
    names = [name.lower() for name in classes]
    own = {name for name in names if name in {"0", *CLASS_KEYS} and names.count(name) == 1}
    free = (key for key in CLASS_KEYS if key not in own)
    return [name if name in own else next(free) for name in names]


def _known(value: float | None) -> float | None:
    """Return a number as float; None if it is unknown. It is not rounded, because the page rounds it for display."""
    return None if value is None or math.isnan(value) else float(value)
