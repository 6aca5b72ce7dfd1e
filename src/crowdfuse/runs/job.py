"""The settings of a run, and the classifier that they describe."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdfuse.checks.choices import check_choice, did_you_mean
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import DEFAULT_METHOD, estimator_class
from crowdfuse.labels.reading import Reading

# classifier settings that have a separate command-line option, so `--set` refuses them
OPTION_FOR_SETTING = {"checkpoint": "--out", "verbose": "--quiet", "classes": "--classes", "folds": "--folds"}


@dataclass(frozen=True)
class Job:
    """The settings of a run: the files that it reads, and the classifier that it trains on them.

    Parameters
    ----------
    labels : str
        Path of the labels: a table, or an export of a labelling tool. All paths of a job are stored as given, so a
        relative path stays relative.
    inputs : str, default=None
        Path of a file of features (`.npy`, `.npz`, `.csv`, `.tsv`, `.xlsx`, `.parquet`), of a table of texts, or of a
        folder of images. If None, the inputs are the texts or images in the file of labels.
    method : str, default="consensus-training"
        Name of the method, one of `crowdfuse.estimators.registry.ESTIMATORS`.
    settings : dict of str to Any, default={}
        Parameters of the classifier, such as `epochs` and `random_state`.
    validation : str, default=None
        Path of the gold labels used to choose the epoch.
    test : str, default=None
        Path of the gold labels used to score the trained model.
    gold : str, default=None
        Path of the gold labels used for training.
    reading : Reading, default=Reading()
        How the labels are read: names of the columns, format, classes.
    on_missing : {"error", "drop"}, default="error"
        What to do with items that lack either inputs or labels: raise an error, or leave them out.
    image_size : int, default=None
        Images are resized to this many pixels per side. If None and there is an encoder, the size that the encoder
        expects. If None and there is no encoder, images keep their size if all have the same size and it is at most 96
        x 96. Otherwise they are resized to 64 x 64.
    folds : int, default=5
        Number of cross-fitting folds. For the consensus, the items in each fold are predicted by classifiers that are
        trained only on the items outside the fold. If 0, there is no cross-fitting, and the confidence of the consensus
        may be too high.
    effort : {"normal", "low"}, default="normal"
        "low" trains only one model, without cross-fitting: `folds` is ignored. Parameters of the classifier that are
        not in `settings` get the values for which training is fastest (the class attribute `low_effort_settings`).
    threads : int, default=1
        Number of CPU threads. The number affects how floating-point sums are rounded, so a resumed run uses the same
        number.

    See Also
    --------
    crowdfuse.runs.start : Run a job.

    Examples
    --------
    >>> job = Job(labels="labels.csv", inputs="features.npz", settings={"epochs": 10}, test="gold.csv")
    >>> sorted(job.files())
    ['labels', 'test']
    """

    labels: str
    inputs: str | None = None
    method: str = DEFAULT_METHOD
    settings: dict[str, Any] = field(default_factory=dict)
    validation: str | None = None
    test: str | None = None
    gold: str | None = None
    reading: Reading = field(default_factory=Reading)
    on_missing: str = "error"
    image_size: int | None = None
    folds: int = 5
    effort: str = "normal"
    threads: int = 1

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Job:
        """Create a job from a dict of its fields, as `dataclasses.asdict(job)` returns it.

        Parameters
        ----------
        content : dict of str to Any
            The fields of the job. The value of `reading` is a dict with the fields of `Reading`.

        Returns
        -------
        job : Job

        Raises
        ------
        ValueError
            If `reading` is missing.
        TypeError
            If a field is missing or unknown.
        """
        if "reading" not in content:
            raise ValueError(
                "the stored job has no entry 'reading', so it may come from an older version of crowdfuse; run "
                "'crowdfuse fit' again"
            )
        return cls(**content | {"reading": Reading(**content["reading"])})

    def files(self) -> dict[str, Path]:
        """Return the paths of all files that the job reads, except the inputs.

        Returns
        -------
        files : dict of str to Path
            The first key is "labels". Each file of gold labels adds one key: "validation", "test", or "gold" (gold
            labels for training).
        """
        paths = {"labels": self.labels, "validation": self.validation, "test": self.test, "gold": self.gold}
        return {name: Path(path) for name, path in paths.items() if path is not None}

    @property
    def inputs_path(self) -> Path:
        """Path of the file or folder that holds the inputs: `inputs` if given, otherwise the file of labels."""
        return Path(self.labels if self.inputs is None else self.inputs)

    @property
    def n_folds(self) -> int:
        """Number of classifiers that are trained for cross-fitting after the model itself, one per fold.

        Equal to `folds` for most methods. 0 if `effort` is "low". Also 0 if the method does its cross-fitting while the
        model is trained, as consensus-training does.
        """
        return 0 if self.effort == "low" or estimator_class(self.method).cross_fits_itself else self.folds

    @property
    def has_encoder(self) -> bool:
        """Whether the settings name an encoder other than "auto"."""
        return self.settings.get("encoder", "auto") not in (None, "auto")


def make_classifier(job: Job, out: Path | None = None, verbose: int = 0) -> CrowdClassifier:
    """Return the classifier of a job, after checking the name and type of each setting.

    Parameters
    ----------
    job : Job
        The job. Only `method`, `settings`, `effort` and `folds` are used.
    out : Path, default=None
        Folder for the checkpoint. If None, no checkpoint is stored.
    verbose : int, default=0
        Whether training shows its progress.

    Returns
    -------
    classifier : CrowdClassifier
        The classifier, not yet fitted.

    Raises
    ------
    ValueError
        If the method or a setting is unknown, or if a setting has the wrong type.
    """
    check_choice("effort", job.effort, ("normal", "low"))
    cls = estimator_class(job.method)
    hints = typing.get_type_hints(cls)
    names = set(cls().get_params())
    for name, value in job.settings.items():
        if name in OPTION_FOR_SETTING:
            raise ValueError(f"--set {name} cannot be used here; use {OPTION_FOR_SETTING[name]}")
        if name not in names:
            known = sorted(names - set(OPTION_FOR_SETTING))
            raise ValueError(
                f"--set {name}: {job.method} has no such setting{did_you_mean(name, known)} "
                f"Its settings are {', '.join(known)}"
            )
        if not _has_type(value, hints[name]):
            raise ValueError(f"--set {name}: {_describe_type(hints[name])} was expected, got {value!r}")
    seed = job.settings.get("random_state", 0)
    if type(seed) is not int or seed < 0:
        raise ValueError(
            f"random_state must be a whole number of at least 0 (a run that is resumed uses it again), got {seed!r}"
        )
    settings: dict[str, Any] = {"folds": job.folds} if cls.cross_fits_itself else {}
    settings |= cls.low_effort_settings if job.effort == "low" else {}
    settings = settings | {name: _to_type(value, hints[name]) for name, value in job.settings.items()}
    return cls(**settings, checkpoint=out, verbose=verbose)


def _to_type(value: Any, hint: Any) -> Any:
    """Return a JSON value in the type of its setting, because JSON has no tuples and may hold 1 for 1.0."""
    if isinstance(value, list):
        return tuple(value)
    return float(value) if hint is float else value


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a JSON value has the type of a setting."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Literal:
        return value in parts
    if kind in (typing.Union, types.UnionType):
        return any(_has_type(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, list) and all(_has_type(part, parts[0]) for part in value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return hint is Any or type(value) is hint


def _describe_type(hint: Any) -> str:
    """Return the type of a setting in words; empty for modules and functions, which cannot be typed in a command."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Literal:
        return " or ".join(map(repr, parts))
    if kind in (typing.Union, types.UnionType):
        return " or ".join(words for words in map(_describe_type, parts) if words)
    if kind is tuple:
        return "a list of whole numbers such as [64,32]"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a name", type(None): "null"}
    return names.get(hint, "")


def resolve_job_path(run: Path, path: str) -> Path:
    """Find a file whose path is stored in a job, even if the job was started in another folder than the current one.

    Parameters
    ----------
    run : Path
        The run folder.
    path : str
        The path as stored in the job. A relative path is tried from the current folder first, then from the folder that
        contains the run folder, and from each folder above.

    Returns
    -------
    resolved : Path
        The first of these paths at which there is a file or folder. If there is none, `path` itself.
    """
    candidates = [Path(path), *(folder / path for folder in run.resolve().parents)]
    return next((candidate for candidate in candidates if candidate.exists()), Path(path))
