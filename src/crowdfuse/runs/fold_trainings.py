"""Cross-fit the classifier of a run, one or several folds at a time, and resume a stopped run."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import torch

from crowdfuse.checks.durations import format_duration
from crowdfuse.estimators.base import CrowdClassifier, PreparedTraining
from crowdfuse.estimators.cross_fitting import FOLDS_FOLDER, FoldTraining, OutOfFold, fold_trainings, trained_rows
from crowdfuse.labels.alignment import gold_codes
from crowdfuse.labels.folds import count_folds
from crowdfuse.labels.ids import IntArray
from crowdfuse.runs.encoded_inputs import use_encoded
from crowdfuse.runs.folder import read_job
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.job_data import JobData, read_job_data, read_job_inputs
from crowdfuse.training.progress import print_message


def cross_fit_run(classifier: CrowdClassifier, job: Job, data: JobData, out: Path, jobs: int) -> OutOfFold | None:
    """Return out-of-fold predictions: each item is predicted by a classifier that was trained without it.

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
        None if training was interrupted.
    """
    if not classifier.cross_fits_itself and jobs > 1:
        trainings = run_fold_trainings(classifier, job, data, None)
        if not train_in_processes(trainings, (1.0,) * len(trainings), out, jobs, classifier.verbose, n_before=1):
            return None
    return classifier._out_of_fold(
        data.loaded.inputs,
        data.train_annotations,
        _training_gold(classifier, data),
        0 if job.effort == "low" else job.folds,
        validation=data.validation_set(),
        folder=out / FOLDS_FOLDER,
        labels=data.all_annotations,
    )


def run_fold_trainings(
    classifier: CrowdClassifier, job: Job, data: JobData, prepared: PreparedTraining | None
) -> list[FoldTraining]:
    """Return the training runs on the cross-fitting folds of a run, without starting them.

    Parameters
    ----------
    classifier : CrowdClassifier
        The classifier of the run.
    job : Job
        The settings of the run.
    data : JobData
        The data of the run.
    prepared : PreparedTraining or None
        Result of `CrowdClassifier.prepare`. Needed only if the classifier is cross-fitted within `fit` (if its class
        attribute `cross_fits_itself` is True).

    Returns
    -------
    trainings : list of FoldTraining
    """
    if classifier.cross_fits_itself:
        assert prepared is not None
        return classifier.fold_trainings(prepared)
    gold = _training_gold(classifier, data)
    validation = data.validation_set()
    return fold_trainings(classifier, data.loaded.inputs, data.train_annotations, gold, validation, job.n_folds)


def training_costs(classifier: CrowdClassifier, job: Job, data: JobData) -> tuple[float, ...]:
    """Return the expected time of each training run of a job, in an arbitrary unit.

    The training runs that `fit` makes come first. If cross-fitting follows after `fit`, one training run per fold comes
    next.
    """
    n_items = len(trained_rows(classifier, data.train_annotations, _training_gold(classifier, data)))
    n_folds = 0 if classifier.cross_fits_itself else count_folds(job.n_folds, n_items)
    return classifier.training_costs(n_items) + (1.0,) * n_folds


def _training_gold(classifier: CrowdClassifier, data: JobData) -> IntArray | None:
    """True class of each training row, as a position in `classes_`; None if there is no gold."""
    names = data.gold_by_row()
    return None if names is None else gold_codes(names, classifier.classes_, len(data.items))


def train_in_processes(
    trainings: Sequence[FoldTraining], costs: Sequence[float], out: Path, jobs: int, verbose: int, n_before: int = 0
) -> bool:
    """Train classifiers on folds in separate processes. Folds whose predictions are already stored are skipped.

    Parameters
    ----------
    trainings : sequence of FoldTraining
        All training runs on folds.
    costs : sequence of float
        Expected time of each training run, in an arbitrary unit. If `costs` is longer than `trainings`, the further
        entries are for training runs that come after this function; the printed time left includes them.
    out : Path
        The run folder.
    jobs : int
        Number of processes.
    verbose : int
        Whether to print a line after each training run.
    n_before : int, default=0
        Number of training runs that were finished before this function was called. The printed numbers include them.

    Returns
    -------
    finished : bool
        False if a training run was interrupted.
    """
    folder = out / FOLDS_FOLDER
    left = [number for number, training in enumerate(trainings) if not training.file(folder).exists()]
    running: dict[Future[bool], int] = {}
    cost_left, later_cost = sum(costs[number] for number in left), sum(costs[len(trainings) :])
    cost_at_start, start_time = cost_left, time.monotonic()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            while left or running:
                # one training per process: Ctrl-C would not stop trainings that wait in the queue of the pool
                while left and len(running) < jobs:
                    number = left.pop(0)
                    running[pool.submit(_train_fold, out, number)] = number
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    if not future.result():
                        return False
                    cost_left -= costs[number]
                    seconds_per_cost = (time.monotonic() - start_time) / (cost_at_start - cost_left)
                    seconds = seconds_per_cost * (cost_left + jobs * later_cost)  # later trainings run one by one
                    time_left = f"; about {format_duration(seconds)} left" if left or running or later_cost else ""
                    n_done = n_before + len(trainings) - len(left) - len(running)
                    line = f"training {n_done} of {n_before + len(costs)} finished: {trainings[number].title}"
                    print_message(verbose, f"{line}{time_left}")
        except KeyboardInterrupt:  # the processes get it too, and store their checkpoints
            return False
    return True


def _train_fold(out: Path, number: int) -> bool:
    """Train one fold of a run in this process and store its predictions; False if interrupted."""
    job, _ = read_job(out)
    torch.set_num_threads(job.threads)
    data = read_job_data(job, use_encoded(read_job_inputs(job), out))
    classifier = make_classifier(job)
    prepared = classifier.prepare(
        data.loaded.inputs, data.train_annotations, gold=data.gold_by_row(), validation=data.validation_set()
    )
    return run_fold_trainings(classifier, job, data, prepared)[number].run(out / FOLDS_FOLDER) is not None
