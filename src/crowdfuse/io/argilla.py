"""Exports of Argilla: the answers of users to one question.

Version 2 writes `responses` keyed by question (`to_json`, `to_dict`), or flat columns `label.responses`,
`label.responses.users` and `label.responses.status` (`to_datasets`, `flatten=True`). Version 1 writes feedback records
with a list of responses, or with one column per question. Older records have one `annotation` and one
`annotation_agent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from crowdfuse.io.exports import ExportLabels, ExportRecords, choose_question, describe_keys, get_field
from crowdfuse.labels.ids import format_names

EXPECTED = (
    "Argilla: records with 'responses' or '<question>.responses', with question fields that hold 'user_id' and "
    "'value', or with 'annotation' and 'annotation_agent'"
)
RECORD_COLUMNS = ("id", "external_id", "_server_id", "status", "metadata", "annotation", "annotation_agent")
FINAL_STATUSES = ("submitted", "validated")


class Answer(NamedTuple):
    """One answer of one user to one question."""

    question: str
    user: Any
    value: Any
    status: Any


def recognises(record: Any) -> bool:
    """Whether a record looks like a record of Argilla."""
    if not isinstance(record, dict):
        return False
    return (
        isinstance(record.get("responses"), (dict, list))
        or {"annotation", "annotation_agent"} <= record.keys()
        or any(name.endswith(".responses") for name in record)
        or bool(_columns(record))
    )


def read(source: ExportRecords, item: str | None, question: str | None) -> ExportLabels:
    """The submitted answers. Items are identified by the id of their record, or by the field `item`."""
    found = ExportLabels(source)
    columns = {name for _, record in source.records if isinstance(record, dict) for name in _columns(record)}
    given: list[tuple[int, Any, list[Answer]]] = []
    for number, record in source.records:
        # the column of a question without answers is empty and looks like any other column
        if not isinstance(record, dict) or not (recognises(record) or columns & record.keys()):
            found.bad.append((number, f"expected responses or an annotation, got {describe_keys(record)}"))
            continue
        try:
            given.append((number, record, list(_answers(record))))
        except ValueError as error:
            found.bad.append((number, str(error)))
    asked = choose_question((answer.question for *_, answers in given for answer in answers), question, source.name)
    for number, record, answers in given:
        if item is not None:
            identity = get_field(record, item, "fields", "inputs", "metadata")
        else:
            identity = get_field(record, "id") or get_field(record, "external_id")
        name = found.add_item(number, identity, _item_fields(record))
        for answer in answers if name is not None else ():
            if answer.question != asked:
                continue
            if answer.status is not None and str(answer.status).lower() not in FINAL_STATUSES:
                found.skipped[f"{str(answer.status).lower()} answers"] += 1
            elif answer.value is None:
                found.skipped["answers without a value"] += 1
            else:
                found.add_label(number, str(name), answer.user, answer.value)
    return found


def _item_fields(record: dict[str, Any]) -> dict[str, Any]:
    """What annotators were shown: the fields of a record. Flat layouts write them beside the other columns."""
    for name in ("fields", "inputs"):
        if isinstance(record.get(name), dict):
            return dict(record[name])
    return {
        name: value
        for name, value in record.items()
        if name not in RECORD_COLUMNS and ".responses" not in name and "suggestion" not in name
    }


def _answers(record: dict[str, Any]) -> Iterator[Answer]:
    """All answers of a record, in any of the layouts."""
    responses = record.get("responses")
    if isinstance(responses, dict):
        for question, given in responses.items():
            yield from _answers_to(question, given)
    elif isinstance(responses, list):
        for response in responses:
            values = response.get("values") if isinstance(response, dict) else None
            if not isinstance(values, dict):
                raise ValueError(
                    f"the response {format_names([response])} has no 'values', the key that holds the answers"
                )
            for question, value in values.items():
                value = value.get("value") if isinstance(value, dict) else value
                yield Answer(question, response.get("user_id"), value, response.get("status"))
    for name, value in record.items():
        if name.endswith(".responses"):
            parts = {"value": value, "user_id": record.get(f"{name}.users"), "status": record.get(f"{name}.status")}
            yield from _answers_to(name.removesuffix(".responses"), parts)
    for name in _columns(record):
        yield from _answers_to(name, record[name])
    if record.get("annotation") is not None and "annotation_agent" in record:
        yield Answer("annotation", record["annotation_agent"], record["annotation"], record.get("status"))


def _answers_to(question: str, given: Any) -> Iterator[Answer]:
    """Answers from a list of objects with `value`, `user_id` and `status`, or from three lists (Hugging Face)."""
    if isinstance(given, dict):
        values: Any = given.get("value") or []
        count = len(values) if isinstance(values, list) else 0
        parts = [values, *(given.get(name) or [None] * count for name in ("user_id", "status"))]
        if not all(isinstance(part, list) and len(part) == count for part in parts):
            raise ValueError(
                f"the values, users and statuses of the question {question!r} are not lists of the same length"
            )
        yield from (Answer(question, user, value, status) for value, user, status in zip(*parts, strict=True))
        return
    for answer in given if isinstance(given, list) else [] if given is None else [given]:
        if not isinstance(answer, dict):
            raise ValueError(
                f"an answer to {question!r} is {format_names([answer])}; expected an object with the keys "
                "'value' and 'user_id'"
            )
        yield Answer(question, answer.get("user_id"), answer.get("value"), answer.get("status"))


def _columns(record: dict[str, Any]) -> list[str]:
    """The columns with answers in version 1: objects with user and value, or one object with lists of them."""
    first = {name: value[0] if isinstance(value, list) and value else value for name, value in record.items()}
    first.pop("responses", None)
    return [name for name, value in first.items() if isinstance(value, dict) and {"user_id", "value"} <= value.keys()]
