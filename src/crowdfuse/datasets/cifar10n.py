"""CIFAR-10N (Wei et al., 2022), three human labels an image, as frozen features.

The three columns are slots: whoever labelled an image first, second and third. There is nobody to tell from another.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdfuse.datasets.arrays import read_arrays, refuse_other_lengths
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.data_folder import data_folder
from crowdfuse.labels.annotations import Annotations

FILES = {"features.npz": ("x_train", "x_test"), "labels.npz": ("answers", "y_train", "y_test")}
SLOTS = ["slot-1", "slot-2", "slot-3"]


def load_cifar10n(folder: Path | None = None) -> CrowdDataset:
    """Read `features.npz` and `labels.npz` (answers N x 3) below `folder`/cifar10n, or below $CROWDFUSE_DATA's."""
    place = data_folder(folder, "cifar10n", "cifar10n/ with frozen features") / "cifar10n"
    arrays = read_arrays(place, FILES, "or leave cifar10n out")
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_train", "answers"), ("x_test", "y_test")))
    if arrays["answers"].shape[1:] != (len(SLOTS),):
        raise ValueError(
            f"{place / 'labels.npz'}: answers must be N x {len(SLOTS)}, got shape {arrays['answers'].shape}"
        )
    return CrowdDataset(
        arrays["x_train"].astype(np.float32),
        Annotations.from_matrix(arrays["answers"], annotators=SLOTS),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
    )
