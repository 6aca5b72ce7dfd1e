"""Read a run folder for review: its consensus, and the items to review, with the lowest confidence first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crowdfuse.estimators.persistence import SETTINGS_FILE as MODEL_FILE
from crowdfuse.io.gold import read_gold_beside_labels, rows_of_gold
from crowdfuse.labels.ids import IntArray, ids_to_strings
from crowdfuse.quality.consensus import Consensus
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.runs.folder import RUN_SETTINGS_FILE, is_finished, read_job, read_json_object
from crowdfuse.runs.job import Job, resolve_job_path
from crowdfuse.runs.job_data import read_job_inputs


@dataclass(frozen=True)
class RunFolder:
    """The content of a finished run folder of `crowdfuse fit`. Names of items and classes are strings.

    Parameters
    ----------
    path : Path
        The run folder.
    job : Job
        The settings of the run.
    hashes : dict of str to str
        SHA-256 of each file that the run read. The keys are "labels" and "inputs". Each file of gold labels adds one
        key: "validation", "test", or "gold" (gold labels for training).
    model_sha256 : str
        SHA-256 of the weights of the model.
    consensus : Consensus
        The consensus of the run for all items, and the labels from which it was computed.
    rows : ndarray of shape (n_review_items,)
        The items to review, as positions in `consensus.items`, with the lowest confidence first. Items without labels
        and items with gold labels are left out.
    items : list of str
        Names of the items to review, in the order of `rows`.
    classes : list of str
        The classes, in the order of `consensus.classes`.
    disputed : ndarray of shape (n_review_items,)
        Whether each item to review is disputed: one of its labels or the prediction differs from the consensus.
    notes : list of str
        Messages for the reviewer about limitations of the consensus, faults found in the labels, and gold files that
        cannot be read.
    """

    path: Path
    job: Job
    hashes: dict[str, str]
    model_sha256: str
    consensus: Consensus
    rows: IntArray
    items: list[str]
    classes: list[str]
    disputed: NDArray[np.bool_]
    notes: list[str]

    def is_disputed(self, index: int) -> bool:
        """Return whether the item is disputed: one of its labels or the prediction differs from the consensus.

        Parameters
        ----------
        index : int
            Position of the item in `items`.

        Returns
        -------
        disputed : bool
        """
        return bool(self.disputed[index])


def read_run(path: Path) -> RunFolder:
    """Read a run folder for review.

    Parameters
    ----------
    path : Path
        The run folder, written by `crowdfuse fit`.

    Returns
    -------
    run : RunFolder
        The run. If a file of gold labels for validation or test cannot be read, the run can still be reviewed, and the
        attribute `notes` has a message about the file.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or is not a run folder.
    RunFormatError
        If the folder was written by a version of crowdfuse with a different folder format.
    ValueError
        If the run is not finished, or if one of its files is missing or damaged.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such run folder; create a run folder with 'crowdfuse fit'")
    if not (path / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(
            f"{path} has no {RUN_SETTINGS_FILE}, so it is not a run folder; create a run folder with 'crowdfuse fit'"
        )
    job, hashes = read_job(path)
    if not is_finished(path):
        raise ValueError(f"the run {path} is not finished; finish it with 'crowdfuse fit --resume {path}' first")
    result = load_consensus(path)
    notes = [*result.limitations, *(finding.message for finding in result.findings)]
    names = ids_to_strings(result.items)
    known = _held_out_items(path, job, set(names.tolist()), notes)
    has_gold = np.array([name in known for name in names.tolist()], bool)
    if result.gold_codes is not None:
        has_gold |= result.gold_codes >= 0
    by_confidence = np.argsort(result.confidence, kind="stable")
    rows = by_confidence[((result.labels_per_item > 0) & ~has_gold)[by_confidence]]
    return RunFolder(
        path=path,
        job=job,
        hashes=hashes,
        model_sha256=_model_sha256(path),
        consensus=result,
        rows=rows,
        items=names[rows].tolist(),
        classes=ids_to_strings(result.classes).tolist(),
        disputed=result.is_disputed[rows],
        notes=notes,
    )


def _model_sha256(run: Path) -> str:
    """Return the SHA-256 of the weights of the model."""
    path = run / "model" / MODEL_FILE
    try:
        return str(read_json_object(path)["weights_sha256"])
    except (OSError, KeyError) as error:
        raise ValueError(f"{path} is missing or damaged ({error!r}); run 'crowdfuse fit' again") from error


def _held_out_items(run: Path, job: Job, items: set[str], notes: list[str]) -> set[str]:
    """Return the items with gold labels for validation or test, which need no review."""
    known: set[str] = set()
    for name, file in job.files().items():
        if name not in ("validation", "test"):
            continue
        path = resolve_job_path(run, str(file))
        try:
            ids, _ = read_gold_beside_labels(path, job.reading)
            if items.isdisjoint(ids_to_strings(ids).tolist()):  # the file identifies its items by their texts
                loaded = read_job_inputs(_with_found_inputs(run, job))
                rows = rows_of_gold(ids, loaded)
                ids = loaded.items[rows[rows >= 0]]
        except (OSError, ValueError) as error:
            notes.append(
                f"the gold labels in {path} cannot be read ({error}), so the items with these labels are also shown"
            )
            continue
        known |= set(ids_to_strings(ids).tolist())
    return known


def _with_found_inputs(run: Path, job: Job) -> Job:
    """Return the job with the paths at which its labels and inputs are now."""
    inputs = None if job.inputs is None else str(resolve_job_path(run, job.inputs))
    return replace(job, labels=str(resolve_job_path(run, job.labels)), inputs=inputs)
