"""Exports of Label Studio (JSON, JSON_MIN and CSV): the choices of annotators.

A task of the JSON export has `annotations`. Each annotation has the annotator (`completed_by`) and a list `result`; the
element of type `choices` is read. A record of JSON_MIN is one flat annotation: the data of the task, its `id`, the
answers (one field per tag), then `annotator` and `annotation_id`. A row of the CSV has the same columns in alphabetical
order. It holds the choice as text, or as JSON if several options were chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from crowdfuse.io.exports import (
    ExportLabels,
    ExportRecords,
    as_name,
    choose_question,
    describe_keys,
    get_field,
    read_json,
)
from crowdfuse.io.item_fields import looks_like_inputs
from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_names

EXPECTED = (
    "Label Studio: tasks with 'id', 'data' and 'annotations', or (JSON_MIN, CSV) records with 'annotator' and "
    "'annotation_id'"
)
FLAT_COLUMNS = ("annotator", "annotation_id")
ANNOTATION_COLUMNS = (*FLAT_COLUMNS, "id", "created_at", "updated_at", "lead_time", "was_cancelled", "agreement")


def recognises(record: Any) -> bool:
    """Whether a record looks like a record of Label Studio."""
    if not isinstance(record, dict):
        return False
    # other formats, such as COCO, also have a list of annotations, but no tasks
    is_task = _is_task(record) and not record.keys().isdisjoint(("id", "data")) and not _is_of_doccano(record)
    return is_task or set(FLAT_COLUMNS) <= record.keys()


def read(source: ExportRecords, item: str | None, question: str | None, *, truth: bool = False) -> ExportLabels:
    """The choices of annotators; if `truth` is true, the choices of the ground-truth annotations instead.

    Items are identified by the id of their task, or by the field `item` of the task's data.
    """
    if not any(isinstance(record, dict) and _is_task(record) for _, record in source.records):
        if truth:
            raise TableError(
                f"{source.name}: JSON_MIN does not mark ground-truth annotations; export the project as JSON"
            )
        return _read_flat(source, item, question)
    found = ExportLabels(source)
    asked = choose_question(_questions(source), question, source.name)
    for number, task in source.records:
        if not isinstance(task, dict) or not _is_task(task):
            found.bad.append((number, f"expected a list of 'annotations', got {describe_keys(task)}"))
            continue
        data = task.get("data")
        name = found.add_item(number, get_field(task, item or "id", "data"), data if isinstance(data, dict) else {})
        if name is not None:
            for annotation in _annotations(task):
                _read_annotation(found, number, name, annotation, asked, truth)
    return found


def label_studio_gold(
    path: Path, item: str | None = None, question: str | None = None, on_bad: str = "error"
) -> dict[str, str]:
    """The ground-truth annotations of an export: the class of each item."""
    found = read(read_json(path), item, question, truth=True)
    items, classes = list(found.items), list(found.classes)
    found.drop_or_raise_bad(on_bad)
    gold: dict[str, str] = {}
    for (row, _, code), number in zip(found.rows, found.numbers, strict=True):
        known = gold.setdefault(items[row], classes[code])
        if known != classes[code]:
            raise TableError(
                f"{found.place(number)}: item {items[row]!r} has two different ground-truth labels, {known!r} and "
                f"{classes[code]!r}; remove one of them"
            )
    if not gold:
        raise TableError(
            f"{path} has no ground-truth annotations; mark annotations with the star in Label Studio, and export again"
        )
    return gold


def _read_annotation(
    found: ExportLabels, number: int, item: str, annotation: Any, asked: str | None, truth: bool
) -> None:
    """Add the choice of one annotation, or count why it has none."""
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        found.bad.append((number, f"expected an annotation with a list 'result', got {describe_keys(annotation)}"))
        return
    if annotation.get("was_cancelled") or annotation.get("skipped"):
        found.skipped["cancelled annotations"] += 1
        return
    if bool(annotation.get("ground_truth")) != truth:
        if not truth:
            found.skipped["ground-truth annotations, which are gold labels"] += 1
        return
    results = [result for result in annotation["result"] if isinstance(result, dict)]
    choices = [_choices(result) for result in results if _is_choice(result) and str(result.get("from_name")) == asked]
    others = [str(result.get("type")) for result in results if not _is_choice(result)]
    if len(choices) > 1:
        found.bad.append((number, f"expected one answer to {asked!r} per annotation, got {len(choices)}"))
    elif choices:
        found.add_label(number, item, "truth" if truth else _annotator_name(annotation.get("completed_by")), choices[0])
    elif others and len(others) == len(results):
        found.bad.append((number, f"the result has the type {format_names(dict.fromkeys(others))}; expected 'choices'"))
    else:
        found.skipped["annotations without an answer"] += 1


def _read_flat(source: ExportRecords, item: str | None, question: str | None) -> ExportLabels:
    """The choices in JSON_MIN and CSV. These formats do not mark ground-truth annotations."""
    found = ExportLabels(source)
    known = [record for _, record in source.records if isinstance(record, dict)]
    if question is None:
        in_order = list(dict.fromkeys(name for record in known for name in _answers(record)))
        asked = choose_question(in_order or _answers_by_content(known, item), None, source.name)
    else:
        asked = choose_question((name for record in known for name in record), question, source.name)
    for number, record in source.records:
        if not isinstance(record, dict) or not recognises(record):
            found.bad.append((number, f"expected 'annotator' and 'annotation_id', got {describe_keys(record)}"))
            continue
        data = {key: value for key, value in record.items() if key != asked and key not in ANNOTATION_COLUMNS}
        name = found.add_item(number, get_field(record, item or "id"), data)
        answer = _parse_answer(record.get(asked)) if asked is not None else None
        if name is None:
            continue
        if str(record.get("was_cancelled")).lower() == "true":
            found.skipped["cancelled annotations"] += 1
        elif answer is None:
            found.skipped["annotations without an answer"] += 1
        elif isinstance(answer, dict) and isinstance(answer.get("choices"), list):
            found.add_label(number, name, _annotator_name(record["annotator"]), answer["choices"])
        elif as_name(answer) is None:
            found.bad.append((number, f"{asked!r} is {format_names([answer])}; expected a choice"))
        else:
            found.add_label(number, name, _annotator_name(record["annotator"]), answer)
    return found


def _answers(record: dict[str, Any]) -> list[str]:
    """The names of the answers: Label Studio writes the task's data, its id, the answers, then the annotator."""
    names = list(record)
    if "id" not in record or "annotator" not in record:
        return []
    return names[names.index("id") + 1 : names.index("annotator")]


