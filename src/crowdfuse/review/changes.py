"""Compare a run with its refit: test accuracy, fused labels, predictions, and agreement of the annotators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crowdfuse.review.run_folder import CsvRow, read_run_csv
from crowdfuse.review.session import read_gold_rows
from crowdfuse.runs.folder import SUMMARY_FILE

MAX_LISTED_CHANGES = 50  # per list
MIN_AGREEMENT_CHANGE = 0.0005  # agreements are written with four digits


def compare_run_folders(before: Path, after: Path) -> dict[str, Any]:
    """Compare a run with its refit.

    Parameters
    ----------
    before : Path
        The run that was reviewed.
    after : Path
        The refit of that run.

    Returns
    -------
    changes : dict of str to Any
        `n_items`, `n_test_items` and `n_settled` (items whose class a reviewer decided) are counts. `test_accuracy` is
        a pair (before, after) of accuracies, both None without test items. `n_agreeing` has the keys `fused` and
        `predicted`, each with a pair (before, after): how many decisions of reviewers equal the fused label or the
        prediction. `fused`, `predicted` and `annotators` list what changed, each with `n_changed` and the first 50
        changed rows.
    """
    old, new = (_by(read_run_csv(run / "fused.csv", ("item", "fused", "predicted")), "item") for run in (before, after))
    settled = dict(read_gold_rows(before)[0])
    columns = ("annotator", "agreement_with_predicted")
    annotators_old, annotators_new = (
        _by(read_run_csv(run / "annotators.csv", columns), "annotator") for run in (before, after)
    )
    annotators: list[dict[str, Any]] = [
        {
            "annotator": name,
            "before": float(row["agreement_with_predicted"]),
            "after": float(annotators_new[name]["agreement_with_predicted"]),
        }
        for name, row in annotators_old.items()
        if row["agreement_with_predicted"] and annotators_new.get(name, {}).get("agreement_with_predicted")
    ]
    changed = [row for row in annotators if abs(row["after"] - row["before"]) > MIN_AGREEMENT_CHANGE]
    changed.sort(key=lambda row: -abs(row["after"] - row["before"]))
    return {
        "n_items": len(old),
        "test_accuracy": [_summary(run).get("test_accuracy") for run in (before, after)],
        "n_test_items": _summary(after).get("n_test_items"),
        "n_settled": len(settled),
        "n_agreeing": {
            column: [
                sum(rows.get(item, {}).get(column) == label for item, label in settled.items()) for rows in (old, new)
            ]
            for column in ("fused", "predicted")
        },
        "fused": _changed_rows(old, new, "fused", settled),
        "predicted": _changed_rows(old, new, "predicted", settled),
        "annotators": {
            "n_changed": len(changed),
            "n_annotators": len(annotators),
            "rows": changed[:MAX_LISTED_CHANGES],
        },
    }


def _changed_rows(
    old: dict[str, CsvRow], new: dict[str, CsvRow], column: str, settled: dict[str, str]
) -> dict[str, Any]:
    """Return the items whose value in a column changed; items that were not settled come first."""
    changes = [
        {"item": item, "before": row[column], "after": new[item][column], "settled": settled.get(item)}
        for item, row in old.items()
        if item in new and new[item][column] != row[column]
    ]
    changes.sort(key=lambda change: change["settled"] is not None)
    return {"n_changed": len(changes), "rows": changes[:MAX_LISTED_CHANGES]}


def _by(rows: list[CsvRow], column: str) -> dict[str, CsvRow]:
    """Return the rows by their value in a column."""
    return {row[column]: row for row in rows}


def _summary(run: Path) -> dict[str, Any]:
    """Return the summary of a run."""
    content: dict[str, Any] = json.loads((run / SUMMARY_FILE).read_text(encoding="utf-8"))
    return content
