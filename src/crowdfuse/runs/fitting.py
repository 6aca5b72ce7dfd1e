"""Fit a classifier to a user's own files, write the results to a run folder, and resume a stopped run.

A run folder contains `settings.json` (the job and the hashes of its files), and `encoded/` if texts or images are
encoded. During training it also contains the checkpoint and `folds/`. At the end it contains `model/`,
`posterior.safetensors`, `consensus.csv`, `annotators.csv`, `suspicious_labels.csv`, `log.jsonl` and `summary.json`.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from crowdfuse import __version__
from crowdfuse.estimators.base import CrowdClassifier, PreparedTraining
from crowdfuse.estimators.cross_fitting import FOLDS_FOLDER
from crowdfuse.io.files import (
    atomic_folder,
    refuse_existing,
    remove_leftovers,
    sha256,
    write_json,
)
from crowdfuse.runs.encoded_inputs import use_encoded, write_encoded
from crowdfuse.runs.fold_trainings import cross_fit_run, run_fold_trainings, train_in_processes, training_costs
from crowdfuse.runs.folder import (
    RUN_FORMAT_VERSION,
    RUN_SETTINGS_FILE,
    SUMMARY_FILE,
    is_finished,
    read_job,
    read_json_object,
    refuse_replacing,
)
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.job_data import JobData, read_job_data, read_job_inputs
from crowdfuse.runs.results import summarize_stopped, write_results
from crowdfuse.training.checkpoints import FILE_NAME as CHECKPOINT_FILE
from crowdfuse.training.distributed import AllProcessesError, all_gather, is_rank_zero, raise_in_all_processes
from crowdfuse.training.progress import training_series

OnReady = Callable[[CrowdClassifier, JobData, Job], None]


def start(
    job: Job, out: Path, *, force: bool, verbose: int = 1, jobs: int = 1, on_ready: OnReady | None = None
) -> dict[str, Any]:
    r"""Train the classifier of a job, write the results to a new run folder, and return the summary.

    In distributed training, the process of rank 0 writes the folder and returns the summary. All other processes return
    an empty dict.

    Parameters
    ----------
    job : Job
        The files to read and the classifier to train.
    out : Path
        The run folder to create.
    force : bool
        Whether to replace an existing run folder at `out`. Two kinds of folders are never replaced: folders that are
        not run folders, and folders that contain decisions of reviewers.
    verbose : int, default=1
        Whether to show progress.
    jobs : int, default=1
        Number of processes that train the cross-fitting folds at the same time.
    on_ready : callable, default=None
        Function that is called before training starts, with three arguments: the prepared classifier, the data and the
        job. In distributed training, only the process of rank 0 calls the function.

    Returns
    -------
    summary : dict of str to Any
        Summary of the run. Its entry `interrupted` is true if Ctrl-C ended the training. Otherwise, the summary is the
        content of `summary.json`.

    Raises
    ------
    FileExistsError
        If `out` exists and `force` is false, or if `out` is a folder that is never replaced (see `force`).
    ValueError
        If a file or a setting is invalid. Nothing is written in this case.

    See Also
    --------
    resume : Continue a run that was stopped.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     np.save(folder / "features.npy", np.array([[0.0], [1.0], [2.0], [3.0]]))
    ...     text = "item,annotator,label\n0,ada,cat\n1,ada,cat\n2,bob,dog\n3,bob,dog\n"
    ...     _ = (folder / "labels.csv").write_text(text)
    ...     job = Job(str(folder / "labels.csv"), str(folder / "features.npy"), "majority-vote", {"epochs": 1})
    ...     summary = start(job, folder / "run", force=False, verbose=0)
    >>> summary["n_labels"], summary["gold_used_for"]
    (4, 'nothing')
    """
    with raise_in_all_processes():
        classifier, prepared, data, hashes = _check_and_read(job, out, force, verbose)
    _refuse_different_files(hashes)
    if is_rank_zero():
        settings = {
            "format_version": RUN_FORMAT_VERSION,
            "crowdfuse_version": __version__,
            "job": asdict(job),
            "hashes": hashes,
        }
        with atomic_folder(out, force=force) as folder:
            write_encoded(prepared.data.inputs, folder)
            write_json(folder / RUN_SETTINGS_FILE, settings)
    if on_ready is not None and is_rank_zero():
        on_ready(classifier, data, job)
    return _train(classifier, prepared, job, data, out, jobs)


def _check_and_read(
    job: Job, out: Path, force: bool, verbose: int
) -> tuple[CrowdClassifier, PreparedTraining, JobData, dict[str, str]]:
    """Return the classifier, its prepared training, the data and the hashes of the files. Nothing is written."""
    if not force and (out / RUN_SETTINGS_FILE).exists() and not is_finished(out):
        raise FileExistsError(
            f"{out} holds an unfinished run; continue it with --resume {out}, or replace it with --force"
        )
    refuse_existing(out, force=force)
    if out.exists():
        refuse_replacing(out, job)
    classifier = make_classifier(job, out, verbose)
    data = read_job_data(job)
    prepared = _prepare(classifier, data)
    return classifier, prepared, data, {**_file_hashes(job), "inputs": data.loaded.fingerprint()}


def resume(out: Path, *, verbose: int = 1, jobs: int = 1, on_ready: OnReady | None = None) -> dict[str, Any]:
    """Continue a stopped run with its stored settings and the same files.

    The result is bit-identical to the result of an uninterrupted run, even if `jobs` differs. The number of processes
    that torchrun starts may differ, too, but then the result is not bit-identical.

    Parameters
    ----------
    out : Path
        The run folder.
    verbose : int, default=1
        Whether to show progress.
    jobs : int, default=1
        Number of processes that train the cross-fitting folds at the same time.
    on_ready : callable, default=None
        Function that is called before training starts, with three arguments: the prepared classifier, the data and the
        job. In distributed training, only the process of rank 0 calls the function.

    Returns
    -------
    summary : dict of str to Any
        Summary of the run, as returned by `start`. If the run is already finished, nothing is trained and the stored
        summary is returned.

    Raises
    ------
    FileNotFoundError
        If `out` is not a run folder, or if a file of the job no longer exists.
    RunFormatError
        If the folder was written by a version of crowdfuse with a different folder format.
    ValueError
        If `settings.json` is damaged, or if a file of the job has changed since the run was started.

    See Also
    --------
    start : Start a run.
    """
    finished = all_gather(is_finished(out))[0]
    with raise_in_all_processes():
        job, hashes = read_job(out)
        if is_rank_zero():
            remove_leftovers(out)
        if finished:
            _remove_checkpoints(out)
            return read_json_object(out / SUMMARY_FILE)
        for path in [*job.files().values(), job.inputs_path]:
            if not path.exists():
                raise FileNotFoundError(
                    f"cannot resume {out}: {path} does not exist. Restore the file. If the path is relative, resume "
                    "from the folder in which the run was started"
                )
        _refuse_changed(out, hashes, _file_hashes(job))
        loaded = read_job_inputs(job)
        _refuse_changed(out, hashes, {"inputs": loaded.fingerprint()})
        classifier, data = make_classifier(job, out, verbose), read_job_data(job, use_encoded(loaded, out))
        prepared = _prepare(classifier, data)
    if on_ready is not None and is_rank_zero():
        on_ready(classifier, data, job)
    return _train(classifier, prepared, job, data, out, jobs)


def _prepare(classifier: CrowdClassifier, data: JobData) -> PreparedTraining:
    """Return everything that training needs; raise the errors that `fit` raises before its first step."""
    return classifier.prepare(
        data.loaded.inputs,
        data.train_annotations,
        gold=data.gold_by_row(),
        validation=data.validation_set(),
    )


def _train(
    classifier: CrowdClassifier, prepared: PreparedTraining, job: Job, data: JobData, out: Path, jobs: int
) -> dict[str, Any]:
    """Train, cross-fit, write the results, and return the summary (in processes other than rank 0, an empty dict)."""
    torch.set_num_threads(job.threads)
    data = replace(data, loaded=replace(data.loaded, inputs=prepared.data.inputs))  # encoded once, for all folds
    with warnings.catch_warnings(), training_series(training_costs(classifier, job, data), jobs):
        warnings.filterwarnings("ignore", message="interrupted after")  # the summary has it
        try:
            _fit(classifier, prepared, job, data, out, jobs)
        except KeyboardInterrupt:
            return summarize_stopped(classifier, data) if is_rank_zero() else {}
        has_folds_left = job.n_folds > 0
        predictions = (
            None if classifier.interrupted_ and has_folds_left else cross_fit_run(classifier, job, data, out, jobs)
        )
    if not is_rank_zero():
        return {}
    summary = write_results(classifier, data, out, predictions, job.effort)
    if not summary["interrupted"]:
        _remove_checkpoints(out)
    return summary


def _fit(
    classifier: CrowdClassifier, prepared: PreparedTraining, job: Job, data: JobData, out: Path, jobs: int
) -> None:
    """Train the classifier; raise KeyboardInterrupt if Ctrl-C ends trainings on folds that come before its own."""
    if classifier.cross_fits_itself and jobs > 1:
        trainings = run_fold_trainings(classifier, job, data, prepared)
        costs = training_costs(classifier, job, data)
        if not train_in_processes(trainings, costs, out, jobs, classifier.verbose):
            raise KeyboardInterrupt
    classifier.fit_prepared(prepared)


def _remove_checkpoints(out: Path) -> None:
    """Remove what a finished run no longer needs: its checkpoint, and the predictions and checkpoints of the folds."""
    (out / CHECKPOINT_FILE).unlink(missing_ok=True)
    shutil.rmtree(out / FOLDS_FOLDER, ignore_errors=True)


def _file_hashes(job: Job) -> dict[str, str]:
    """Return the SHA-256 of each file of the job except the inputs."""
    return {name: sha256(path) for name, path in job.files().items()}


def _refuse_different_files(hashes: dict[str, str]) -> None:
    """Raise an error unless all processes have read the same files; each of them trains on a part of the items."""
    all_hashes = all_gather(hashes)
    for number, others in enumerate(all_hashes):
        for name, value in all_hashes[0].items():
            if others[name] != value:
                raise AllProcessesError(
                    f"process {number + 1} of {len(all_hashes)} has read other data for {name} than process 1; "
                    "copy the same files to every machine"
                )


def _refuse_changed(out: Path, stored: dict[str, str], current: dict[str, str]) -> None:
    """Raise an error if the data of the run do not have the hashes that the run recorded."""
    changed = [name for name, value in current.items() if stored.get(name) != value]
    if changed:
        raise ValueError(
            f"cannot resume {out}: the data for {' and '.join(changed)} changed since the run was started (the hash "
            f"differs from the hash in {out / RUN_SETTINGS_FILE}). Restore the old files, or start a new run"
        )
