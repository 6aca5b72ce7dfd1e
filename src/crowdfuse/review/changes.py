"""What a refit changed: accuracy where it is known, fused labels, predictions, how far annotators are believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crowdfuse.review.folder import Row, read_table
from crowdfuse.review.session import read_gold_rows
from crowdfuse.runs.folder import SUMMARY_FILE

MAX_LISTED_CHANGES = 50  # changes that are named, of each kind
MIN_ACCURACY_CHANGE = 0.0005  # reliabilities are written with four digits


def compare_run_folders(before: Path, after: Path) -> dict[str, Any]:
    """Two run folders of the same labels, compared; decisions are those of the first."""
    old, new = (_by(read_table(run / "fused.csv", ("item", "fused", "predicted")), "item") for run in (before, after))
    settled = dict(read_gold_rows(before)[0])
    columns = ("annotator", "agreement_with_predicted")
    people_old, people_new = (_by(read_table(run / "annotators.csv", columns), "annotator") for run in (before, after))
    annotators: list[dict[str, Any]] = [
        {
            "annotator": name,
            "before": float(row["agreement_with_predicted"]),
            "after": float(people_new[name]["agreement_with_predicted"]),
        }
        for name, row in people_old.items()
        if row["agreement_with_predicted"] and people_new.get(name, {}).get("agreement_with_predicted")
    ]
    moved = [row for row in annotators if abs(row["after"] - row["before"]) > MIN_ACCURACY_CHANGE]
    moved.sort(key=lambda row: -abs(row["after"] - row["before"]))
    return {
        "items": len(old),
        "accuracy": [_summary(run).get("test_accuracy") for run in (before, after)],
        "testItems": _summary(after).get("n_test_items"),
        "settled": len(settled),
        "agree": {
            column: [
                sum(rows.get(item, {}).get(column) == label for item, label in settled.items()) for rows in (old, new)
            ]
            for column in ("fused", "predicted")
        },
        "fused": _differing(old, new, "fused", settled),
        "predicted": _differing(old, new, "predicted", settled),
        "annotators": {"count": len(moved), "of": len(annotators), "listed": moved[:MAX_LISTED_CHANGES]},
    }


def _differing(old: dict[str, Row], new: dict[str, Row], column: str, settled: dict[str, str]) -> dict[str, Any]:
    """Items of which a column says something else, those that were not settled first: there it is news."""
    found = [
        {"item": item, "before": row[column], "after": new[item][column], "settled": settled.get(item)}
        for item, row in old.items()
        if item in new and new[item][column] != row[column]
    ]
    found.sort(key=lambda change: change["settled"] is not None)
    return {"count": len(found), "listed": found[:MAX_LISTED_CHANGES]}


def _by(rows: list[Row], column: str) -> dict[str, Row]:
    return {row[column]: row for row in rows}


def _summary(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / SUMMARY_FILE).read_text(encoding="utf-8"))
    return content
