"""CIFAR-100 as frozen features of a network, with the distances that made-up annotators need: for a desk."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.place import data_folder

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
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, keys in FILES.items():
        path = place / name
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is not there. The desk version reads frozen features: {', '.join(FILES)} with the arrays "
                f"{', '.join(key for group in FILES.values() for key in group)}, rows in one order; "
                "--scale paper reads the images themselves"
            )
        try:
            with np.load(path, allow_pickle=False) as content:
                arrays |= {key: content[key] for key in keys}
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
    for images, labels in (("x_train", "y_train"), ("x_test", "y_test"), ("distances", "y_train")):
        if len(arrays[images]) != len(arrays[labels]):
            raise ValueError(
                f"{place}: {images} has {len(arrays[images]):,} rows, {labels} has {len(arrays[labels]):,}"
            )
    return CifarFeatures(
        arrays["x_train"].astype(np.float32),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
        arrays["distances"].astype(np.float32),
    )
