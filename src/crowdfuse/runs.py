"""The main job on a user's own files: labels and inputs in, a run folder out; going on with one; predicting.

A run folder holds `settings.json` (what was asked, and hashes of what was read), the checkpoint while it
trains, and in the end `model/`, `fused.csv`, `annotators.csv`, `log.jsonl` and `summary.json`.
"""

from __future__ import annotations

import json
import math
import types
import typing
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from crowdfuse import __version__
from crowdfuse.annotations import Annotations
from crowdfuse.batches import TrainingData
from crowdfuse.checkpoints import FILE_NAME as CHECKPOINT_FILE
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.files import (
    new_folder,
    refuse_existing,
    refuse_foreign,
    remove_leftovers,
    sha256,
    strict,
    write_json,
    write_table,
    write_text,
)
from crowdfuse.ids import as_text, few, find, plural
from crowdfuse.io.features import TABLE_ENDINGS, Loaded, read_features
from crowdfuse.io.labels import read_gold
from crowdfuse.io.tables import TableFile
from crowdfuse.persistence import load
from crowdfuse.registry import estimator_class

SETTINGS_FILE, SUMMARY_FILE, INTERRUPTED_FILE = "settings.json", "summary.json", "interrupted.json"
# settings of a classifier that a run decides, and what to say instead
RUN_DECIDES = {"checkpoint": "--out", "verbose": "--quiet", "classes": "--classes"}

Gold = tuple[NDArray[np.int64], NDArray[Any]]  # rows, and their true classes by name


@dataclass(frozen=True)
class Job:
    """What the user asked for. Paths are kept as given; `settings` go to the classifier."""

    labels: str
    inputs: str
    method: str = "fusion"
    settings: dict[str, Any] = field(default_factory=dict)
    validation: str | None = None
    test: str | None = None
    gold: str | None = None
    columns: dict[str, str | None] = field(default_factory=dict)
    classes: list[Any] | None = None
    on_conflict: str = "error"
    on_missing: str = "error"
    image_size: int | None = None
    threads: int = 1  # sums over several threads round differently, so a resumed run needs the same

    def files(self) -> dict[str, Path]:
        """The tables it reads, by what they are for."""
        named = {"labels": self.labels, "validation": self.validation, "test": self.test, "gold": self.gold}
        return {name: Path(path) for name, path in named.items() if path is not None}


@dataclass(frozen=True)
class Material:
    """Everything a job reads, checked and joined: row i of all arrays is the same item."""

    loaded: Loaded
    items: NDArray[Any]
    labelled: Annotations  # all labels that have inputs
    annotations: Annotations  # those to train on: without the items held out for validation and test
    gold: Gold | None
    validation: Gold | None
    test: Gold | None
    notes: list[str]

    def gold_by_row(self) -> NDArray[Any] | None:
        """The gold to train on, None where an item has none."""
        if self.gold is None:
            return None
        by_row = np.full(len(self.items), None, dtype=object)
        by_row[self.gold[0]] = self.gold[1]
        return by_row


# ---- reading ---------------------------------------------------------------------------------------


