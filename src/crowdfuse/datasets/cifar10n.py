"""CIFAR-10N (Wei et al., 2022) as frozen features, with three human labels per image.

The file does not say who gave a label. The three columns hold the first, second and third label of each image, so a
column mixes many people.
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
    """Load CIFAR-10N as frozen features.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the folder that the environment variable ``CROWDFUSE_DATA`` names.
        Its subfolder ``cifar10n`` has ``features.npz`` and ``labels.npz``.

    Returns
    -------
    data : CrowdDataset

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message names the place and the value.

    References
    ----------
    J. Wei et al., "Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations", ICLR 2022.
    """
    place = data_folder(folder, "cifar10n", "cifar10n/ with frozen features") / "cifar10n"
    arrays = read_arrays(place, FILES, "or leave cifar10n out")
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_train", "answers"), ("x_test", "y_test")))
    if arrays["answers"].shape[1:] != (len(SLOTS),):
        raise ValueError(
            f"{place / 'labels.npz'}: answers must have one row per image and {len(SLOTS)} columns, "
            f"got shape {arrays['answers'].shape}"
        )
    return CrowdDataset(
        arrays["x_train"].astype(np.float32),
        Annotations.from_matrix(arrays["answers"], annotators=SLOTS),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
    )
