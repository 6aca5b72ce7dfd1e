"""Exports of Prodigy (`prodigy db-out`): one line per answer.

In a choice task, `accept` lists the chosen options. In a binary task, the annotator accepts or rejects a `label`. The
two classes are then '<label>' and 'not <label>', or 'accept' and 'reject' if there is no label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crowdfuse.io.exports import ExportLabels, ExportRecords, choose_question, describe_keys, get_field
from crowdfuse.labels.ids import format_names

EXPECTED = "Prodigy: records with 'answer' (accept, reject or ignore) and '_input_hash' or '_annotator_id'"
ANSWERS = ("accept", "reject", "ignore")
INPUT_FIELDS = ("image", "text")  # in a task with an image, the text is its file name
PRODIGY_FIELDS = ("_input_hash", "_task_hash", "_annotator_id", "_session_id")


def recognises(record: Any) -> bool:
    """Whether a record looks like a record of Prodigy."""
    return isinstance(record, dict) and "answer" in record and any(name in record for name in PRODIGY_FIELDS)


def read(source: ExportRecords, item: str | None, question: str | None) -> ExportLabels:
    """The answers of annotators. If binary tasks ask about several labels, `question` is the label to read.

    Items are identified by their `_input_hash`, or by the field `item` of the record or of its `meta`.
    """
    found = ExportLabels(source, INPUT_FIELDS)
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
        shown = {key: value for key, value in record.items() if key not in ("answer", "label") and key[:1] != "_"}
        name = found.add_item(number, get_field(record, item or "_input_hash", "meta"), shown)
        if name is not None:
            _read_answer(found, number, name, record)
    return found


def _read_answer(found: ExportLabels, number: int, item: str, record: dict[str, Any]) -> None:
    """Add the label of one record, or count why it has none."""
    annotator = record.get("_annotator_id") or record.get("_session_id")
    accepted = record["answer"] == "accept"
    if record["answer"] == "ignore":
        found.skipped["ignored tasks"] += 1
    elif _is_choice(record):
        if accepted:
            found.add_label(number, item, annotator, record.get("accept") or [])
        else:
            found.skipped["rejected choice tasks"] += 1
    elif _is_binary(record):
        found.add_label(number, item, annotator, record["label"] if accepted else f"not {record['label']}")
    elif record.get("spans") or record.get("relations"):
        found.bad.append((number, "expected a choice or a label, got spans or relations"))
    else:
        found.add_label(number, item, annotator, record["answer"])


def _labels(source: ExportRecords) -> Iterator[str]:
    """The labels of binary tasks."""
    for _, record in source.records:
        if isinstance(record, dict) and _is_binary(record):
            yield record["label"]


def _is_choice(record: dict[str, Any]) -> bool:
    """Whether a record is a choice task."""
    return isinstance(record.get("accept"), list) or isinstance(record.get("options"), list)


def _is_binary(record: dict[str, Any]) -> bool:
    """Whether a record asks to accept or reject a label."""
    return isinstance(record.get("label"), str) and not _is_choice(record)