def read_material(job: Job, loaded: Loaded | None = None) -> Material:
    """Read and join all files of a job; every complaint about them comes from here, before any work."""
    read_as: dict[str, Any] = {"classes": job.classes, "on_conflict": job.on_conflict, **job.columns}
    ann = Annotations.read(job.labels, **read_as)
    loaded = loaded or read_inputs(job)
    notes = [loaded.note] if loaded.note else []
    notes += [line.removeprefix("note: ") for line in str(ann.summary()).splitlines() if line.startswith("note: ")]

    rows = loaded.find(ann.items)
    lost = ann.items[(rows < 0) & (np.diff(ann.indptr) > 0)]
    if len(lost):
        _or_drop(job, lost, Path(job.labels), loaded)
        notes.append(f"{len(lost):,} labelled items have no inputs and were left out")
    _refuse_two_names(ann.items, rows, Path(job.labels))
    held = {
        name: _read_gold(job, path, loaded, ann.classes, notes)
        for name, path in job.files().items()
        if name != "labels"
    }

    known = np.flatnonzero(rows >= 0)
    items, said = loaded.items.copy(), ann.items
    if said.dtype.kind != items.dtype.kind:
        items, said = as_text(items), as_text(said)
    items[rows[known]] = said[known]  # people know a row by the name that their labels use
    position = np.full(len(items), -1)
    position[rows[known]] = known

    bare = position < 0
    for gold_rows, _ in held.values():
        bare[gold_rows] = False
    if bare.any():
        if job.on_missing != "drop":
            few_items = f"{plural(int(bare.sum()), 'item')} in {job.inputs} but not in {job.labels}: {few(items[bare])}"
            raise ValueError(f"{few_items}. Predict them without training on them by --on-missing drop")
        notes.append(f"{int(bare.sum()):,} items have inputs but no labels: not trained on")

    labelled = ann.rows(position, items)
    position[_held_out(held, labelled, notes)] = -1
    annotations = ann.rows(position, items)
    if not annotations.n_labels:
        raise ValueError(f"no labels of {job.labels} are left to train on")
    return Material(
        loaded,
        items,
        labelled,
        annotations,
        _without_held_out(held, notes),
        held.get("validation"),
        held.get("test"),
        notes,
    )


def read_inputs(job: Job) -> Loaded:
    """The inputs of a job, ids and all."""
    path = Path(job.inputs)
    return read_features(path, item=_column(job, "item", path), image_size=job.image_size)


def _column(job: Job, role: str, path: Path) -> str | None:
    """The column name that was given is that of the labels; another table may have it, or one of the usual ones."""
    name = job.columns.get(role)
    if name is None or path.suffix.lower() not in TABLE_ENDINGS or name not in TableFile(path).columns:
        return None
    return name


def _read_gold(job: Job, path: Path, loaded: Loaded, classes: NDArray[Any], notes: list[str]) -> Gold:
    """Rows and true classes of the items in a gold file, by the names that the labels use."""
    ids, truth = read_gold(path, item=_column(job, "item", path), label=_column(job, "label", path))
    rows = loaded.find(ids)
    lost = ids[rows < 0]
    if len(lost):
        _or_drop(job, lost, path, loaded)
        notes.append(f"{len(lost):,} items of {path} have no inputs and were left out")
    if not (rows >= 0).any():
        raise ValueError(f"no item of {path} has inputs in {job.inputs}")
    _refuse_two_names(ids, rows, path)
    code = find(truth, classes)
    if (code < 0).any():
        raise ValueError(
            f"{path}: item {few(ids[code < 0][:1])} has gold {few(truth[code < 0][:1])}, which is not one of the "
            f"classes ({few(classes)}); name all classes with --classes"
        )
    return rows[rows >= 0], classes[code[rows >= 0]]


def _or_drop(job: Job, lost: NDArray[Any], path: Path, loaded: Loaded) -> None:
    if job.on_missing != "drop":
        raise ValueError(
            f"{plural(len(lost), 'item')} in {path} but not in {job.inputs}: {few(lost)} (the ids there are "
            f"{few(loaded.items, 3)}). Proceed without them by --on-missing drop"
        )


def _refuse_two_names(ids: NDArray[Any], rows: NDArray[np.int64], path: Path) -> None:
    """An image has a name with and one without its ending; a file must stay with one of them."""
    values, count = np.unique(rows[rows >= 0], return_counts=True)
    if (count > 1).any():
        twice = ids[rows == values[count > 1][0]]
        raise ValueError(f"{path} calls one input by several names: {few(twice)}; use one of them throughout")


