"""Read a run folder for review: the items, the least confident first, and their labels."""

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

CsvRow = dict[str, str]


@dataclass(frozen=True)
class RunFolder:
    """The content of a finished run folder. Names of items, annotators and classes are strings.

    Parameters
    ----------
    path : Path
        The run folder.
    job : Job
        The settings of the run.
    hashes : dict of str to str
        SHA-256 of each file that the run read.
    model_sha256 : str
        SHA-256 of the weights of the model.
    classes : list of str
        The classes.
    items : list of str
        Names of the items to review, the least confident first. Items with gold labels are left out.
    review_rows : list of dict
        The row of each item in `review_items.csv`, in the order of `items`.
    fused : dict of str to dict
        The row of each item in `fused.csv`, by item.
    annotators : dict of str to dict
        The row of each annotator in `annotators.csv`, by annotator, in descending order of agreement with the
        predictions.
    annotations : Annotations or None
        The labels of the items, in the order of `items`; None if the file of labels is missing or has changed.
    notes : list of str
        Remarks for the reviewer, for example on missing files.
    """

    path: Path
    job: Job
    hashes: dict[str, str]
    model_sha256: str
    classes: list[str]
    items: list[str]
    review_rows: list[CsvRow]
    fused: dict[str, CsvRow]
    annotators: dict[str, CsvRow]
    annotations: Annotations | None
    notes: list[str]

    def is_disputed(self, index: int) -> bool:
        """Return whether the item is disputed: an annotator or the prediction disagrees with the consensus.

        Parameters
        ----------
        index : int
            Position of the item in `items`.

        Returns
        -------
        disputed : bool
        """
        row = self.review_rows[index]
        # some methods have no fused label, and therefore no row, for some items
        predicted = self.fused.get(row["item"], {}).get("predicted", row["consensus"])
        return bool(row["disagreeing"]) or predicted != row["consensus"]


def read_run(path: Path) -> RunFolder:
    """Read a run folder for review.

    Parameters
    ----------
    path : Path
        The run folder of `crowdfuse fit`.

    Returns
    -------
    run : RunFolder
        The run. Its `notes` list the files of labels and gold labels that are missing or have changed; review is
        possible without them.

    Raises
    ------
    FileNotFoundError
        If the run folder does not exist, or a file in it is missing.
    RunFormatError
        If the folder was written by a version of crowdfuse with a different folder format.
    ValueError
        If the run is not finished, or a file in it is damaged.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such run folder; crowdfuse fit makes one")
    if not (path / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{path} has no {RUN_SETTINGS_FILE}: it is not a run folder; crowdfuse fit makes one")
    job, hashes = read_job(path)
    if not is_finished(path):
        raise ValueError(f"{path} is not finished; finish it with crowdfuse fit --resume {path}, then review it")
    review_rows = read_run_csv(path / "review_items.csv", ("item", "consensus", "confidence", "labels", "disagreeing"))
    fused = read_run_csv(path / "fused.csv", ("item", "fused", "fused_confidence", "predicted", "predicted_confidence"))
    annotators = read_run_csv(
        path / "annotators.csv", ("annotator", "n_labels", "agreement_with_predicted", "mean_weight")
    )
    summary, model = _read_json(path / SUMMARY_FILE), _read_json(path / "model" / MODEL_FILE)
    try:
        classes, model_sha256 = [str(name) for name in summary["classes"]], str(model["weights_sha256"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: its summary or model lacks {error}; fit again") from error

    notes: list[str] = []
    known = _gold_items(path, job, notes)
    review_rows = [row for row in review_rows if row["item"] not in known]
    items = [row["item"] for row in review_rows]
    return RunFolder(
        path=path,
        job=job,
        hashes=hashes,
        model_sha256=model_sha256,
        classes=classes,
        items=items,
        review_rows=review_rows,
        fused={row["item"]: row for row in fused},
        annotators={row["annotator"]: row for row in annotators},
        annotations=_labels(path, job, hashes, items, classes, notes),
        notes=notes,
    )


def read_run_csv(path: Path, columns: tuple[str, ...]) -> list[CsvRow]:
    """Return the rows of a CSV file of a run; raise an error if it lacks one of the columns."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist, but a review needs it; fit again")
    usual_limit = csv.field_size_limit(1 << 30)  # one field holds all annotators who disagree, perhaps thousands
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"{path} has no column {', '.join(missing)}; fit again")
            rows = list(reader)
    finally:
        csv.field_size_limit(usual_limit)  # the limit is global
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(
                f"{path} is damaged: the row of {row[columns[0]]!r} has too few or too many columns; fit again"
            )
    return rows


def _labels(
    run: Path, job: Job, hashes: dict[str, str], items: list[str], classes: list[str], notes: list[str]
) -> Annotations | None:
    """Return the labels of these items; None, with a note, if the file is missing or has changed since the run."""
    path = resolve_job_path(run, job.labels)
    effect = "single labels cannot be shown, only how often each class was given"
    try:
        if sha256(path) != hashes["labels"]:
            notes.append(f"{path} has changed since the run: {effect}. Restore the old file to see them")
            return None
        ann = read_labels(path, job.reading).with_classes(np.array(classes, dtype=object))
    except (OSError, ValueError, KeyError) as error:
        notes.append(f"{path} cannot be read ({error}): {effect}")
        return None
    names = np.array(items, dtype=object)
    return ann.take_rows(positions_of(names, ids_to_strings(ann.items)), names)


def _gold_items(run: Path, job: Job, notes: list[str]) -> set[str]:
    """Return the items with gold labels, which need no review."""
    known: set[str] = set()
    for name, file in job.files().items():
        if name == "labels":
            continue
        path = resolve_job_path(run, str(file))
        try:
            ids, _ = read_gold_beside_labels(path, job.reading)
        except (OSError, ValueError) as error:
            notes.append(f"the gold labels in {path} cannot be read ({error}), so their items are shown for review too")
            continue
        known |= set(ids_to_strings(ids).tolist())
    return known


def _read_json(path: Path) -> Any:
    """Return the content of a JSON file of a run."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); fit again") from error
