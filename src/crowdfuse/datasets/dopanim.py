"""dopanim (Herde et al., NeurIPS 2024): about 10,500 photographs of 15 similar animals, labelled by 20 people.

Annotators gave a likelihood to each animal. The label is the most likely animal. Images are read from their files when
needed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.data_folder import data_folder, refuse_missing, refuse_missing_images
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_names
from crowdfuse.labels.votes import argmax_breaking_ties

TASKS, LABELS = "task_data.json", "annotation_data.json"
SPLITS = ("train", "valid", "test")
PUBLISHED = "dopanim is published at https://doi.org/10.5281/zenodo.11479590"
ANIMALS = (
    "German Yellowjacket",
    "European Paper Wasp",
    "Yellow-legged Hornet",
    "European Hornet",
    "Brown Hare",
    "Black-tailed Jackrabbit",
    "Marsh Rabbit",
    "Desert Cottontail",
    "European Rabbit",
    "Eurasian Red Squirrel",
    "American Red Squirrel",
    "Douglas' Squirrel",
    "Cheetah",
    "Jaguar",
    "Leopard",
)


def load_dopanim(folder: Path | None = None, *, size: int, workers: int = 0, seed: int = 0) -> CrowdDataset:
    """Load dopanim as images that are read from their files when they are needed.

    For each image, an annotator gave a likelihood to each of 15 animals. The label is the animal with the highest
    likelihood; it is missing if all likelihoods are 0. If an annotator labelled an image twice, the last label is used,
    as in the authors' code. Item ids are the observation numbers in the files. The validation images are not used.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder ``dopanim``
        has ``task_data.json``, ``annotation_data.json`` and the images, such as ``train/Jaguar/123.jpeg``.
    size : int
        Height and width of the images in pixels.
    workers : int, default=0
        Number of worker processes that decode images in advance. If 0, the calling process decodes them.
    seed : int, default=0
        Seed for breaking ties between animals with the same likelihood.

    Returns
    -------
    data : CrowdDataset

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    M. Herde et al., "dopanim: A Dataset of Doppelganger Animals with Noisy Annotations from Multiple Humans",
    NeurIPS 2024.

    Examples
    --------
    >>> load_dopanim(Path("nowhere"), size=224)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: dopanim: no task_data.json, annotation_data.json in nowhere/dopanim. dopanim is published at ...
    """
    holds = f"dopanim/ with {TASKS}, {LABELS} and the images in train/ and test/"
    place = data_folder(folder, "dopanim", holds) / "dopanim"
    refuse_missing(place, (TASKS, LABELS), "dopanim", PUBLISHED)
    tasks = _read_tasks(place / TASKS)
    X, y = {}, {}
    for part in ("train", "test"):
        animals = np.array(list(tasks[part].values()), np.int64)
        paths = [place / part / ANIMALS[k] / f"{number}.jpeg" for number, k in tasks[part].items()]
        refuse_missing_images(paths, "dopanim", f"Unpack {part}.zip in {place}; {PUBLISHED}")
        X[part], y[part] = ImageFiles(paths, size, workers=workers), animals
    ann = _read_labels(place / LABELS, tasks["train"], seed)
    return CrowdDataset(X["train"], ann, y["train"], X["test"], y["test"], class_names=ANIMALS)


def _read_tasks(path: Path) -> dict[str, dict[int, int]]:
    """The class of each observation, by part, in the order of the file."""
    found: dict[str, dict[int, int]] = {part: {} for part in SPLITS}
    for key, task in _read_records(path, ("split", "taxon_name")):
        where = f"{path}, {key!r}"
        if task["split"] not in SPLITS:
            raise ValueError(f"{where}: split {task['split']!r} is not one of {', '.join(SPLITS)}")
        if task["taxon_name"] not in ANIMALS:
            raise ValueError(f"{where}: taxon_name {task['taxon_name']!r} is not one of {', '.join(ANIMALS)}")
        found[task["split"]][_observation(key, where)] = ANIMALS.index(task["taxon_name"])
    for part in ("train", "test"):
        if not found[part]:
            raise ValueError(f"{path}: no observation has the split {part!r}")
    return found


def _read_labels(path: Path, observations: dict[int, int], seed: int) -> Annotations:
    """The labels, aligned with the observations."""
    item, annotator, likelihoods = [], [], []
    for key, said in _read_records(path, ("observation_id", "annotator_id", "likelihoods")):
        where = f"{path}, {key!r}"
        number = _observation(said["observation_id"], where)
        if number not in observations:
            raise ValueError(f"{where}: observation_id {number} is not among the training images of {TASKS}")
        if not isinstance(said["annotator_id"], str) or not said["annotator_id"].strip():
            raise ValueError(f"{where}: annotator_id must be a string that is not empty, got {said['annotator_id']!r}")
        item.append(number)
        annotator.append(said["annotator_id"])
        likelihoods.append(_likelihoods(said["likelihoods"], where))
    label, has_any = _likeliest(np.array(likelihoods), seed)
    table = {
        "item": np.array(item)[has_any],
        "annotator": np.array(annotator, object)[has_any],
        "label": label[has_any],
    }
    ann = Annotations.from_table(table, classes=range(len(ANIMALS)), on_conflict="last")
    return ann.align(list(observations))


def _likeliest(likelihoods: NDArray[np.float64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The likeliest class of each row (ties are broken by the seed), and whether any likelihood is above 0."""
    draws = np.random.default_rng(seed).random(likelihoods.shape)
    return argmax_breaking_ties(likelihoods, draws), likelihoods.max(1) > 0


def _likelihoods(said: Any, where: str) -> list[float]:
    """The likelihood of each animal; 0 for an animal that is not listed."""
    if not isinstance(said, dict):
        raise ValueError(
            f"{where}: likelihoods must be a JSON object with one number per animal, found {format_names([said])}"
        )
    for name, value in said.items():
        if name not in ANIMALS:
            raise ValueError(f"{where}: likelihoods has the key {name!r}, which is not one of {', '.join(ANIMALS)}")
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise ValueError(f"{where}: the likelihood {value!r} of {name} is not a finite number of at least 0")
    return [float(said.get(name, 0)) for name in ANIMALS]


def _observation(value: Any, where: str) -> int:
    """The number of an observation. In JSON, it is text if it is a key, and a number elsewhere."""
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(f"{where}: {value!r} is not an observation number (a whole number of at least 0)")
    return int(text)


def _read_records(path: Path, needed: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """The records of a JSON file, with their ids."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:  # invalid JSON (the message has the line) or invalid UTF-8
        raise ValueError(f"{path} cannot be read: {error}; download it again. {PUBLISHED}") from error
    if not isinstance(content, dict) or not content:
        raise ValueError(
            f"{path}: expected a JSON object that maps ids to records, found {format_names([content])}. Is it a file "
            "of another data set?"
        )
    for key, record in content.items():
        lacking = [name for name in needed if not isinstance(record, dict) or name not in record]
        if lacking:
            raise ValueError(f"{path}, {key!r}: has no {', '.join(lacking)}. Is it a file of another data set?")
    return list(content.items())
