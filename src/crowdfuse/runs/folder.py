"""The files of a run folder: their names, the stored job, and whether the run is finished or may be replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crowdfuse.io.files import refuse_foreign
from crowdfuse.runs.job import Job

RUN_FORMAT_VERSION = 3  # raise it when a file of the run folder changes its keys or columns
RUN_SETTINGS_FILE = "settings.json"
SUMMARY_FILE = "summary.json"
INTERRUPTED_FILE = "interrupted.json"  # the summary of a run that was interrupted
CONSENSUS_FILE = "consensus.csv"
ANNOTATORS_FILE = "annotators.csv"
SUSPICIOUS_LABELS_FILE = "suspicious_labels.csv"
LOG_FILE = "log.jsonl"
DECISIONS_FILE = "decisions.jsonl"  # decisions of reviewers: people made them, so no run can produce them again


class RunFormatError(ValueError):
    """Raised if this version of crowdfuse cannot read the format of a run folder. The message says what to do."""


def is_finished(out: Path) -> bool:
    """Return whether a run is finished.

    A run is finished if its folder contains `summary.json`, because a run writes this file last.

    Parameters
    ----------
    out : Path
        The run folder.

    Returns
    -------
    finished : bool

    Examples
    --------
    >>> is_finished(Path("no-such-folder"))
    False
    """
    return (out / SUMMARY_FILE).exists()


def read_job(out: Path) -> tuple[Job, dict[str, str]]:
    """Read the stored job of a run, and the hashes that the files of the job had when the run was started.

    Parameters
    ----------
    out : Path
        The run folder.

    Returns
    -------
    job : Job
        The settings that the run was started with.
    hashes : dict of str to str
        SHA-256 of each file. The keys are "labels" and "inputs". Each file of gold labels adds one key: "validation",
        "test", or "gold" (gold labels for training).

    Raises
    ------
    FileNotFoundError
        If the folder has no `settings.json`.
    RunFormatError
        If the folder was written by a version of crowdfuse with a different folder format.
    ValueError
        If `settings.json` is damaged.
    """
    path = out / RUN_SETTINGS_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist, so {out} is not a run folder and cannot be resumed")
    stored = read_json_object(path)
    _check_format(path, stored)
    try:
        return Job.from_json(stored["job"]), dict(stored["hashes"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: its content is not what 'crowdfuse fit' writes ({error!r}); restore the file, "
            "or run 'crowdfuse fit' again"
        ) from error


def _check_format(path: Path, stored: dict[str, Any]) -> None:
    """Raise an error if the run folder has another format; the message says what to do."""
    if "job" not in stored:
        raise ValueError(
            f"{path} is damaged: the entry 'job' is missing; restore the file, or run 'crowdfuse fit' again"
        )
    version = stored.get("format_version", 1)
    if version == RUN_FORMAT_VERSION:
        return
    is_newer = isinstance(version, int) and version > RUN_FORMAT_VERSION
    advice = (
        "Install a newer version of crowdfuse"
        if is_newer
        else "Run 'crowdfuse fit' again. Decisions of reviewers can still be exported with 'crowdfuse review --export'"
    )
    raise RunFormatError(
        f"{path.parent} was written by {'a newer' if is_newer else 'an older'} version of crowdfuse: its run format is "
        f"{version}, but this version of crowdfuse reads only run format {RUN_FORMAT_VERSION}. {advice}"
    )


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raise `ValueError` with the path if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); restore it, or run 'crowdfuse fit' again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it does not hold a JSON object; restore it, or run 'crowdfuse fit' again")
    return content


def refuse_replacing(out: Path, job: Job) -> None:
    """Raise an error unless `out` is a run folder without decisions of reviewers and without files of the job."""
    refuse_foreign(out, RUN_SETTINGS_FILE)
    if (out / DECISIONS_FILE).exists():
        raise FileExistsError(
            f"{out / DECISIONS_FILE} holds decisions of reviewers, which --force does not replace; choose another "
            "name for --out, or move this file to another folder first"
        )
    if (out / RUN_SETTINGS_FILE).exists():
        try:
            read_job(out)
        except RunFormatError:
            pass  # a run folder of another format version may be replaced
        except ValueError as error:
            raise FileExistsError(
                f"{out} will not be replaced by --force, because it is not a run folder ({error}); choose another "
                "name for --out"
            ) from error
    for path in [*job.files().values(), job.inputs_path]:
        if path.resolve().is_relative_to(out.resolve()):
            raise ValueError(f"{path} is inside {out}, which --force would replace; choose another name for --out")