def _held_out(held: dict[str, Gold], labelled: Annotations, notes: list[str]) -> NDArray[np.int64]:
    """The rows that must not be trained on: those that choose the epoch, and those that judge the result."""
    parts = {name: held[name][0] for name in ("validation", "test") if name in held}
    for name, rows in parts.items():
        count = int((np.diff(labelled.indptr)[rows] > 0).sum())
        if count:
            notes.append(f"{count:,} labelled items with {name} gold are kept out of training")
    if len(parts) == 2:
        both = np.intersect1d(parts["validation"], parts["test"])
        if len(both):
            notes.append(
                f"{len(both):,} items have validation and test gold: the test is not independent of the choice"
            )
    return np.concatenate([np.zeros(0, np.int64), *parts.values()])


def _without_held_out(held: dict[str, Gold], notes: list[str]) -> Gold | None:
    """Gold to train on; what validation and test hold is not."""
    if "gold" not in held:
        return None
    rows, truth = held["gold"]
    other = [held[name][0] for name in ("validation", "test") if name in held]
    keep = ~np.isin(rows, np.concatenate([np.zeros(0, np.int64), *other]))
    if not keep.all():
        notes.append(f"{int((~keep).sum()):,} items of the gold to train on are held out by validation or test")
    return rows[keep], truth[keep]


# ---- running ---------------------------------------------------------------------------------------


def start(job: Job, out: Path, *, force: bool, verbose: int = 1) -> dict[str, Any]:
    """Run a job into a new folder and return its summary."""
    refuse_existing(out, force=force)
    if out.exists():
        _refuse_replacing(out, job)
    classifier = make_classifier(job, out, verbose)
    material = read_material(job)
    rehearse(classifier, material)
    hashes = {**_file_hashes(job), "inputs": material.loaded.fingerprint()}
    with new_folder(out, force=force) as folder:
        write_json(folder / SETTINGS_FILE, {"crowdfuse": __version__, "job": asdict(job), "hashes": hashes})
    return _train(classifier, job, material, out)


def resume(out: Path, *, verbose: int = 1) -> dict[str, Any]:
    """Go on with a run that was stopped, with the settings it was started with and the same files.

    Of a run that is finished, the summary.
    """
    job, hashes = _read_job(out)
    remove_leftovers(out)
    if is_finished(out):
        (out / CHECKPOINT_FILE).unlink(missing_ok=True)
        return _read_json(out / SUMMARY_FILE)
    for path in [*job.files().values(), Path(job.inputs)]:
        if not path.exists():
            raise FileNotFoundError(
                f"cannot resume {out}: {path} is not there. Bring it back; paths are as they were given, "
                "so resume from the same folder"
            )
    _refuse_changed(out, hashes, _file_hashes(job))
    loaded = read_inputs(job)
    _refuse_changed(out, hashes, {"inputs": loaded.fingerprint()})
    return _train(make_classifier(job, out, verbose), job, read_material(job, loaded), out)


def is_finished(out: Path) -> bool:
    """Whether a run has come to its end: the summary is written last."""
    return (out / SUMMARY_FILE).exists()


def make_classifier(job: Job, out: Path, verbose: int) -> CrowdClassifier:
    """The classifier that a job asks for, its settings checked by name and type."""
    kind = estimator_class(job.method)
    names = set(kind().get_params())
    for name, value in job.settings.items():
        if name in RUN_DECIDES:
            raise ValueError(f"--set {name} is not for a run; use {RUN_DECIDES[name]}")
        if name not in names:
            known = ", ".join(sorted(names - set(RUN_DECIDES)))
            raise ValueError(f"--set {name}: {job.method} has no such setting; it has {known}")
        hint = typing.get_type_hints(kind)[name]
        if not _fits(value, hint):
            raise ValueError(f"--set {name}: {_in_words(hint)} was expected, got {value!r}")
    seed = job.settings.get("random_state", 0)
    if type(seed) is not int or seed < 0:
        raise ValueError(f"random_state must be a whole number of at least 0, so that a run can go on, got {seed!r}")
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in job.settings.items()}
    return kind(**settings, checkpoint=out, verbose=verbose)