def _answers_by_content(records: list[dict[str, Any]], item: str | None) -> list[str]:
    """The CSV columns that may be answers: columns that differ within an item, or else all columns but inputs.

    The columns of the CSV are in alphabetical order, so their order does not tell data and answers apart.
    """
    values: dict[str, dict[Any, set[str]]] = {}  # column -> item -> distinct values
    for record in records:
        for name, value in record.items():
            if name not in (*ANNOTATION_COLUMNS, item) and as_name(value) is not None:
                values.setdefault(name, {}).setdefault(str(record.get(item or "id")), set()).add(str(value))
    differing = [name for name, by_item in values.items() if any(len(found) > 1 for found in by_item.values())]
    if differing:
        return differing
    flat = {name: [value for found in by_item.values() for value in found] for name, by_item in values.items()}
    return [name for name, found in flat.items() if not looks_like_inputs(name, found)]


def _parse_answer(answer: Any) -> Any:
    """An answer of a flat record; the CSV writes several choices as JSON, and an empty cell for none."""
    if isinstance(answer, str) and answer.startswith("{"):
        with suppress(ValueError):
            return json.loads(answer)
    return None if answer == "" else answer


def _questions(source: ExportRecords) -> Iterator[str]:
    """The names of the choice tags that have answers."""
    for _, task in source.records:
        for annotation in _annotations(task) if isinstance(task, dict) else ():
            results = annotation.get("result") if isinstance(annotation, dict) else None
            for result in results if isinstance(results, list) else ():
                if isinstance(result, dict) and _is_choice(result):
                    yield str(result.get("from_name"))


def _is_task(record: dict[str, Any]) -> bool:
    """Whether a record is a task with annotations, which old exports call completions."""
    return isinstance(record.get("annotations", record.get("completions")), list)


def _is_of_doccano(record: dict[str, Any]) -> bool:
    """Whether the annotations of a record name users and classes, as in old exports of doccano."""
    return any(isinstance(one, dict) and "user" in one and "result" not in one for one in _annotations(record))


def _annotations(task: dict[str, Any]) -> list[Any]:
    """The annotations of a task."""
    found = task.get("annotations", task.get("completions"))
    return found if isinstance(found, list) else []


def _is_choice(result: dict[str, Any]) -> bool:
    """Whether a result is a choice."""
    return result.get("type") == "choices"


def _choices(result: dict[str, Any]) -> Any:
    """The chosen classes of a result."""
    value = result.get("value")
    return value.get("choices") if isinstance(value, dict) else value


def _annotator_name(completed_by: Any) -> Any:
    """The annotator: a number, or the e-mail address (else the id) of an object."""
    if isinstance(completed_by, dict):
        return completed_by.get("email") or completed_by.get("id")
    return completed_by
