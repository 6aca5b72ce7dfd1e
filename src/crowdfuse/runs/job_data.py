"""Read all files of a job, check them, and join them by item id. All errors about the files are raised here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.encoders.images import DEFAULT_IMAGE_SIZE
from crowdfuse.io.export_inputs import read_export_inputs, read_labels_and_inputs
from crowdfuse.io.export_loading import load_export_inputs
from crowdfuse.io.features import LoadedInputs, read_features, read_image_files
from crowdfuse.io.gold import column_beside, read_gold_beside_labels, rows_of_gold
from crowdfuse.io.item_fields import ExportInputs
from crowdfuse.io.labels import read_labels
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_count_with_verb, format_names, ids_to_strings, positions_of
from crowdfuse.runs.job import Job

GoldRows = tuple[NDArray[np.int64], NDArray[Any]]  # rows, and their true classes by name


@dataclass(frozen=True)
class JobData:
    """The data of a job, checked and joined by item id. Row i of the inputs, ids and labels belongs to the same item.

    Parameters
    ----------
    loaded : LoadedInputs
        The inputs.
    items : ndarray of shape (n_items,)
        The item ids, as they are written in the labels file.
    all_annotations : Annotations
        The labels of all items that have inputs.
    train_annotations : Annotations
        The labels used for training: `all_annotations` without the labels of validation and test items.
    gold : tuple of ndarray or None
        Row numbers and gold labels of the items whose gold labels are used for training; None if `job.gold` is None.
    validation : tuple of ndarray or None
        Row numbers and gold labels of the items used to choose the epoch; None if `job.validation` is None.
    test : tuple of ndarray or None
        Row numbers and gold labels of the items used to score the trained model; None if `job.test` is None.
    notes : list of str
        Messages for the user, for example how many items were left out.
    """

    loaded: LoadedInputs
    items: NDArray[Any]
    all_annotations: Annotations
    train_annotations: Annotations
    gold: GoldRows | None
    validation: GoldRows | None
    test: GoldRows | None
    notes: list[str]

    def gold_by_row(self) -> NDArray[Any] | None:
        """Return the gold labels used for training, one entry per row.

        Returns
        -------
        gold : ndarray of shape (n_items,) or None
            The true class of each row; None for rows without a gold label. If `job.gold` is None, there is no array:
            the method returns None.
        """
        if self.gold is None:
            return None
        by_row = np.full(len(self.items), None, dtype=object)
        by_row[self.gold[0]] = self.gold[1]
        return by_row

    def validation_set(self) -> tuple[Any, NDArray[Any]] | None:
        """Return the inputs and gold labels used to choose the epoch.

        Returns
        -------
        validation : tuple or None
            Inputs and true classes of the validation items; None if the job has no validation file.
        """
        return None if self.validation is None else (self.loaded.inputs.take(self.validation[0]), self.validation[1])


def read_job_data(job: Job, loaded: LoadedInputs | None = None) -> JobData:
    """Read and join all files of a job.

    Parameters
    ----------
    job : Job
        The job.
    loaded : LoadedInputs, default=None
        The inputs, if they have already been read. If None, this function reads them.

    Returns
    -------
    data : JobData

    Raises
    ------
    ValueError
        If files do not match each other, or if no labels are left for training.
    """
    if job.inputs is None and loaded is None:
        ann, found = read_labels_and_inputs(Path(job.labels), job.reading)
        loaded = _load_found(job, found)
    else:
        ann = read_labels(Path(job.labels), job.reading)
        loaded = loaded or read_job_inputs(job)
    notes = [loaded.note] if loaded.note else []
    notes += [line.removeprefix("note: ") for line in str(ann.summary()).splitlines() if line.startswith("note: ")]

    rows = loaded.rows_of(ann.items)
    without_inputs = ann.items[(rows < 0) & (np.diff(ann.indptr) > 0)]
    if len(without_inputs):
        _refuse_unless_drop(job, without_inputs, Path(job.labels), loaded)
        notes.append(f"{len(without_inputs):,} labelled items have no inputs and were left out")
    _refuse_two_names(ann.items, rows, Path(job.labels))
    notes += loaded.other_endings_note(ann.items, rows)
    gold_sets = {
        name: _match_gold_to_rows(job, path, loaded, ann.classes, notes)
        for name, path in job.files().items()
        if name != "labels"
    }
    items, position = _join_labels(ann, loaded, rows)
    _check_unlabelled(job, items, position, gold_sets, notes)

    labelled = ann.take_rows(position, items)
    position[_held_out_rows(gold_sets, labelled, notes)] = -1
    annotations = ann.take_rows(position, items)
    if not annotations.n_labels:
        reasons = "; ".join(notes)
        raise ValueError(f"no labels of {job.labels} are left for training{': ' + reasons if reasons else ''}")
    return JobData(
        loaded,
        items,
        labelled,
        annotations,
        _training_gold(gold_sets, notes),
        gold_sets.get("validation"),
        gold_sets.get("test"),
        notes,
    )


def read_job_inputs(job: Job) -> LoadedInputs:
    """Return the inputs of a job with their item ids."""
    if job.inputs is None:
        return _load_found(job, read_export_inputs(Path(job.labels), job.reading))
    path = Path(job.inputs)
    if path.is_dir() and job.has_encoder:
        return read_image_files(path, job.image_size or DEFAULT_IMAGE_SIZE)
    return read_features(
        path, item=column_beside(path, job.reading.item), text=job.reading.text, image_size=job.image_size
    )


def _load_found(job: Job, found: ExportInputs | None) -> LoadedInputs:
    """Return the inputs in the file of labels; an error if it holds no inputs."""
    if found is None:
        raise ValueError(
            f"found no texts or images in {job.labels}. If they are in another file or folder, give its path with "
            "--inputs. If they are in this file, give the name of their column or field with --text"
        )
    return load_export_inputs(
        found,
        Path(job.labels),
        image_size=job.image_size,
        files_of_size=(job.image_size or DEFAULT_IMAGE_SIZE) if job.has_encoder else None,
        drop_missing=job.on_missing == "drop",
    )


def _join_labels(
    ann: Annotations, loaded: LoadedInputs, rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the id of each row as written in the labels, and its position among the labelled items (-1: no labels)."""
    labelled = np.flatnonzero(rows >= 0)
    items, label_items = loaded.items.copy(), ann.items
    if label_items.dtype.kind != items.dtype.kind:
        items, label_items = ids_to_strings(items), ids_to_strings(label_items)
    items[rows[labelled]] = label_items[labelled]
    position = np.full(len(items), -1)
    position[rows[labelled]] = labelled
    return items, position


