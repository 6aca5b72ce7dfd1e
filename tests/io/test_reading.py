"""The options for reading labels are written once, in `Reading`, and every place that reads labels has all of them."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdfuse import Annotations
from crowdfuse.cli import app
from crowdfuse.labels.reading import Reading
from crowdfuse.runs.job import Job

COMMANDS = ("fit", "aggregate", "compare", "report")
NAMES = [option.name for option in fields(Reading)]
TABLE = {"item": ["a", "a", "b"], "annotator": ["x", "y", "x"], "label": ["cat", "Cat", "NA"]}

ADD_A_FIELD = """
from importlib.machinery import SourceFileLoader
new = "    encoding: str = field(default='utf-8', metadata={'doc': 'Text encoding.', 'help': 'Text encoding.'})\\n"
first = "    item: str | None = field("
plain = SourceFileLoader.get_code
def get_code(self, name):
    if name != "crowdfuse.labels.reading":
        return plain(self, name)
    source = self.get_source(name)
    assert source.count(first) == 1
    return compile(source.replace(first, new + first), self.path, "exec")
SourceFileLoader.get_code = get_code
"""
USE_THE_FIELD = """
import inspect, json
from dataclasses import asdict
from typer.testing import CliRunner
from crowdfuse import Annotations
from crowdfuse.cli import app
from crowdfuse.runs.job import Job
for method in (Annotations.read, Annotations.from_table):
    assert inspect.signature(method).parameters["encoding"].default == "utf-8"
    assert "encoding : str, default='utf-8'\\n    Text encoding." in inspect.getdoc(method)
for command in ("fit", "aggregate", "compare", "report"):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert "--encoding" in shown and "Text encoding." in shown, command
job = Job.from_json({"labels": "l.csv", "inputs": "i.csv", "reading": {"encoding": "latin-1"}})
assert Job.from_json(json.loads(json.dumps(asdict(job)))).reading.encoding == "latin-1"
assert job.reading.changed_options() == {"encoding": "latin-1"}
"""


def test_a_field_added_to_reading_reaches_every_place_that_reads_labels() -> None:
    # in a process of its own, where crowdfuse is imported with one more field
    done = subprocess.run(
        [sys.executable, "-c", ADD_A_FIELD + USE_THE_FIELD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("method", [Annotations.read, Annotations.from_table])
def test_every_option_is_a_documented_keyword(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    assert list(parameters)[1:] == NAMES
    documentation = inspect.getdoc(method) or ""
    for option in fields(Reading):
        assert parameters[option.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[option.name].default == option.default
        assert f"\n{option.name} : " in documentation
    assert "{reading_options}" not in documentation


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_help_of_each_command(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    for option in fields(Reading):
        assert f"--{option.name.replace('_', '-')} " in shown


def test_a_job_keeps_every_option_through_json() -> None:
    reading = Reading(
        item="page",
        annotator="who",
        label="what",
        text="review",
        format="table",
        question="animal",
        classes=["cat", "dog"],
        merge_similar=True,
        on_conflict="last",
        on_bad="drop",
        sep=";",
    )
    assert list(reading.changed_options()) == NAMES
    job = Job("labels.csv", "features.npy", reading=reading)
    assert Job.from_json(json.loads(json.dumps(asdict(job)))) == job


def test_a_job_of_an_older_version_is_refused() -> None:
    with pytest.raises(ValueError, match="older version of crowdfuse; run 'crowdfuse fit' again"):
        Job.from_json({"labels": "labels.csv", "inputs": "features.npy", "columns": {}, "on_bad": "error"})


def test_the_source_may_be_given_by_name() -> None:
    assert Annotations.from_table(table=TABLE, classes=["cat", "Cat"]).n_labels == 2  # type: ignore[call-arg]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="itm"):
        Annotations.from_table(TABLE, itm="page")  # type: ignore[call-arg]


def test_warnings_point_to_the_line_of_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Annotations.from_table(TABLE, classes=["cat", "Cat"])
        Annotations.read(TABLE, classes=["cat", "Cat"])
    assert len(caught) == 2
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}
