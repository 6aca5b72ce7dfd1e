"""Cross-fit the classifier of a run, one fold after the other or several at a time, and resume where it stopped."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import torch

from crowdfuse.checks.durations import format_duration
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.cross_fitting import (
    OutOfFold,
    fold_file,
    predict_fold,
    trained_rows,
    write_fold,
)
from crowdfuse.labels.alignment import gold_codes
from crowdfuse.labels.folds import assign_folds
from crowdfuse.labels.ids import IntArray
from crowdfuse.runs.encoded_inputs import use_encoded
from crowdfuse.runs.folder import FOLDS_FOLDER, read_job
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.job_data import JobData, read_job_data, read_job_inputs
from crowdfuse.training.progress import print_message


def cross_fit_run(classifier: CrowdClassifier, job: Job, data: JobData, out: Path, jobs: int) -> OutOfFold | None:
    """Return out-of-fold predictions of all items; None if interrupted.

    Finished folds are stored in the run folder and are not trained again.

    Parameters
    ----------
    classifier : CrowdClassifier
        The fitted classifier of the run.
    job : Job
        The settings of the run.
    data : JobData
        The data of the run.
    out : Path
        The run folder.
    jobs : int
        Number of processes that train folds at the same time.

    Returns
    -------
    predictions : OutOfFold or None
        None if a training was interrupted.
    """
    folder = out / FOLDS_FOLDER
    gold = _training_gold(classifier, data)
    if job.n_folds and jobs > 1 and not _train_in_processes(classifier, job, data, gold, out, jobs):
        return None
    return classifier._out_of_fold(
        data.loaded.inputs,
        data.train_annotations,
        gold,
        0 if job.effort == "low" else job.folds,
        validation=data.validation_set(),
        folder=folder,
        labels=data.all_annotations,
    )


def count_trainings(classifier: CrowdClassifier, job: Job, data: JobData) -> int:
    """Return how many trainings the run consists of: that of the model, and one per fold."""
    rows = trained_rows(classifier, data.train_annotations, _training_gold(classifier, data))
    return 1 + len(assign_folds(rows, job.n_folds))


def _training_gold(classifier: CrowdClassifier, data: JobData) -> IntArray | None:
    """True class of each row that is trained on, as a position in `classes_`; None without gold."""
    names = data.gold_by_row()
    return None if names is None else gold_codes(names, classifier.classes_, len(data.items))


def _train_in_processes(
    classifier: CrowdClassifier, job: Job, data: JobData, gold: IntArray | None, out: Path, jobs: int
) -> bool:
    """Train the folds that are not stored yet in separate processes; False if one of them was interrupted."""
    folds = assign_folds(trained_rows(classifier, data.train_annotations, gold), job.n_folds)
    left = [number for number in range(len(folds)) if not fold_file(out / FOLDS_FOLDER, number).exists()]
    running: dict[Future[bool], int] = {}
    n_done, n_before, start_time = len(folds) - len(left), len(folds) - len(left), time.monotonic()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            while left or running:
                # one fold per process: Ctrl-C would not stop folds that wait in the queue of the pool
                while left and len(running) < jobs:
                    number = left.pop(0)
                    running[pool.submit(_train_fold, out, number)] = number
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    if not future.result():
                        return False
                    n_done += 1
                    seconds = (time.monotonic() - start_time) / (n_done - n_before) * (len(folds) - n_done)
                    time_left = f"; about {format_duration(seconds)} left" if n_done < len(folds) else ""
                    print_message(
                        classifier.verbose,
                        f"training {n_done + 1} of {len(folds) + 1} finished: {classifier.method_name}, fold "
                        f"{number + 1} of {len(folds)}{time_left}",
                    )
        except KeyboardInterrupt:  # the processes get it too, and store their checkpoints
            return False
    return True


def _train_fold(out: Path, number: int) -> bool:
    """Train one fold of a run in this process and store its predictions; False if interrupted."""
    job, _ = read_job(out)
    torch.set_num_threads(job.threads)
    data = read_job_data(job, use_encoded(read_job_inputs(job), out))
    classifier = make_classifier(job)
    classifier.classes_ = data.train_annotations.classes
    gold = _training_gold(classifier, data)
    rows = trained_rows(classifier, data.train_annotations, gold)
    fold = assign_folds(rows, job.n_folds)[number]
    found = predict_fold(
        classifier,
        data.loaded.inputs,
        data.train_annotations,
        gold,
        data.validation_set(),
        fold,
        rows,
        title=f"{classifier.method_name}, fold {number + 1}",
        checkpoint=out / FOLDS_FOLDER / f"fold-{number + 1}",
    )
    if found is None:
        return False
    write_fold(fold_file(out / FOLDS_FOLDER, number), found)
    return True
