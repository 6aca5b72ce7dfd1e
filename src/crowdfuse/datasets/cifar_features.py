"""CIFAR-100 as frozen features of a network, with the distances that made-up annotators need: for a desk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.arrays import read_arrays, refuse_other_lengths
from crowdfuse.datasets.data_folder import data_folder

FILES = {"features.npz": ("x_train", "x_test"), "labels.npz": ("y_train", "y_test"), "distances.npz": ("distances",)}


@dataclass(frozen=True)
class CifarFeatures:
    """Features (N, D), classes (N,), and of the training rows the distance to each weakness image, in [0, 1] pixels."""

    X_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    distances: NDArray[np.float32]


def load_cifar_features(folder: Path | None = None) -> CifarFeatures:
    """Read `features.npz`, `labels.npz` and `distances.npz` below `folder`/cifar100, or below $CROWDFUSE_DATA's."""
    place = data_folder(folder, "cifar100", "cifar100/ with frozen features") / "cifar100"
    arrays = read_arrays(place, FILES, "the desk version reads frozen features, --scale paper the images themselves")
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_test", "y_test"), ("distances", "y_train")))
    return CifarFeatures(
        arrays["x_train"].astype(np.float32),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
        arrays["distances"].astype(np.float32),
    )
