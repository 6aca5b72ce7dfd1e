"""The files of a run folder: its settings, and whether it is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crowdfuse.runs.job import Job
from crowdfuse.runs.results import SUMMARY_FILE

SETTINGS_FILE = "settings.json"
DECISIONS_FILE = "decisions.jsonl"  # decisions of reviewers, which no run can produce again


def is_finished(out: Path) -> bool:
    """Whether a run has come to its end: the summary is written last."""
    return (out / SUMMARY_FILE).exists()


def read_job(out: Path) -> tuple[Job, dict[str, str]]:
    """What a run was asked to do, and the hashes of what it read."""
    path = out / SETTINGS_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: {out} is no run folder, so there is nothing to resume")
    stored = read_json_object(path)
    try:
        return Job.from_json(stored["job"]), dict(stored["hashes"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: it is not what crowdfuse fit writes ({error!r})") from error


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: a JSON object was expected")
    return content
