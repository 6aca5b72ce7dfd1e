"""LabelMe, a crowd of 59 (Rodrigues and Pereira, 2018): 1,000 images with about 2.5 labels each, as VGG features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdfuse.annotations import Annotations
from crowdfuse.datasets.arrays import read_arrays, refuse_other_lengths
from crowdfuse.datasets.crowd import Crowd
from crowdfuse.datasets.place import data_folder

FILE = "labelme_vgg_avg.npz"


def load_labelme(folder: Path | None = None) -> Crowd:
    """Read the features and answers (N, R), -1 where missing, below `folder`/labelme, or below $CROWDFUSE_DATA's.

    The file's validation images are left alone: nothing is chosen by gold.
    """
    place = data_folder(folder, "labelme", f"labelme/{FILE}") / "labelme"
    arrays = read_arrays(place, {FILE: ("x_train", "answers", "y_train", "x_test", "y_test")}, "or leave labelme out")
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_train", "answers"), ("x_test", "y_test")))
    return Crowd(
        arrays["x_train"].astype(np.float32),
        Annotations.from_matrix(arrays["answers"]),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
    )
