"""What a user asked for on the command line, and the classifier it means."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdfuse.checks.choices import did_you_mean
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import DEFAULT_METHOD, estimator_class
from crowdfuse.labels.reading import Reading

# settings of a classifier that a run decides, and what to say instead
OPTION_FOR_SETTING = {"checkpoint": "--out", "verbose": "--quiet", "classes": "--classes"}


@dataclass(frozen=True)
class Job:
    """What the user asked for. Paths are kept as given; `settings` go to the classifier."""

    labels: str
    inputs: str
    method: str = DEFAULT_METHOD
    settings: dict[str, Any] = field(default_factory=dict)
    validation: str | None = None
    test: str | None = None
    gold: str | None = None
    reading: Reading = field(default_factory=Reading)
    on_missing: str = "error"
    image_size: int | None = None
    threads: int = 1  # sums over several threads round differently, so a resumed run needs the same

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Job:
        """The job that `dataclasses.asdict` turned into JSON."""
        if "reading" not in content:
            raise ValueError("it has no 'reading' and may come from an older version of crowdfuse; fit again")
        return cls(**content | {"reading": Reading(**content["reading"])})

    def files(self) -> dict[str, Path]:
        """The files it reads beside the inputs, by what they are for."""
        named = {"labels": self.labels, "validation": self.validation, "test": self.test, "gold": self.gold}
        return {name: Path(path) for name, path in named.items() if path is not None}


def make_classifier(job: Job, out: Path | None = None, verbose: int = 0) -> CrowdClassifier:
    """The classifier that a job asks for, its settings checked by name and type; `out` is its checkpoint's folder."""
    kind = estimator_class(job.method)
    names = set(kind().get_params())
    for name, value in job.settings.items():
        if name in OPTION_FOR_SETTING:
            raise ValueError(f"--set {name} is not for a run; use {OPTION_FOR_SETTING[name]}")
        if name not in names:
            known = sorted(names - set(OPTION_FOR_SETTING))
            raise ValueError(
                f"--set {name}: {job.method} has no such setting{did_you_mean(name, known)} It has {', '.join(known)}"
            )
        hint = typing.get_type_hints(kind)[name]
        if not _fits(value, hint):
            raise ValueError(f"--set {name}: {_in_words(hint)} was expected, got {value!r}")
    seed = job.settings.get("random_state", 0)
    if type(seed) is not int or seed < 0:
        raise ValueError(f"random_state must be a whole number of at least 0, so that a run can go on, got {seed!r}")
    hints = typing.get_type_hints(kind)
    settings = {name: _as_typed(value, hints[name]) for name, value in job.settings.items()}
    return kind(**settings, checkpoint=out, verbose=verbose)


def _as_typed(value: Any, hint: Any) -> Any:
    """JSON has lists and no tuples, and 1 may be meant as 1.0."""
    if isinstance(value, list):
        return tuple(value)
    return float(value) if hint is float else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that came as JSON has the type of a setting."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Literal:
        return value in parts
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, list) and all(_fits(part, parts[0]) for part in value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return hint is Any or type(value) is hint


def _in_words(hint: Any) -> str:
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Literal:
        return " or ".join(map(repr, parts))
    if kind in (typing.Union, types.UnionType):
        return " or ".join(words for words in map(_in_words, parts) if words)
    if kind is tuple:
        return "a list of whole numbers such as [64,32]"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a name", type(None): "null"}
    return names.get(hint, "")  # modules and functions cannot be typed on a command line


def resolve_job_path(run: Path, given: str) -> Path:
    """A file that a job names. Relative names are looked for from here, then from the folders that the run lies in."""
    places = [Path(given), *(folder / given for folder in run.resolve().parents)]
    return next((place for place in places if place.exists()), Path(given))
