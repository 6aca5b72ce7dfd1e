"""Make the report of a run folder from its model and from those files of the job that are still unchanged."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import load
from crowdfuse.io.features import LoadedInputs, read_features
from crowdfuse.io.files import sha256
from crowdfuse.io.labels import read_gold_beside_labels, read_labels
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_count, format_names, parse_integer_ids, positions_of
from crowdfuse.labels.reading import Reading
from crowdfuse.report import Report
from crowdfuse.report.classifier_report import diagnostic_notes, training_facts
from crowdfuse.report.gold_facts import GoldSet
from crowdfuse.report.item_previews import ItemPreview, image_file_of, preview_of_file, previews_of_inputs
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import ReportData, add_available_inputs, compute_report_data, report_data_from_labels
from crowdfuse.report.report_facts import check_settings, make_report
from crowdfuse.runs.folder import RUN_SETTINGS_FILE, is_finished, read_job
from crowdfuse.runs.job import Job, resolve_job_path
from crowdfuse.runs.job_data import JobData, read_job_data, read_job_inputs

TRAINING_USE_OF_GOLD = {
    "test": ("they were kept out of training", True),
    "validation": ("they were kept out of training, but used to choose the epoch", False),
    "gold": ("the model was trained on this gold", False),
}


@dataclass
class _Messages:
    """Messages for the reader, collected while the report is made."""

    limitations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def report_run(
    run: Path, *, gold: Path | None = None, n_items: int = 30, sensitivity: float = 0.95, positive: Any = None
) -> Report:
    """Make a report on the model, the annotators and the disputed items of a run folder.

    Parameters
    ----------
    run : Path
        The run folder.
    gold : Path, default=None
        File with further gold labels (item, label). They are used for evaluation only; the model is not trained again.
    n_items : int, default=30
        Number of disputed items to show, at most 200.
    sensitivity : float, default=0.95
        For two classes only: target sensitivity (recall of the positive class). The report shows a decision threshold
        that reaches it.
    positive : Any, default=None
        For two classes only: the positive class. None means the second class.

    Returns
    -------
    report : Report
        The report. It lists the files that are missing or have changed since the run, and leaves out what depends on
        them.

    Raises
    ------
    FileNotFoundError
        If the run folder does not exist, or contains no model yet.
    RunFormatError
        If the folder was written by a version of crowdfuse with a different folder format.
    ValueError
        If an option is invalid, or no item of `gold` is in the run.
    """
    check_settings(n_items, sensitivity)
    if not run.is_dir():
        raise FileNotFoundError(f"{run}: no such run folder; crowdfuse fit makes one")
    if not (run / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(
            f"{run} has no {RUN_SETTINGS_FILE}: it is not a run folder; crowdfuse fit --out makes one"
        )
    job, hashes = read_job(run)
    given = {"inputs": job.inputs} | {name: str(path) for name, path in job.files().items()}
    found: dict[str, Any] = {name: str(resolve_job_path(run, path)) for name, path in given.items()}
    job = replace(job, **found)
    if not (run / "model").is_dir():
        raise FileNotFoundError(f"{run} has no model yet; finish it with crowdfuse fit --resume {run}")
    classifier = load(run / "model")
    messages = _Messages()
    if not is_finished(run):
        messages.notes.append(
            f"The training was interrupted: this is the model at that point. Continue with crowdfuse fit --resume {run}"
        )
    names = getattr(classifier, "feature_names_in_", None)
    if names is not None:
        del classifier.feature_names_in_  # columns have been selected by name, so scikit-learn need not warn
    unchanged = {name: _is_unchanged(name, path, hashes, messages) for name, path in job.files().items()}
    gone: dict[str, Any] = {name: None for name, same in unchanged.items() if not same and name != "labels"}
    asked = replace(job, on_missing="drop", **gone)
    loaded, gone_inputs = _read_inputs(job, hashes)
    folder = Path(job.inputs) if _is_image_folder(job, classifier.input_shape_) else None
    if loaded is not None and unchanged["labels"]:
        data = read_job_data(asked, loaded)
        messages.notes += [note[:1].upper() + note[1:] + "." for note in data.notes]
        ann, trained = data.all_annotations, data.train_annotations
        sets = _sets_of_data(data)
    else:
        ann = _by_row(_labels(run, job, unchanged["labels"], classifier.classes_), loaded)
        ann = trained = classifier._known(ann, warn=False)
        sets = _sets_of_files(asked, ann, loaded, messages)
    messages.notes += diagnostic_notes(classifier)
    training_gold = _training_gold(sets, ann, messages)
    if loaded is None:
        report_data = _recorded_report_data(run, ann, training_gold)
        if folder is not None and (run / "fused.csv").exists():
            report_data = _add_remaining_images(report_data, classifier, folder)
        messages.limitations.append(f"{gone_inputs}: {_without_inputs(report_data)}.")
    else:
        report_data = compute_report_data(classifier, loaded.inputs, ann, training_gold=training_gold)
    if gold is not None:
        sets = _sets_given(gold, job, ann, loaded, trained, sets, messages)
    return make_report(
        report_data,
        training=training_facts(classifier),
        gold_sets=sets,
        make_previews=_preview_maker(report_data, folder, names),
        notes=messages.notes,
        limitations=messages.limitations,
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=f"{run.resolve().name}: {job.method}",
    )


# ---- files that may be missing or changed ---------------------------------------------------------


def _is_unchanged(name: str, path: Path, hashes: dict[str, str], messages: _Messages) -> bool:
    """Return whether a file is the one that the run read; add a message if it is not."""
    instead = {"labels": "the labels are taken from the record of the run, review_labels.csv"}
    without = instead.get(name, "accuracy on it is not shown")
    if not path.is_file():
        messages.limitations.append(
            f"{path} ({name}) does not exist any more (searched from the current folder and the folders above the "
            f"run): {without}."
        )
        return False
    if sha256(path) != hashes.get(name):
        messages.limitations.append(f"{path} ({name}) has changed since the fit: {without}.")
        return False
    return True


def _read_inputs(job: Job, hashes: dict[str, str]) -> tuple[LoadedInputs | None, str]:
    """Return the inputs, or None and the reason if they are missing or have changed since the run."""
    path = Path(job.inputs)
    if not path.exists():
        return (
            None,
            f"The inputs, {path}, do not exist any more (searched from the current folder and the folders above the "
            "run)",
        )
    try:
        loaded = read_job_inputs(job)
    except (ValueError, OSError) as error:
        return None, f"The inputs, {path}, cannot be read any more ({error})"
    if loaded.fingerprint() != hashes.get("inputs"):
        return None, f"The inputs, {path}, have changed since the fit"
    return loaded, ""


def _without_inputs(report_data: ReportData) -> str:
    """Return what the report cannot show without the inputs."""
    recorded = "predictions and fused labels are those that the run recorded"
    if report_data.model is None:
        return f"there is no map of the items, and there are no weights per item and no features; {recorded}"
    there = int((report_data.model.input_rows >= 0).sum())
    return (
        f"the map and the weights cover {there:,} of the {len(report_data.ann):,} items, those whose prediction is "
        f"still the recorded one; {recorded}"
    )


def _is_image_folder(job: Job, shape: tuple[int, ...]) -> bool:
    """Return whether the inputs are, or were, a folder of images."""
    return len(shape) == 3 and (Path(job.inputs).is_dir() or not Path(job.inputs).suffix)


# ---- records of the run -----------------------------------------------------------------------


def _labels(run: Path, job: Job, is_unchanged: bool, classes: NDArray[Any]) -> Annotations:
    """Return the labels from their file, or from the record of the run if the file has changed."""
    names = list(classes)
    if is_unchanged:
        return read_labels(Path(job.labels), replace(job.reading, classes=names))
    record = run / "review_labels.csv"
    if not record.exists():
        raise FileNotFoundError(
            f"the labels file {job.labels} is missing or has changed, and its copy {record} does not exist; restore "
            "one of the two files"
        )
    return read_labels(
        record, Reading(item="item", annotator="annotator", label="label", classes=names, format="table")
    )


def _by_row(ann: Annotations, loaded: LoadedInputs | None) -> Annotations:
    """Return the labels in the order of the rows of the inputs, joined by item id."""
    if loaded is None:
        return ann.take_rows(np.arange(len(ann)), ann.items)
    position = np.full(len(loaded.items), -1)
    rows = loaded.rows_of(ann.items)
    position[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    return ann.take_rows(position, loaded.items)


def _recorded_report_data(run: Path, ann: Annotations, training_gold: IntArray | None) -> ReportData:
    """Return the fused labels and predictions that the run recorded in `fused.csv`."""
    path = run / "fused.csv"
    if not path.exists():
        return report_data_from_labels(ann, training_gold=training_gold)
    with path.open(newline="", encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    try:
        rows = positions_of(parse_integer_ids(np.array([line["item"] for line in table], dtype=object)), ann.items)
        columns = {
            name: _column(table, rows, ann, *source)
            for name, source in (
                ("fused", ("fused", "fused_confidence")),
                ("predicted", ("predicted", "predicted_confidence")),
            )
        }
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged: crowdfuse fit did not write it like this ({error!r})") from error
    (fused, fused_sure), (predicted, sure) = columns["fused"], columns["predicted"]
    return report_data_from_labels(
        ann,
        training_gold=training_gold,
        predicted=predicted,
        predicted_confidence=sure,
        fused=fused,
        fused_confidence=fused_sure,
    )


def _add_remaining_images(report_data: ReportData, classifier: CrowdClassifier, folder: Path) -> ReportData:
    """Add the weights and map positions of the images that still exist unchanged."""
    try:
        left = read_features(folder, image_shape=classifier.input_shape_)
        position = left.rows_of(report_data.ann.items)
    except (ValueError, OSError):  # the report already lists this limitation
        return report_data
    return add_available_inputs(report_data, classifier, left.inputs, position)


def _column(
    table: list[dict[str, str]], rows: IntArray, ann: Annotations, label: str, confidence: str
) -> tuple[IntArray, NDArray[np.float64]]:
    """Return class code and confidence of each item from two columns of `fused.csv`; -1 and NaN for other items."""
    keep = rows >= 0
    codes, sure = np.full(ann.n_items, -1, np.int64), np.full(ann.n_items, np.nan)
    codes[rows[keep]] = positions_of(np.array([line[label] for line in table], dtype=object)[keep], ann.classes)
    sure[rows[keep]] = np.array([float(line[confidence]) for line in table])[keep]
    return codes, sure


# ---- gold ----------------------------------------------------------------------------------------


def _sets_of_data(data: JobData) -> list[GoldSet]:
    """Return the gold labels of the job, one set per use in training."""
    sets = []
    for name, (seen, is_unbiased) in TRAINING_USE_OF_GOLD.items():
        known = getattr(data, name)
        if known is not None and len(known[0]):
            rows, truth = known
            sets.append(GoldSet(name, rows, positions_of(truth, data.all_annotations.classes), seen, is_unbiased))
    return sets


def _training_gold(sets: list[GoldSet], ann: Annotations, messages: _Messages) -> IntArray | None:
    """Return the gold label of each row whose gold was used in training, -1 for others; None if there are none."""
    for known in sets:
        if known.name == "gold":
            messages.notes.append(
                f"Training used the gold labels of {format_count(len(known.rows), 'item')}. These labels are the fused "
                "labels and the consensus of the items, which need no review."
            )
            codes = np.full(ann.n_items, -1, np.int64)
            codes[known.rows] = known.codes
            return codes
    return None


def _sets_of_files(job: Job, ann: Annotations, loaded: LoadedInputs | None, messages: _Messages) -> list[GoldSet]:
    """Return the gold labels in the files of the job, one set per use in training."""
    sets = []
    for name, path in job.files().items():
        if name in TRAINING_USE_OF_GOLD:
            rows, codes = _match_gold_to_rows(path, job, ann, loaded, messages)
            if len(rows):
                sets.append(GoldSet(name, rows, codes, *TRAINING_USE_OF_GOLD[name]))
    return sets


def _sets_given(
    path: Path,
    job: Job,
    ann: Annotations,
    loaded: LoadedInputs | None,
    trained: Annotations,
    sets: list[GoldSet],
    messages: _Messages,
) -> list[GoldSet]:
    """Return the gold labels given for the report, split by use in training, followed by those of the run."""
    rows, codes = _match_gold_to_rows(path, job, ann, loaded, messages)
    if not len(rows):
        raise ValueError(
            f"no item of {path} is in this run, whose item ids are {format_names(ann.items, 3)}; check that both use "
            "the same ids"
        )
    parts, left = [], np.ones(len(rows), bool)
    for known in sets:
        inside = left & np.isin(rows, known.rows)
        parts.append(
            (f"{path.name}, items that are {known.name} of the fit", inside, known.training_use, known.is_unbiased)
        )
        left &= ~inside
    labelled = np.diff(trained.indptr)[rows] > 0
    seen = ("the model was trained on their labels, not on this gold", "the model was not trained on them")
    parts.append((f"{path.name}, items with labels", left & labelled, seen[0], True))
    parts.append((f"{path.name}, other items", left & ~labelled, seen[1], True))
    given = [
        GoldSet(name, rows[mask], codes[mask], how, is_unbiased) for name, mask, how, is_unbiased in parts if mask.any()
    ]
    rest = [(known, ~np.isin(known.rows, rows)) for known in sets]
    return given + [
        replace(known, rows=known.rows[more], codes=known.codes[more]) for known, more in rest if more.any()
    ]


def _match_gold_to_rows(
    path: Path, job: Job, ann: Annotations, loaded: LoadedInputs | None, messages: _Messages
) -> tuple[IntArray, IntArray]:
    """Return the rows and the true class codes of the items in a gold file."""
    ids, truth = read_gold_beside_labels(path, job.reading)
    rows = positions_of(ids, ann.items) if loaded is None else loaded.rows_of(ids)
    codes = positions_of(truth, ann.classes)
    outside = (rows >= 0) & (codes < 0)
    if outside.any():
        raise ValueError(
            f"{path}: item {format_names(ids[outside][:1])} has gold {format_names(truth[outside][:1])}, which is "
            f"not one of the classes ({format_names(ann.classes)}); correct the file"
        )
    if (rows < 0).any():
        messages.notes.append(f"{format_count(int((rows < 0).sum()), 'item')} of {path} left out: not in this run.")
    return rows[rows >= 0], codes[rows >= 0]


# ---- previews of items ------------------------------------------------------------------------------------


def _preview_maker(
    report_data: ReportData, folder: Path | None, names: Any
) -> Callable[[IntArray, int], list[ItemPreview]]:
    """Return a function that takes rows and a size in pixels per side, and returns the previews of these rows."""

    def make_previews(rows: IntArray, side: int) -> list[ItemPreview]:
        if folder is not None:  # the files are sharper than the inputs of the network
            names_of = [str(report_data.ann.items[row]) for row in rows]
            files = [(name, image_file_of(folder, name)) for name in names_of]
            return [
                {"missing": printable(name)} if file is None else preview_of_file(file, side) for name, file in files
            ]
        return (
            [{} for _ in rows]
            if report_data.model is None
            else previews_of_inputs(report_data.model.inputs, rows, side, names)
        )

    return make_previews
