"""What a run folder tells a reviewer: items in the order of doubt, who said what, and where the inputs lie."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.estimators.persistence import SETTINGS_FILE as MODEL_FILE
from crowdfuse.io.files import sha256
from crowdfuse.io.labels import read_gold_beside_labels, read_labels
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import ids_to_strings, positions_of
from crowdfuse.runs.folder import RUN_SETTINGS_FILE, SUMMARY_FILE, is_finished, read_job
from crowdfuse.runs.job import Job, resolve_job_path

Row = dict[str, str]


@dataclass(frozen=True)
class RunFolder:
    """A finished run. Item i of `items` and of `rows` is the same; names are text throughout."""

    path: Path
    job: Job
    hashes: dict[str, str]
    model: str  # the hash of its weights
    classes: list[str]
    items: list[str]  # the least sure first, without those that have gold already
    rows: list[Row]  # of review_items.csv
    fused: dict[str, Row]
    annotators: dict[str, Row]  # the most reliable first
    annotations: Annotations | None  # row i is item i; None where the labels are no longer at hand
    notes: list[str]

    def is_disputed(self, index: int) -> bool:
        """Whether an annotator, or the model by itself, says something else than what the item is taken to be."""
        row = self.rows[index]
        alone = self.fused.get(row["item"], {}).get("predicted", row["consensus"])  # not all methods fuse every item
        return bool(row["disagreeing"]) or alone != row["consensus"]


def read_run(path: Path) -> RunFolder:
    """Read a run folder. Labels and gold that are gone or changed are done without, and a note says so."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such run folder; crowdfuse fit makes one")
    if not (path / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{path} has no {RUN_SETTINGS_FILE}: it is not a run folder; crowdfuse fit makes one")
    job, hashes = read_job(path)
    if not is_finished(path):
        raise ValueError(f"{path} is not finished; finish it with crowdfuse fit --resume {path}, then review it")
    rows = read_table(path / "review_items.csv", ("item", "consensus", "confidence", "labels", "disagreeing"))
    fused = read_table(path / "fused.csv", ("item", "fused", "fused_confidence", "predicted", "predicted_confidence"))
    annotators = read_table(
        path / "annotators.csv", ("annotator", "n_labels", "agreement_with_predicted", "mean_weight")
    )
    summary, model = _read_json(path / SUMMARY_FILE), _read_json(path / "model" / MODEL_FILE)
    try:
        classes, weights = [str(name) for name in summary["classes"]], str(model["weights_sha256"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: its summary or model lacks {error}; fit it again") from error

    notes: list[str] = []
    known = _known_gold(path, job, notes)
    rows = [row for row in rows if row["item"] not in known]
    items = [row["item"] for row in rows]
    return RunFolder(
        path=path,
        job=job,
        hashes=hashes,
        model=weights,
        classes=classes,
        items=items,
        rows=rows,
        fused={row["item"]: row for row in fused},
        annotators={row["annotator"]: row for row in annotators},
        annotations=_labels(path, job, hashes, items, classes, notes),
        notes=notes,
    )


def read_table(path: Path, columns: tuple[str, ...]) -> list[Row]:
    """The rows of a CSV that a run wrote, which has at least these columns."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there, and a review needs it; fit again to have it")
    usual = csv.field_size_limit(1 << 30)  # who disagrees stands in one field, be they thousands
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            absent = [name for name in columns if name not in (reader.fieldnames or ())]
            if absent:
                raise ValueError(f"{path} has no column {', '.join(absent)}; fit again to have it")
            rows = list(reader)
    finally:
        csv.field_size_limit(usual)  # it is everybody's
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"{path} is damaged: the row of {row[columns[0]]!r} has too few or too many columns")
    return rows


def _labels(
    run: Path, job: Job, hashes: dict[str, str], items: list[str], classes: list[str], notes: list[str]
) -> Annotations | None:
    """Who said what about these items; None with a note where the labels are gone or others than were trained on."""
    path = resolve_job_path(run, job.labels)
    without = "who said what cannot be shown, only how often each class was said"
    try:
        if sha256(path) != hashes["labels"]:
            notes.append(f"{path} has changed since the run: {without}. Bring the old file back to see it")
            return None
        ann = read_labels(path, job.reading).with_classes(np.array(classes, dtype=object))
    except (OSError, ValueError, KeyError) as error:
        notes.append(f"{path} cannot be read ({error}): {without}")
        return None
    names = np.array(items, dtype=object)
    return ann.take_rows(positions_of(names, ids_to_strings(ann.items)), names)


def _known_gold(run: Path, job: Job, notes: list[str]) -> set[str]:
    """Items whose class the run was told: nobody needs to settle them."""
    known: set[str] = set()
    for name, given in job.files().items():
        if name == "labels":
            continue
        path = resolve_job_path(run, str(given))
        try:
            ids, _ = read_gold_beside_labels(path, job.reading)
        except (OSError, ValueError) as error:
            notes.append(f"the {name} gold cannot be read ({error}): its items are among those to settle")
            continue
        known |= set(ids_to_strings(ids).tolist())
    return known


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); fit again to have it") from error