def _check_unlabelled(
    job: Job, items: NDArray[Any], position: NDArray[np.int64], gold_sets: dict[str, GoldRows], notes: list[str]
) -> None:
    """Raise an error if items have neither labels nor gold labels; with `on_missing="drop"`, add a note instead."""
    unlabelled = position < 0
    for gold_rows, _ in gold_sets.values():
        unlabelled[gold_rows] = False
    if not unlabelled.any():
        return
    if job.on_missing != "drop":
        raise ValueError(
            f"{format_count_with_verb(int(unlabelled.sum()), 'item')} in {job.inputs_path} but not in {job.labels}: "
            f"{format_names(items[unlabelled])}. To train without them, use --on-missing drop"
        )
    notes.append(f"not used for training: {format_count(int(unlabelled.sum()), 'item')} with inputs but no labels")


def _match_gold_to_rows(
    job: Job, path: Path, loaded: LoadedInputs, classes: NDArray[Any], notes: list[str]
) -> GoldRows:
    """Return the rows of the items in a gold file, and their true classes."""
    ids, truth = read_gold_beside_labels(path, job.reading)
    rows = rows_of_gold(ids, loaded)
    without_inputs = ids[rows < 0]
    if len(without_inputs):
        _refuse_unless_drop(job, without_inputs, path, loaded)
        notes.append(f"{len(without_inputs):,} items of {path} have no inputs and were left out")
    if not (rows >= 0).any():
        raise ValueError(f"no item of {path} has inputs in {job.inputs_path}; check that both use the same ids")
    _refuse_two_names(ids, rows, path)
    code = positions_of(truth, classes)
    if (code < 0).any():
        raise ValueError(
            f"{path}: item {format_names(ids[code < 0][:1])} has gold {format_names(truth[code < 0][:1])}, which is "
            f"not one of the classes ({format_names(classes)}); correct it, or list all classes with --classes"
        )
    return rows[rows >= 0], classes[code[rows >= 0]]


