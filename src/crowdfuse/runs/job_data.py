"""Everything a job reads, checked and joined by item id: every complaint about files comes from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.features import LoadedInputs, read_features
from crowdfuse.io.labels import column_beside, read_gold_beside_labels, read_labels
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count_with_verb, format_names, ids_to_strings, positions_of
from crowdfuse.runs.job import Job

GoldRows = tuple[NDArray[np.int64], NDArray[Any]]  # rows, and their true classes by name


@dataclass(frozen=True)
class JobData:
    """Everything a job reads, checked and joined: row i of all arrays is the same item."""

    loaded: LoadedInputs
    items: NDArray[Any]
    all_annotations: Annotations  # all labels that have inputs
    train_annotations: Annotations  # those to train on: without the items held out for validation and test
    gold: GoldRows | None
    validation: GoldRows | None
    test: GoldRows | None
    notes: list[str]

    def gold_by_row(self) -> NDArray[Any] | None:
        """The gold to train on, None where an item has none."""
        if self.gold is None:
            return None
        by_row = np.full(len(self.items), None, dtype=object)
        by_row[self.gold[0]] = self.gold[1]
        return by_row

    def validation_set(self) -> tuple[Any, NDArray[Any]] | None:
        """Inputs and gold that choose the epoch."""
        return None if self.validation is None else (self.loaded.inputs.values[self.validation[0]], self.validation[1])


def read_job_data(job: Job, loaded: LoadedInputs | None = None) -> JobData:
    """Read and join all files of a job; every complaint about them comes from here, before any work."""
    ann = read_labels(Path(job.labels), job.reading)
    loaded = loaded or read_job_inputs(job)
    notes = [loaded.note] if loaded.note else []
    notes += [line.removeprefix("note: ") for line in str(ann.summary()).splitlines() if line.startswith("note: ")]

    rows = loaded.rows_of(ann.items)
    lost = ann.items[(rows < 0) & (np.diff(ann.indptr) > 0)]
    if len(lost):
        _or_drop(job, lost, Path(job.labels), loaded)
        notes.append(f"{len(lost):,} labelled items have no inputs and were left out")
    _refuse_two_names(ann.items, rows, Path(job.labels))
    held = {
        name: _match_gold_to_rows(job, path, loaded, ann.classes, notes)
        for name, path in job.files().items()
        if name != "labels"
    }

    known = np.flatnonzero(rows >= 0)
    items, said = loaded.items.copy(), ann.items
    if said.dtype.kind != items.dtype.kind:
        items, said = ids_to_strings(items), ids_to_strings(said)
    items[rows[known]] = said[known]  # people know a row by the name that their labels use
    position = np.full(len(items), -1)
    position[rows[known]] = known

    bare = position < 0
    for gold_rows, _ in held.values():
        bare[gold_rows] = False
    if bare.any():
        if job.on_missing != "drop":
            few_items = (
                f"{format_count_with_verb(int(bare.sum()), 'item')} in {job.inputs} but not in {job.labels}: "
                f"{format_names(items[bare])}"
            )
            raise ValueError(f"{few_items}. Go on without training on them by --on-missing drop")
        notes.append(f"{int(bare.sum()):,} items have inputs but no labels: not trained on")

    labelled = ann.take_rows(position, items)
    position[_held_out(held, labelled, notes)] = -1
    annotations = ann.take_rows(position, items)
    if not annotations.n_labels:
        reasons = "; ".join(notes)
        raise ValueError(f"no labels of {job.labels} are left to train on{': ' + reasons if reasons else ''}")
    return JobData(
        loaded,
        items,
        labelled,
        annotations,
        _without_held_out(held, notes),
        held.get("validation"),
        held.get("test"),
        notes,
    )


def read_job_inputs(job: Job) -> LoadedInputs:
    """The inputs of a job, ids and all."""
    path = Path(job.inputs)
    return read_features(path, item=column_beside(path, job.reading.item), image_size=job.image_size)


def _match_gold_to_rows(
    job: Job, path: Path, loaded: LoadedInputs, classes: NDArray[Any], notes: list[str]
) -> GoldRows:
    """Rows and true classes of the items in a gold file, by the names that the labels use."""
    ids, truth = read_gold_beside_labels(path, job.reading)
    rows = loaded.rows_of(ids)
    lost = ids[rows < 0]
    if len(lost):
        _or_drop(job, lost, path, loaded)
        notes.append(f"{len(lost):,} items of {path} have no inputs and were left out")
    if not (rows >= 0).any():
        raise ValueError(f"no item of {path} has inputs in {job.inputs}")
    _refuse_two_names(ids, rows, path)
    code = positions_of(truth, classes)
    if (code < 0).any():
        raise ValueError(
            f"{path}: item {format_names(ids[code < 0][:1])} has gold {format_names(truth[code < 0][:1])}, which is "
            "not one of the "
            f"classes ({format_names(classes)}); name all classes with --classes"
        )
    return rows[rows >= 0], classes[code[rows >= 0]]


def _or_drop(job: Job, lost: NDArray[Any], path: Path, loaded: LoadedInputs) -> None:
    if job.on_missing != "drop":
        raise ValueError(
            f"{format_count_with_verb(len(lost), 'item')} in {path} but not in {job.inputs}: {format_names(lost)} "
            "(the ids there are "
            f"{format_names(loaded.items, 3)}). {_way_out(ids_to_strings(lost), loaded)}"
        )


def _way_out(lost: NDArray[Any], loaded: LoadedInputs) -> str:
    """What to do about items without inputs. Labels of images are often paths from another folder."""
    if loaded.short_names is not None:
        folders = str(lost[0]).split("/")[:-1]
        for depth in range(1, len(folders) + 1):
            start = "/".join(folders[:depth]) + "/"
            rest = np.array([name.removeprefix(start) for name in lost], dtype=object)
            if (rest != lost).all() and (loaded.rows_of(rest) >= 0).all():
                ways = "take it off these ids, or let --inputs be the folder they start from"
                return f"Without {start!r} they are there: {ways}"
    return "Proceed without them by --on-missing drop"


def _refuse_two_names(ids: NDArray[Any], rows: NDArray[np.int64], path: Path) -> None:
    """An image has a name with and one without its ending; a file must stay with one of them."""
    values, count = np.unique(rows[rows >= 0], return_counts=True)
    if (count > 1).any():
        twice = ids[rows == values[count > 1][0]]
        raise ValueError(f"{path} calls one input by several names: {format_names(twice)}; use one of them throughout")


def _held_out(held: dict[str, GoldRows], labelled: Annotations, notes: list[str]) -> NDArray[np.int64]:
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


def _without_held_out(held: dict[str, GoldRows], notes: list[str]) -> GoldRows | None:
    """Gold to train on; what validation and test hold is not."""
    if "gold" not in held:
        return None
    rows, truth = held["gold"]
    other = [held[name][0] for name in ("validation", "test") if name in held]
    keep = ~np.isin(rows, np.concatenate([np.zeros(0, np.int64), *other]))
    if not keep.all():
        notes.append(f"{int((~keep).sum()):,} items of the gold to train on are held out by validation or test")
    return rows[keep], truth[keep]
