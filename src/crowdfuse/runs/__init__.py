"""Run folders: fit, resume, predict and compare on a user's own files."""

from __future__ import annotations

from crowdfuse.runs.fitting import resume, start
from crowdfuse.runs.folder import is_finished, read_job
from crowdfuse.runs.job import Job
from crowdfuse.runs.prediction import predict_file

__all__ = ["Job", "is_finished", "predict_file", "read_job", "resume", "start"]
