"""Fit a classifier to a user's own files, into a run folder, and continue a run that was stopped.

A run folder holds `settings.json` (the job, and hashes of its files), the checkpoint during training, and at the end
`model/`, `fused.csv`, `annotators.csv`, `log.jsonl` and `summary.json`.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from crowdfuse import __version__
from crowdfuse.estimators.base import CrowdClassifier, PreparedTraining
from crowdfuse.io.files import (
    atomic_folder,
    refuse_existing,
    refuse_foreign,
    remove_leftovers,
    sha256,
    write_json,
)
from crowdfuse.runs.folder import DECISIONS_FILE, SETTINGS_FILE, is_finished, read_job, read_json_object
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.job_data import JobData, read_job_data, read_job_inputs
from crowdfuse.runs.results import SUMMARY_FILE, write_results
from crowdfuse.training.checkpoints import FILE_NAME as CHECKPOINT_FILE
from crowdfuse.training.distributed import AllProcessesError, all_gather, is_rank_zero, raise_in_all_processes


def start(job: Job, out: Path, *, force: bool, verbose: int = 1) -> dict[str, Any]:
    """Run a job into a new folder and return its summary.

    Of several processes the first writes the folder, and returns the summary; the others return nothing in theirs.
    """
    with raise_in_all_processes():
        classifier, prepared, material, hashes = _get_ready(job, out, force, verbose)
    _refuse_different(hashes)
    if is_rank_zero():
        with atomic_folder(out, force=force) as folder:
            write_json(folder / SETTINGS_FILE, {"crowdfuse": __version__, "job": asdict(job), "hashes": hashes})
    return _train(classifier, prepared, job, material, out)


def _get_ready(
    job: Job, out: Path, force: bool, verbose: int
) -> tuple[CrowdClassifier, PreparedTraining, JobData, dict[str, str]]:
    """Everything before anything is written: whatever is wrong is said here."""
    if not force and (out / SETTINGS_FILE).exists() and not is_finished(out):
        raise FileExistsError(f"{out} holds an unfinished run: go on with --resume {out}, or replace it with --force")
    refuse_existing(out, force=force)
    if out.exists():
        _refuse_replacing(out, job)
    classifier = make_classifier(job, out, verbose)
    material = read_job_data(job)
    prepared = _prepare(classifier, material)
    return classifier, prepared, material, {**_file_hashes(job), "inputs": material.loaded.fingerprint()}


def resume(out: Path, *, verbose: int = 1) -> dict[str, Any]:
    """Go on with a run that was stopped, with the settings it was started with and the same files.

    Of a run that is finished, the summary. The number of processes may be another.
    """
    finished = all_gather(is_finished(out))[0]
    with raise_in_all_processes():
        job, hashes = read_job(out)
        if is_rank_zero():
            remove_leftovers(out)
        if finished:
            (out / CHECKPOINT_FILE).unlink(missing_ok=True)
            return read_json_object(out / SUMMARY_FILE)
        for path in [*job.files().values(), Path(job.inputs)]:
            if not path.exists():
                raise FileNotFoundError(
                    f"cannot resume {out}: {path} is not there. Bring it back; paths are as they were given, "
                    "so resume from the same folder"
                )
        _refuse_changed(out, hashes, _file_hashes(job))
        loaded = read_job_inputs(job)
        _refuse_changed(out, hashes, {"inputs": loaded.fingerprint()})
        classifier, material = make_classifier(job, out, verbose), read_job_data(job, loaded)
        prepared = _prepare(classifier, material)
    return _train(classifier, prepared, job, material, out)


def _prepare(classifier: CrowdClassifier, material: JobData) -> PreparedTraining:
    """Return all that training needs; raises what `fit` would raise before the first step."""
    return classifier.prepare(
        material.loaded.inputs,
        material.train_annotations,
        gold=material.gold_by_row(),
        validation=material.validation_set(),
    )


def _train(
    classifier: CrowdClassifier, prepared: PreparedTraining, job: Job, material: JobData, out: Path
) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="interrupted after")  # the summary says so
        classifier.fit_prepared(prepared)
    if not is_rank_zero():
        return {}
    summary = write_results(classifier, material, out)
    if not classifier.interrupted_:
        (out / CHECKPOINT_FILE).unlink(missing_ok=True)
    return summary


def _file_hashes(job: Job) -> dict[str, str]:
    return {name: sha256(path) for name, path in job.files().items()}


def _refuse_different(hashes: dict[str, str]) -> None:
    """All processes must have read the same: each of them trains on its share of it."""
    found = all_gather(hashes)
    for number, others in enumerate(found):
        for name, value in found[0].items():
            if others[name] != value:
                raise AllProcessesError(
                    f"process {number + 1} of {len(found)} has read other {name} than the first: "
                    "every machine needs the same files"
                )


def _refuse_changed(out: Path, stored: dict[str, str], found: dict[str, str]) -> None:
    changed = [name for name, value in found.items() if stored.get(name) != value]
    if changed:
        raise ValueError(
            f"cannot resume {out}: {' and '.join(changed)} changed since it was started (another hash than in "
            f"{out / SETTINGS_FILE}). Bring the old files back, or start a new run"
        )


def _refuse_replacing(out: Path, job: Job) -> None:
    """--force replaces a run folder, never a folder of something else, nor one that the job reads from."""
    refuse_foreign(out, SETTINGS_FILE)
    if (out / DECISIONS_FILE).exists():
        raise FileExistsError(
            f"{out / DECISIONS_FILE} holds what reviewers decided, and --force will not replace that: choose another "
            "name for --out, or move the file away first"
        )
    if (out / SETTINGS_FILE).exists():
        try:
            read_job(out)
        except ValueError as error:
            raise FileExistsError(f"{out} is not a run folder, and --force will not replace it: {error}") from error
    for path in [*job.files().values(), Path(job.inputs)]:
        if path.resolve().is_relative_to(out.resolve()):
            raise ValueError(f"{path} is inside {out}, which --force would replace; choose another name for --out")
