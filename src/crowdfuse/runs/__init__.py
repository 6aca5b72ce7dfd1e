"""Work on a user's own files: fit, resume and predict in run folders, report, compare methods, embed images."""

from __future__ import annotations

from crowdfuse.runs.comparison import Comparison, Split, applicable_methods, make_comparison
from crowdfuse.runs.embedding import EmbeddingSummary, embed
from crowdfuse.runs.fitting import resume, start
from crowdfuse.runs.folder import RunFormatError, is_finished, read_job
from crowdfuse.runs.job import Job, make_classifier, resolve_job_path
from crowdfuse.runs.job_data import JobData, read_job_data
from crowdfuse.runs.prediction import predict_file
from crowdfuse.runs.reporting import report_run

__all__ = [
    "Comparison",
    "EmbeddingSummary",
    "Job",
    "JobData",
    "RunFormatError",
    "Split",
    "applicable_methods",
    "embed",
    "is_finished",
    "make_classifier",
    "make_comparison",
    "predict_file",
    "read_job",
    "read_job_data",
    "report_run",
    "resolve_job_path",
    "resume",
    "start",
]