def _refuse_unless_drop(job: Job, without_inputs: NDArray[Any], path: Path, loaded: LoadedInputs) -> None:
    """Raise an error for items without inputs, unless the job drops them."""
    if job.on_missing != "drop":
        if job.inputs is None:
            raise ValueError(
                f"{format_count(len(without_inputs), 'item')} of {path} "
                f"{'has' if len(without_inputs) == 1 else 'have'} no inputs in {job.labels}: "
                f"{format_names(without_inputs)}. To leave them out, use --on-missing drop"
            )
        raise ValueError(
            f"{format_count_with_verb(len(without_inputs), 'item')} in {path} but not in {job.inputs}: "
            f"{format_names(without_inputs)} (the ids in {job.inputs} are {format_names(loaded.items, 3)}). "
            f"{_advice(ids_to_strings(without_inputs), loaded)}"
        )


def _advice(without_inputs: NDArray[Any], loaded: LoadedInputs) -> str:
    """Return what to do about items without inputs. Labels of images often have paths from another folder."""
    if loaded.short_names is not None:
        folders = str(without_inputs[0]).split("/")[:-1]
        for depth in range(1, len(folders) + 1):
            prefix = "/".join(folders[:depth]) + "/"
            rest = np.array([name.removeprefix(prefix) for name in without_inputs], dtype=object)
            if (rest != without_inputs).all() and (loaded.rows_of(rest) >= 0).all():
                return (
                    f"Without the prefix {prefix!r}, these ids match: remove the prefix from the ids, or pass the "
                    f"folder that contains the folder {prefix!r} as --inputs"
                )
    return "To leave them out, use --on-missing drop"


def _refuse_two_names(ids: NDArray[Any], rows: NDArray[np.int64], path: Path) -> None:
    """Raise an error for a file that has the id of one image both with and without its ending."""
    values, count = np.unique(rows[rows >= 0], return_counts=True)
    if (count > 1).any():
        names = ids[rows == values[count > 1][0]]
        raise ValueError(
            f"{path} uses several ids for the same input: {format_names(names)}; use the same id everywhere"
        )


def _held_out_rows(gold_sets: dict[str, GoldRows], labelled: Annotations, notes: list[str]) -> NDArray[np.int64]:
    """Return the rows that must not be used for training: the validation and test rows."""
    parts = {name: gold_sets[name][0] for name in ("validation", "test") if name in gold_sets}
    for name, rows in parts.items():
        count = int((np.diff(labelled.indptr)[rows] > 0).sum())
        if count:
            notes.append(f"{count:,} labelled items are used for {name}, so their labels are not used for training")
    if len(parts) == 2:
        both = np.intersect1d(parts["validation"], parts["test"])
        if len(both):
            notes.append(
                f"{len(both):,} items are both in the validation file and in the test file, so the test accuracy is "
                "too optimistic: these items were also used to choose the epoch"
            )
    return np.concatenate([np.zeros(0, np.int64), *parts.values()])


def _training_gold(gold_sets: dict[str, GoldRows], notes: list[str]) -> GoldRows | None:
    """Return the gold labels used for training, without the validation and test items."""
    if "gold" not in gold_sets:
        return None
    rows, truth = gold_sets["gold"]
    other = [gold_sets[name][0] for name in ("validation", "test") if name in gold_sets]
    keep = ~np.isin(rows, np.concatenate([np.zeros(0, np.int64), *other]))
    if not keep.all():
        notes.append(
            f"{int((~keep).sum()):,} items with gold labels for training are also validation or test items; they are "
            "not used for training"
        )
    return rows[keep], truth[keep]
