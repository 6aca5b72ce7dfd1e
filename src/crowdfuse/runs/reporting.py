"""Create the report of a run folder from its stored consensus, its model, and the files that are still unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import load
from crowdfuse.io.features import LoadedInputs
from crowdfuse.io.files import sha256
from crowdfuse.io.gold import read_gold_beside_labels, rows_of_gold
from crowdfuse.io.picture_folder import read_picture_folder
from crowdfuse.labels.ids import IntArray, format_count, format_names, positions_of
from crowdfuse.quality.consensus import Consensus
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.report import Report
from crowdfuse.report.classifier_report import training_facts
from crowdfuse.report.gold_facts import GoldSet
from crowdfuse.report.item_previews import ItemPreview, image_file_of, preview_of_file, previews_of_inputs
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import ReportData, add_model, report_data_of, rows_with_unchanged_inputs
from crowdfuse.report.report_facts import check_settings, make_report
from crowdfuse.runs.encoded_inputs import use_encoded
from crowdfuse.runs.folder import (
    INTERRUPTED_FILE,
    RUN_SETTINGS_FILE,
    SUMMARY_FILE,
    is_finished,
    read_job,
    read_json_object,
)
from crowdfuse.runs.job import Job, resolve_job_path
from crowdfuse.runs.job_data import read_job_inputs
from crowdfuse.runs.prediction import read_model_images

USE_OF_HELD_OUT_GOLD = {  # how training used it, and whether figures on it are too optimistic
    "test": ("they were kept out of training", False),
    "validation": ("they were kept out of training, but used to choose the epoch", True),
}


@dataclass
class _Messages:
    """Messages for the reader, collected while the report is made."""

    limitations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def report_run(
    run: Path, *, gold: Path | None = None, n_items: int = 30, sensitivity: float = 0.95, positive: Any = None
) -> Report:
    """Create a report on the model, the annotators and the disputed items of a run folder.

    Labels, consensus and all numbers based on them are read from the run folder; they are not computed again.

    Parameters
    ----------
    run : Path
        The run folder.
    gold : Path, default=None
        File with the columns item and label: gold labels in addition to the gold labels of the run. They are used for
        evaluation only; the model is not trained again.
    n_items : int, default=30
        Number of disputed items to show, from 1 to 200. An item is disputed if one of its labels or the prediction
        differs from the consensus.
    sensitivity : float, default=0.95
        Target sensitivity (recall of the positive class). The report shows a decision threshold that reaches the
        target. Used only if there are two classes and gold labels.
    positive : Any, default=None
        The positive class. None: the second of the two classes. Must be None if there are not exactly two classes.

    Returns
    -------
    report : Report
        The report. It lists files that are missing or have changed since the run, and leaves out sections that need
        these files.

    Raises
    ------
    FileNotFoundError
        If the run folder does not exist, or if it contains no model yet.
    RunFormatError
        If the folder was written by a version of crowdfuse with a different folder format.
    ValueError
        If an option is invalid, if no item of `gold` is in the run, or if the stored consensus is damaged.
    """
    check_settings(n_items, sensitivity)
    if not run.is_dir():
        raise FileNotFoundError(f"{run}: no such run folder; create a run folder with 'crowdfuse fit'")
    if not (run / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(
            f"{run} has no {RUN_SETTINGS_FILE}, so it is not a run folder; create a run folder with 'crowdfuse fit'"
        )
    job, hashes = read_job(run)
    given = {name: str(path) for name, path in job.files().items()}
    given |= {} if job.inputs is None else {"inputs": job.inputs}
    found: dict[str, Any] = {name: str(resolve_job_path(run, path)) for name, path in given.items()}
    job = replace(job, **found)
    if not (run / "model").is_dir():
        raise FileNotFoundError(f"{run} has no model yet; finish the run with: crowdfuse fit --resume {run}")
    classifier = load(run / "model")
    consensus = load_consensus(run)
    messages = _Messages(notes=_stored_notes(run, consensus))
    if not is_finished(run):
        interrupted = "The training was interrupted. This report is on the model at that point"
        messages.notes.insert(0, f"{interrupted}. Continue the training with: crowdfuse fit --resume {run}")
    names = getattr(classifier, "feature_names_in_", None)
    if names is not None:
        del classifier.feature_names_in_  # columns have been selected by name, so scikit-learn's warning is not needed
    loaded, gone_inputs = _read_inputs(job, hashes)
    folder = job.inputs_path if _is_image_folder(job, classifier) else None
    pictures = read_picture_folder(job.inputs_path) if folder is None else folder
    sets = _sets_of_files(job, hashes, consensus, loaded, messages)
    report_data = report_data_of(consensus)
    if loaded is not None:
        report_data = add_model(report_data, classifier, classifier._inputs(use_encoded(loaded, run).inputs))
    else:
        if folder is not None:
            report_data = _add_remaining_images(report_data, classifier, folder)
        messages.limitations.append(f"{gone_inputs}: {_without_inputs(report_data)}.")
    if gold is not None:
        sets = _sets_given(gold, job, consensus, loaded, sets, messages)
    return make_report(
        report_data,
        training=training_facts(classifier),
        gold_sets=sets,
        make_previews=_preview_maker(report_data, pictures, names),
        notes=messages.notes,
        limitations=messages.limitations,
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=f"{run.resolve().name}: {job.method}",
    )


# ---- files that may be missing or changed ---------------------------------------------------------


def _is_unchanged(name: str, path: Path, hashes: dict[str, str], messages: _Messages) -> bool:
    """Return whether a file of gold labels is unchanged since the run read it; add a message if it is not."""
    if not path.is_file():
        messages.limitations.append(
            f"{path} ({name}) does not exist any more (searched from the current folder and the folders above the "
            "run), so the accuracy on its items is not shown."
        )
        return False
    if sha256(path) != hashes.get(name):
        messages.limitations.append(
            f"{path} ({name}) has changed since the run was fitted, so the accuracy on its items is not shown."
        )
        return False
    return True


def _read_inputs(job: Job, hashes: dict[str, str]) -> tuple[LoadedInputs | None, str]:
    """Return the inputs, or None and the reason if they are missing or have changed since the run."""
    path = job.inputs_path
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
        return None, f"The inputs, {path}, have changed since the run was fitted"
    return loaded, ""


def _without_inputs(report_data: ReportData) -> str:
    """Return what the report cannot show without the inputs."""
    if report_data.model is None:
        return "the report has no map of the items, no features, no annotator weights and no fused labels"
    there = int((report_data.model.input_rows >= 0).sum())
    return (
        f"the map, the annotator weights and the fused labels cover only {there:,} of the {len(report_data.ann):,} "
        "items: the items whose prediction is the same as when the run was fitted"
    )


def _is_image_folder(job: Job, classifier: CrowdClassifier) -> bool:
    """Return whether the inputs are, or were, a folder of images."""
    encoder = classifier.encoder_
    is_image = len(classifier.input_shape_) == 3 if encoder is None else encoder.reads == "images"
    return is_image and job.inputs is not None and (Path(job.inputs).is_dir() or not Path(job.inputs).suffix)


# ---- records of the run -----------------------------------------------------------------------


def _stored_notes(run: Path, consensus: Consensus) -> list[str]:
    """Return the notes of the run as sentences, without the notes that the consensus also has."""
    path = next((run / name for name in (SUMMARY_FILE, INTERRUPTED_FILE) if (run / name).exists()), None)
    notes = [] if path is None else read_json_object(path).get("notes", [])
    return [_sentence(note) for note in notes if note not in consensus.limitations]


def _sentence(note: str) -> str:
    """Return a note with a capital letter and a full stop. If it starts with the name of a file, the name is kept."""
    starts_with_file = "." in note.partition(" ")[0]
    return f"{note if starts_with_file else note[:1].upper() + note[1:]}".removesuffix(".") + "."


def _add_remaining_images(report_data: ReportData, classifier: CrowdClassifier, folder: Path) -> ReportData:
    """Add the weights, fused labels and map positions of the images that still exist unchanged."""
    try:
        left = read_model_images(classifier, folder)
        input_rows = left.rows_of(report_data.ann.items)
        inputs = classifier._inputs(left.inputs)
    except (ValueError, OSError):  # the report already lists this limitation
        return report_data
    unchanged = rows_with_unchanged_inputs(report_data, classifier, inputs, input_rows)
    return add_model(report_data, classifier, inputs, unchanged)


# ---- gold ----------------------------------------------------------------------------------------


def _sets_of_files(
    job: Job, hashes: dict[str, str], consensus: Consensus, loaded: LoadedInputs | None, messages: _Messages
) -> list[GoldSet]:
    """Return the gold labels of the run, one set per use in training."""
    sets: list[GoldSet] = []
    for name, (use, is_optimistic) in USE_OF_HELD_OUT_GOLD.items():
        path = job.files().get(name)
        if path is None or not _is_unchanged(name, path, hashes, messages):
            continue
        rows, codes = _match_gold_to_rows(path, job, consensus, loaded, None)
        if len(rows):
            sets.append(GoldSet(name, rows, codes, use, is_optimistic, is_trained_on=False))
    if consensus.gold_codes is not None:  # the run stores its gold labels, so their file is not needed
        rows = np.flatnonzero(consensus.gold_codes >= 0)
        use = "the model was trained on this gold"
        sets.append(GoldSet("gold", rows, consensus.gold_codes[rows], use, is_optimistic=True, is_trained_on=True))
        messages.notes.append(
            f"Training used the gold labels of {format_count(len(rows), 'item')}. The consensus of these items is "
            "their gold label, so they need no review."
        )
    return sets


def _sets_given(
    path: Path,
    job: Job,
    consensus: Consensus,
    loaded: LoadedInputs | None,
    sets: list[GoldSet],
    messages: _Messages,
) -> list[GoldSet]:
    """Return the gold labels given for the report, split by use in training, followed by the gold labels of the run."""
    rows, codes = _match_gold_to_rows(path, job, consensus, loaded, messages)
    if not len(rows):
        raise ValueError(
            f"no item of {path} is in this run, whose item ids are {format_names(consensus.items, 3)}; check that both "
            "use the same ids"
        )
    given, left = [], np.ones(len(rows), bool)
    for known in sets:
        inside = left & np.isin(rows, known.rows)
        name = f"{path.name}, items that 'crowdfuse fit' used as --{known.name}"
        given.append(replace(known, name=name, rows=rows[inside], codes=codes[inside]))
        left &= ~inside
    for name, use, is_trained_on in (
        ("items with labels", "the model was trained on their labels, not on this gold", True),
        ("other items", "the model was not trained on them", False),
    ):
        mask = left & ((consensus.labels_per_item[rows] > 0) == is_trained_on)
        given.append(GoldSet(f"{path.name}, {name}", rows[mask], codes[mask], use, False, is_trained_on))
    for known in sets:
        more = ~np.isin(known.rows, rows)
        given.append(replace(known, rows=known.rows[more], codes=known.codes[more]))
    return [gold for gold in given if len(gold.rows)]


def _match_gold_to_rows(
    path: Path, job: Job, consensus: Consensus, loaded: LoadedInputs | None, messages: _Messages | None
) -> tuple[IntArray, IntArray]:
    """Return the rows and the true class codes of the items in a gold file; add a message on items not in the run."""
    ids, truth = read_gold_beside_labels(path, job.reading)
    rows = positions_of(ids, consensus.items) if loaded is None else rows_of_gold(ids, loaded)
    codes = positions_of(truth, consensus.classes)
    outside = (rows >= 0) & (codes < 0)
    if outside.any():
        raise ValueError(
            f"{path}: item {format_names(ids[outside][:1])} has gold {format_names(truth[outside][:1])}, which is "
            f"not one of the classes ({format_names(consensus.classes)}); correct the file"
        )
    n_unknown = int((rows < 0).sum())
    if messages is not None and n_unknown:
        messages.notes.append(
            f"{format_count(n_unknown, 'item')} of {path} {'was' if n_unknown == 1 else 'were'} left out because "
            f"{'it is' if n_unknown == 1 else 'they are'} not in this run."
        )
    return rows[rows >= 0], codes[rows >= 0]


# ---- previews of items ------------------------------------------------------------------------------------


def _preview_maker(
    report_data: ReportData, folder: Path | None, names: Any
) -> Callable[[IntArray, int], list[ItemPreview]]:
    """Return a function that takes rows and a size in pixels per side and returns the previews of these rows."""

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
            else previews_of_inputs(report_data.model.inputs, rows, side, names, report_data.model.classifier)
        )

    return make_previews
