"""One crowd in the export format of every tool; the structure follows the tools' documentation."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from crowdfuse import Annotations

Crowd = dict[str, dict[str, str]]  # item -> annotator -> label

CROWD: Crowd = {
    "b.jpg": {"ada@x.org": "dog", "bob@x.org": "cat"},
    "a.jpg": {"bob@x.org": "cat"},
    "c.jpg": {},
    "d.jpg": {"ada@x.org": "cow", "bob@x.org": "cow", "cy@x.org": "dog"},
}


def write(path: Path, content: Any) -> Path:
    """Write a list of records as JSON, or one record per line for .jsonl; write a string unchanged."""
    if not isinstance(content, str):
        lines = path.suffix == ".jsonl"
        content = "".join(json.dumps(record) + "\n" for record in content) if lines else json.dumps(content, indent=2)
    path.write_text(content, encoding="utf-8")
    return path


def labels_by_item(ann: Annotations) -> dict[Any, dict[Any, Any]]:
    """Return a dictionary item -> annotator -> label, by name."""
    items, annotators, classes = ann.items.tolist(), ann.annotators.tolist(), ann.classes.tolist()
    found: dict[Any, dict[Any, Any]] = {name: {} for name in items}
    for item, annotator, label in zip(ann.item, ann.annotator, ann.label, strict=True):
        found[items[item]][annotators[annotator]] = classes[label]
    return found


def table(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def long_table(crowd: Crowd) -> str:
    rows = [[item, who, what] for item, labels in crowd.items() for who, what in (labels or {"": ""}).items()]
    return table([["item", "annotator", "label"], *rows])


def wide_table(crowd: Crowd) -> str:
    who = sorted({name for labels in crowd.values() for name in labels}, reverse=True)
    return table([["item", *who], *([item, *(labels.get(name, "") for name in who)] for item, labels in crowd.items())])


def choice(label: str | list[str], tag: str = "animal") -> dict[str, Any]:
    """An element of a Label Studio result."""
    return {
        "id": "zLSY-XLk64",
        "type": "choices",
        "value": {"choices": [label] if isinstance(label, str) else label},
        "origin": "manual",
        "to_name": "image",
        "from_name": tag,
    }


def annotation(completed_by: Any, *result: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A Label Studio annotation."""
    return {
        "id": 1001,
        "completed_by": completed_by,
        "result": list(result),
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2024-03-09T22:16:08.728353Z",
        "updated_at": "2024-03-09T22:16:08.728378Z",
        "draft_created_at": None,
        "lead_time": 4.288,
        "prediction": {},
        "result_count": 1,
        "task": 1,
        "parent_prediction": None,
        "parent_annotation": None,
    } | changed


def task(number: int, image: str, *annotations: Any) -> dict[str, Any]:
    """A task of Label Studio's JSON export."""
    return {
        "id": number,
        "annotations": list(annotations),
        "file_upload": "8f2a-images.json",
        "drafts": [],
        "predictions": [{"id": 3, "model_version": "v1", "score": 0.9, "result": [choice("mistake")]}],
        "data": {"image": image, "source": 7},
        "meta": {},
        "inner_id": number,
        "total_annotations": len(annotations),
        "project": 83,
    }


def label_studio(crowd: Crowd) -> list[dict[str, Any]]:
    return [
        task(
            40 + number,
            item,
            *(annotation({"id": 5, "email": who, "first_name": ""}, choice(what)) for who, what in labels.items()),
        )
        for number, (item, labels) in enumerate(crowd.items())
    ]


def label_studio_min(crowd: Crowd) -> list[dict[str, Any]]:
    """Return JSON_MIN records; a task without annotations becomes a record without an answer."""
    return [
        {"image": item, "id": 40 + number, **({"animal": what} if what else {}), "annotator": who}
        | {"annotation_id": 1001, "created_at": "2024-03-09T22:16:08Z", "updated_at": "2024-03-09T22:16:08Z"}
        | {"lead_time": 4.3}
        for number, (item, labels) in enumerate(crowd.items())
        for who, what in (labels or {"nobody": ""}).items()
    ]


def argilla2(crowd: Crowd) -> list[dict[str, Any]]:
    """Version 2, `records.to_json`."""
    return [
        {
            "id": item,
            "fields": {"text": f"about {item}"},
            "metadata": {"source": "web"},
            "suggestions": {"animal": {"value": "mistake", "score": None, "agent": None}},
            "responses": {"animal": [{"value": what, "user_id": who} for who, what in labels.items()]}
            if labels
            else {},
            "vectors": {},
            "status": "completed" if labels else "pending",
            "_server_id": "c0ffee",
        }
        for item, labels in crowd.items()
    ]