def rehearse(classifier: CrowdClassifier, material: Material) -> None:
    """Do what `fit` does before its first step, so that what it would refuse is refused before anything is written."""
    ann = material.annotations
    if ann.n_classes < 2:
        raise ValueError(
            f"at least two classes are needed, and all labels say {few(ann.classes)}; name all with --classes"
        )
    try:
        truth = classifier._gold(ann, material.gold_by_row(), ann, len(ann))
    except ValueError as error:
        raise ValueError(f"{error} (on the command line: --gold, --validation)") from error
    recipe = classifier._recipe()
    classifier.classes_, classifier.annotators_ = ann.classes, ann.annotators
    classifier.input_shape_ = material.loaded.inputs.shape
    try:
        with torch.random.fork_rng(devices=[]):
            method = classifier._build(classifier._problem(recipe.seed))
        recipe.make_optimizer(method.parameters())
        where: dict[str, Any] = {"accelerator": recipe.device, "devices": recipe.devices, "precision": recipe.precision}
        Fabric(**where)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{classifier.method_name} cannot be trained with these settings: {error}") from error
    data = TrainingData(material.loaded.inputs, ann, truth, np.ones(len(ann), np.float32))
    if not method.trains_on(data).any():
        raise ValueError(f"there is nothing to train on: no item has what {classifier.method_name} learns from")


def _train(classifier: CrowdClassifier, job: Job, material: Material, out: Path) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    X = material.loaded.inputs.values
    fit: dict[str, Any] = {"gold": material.gold_by_row()}
    if material.validation is not None:
        rows, truth = material.validation
        fit["validation"] = (X[rows], truth)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="interrupted after")  # the summary says so
        classifier.fit(X, material.annotations, **fit)
    summary = write_results(classifier, material, out)
    if not classifier.interrupted_:
        (out / CHECKPOINT_FILE).unlink(missing_ok=True)
    return summary


def _file_hashes(job: Job) -> dict[str, str]:
    return {name: sha256(path) for name, path in job.files().items()}


def _refuse_changed(out: Path, stored: dict[str, str], found: dict[str, str]) -> None:
    changed = [name for name, value in found.items() if stored.get(name) != value]
    if changed:
        raise ValueError(
            f"cannot resume {out}: {' and '.join(changed)} changed since it was started (another hash than in "
            f"{out / SETTINGS_FILE}). Bring the old files back, or start a new run"
        )


def _refuse_replacing(out: Path, job: Job) -> None:
    """--force replaces a run folder, never a folder of something else, nor one that the job reads from."""
    refuse_foreign(out, SETTINGS_FILE)
    if (out / SETTINGS_FILE).exists():
        try:
            _read_job(out)
        except ValueError as error:
            raise FileExistsError(f"{out} is not a run folder, and --force will not replace it: {error}") from error
    for path in [*job.files().values(), Path(job.inputs)]:
        if path.resolve().is_relative_to(out.resolve()):
            raise ValueError(f"{path} is inside {out}, which --force would replace; choose another name for --out")


