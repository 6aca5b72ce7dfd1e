"""Items that real people labelled, as a classifier takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations


@dataclass(frozen=True)
class CrowdDataset:
    """Items to train on, N of them, with their labels row by row and gold, (N,); and items to be judged by.

    `X` and `X_test` are what `fit` and `predict` take: arrays of features (N, D) or images (N, 3, H, W), or images
    that stay in their files.
    """

    X: Any
    annotations: Annotations
    y: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    external_test: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None
    """Items and gold of another collection, where there is one to judge by as well."""
    class_names: tuple[str, ...] | None = None
    """What the classes 0, 1, 2, ... are called, where the files say."""

    @property
    def classes(self) -> list[int]:
        """All classes that are said or true."""
        return sorted({*self.annotations.classes.tolist(), *self.y.tolist(), *self.y_test.tolist()})
