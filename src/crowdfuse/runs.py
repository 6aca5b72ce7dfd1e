"""The main job on a user's own files: labels and inputs in, a run folder out; and going on with one.

A run folder holds `settings.json` (what was asked, and hashes of what was read), the checkpoint while it
trains, and in the end `model/`, `fused.csv`, `annotators.csv`, `log.jsonl` and `summary.json`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse import __version__
from crowdfuse.annotations import Annotations
from crowdfuse.checkpoints import FILE_NAME as CHECKPOINT_FILE
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.files import new_folder, refuse_existing, sha256, write_json, write_text
from crowdfuse.ids import few, find, plural
from crowdfuse.io.features import Loaded, read_features
from crowdfuse.io.labels import read_gold
from crowdfuse.persistence import load
from crowdfuse.registry import estimator_class

SETTINGS_FILE = "settings.json"

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


@dataclass(frozen=True)
class Material:
    """Everything a job reads, checked and joined: row i of all arrays is the same item."""

    loaded: Loaded
    items: NDArray[Any]
    annotations: Annotations
    gold: Gold | None
    validation: Gold | None
    test: Gold | None
    notes: list[str]

    def hashes(self, job: Job) -> dict[str, str]:
        files = {"labels": job.labels, "validation": job.validation, "test": job.test, "gold": job.gold}
        named = {name: sha256(Path(path)) for name, path in files.items() if path is not None}
        return {**named, "inputs": self.loaded.fingerprint()}


def read_material(job: Job) -> Material:
    """Read and join all files of a job; every complaint about them comes from here, before any work."""
    read_as: dict[str, Any] = {"classes": job.classes, "on_conflict": job.on_conflict}
    ann = Annotations.read(job.labels, **job.columns, **read_as)
    loaded = read_features(Path(job.inputs), item=job.columns.get("item"), image_size=job.image_size)
    notes = [loaded.note] if loaded.note else []
    summary = ann.summary()
    notes += [line.removeprefix("note: ") for line in str(summary).splitlines() if line.startswith("note: ")]

    rows = loaded.find(ann.items)
    labelled = np.diff(ann.indptr) > 0
    lost = ann.items[(rows < 0) & labelled]
    if len(lost):
        _or_drop(job, f"{plural(len(lost), 'item')} in {job.labels} but not in {job.inputs}: {few(lost)}")
        notes.append(f"{len(lost):,} labelled items have no inputs and were left out")
    held = {
        name: None if path is None else _find_gold(job, loaded, Path(path), ann.classes, notes)
        for name, path in (("validation", job.validation), ("test", job.test), ("gold", job.gold))
    }

    known = np.flatnonzero(rows >= 0)
    names, first, count = np.unique(rows[known], return_index=True, return_counts=True)
    if (count > 1).any():
        twice = ann.items[rows == names[count > 1][0]]
        raise ValueError(f"{job.labels} calls one input by several names: {few(twice)}; use one of them throughout")
    items = loaded.items
    if ann.items.dtype.kind != items.dtype.kind:
        items = items.astype(object)
    items = items.copy()
    items[rows[known]] = ann.items[known]  # people know a row by the name that their labels use
    accounted = np.zeros(len(items), bool)
    accounted[rows[known][labelled[known]]] = True
    for found in held.values():
        if found is not None:
            accounted[found[0]] = True
    bare = items[~accounted]
    if len(bare):
        _or_drop(job, f"{plural(len(bare), 'item')} in {job.inputs} but not in {job.labels}: {few(bare)}")
        notes.append(f"{len(bare):,} items have inputs but no labels: predicted, not trained on")

    position = np.full(len(items), -1)
    position[rows[known]] = known
    for name in ("validation", "test"):
        found = held[name]
        if found is not None and (position[found[0]] >= 0).any():
            notes.append(f"{int((position[found[0]] >= 0).sum()):,} items with {name} gold are kept out of training")
            position[found[0]] = -1
    aligned = ann.rows(position, items)
    if not aligned.n_labels:
        raise ValueError(f"no labels of {job.labels} are left to train on")
    return Material(loaded, items, aligned, held["gold"], held["validation"], held["test"], notes)


def start(job: Job, out: Path, *, force: bool, verbose: int = 1) -> dict[str, Any]:
    """Run a job into a new folder and return its summary."""
    refuse_existing(out, force=force)
    if out.exists():
        _refuse_foreign(out)
    material = read_material(job)
    with new_folder(out, force=force) as folder:
        write_json(
            folder / SETTINGS_FILE,
            {"crowdfuse": __version__, "job": asdict(job), "hashes": material.hashes(job)},
        )
    return _train(job, material, out, verbose)


def resume(out: Path, *, verbose: int = 1) -> dict[str, Any]:
    """Go on with a run that was stopped, with the settings it was started with and the same files."""
    path = out / SETTINGS_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: {out} is no run folder, so there is nothing to resume")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        job = Job(**stored["job"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    summary = out / "summary.json"
    if summary.exists():
        done: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
        return done
    material = read_material(job)
    found = material.hashes(job)
    changed = [name for name, value in stored["hashes"].items() if found.get(name) != value]
    if changed:
        raise ValueError(
            f"cannot resume {out}: {' and '.join(changed)} changed since it was started "
            f"(another hash than in {path}). Bring the old files back, or start a new run"
        )
    return _train(job, material, out, verbose)


def _train(job: Job, material: Material, out: Path, verbose: int) -> dict[str, Any]:
    kind = estimator_class(job.method)
    unknown = sorted(set(job.settings) - set(kind().get_params()))
    if unknown:
        raise ValueError(f"{job.method} has no setting {few(unknown)}; it has {', '.join(sorted(kind().get_params()))}")
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in job.settings.items()}
    classifier = kind(**settings, checkpoint=out, verbose=verbose)
    X = material.loaded.inputs.values
    fit: dict[str, Any] = {}
    if material.validation is not None:
        fit["validation"] = (X[material.validation[0]], material.validation[1])
    if material.gold is not None:
        fit["gold"] = np.full(len(material.items), None, dtype=object)
        fit["gold"][material.gold[0]] = material.gold[1]
    classifier.fit(X, material.annotations, **fit)
    summary = write_results(classifier, material, out)
    if not classifier.interrupted_:
        (out / CHECKPOINT_FILE).unlink(missing_ok=True)
    return summary


def write_results(classifier: CrowdClassifier, material: Material, out: Path) -> dict[str, Any]:
    """Write what was learned into the run folder; `summary.json` comes last and says that all is there."""
    ann = material.annotations
    X = material.loaded.inputs.values
    classifier.save(out / "model", overwrite=True)
    fused = classifier.fused_labels(X, ann)
    known = np.flatnonzero(~np.isnan(fused).any(1))
    names = classifier.classes_[np.nan_to_num(fused).argmax(1)]
    write_table(
        out / "fused.csv",
        ("item", "label", "confidence", "labels"),
        (
            (material.items[row], names[row], f"{fused[row].max():.6f}", int(ann.indptr[row + 1] - ann.indptr[row]))
            for row in known
        ),
    )
    reliability = classifier.annotator_reliability(X, ann)
    weights = np.asarray(classifier.annotator_weights(X, ann, sparse=True).sum(0)).ravel()
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    agrees = np.bincount(
        ann.annotator, weights=ann.classes[ann.label] == names[ann.item], minlength=ann.n_annotators
    )
    order = np.argsort(-np.nan_to_num(reliability, nan=-1), kind="stable")
    write_table(
        out / "annotators.csv",
        ("annotator", "labels", "reliability", "agreement_with_fused", "mean_weight"),
        (
            (ann.annotators[r], counts[r], *(f"{v / counts[r]:.4f}" for v in (reliability[r] * counts[r], agrees[r], weights[r])))
            for r in order
            if counts[r]
        ),
    )
    write_text(out / "log.jsonl", "".join(json.dumps(record) + "\n" for record in classifier.history_))
    summary: dict[str, Any] = {
        "method": classifier.method_name,
        "items": len(material.items),
        "labelled items": len(known),
        "annotators": ann.n_annotators,
        "labels": ann.n_labels,
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
    # an interrupted run keeps its summary under another name, so that resume goes on
    write_json(out / ("summary.json" if not classifier.interrupted_ else "interrupted.json"), summary)
    if not classifier.interrupted_:
        (out / "interrupted.json").unlink(missing_ok=True)
    return summary


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _or_drop(job: Job, complaint: str) -> None:
    if job.on_missing != "drop":
        raise ValueError(f"{complaint}. Proceed without them with --on-missing drop")


def _find_gold(
    job: Job, loaded: Loaded, path: Path, classes: NDArray[Any], notes: list[str]
) -> Gold:
    """Rows and true classes of the items in a gold file, by the names that the labels use."""
    ids, truth = read_gold(path, item=job.columns.get("item"), label=job.columns.get("label"))
    rows = loaded.find(ids)
    if (rows < 0).any():
        lost = ids[rows < 0]
        _or_drop(job, f"{plural(len(lost), 'item')} in {path} but not in {job.inputs}: {few(lost)}")
        notes.append(f"{len(lost):,} items of {path} have no inputs and were left out")
    code = find(truth, classes)
    if (code < 0).any():
        raise ValueError(
            f"{path}: gold {few(np.unique(truth[code < 0]))} is not one of the classes ({few(classes)}); "
            "name all classes with --classes"
        )
    if not (rows >= 0).any():
        raise ValueError(f"no item of {path} has inputs in {job.inputs}")
    return rows[rows >= 0], classes[code[rows >= 0]]


def _refuse_foreign(out: Path) -> None:
    """--force replaces a run folder, never a folder of something else."""
    if out.is_dir() and any(out.iterdir()) and not (out / SETTINGS_FILE).exists():
        raise FileExistsError(f"{out} is not a run folder; --force will not replace it. Choose another name")
    if out.is_file():
        raise FileExistsError(f"{out} is a file; choose another name")



def predict_file(
    run: Path, inputs: Path, out: Path, *, proba: bool, item: str | None, image_size: int | None, force: bool
) -> int:
    """Predict every item of `inputs` with the model of a run, into a CSV; returns how many."""
    refuse_existing(out, force=force)
    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run folder")
    model = run / "model" if (run / "model").is_dir() else run
    if model == run and (run / SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{run} has no model yet; finish it with crowdfuse fit --resume {run}")
    classifier = load(model)
    if image_size is None and inputs.is_dir() and len(classifier.input_shape_) == 3:
        image_size = classifier.input_shape_[1]
    loaded = read_features(inputs, item=item, image_size=image_size)
    probabilities = classifier.predict_proba(loaded.inputs.values)
    best = probabilities.argmax(1)
    header = ["item", "label", "confidence"]
    if proba:
        header += [f"p_{name}" for name in classifier.classes_]
    write_table(
        out,
        header,
        (
            (
                loaded.items[row],
                classifier.classes_[best[row]],
                f"{probabilities[row, best[row]]:.6f}",
                *(f"{p:.6f}" for p in (probabilities[row] if proba else ())),
            )
            for row in range(len(best))
        ),
    )
    return len(best)