def _read_job(out: Path) -> tuple[Job, dict[str, str]]:
    path = out / SETTINGS_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: {out} is no run folder, so there is nothing to resume")
    stored = _read_json(path)
    try:
        return Job(**stored["job"]), dict(stored["hashes"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: it is not what crowdfuse fit writes ({error!r})") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: a JSON object was expected")
    return content


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


# ---- writing ---------------------------------------------------------------------------------------


def write_results(classifier: CrowdClassifier, material: Material, out: Path) -> dict[str, Any]:
    """Write what was learned into the run folder; `summary.json` comes last and says that all is there."""
    X, ann = material.loaded.inputs.values, material.labelled
    fused = classifier.fused_labels(X, ann)
    known = ~np.isnan(fused).any(1)
    best = np.where(known, np.nan_to_num(fused).argmax(1), -1)
    counts = np.diff(ann.indptr)
    write_table(
        out / "fused.csv",
        ("item", "label", "confidence", "labels"),
        (
            (material.items[row], classifier.classes_[best[row]], f"{fused[row, best[row]]:.6f}", counts[row])
            for row in np.flatnonzero(known)
        ),
    )
    _write_annotators(classifier, material, best, out / "annotators.csv")
    write_text(out / "log.jsonl", "".join(json.dumps(strict(record)) + "\n" for record in classifier.history_))
    summary: dict[str, Any] = {
        "method": classifier.method_name,
        "items": len(material.items),
        "labelled items": int((np.diff(material.annotations.indptr) > 0).sum()),
        "annotators": ann.n_annotators,
        "labels": material.annotations.n_labels,
        "classes": ann.classes.tolist(),
        "epochs": len(classifier.history_),
        "best epoch": classifier.best_epoch_,
        "interrupted": classifier.interrupted_,
        "gold was used for": classifier.uses_gold_,
        "final loss": classifier.history_[-1]["loss"] if classifier.history_ else None,
        "notes": material.notes,
    }
    if material.test is not None:
        rows, truth = material.test
        summary["test items"] = len(rows)
        summary["test accuracy"] = float((classifier.predict(X[rows]) == truth).mean())
    if material.loaded.columns is not None:  # so that another table's columns are taken by name
        classifier.feature_names_in_ = np.array(material.loaded.columns, dtype=object)
    classifier.save(out / "model", overwrite=True)
    # an interrupted run keeps its summary under another name, so that resume goes on
    write_json(out / (INTERRUPTED_FILE if classifier.interrupted_ else SUMMARY_FILE), summary)
    if not classifier.interrupted_:
        (out / INTERRUPTED_FILE).unlink(missing_ok=True)
    return summary


def _write_annotators(classifier: CrowdClassifier, material: Material, best: NDArray[np.int64], path: Path) -> None:
    """One line an annotator, the most reliable first; `best` is the fused class of each row, -1 for none."""
    X, ann = material.loaded.inputs.values, material.labelled
    fused = best[ann.item]
    judged = fused >= 0  # labels on items that have a fused label to compare with

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        total = np.bincount(ann.annotator[judged], weights=values[judged], minlength=ann.n_annotators)
        with np.errstate(invalid="ignore"):
            average: NDArray[np.float64] = total / np.bincount(ann.annotator[judged], minlength=ann.n_annotators)
        return average

    figures = np.column_stack(
        [
            classifier.annotator_reliability(X, ann),
            mean(ann.label == fused),
            mean(classifier.annotator_weights(X, ann, sparse=True).data),
        ]
    )
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    order = np.argsort(-np.nan_to_num(figures[:, 0], nan=-1), kind="stable")
    write_table(
        path,
        ("annotator", "labels", "reliability", "agreement_with_fused", "mean_weight"),
        (
            (ann.annotators[r], counts[r], *("" if np.isnan(value) else f"{value:.4f}" for value in figures[r]))
            for r in order
            if counts[r]
        ),
    )


# ---- predicting ------------------------------------------------------------------------------------


def predict_file(
    run: Path, inputs: Path, out: Path, *, proba: bool, item: str | None, image_size: int | None, force: bool
) -> int:
    """Predict every item of `inputs` with the model of a run, into a CSV; returns how many."""
    refuse_existing(out, force=force)
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; name a file to write")
    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run folder")
    model = run / "model" if (run / "model").is_dir() else run
    if model == run and (run / SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{run} has no model yet; finish it with crowdfuse fit --resume {run}")
    classifier = load(model)
    columns = getattr(classifier, "feature_names_in_", None)
    loaded = read_features(
        inputs, item=item, image_size=image_size, image_shape=classifier.input_shape_, columns=columns
    )
    if columns is not None:
        del classifier.feature_names_in_  # the columns were taken by name; scikit-learn need not warn of an array
    probabilities = classifier.predict_proba(loaded.inputs.values)
    best = probabilities.argmax(1)
    header = ["item", "label", "confidence"]
    if proba:
        header += [f"p_{name}" for name in classifier.classes_]
    write_table(
        out,
        header,
        (
            (name, classifier.classes_[k], f"{row[k]:.6f}", *(f"{p:.6f}" for p in (row if proba else ())))
            for name, k, row in zip(loaded.items, best, probabilities, strict=True)
        ),
    )
    return len(best)
