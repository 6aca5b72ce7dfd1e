"""Prodigy's exports (`prodigy db-out`): a line an answer.

In a choice task `accept` lists the options that were chosen. In a binary one the annotator accepts or rejects
a `label`: the classes are then the label and 'not <label>', or, where there is no label, 'accept' and 'reject'.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crowdfuse.io.exports import ExportLabels, ExportRecords, choose_question, describe_keys, get_field
from crowdfuse.labels.ids import format_names

EXPECTED = "Prodigy: records with 'answer' (accept, reject or ignore) and '_input_hash' or '_annotator_id'"
ANSWERS = ("accept", "reject", "ignore")
MARKS = ("_input_hash", "_task_hash", "_annotator_id", "_session_id")


def recognises(record: Any) -> bool:
    return isinstance(record, dict) and "answer" in record and any(mark in record for mark in MARKS)


def read(source: ExportRecords, item: str | None, question: str | None) -> ExportLabels:
    """What the annotators answered; `question` is the label that was accepted or rejected, where there are several.

    An item is known by its `_input_hash`, or by the field of the record or its `meta` that `item` names.
    """
    found = ExportLabels(source)
    asked = choose_question(_labels(source), question, source.name)
    for number, record in source.records:
        if not isinstance(record, dict) or record.get("answer") not in ANSWERS:
            held = (
                describe_keys(record)
                if not isinstance(record, dict) or "answer" not in record
                else format_names([record["answer"]])
            )
            found.bad.append((number, f"'answer' must be accept, reject or ignore, got {held}"))
            continue
        if _is_binary(record) and record.get("label") != asked:
            continue
        name = found.add_item(number, get_field(record, item or "_input_hash", "meta"))
        if name is not None:
            _read_answer(found, number, name, record)
    return found


def _read_answer(found: ExportLabels, number: int, item: str, record: dict[str, Any]) -> None:
    who = record.get("_annotator_id") or record.get("_session_id")
    accepted = record["answer"] == "accept"
    if record["answer"] == "ignore":
        found.left_out["ignored tasks"] += 1
    elif _is_choice(record):
        if accepted:
            found.add_label(number, item, who, record.get("accept") or [])
        else:
            found.left_out["rejected choice tasks"] += 1
    elif _is_binary(record):
        found.add_label(number, item, who, record["label"] if accepted else f"not {record['label']}")
    elif record.get("spans") or record.get("relations"):
        found.bad.append((number, "spans or relations, where a choice or a label was expected"))
    else:
        found.add_label(number, item, who, record["answer"])


def _labels(source: ExportRecords) -> Iterator[str]:
    for _, record in source.records:
        if isinstance(record, dict) and _is_binary(record):
            yield record["label"]


def _is_choice(record: dict[str, Any]) -> bool:
    return isinstance(record.get("accept"), list) or isinstance(record.get("options"), list)


def _is_binary(record: dict[str, Any]) -> bool:
    return isinstance(record.get("label"), str) and not _is_choice(record)