def argilla2_flat(crowd: Crowd) -> list[dict[str, Any]]:
    """Version 2, `records.to_datasets` and `flatten=True`."""
    return [
        {
            "id": item,
            "status": "completed",
            "_server_id": "c0ffee",
            "text": f"about {item}",
            "answer": "a field by this name",
            "animal.responses": list(labels.values()) or None,
            "animal.responses.users": list(labels) or None,
            "animal.responses.status": ["submitted"] * len(labels) or None,
            "animal.suggestion": "mistake",
            "animal.suggestion.score": None,
            "animal.suggestion.agent": None,
        }
        for item, labels in crowd.items()
    ]


def argilla1(crowd: Crowd) -> list[dict[str, Any]]:
    """Version 1, text classification: one annotation a record."""
    return [
        {
            "text": f"about {item}",
            "inputs": {"text": f"about {item}"},
            "prediction": [{"label": "mistake", "score": 0.5}],
            "prediction_agent": "model",
            "annotation": what or None,
            "annotation_agent": who or None,
            "vectors": None,
            "multi_label": False,
            "explanation": None,
            "id": item,
            "metadata": {"source": "web"},
            "status": "Validated" if what else "Default",
            "event_timestamp": "2023-01-01T00:00:00",
            "metrics": None,
        }
        for item, labels in crowd.items()
        for who, what in (labels or {"": ""}).items()
    ]


def argilla1_feedback(crowd: Crowd) -> list[dict[str, Any]]:
    """Version 1, a feedback dataset: a column a question."""
    return [
        {
            "text": f"about {item}",
            "animal": [{"user_id": who, "value": what, "status": "submitted"} for who, what in labels.items()],
            "animal-suggestion": "mistake",
            "animal-suggestion-metadata": {"type": None, "score": None, "agent": None},
            "external_id": item,
            "metadata": "{}",
        }
        for item, labels in crowd.items()
    ]


def argilla1_records(crowd: Crowd) -> list[dict[str, Any]]:
    """Version 1, feedback records: a list of responses, each with values by question."""
    return [
        {
            "fields": {"text": f"about {item}"},
            "metadata": {},
            "responses": [
                {"user_id": who, "values": {"animal": {"value": what}}, "status": "submitted"}
                for who, what in labels.items()
            ],
            "suggestions": [{"question_name": "animal", "value": "mistake", "type": None}],
            "external_id": item,
        }
        for item, labels in crowd.items()
    ]


def prodigy_task(item: str, who: str, **more: Any) -> dict[str, Any]:
    hashed = crc32(item.encode())
    return {
        "text": f"about {item}",
        "meta": {"name": item},
        "_input_hash": hashed,
        "_task_hash": hashed + 1,
        "_view_id": "choice",
        "answer": "accept",
        "_timestamp": 1707211049,
        "_annotator_id": who,
        "_session_id": who,
    } | more


def prodigy(crowd: Crowd) -> list[dict[str, Any]]:
    options = [
        {"id": name, "text": name} for name in sorted({what for labels in crowd.values() for what in labels.values()})
    ]
    more = {"options": options, "config": {"choice_style": "single"}}
    return [
        prodigy_task(item, who, accept=[what], **more) if what else prodigy_task(item, who, answer="ignore", **more)
        for item, labels in crowd.items()
        for who, what in (labels or {"nobody": ""}).items()
    ]


# per format: function that makes the export, file name, and options needed to read it
FORMS: dict[str, tuple[Callable[[Crowd], Any], str, dict[str, Any]]] = {
    "table": (long_table, "labels.csv", {}),
    "wide": (wide_table, "labels.csv", {"format": "wide"}),
    "label studio": (label_studio, "export.json", {"item": "image"}),
    "label studio, JSON_MIN": (label_studio_min, "export.json", {"item": "image"}),
    "argilla 2": (argilla2, "records.json", {}),
    "argilla 2, flat": (argilla2_flat, "records.jsonl", {}),
    "argilla 1": (argilla1, "records.jsonl", {}),
    "argilla 1, feedback": (argilla1_feedback, "records.json", {}),
    "argilla 1, feedback records": (argilla1_records, "records.jsonl", {}),
    "prodigy": (prodigy, "annotations.jsonl", {"item": "name"}),
}
