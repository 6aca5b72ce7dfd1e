"""CIFAR-100 as frozen features of a network, with pixel distances for creating synthetic annotators."""

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
    """Features of the CIFAR-100 images, computed once with a frozen network.

    Parameters
    ----------
    X_train, X_test : ndarray of shape (n_images, n_features), float32
        Features.
    y_train, y_test : ndarray of shape (n_images,), int64
        Class numbers.
    distances : ndarray of shape (n_train_images, n_annotators), float32
        A simulated annotator gives wrong labels to the images that are near one image, the annotator's weakness image
        (see `crowdfuse.synthesis.weakness_annotators`). This array holds the Euclidean distance between each training
        image and each weakness image, with pixels scaled to [0, 1].
    """

    X_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    distances: NDArray[np.float32]


def load_cifar_features(folder: Path | None = None) -> CifarFeatures:
    """Load features of the CIFAR-100 images, computed once with a frozen network.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder ``cifar100``
        has ``features.npz``, ``labels.npz`` and ``distances.npz``.

    Returns
    -------
    data : CifarFeatures

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says which files are expected.
    ValueError
        If a file is damaged; the message says where, and what is wrong.
    """
    place = data_folder(folder, "cifar100", "cifar100/ with frozen features") / "cifar100"
    arrays = read_arrays(place, FILES, "--scale desk needs these files; --scale paper reads the images instead")
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_test", "y_test"), ("distances", "y_train")))
    return CifarFeatures(
        arrays["x_train"].astype(np.float32),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
        arrays["distances"].astype(np.float32),
    )
