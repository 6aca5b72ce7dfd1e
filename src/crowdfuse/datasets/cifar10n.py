"""CIFAR-10N (Wei et al., 2022) as frozen features, with three human labels per image.

If the file says who gave each label, the annotators are the people (workers). A file without worker ids has only the
first, second and third label of each image. In that case there are three annotators, one per position, and each of them
stands for many people.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.arrays import read_arrays, refuse_other_lengths
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.data_folder import data_folder, other_data_sets_advice
from crowdfuse.labels.annotations import Annotations

FILES = {"features.npz": ("x_train", "x_test"), "labels.npz": ("answers", "y_train", "y_test")}
WORKERS = "workers"  # ids of the people, in the shape of the answers; an older labels.npz does not have it
SLOTS = ["slot-1", "slot-2", "slot-3"]


def load_cifar10n(folder: Path | None = None) -> CrowdDataset:
    """Load CIFAR-10N as features that were computed once with a frozen network.

    Each image has three labels. The file ``labels.npz`` may have an array ``workers`` with the id of the person who
    gave each label. With this array, these people are the annotators. If a person labelled an image twice, the first
    label is used. Without this array, there are three annotators: ``slot-1`` stands for everyone who gave the first
    label of an image, ``slot-2`` for the second labels, and ``slot-3`` for the third labels.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder ``cifar10n``
        has ``features.npz`` (arrays ``x_train`` and ``x_test``) and ``labels.npz`` (arrays ``answers``, ``y_train``,
        ``y_test`` and, optionally, ``workers``).

    Returns
    -------
    data : CrowdDataset

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says which files are expected.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    J. Wei et al., "Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations", ICLR 2022.
    """
    place = data_folder(folder, "cifar10n", "cifar10n/ with frozen features") / "cifar10n"
    arrays = read_arrays(place, FILES, other_data_sets_advice("cifar10n"), optional=[WORKERS])
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_train", "answers"), ("x_test", "y_test")))
    if arrays["answers"].shape[1:] != (len(SLOTS),):
        raise ValueError(
            f"{place / 'labels.npz'}: answers must have one row per image and {len(SLOTS)} columns, "
            f"got shape {arrays['answers'].shape}"
        )
    if WORKERS in arrays and arrays[WORKERS].shape != arrays["answers"].shape:
        raise ValueError(
            f"{place / 'labels.npz'}: workers must have the shape of answers, {arrays['answers'].shape}, "
            f"got {arrays[WORKERS].shape}"
        )
    return CrowdDataset(
        arrays["x_train"].astype(np.float32),
        _annotations(arrays["answers"], arrays.get(WORKERS)),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
    )


def _annotations(answers: NDArray[Any], workers: NDArray[Any] | None) -> Annotations:
    """The labels by worker, or by slot if the workers are unknown."""
    if workers is None:
        return Annotations.from_matrix(answers, annotators=SLOTS)
    is_first = np.ones(answers.shape, dtype=bool)
    for column in range(1, answers.shape[1]):
        is_first[:, column] = (workers[:, :column] != workers[:, [column]]).all(1)
    item = np.nonzero(is_first)[0]
    table = {"item": item, "annotator": workers[is_first], "label": answers[is_first].astype(np.int64)}
    return Annotations.from_table(table).align(np.arange(len(answers)))
