"""The time limit of a command (`--max-time`), divided over all the trainings of the command."""

from __future__ import annotations

from dataclasses import replace

from crowdfuse.checks.durations import parse_duration
from crowdfuse.runs.job import Job


def with_time_limit(job: Job, max_time: str, n_trainings: int | None = None) -> Job:
    """Return a copy of a job in which each training run gets an equal share of a time limit.

    Parameters
    ----------
    job : Job
        The job.
    max_time : str
        Time limit of all training runs together, such as "10m".
    n_trainings : int, default=None
        Number of training runs. If None: one for the model, and one for each fold that is trained after the model. All
        training runs that a method makes while the model is trained count as one.

    Returns
    -------
    job : Job
        A copy of the job. Its setting `max_time` is the time limit of one training run, in seconds.

    Raises
    ------
    ValueError
        If `max_time` is not a duration.

    Examples
    --------
    >>> with_time_limit(Job("labels.csv", method="gated", folds=5), "1h").settings
    {'max_time': 600.0}
    """
    share = parse_duration("--max-time", max_time) / (1 + job.n_folds if n_trainings is None else n_trainings)
    return replace(job, settings=job.settings | {"max_time": share})


def total_time_limit(job: Job) -> float | None:
    """Return the time limit of all training runs of a job together, in seconds; None if there is no limit.

    Examples
    --------
    >>> total_time_limit(with_time_limit(Job("labels.csv", method="gated", folds=5), "1h"))
    3600.0
    """
    share = job.settings.get("max_time")
    return None if share is None else parse_duration("max_time", share) * (1 + job.n_folds)
