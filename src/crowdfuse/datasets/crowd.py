"""Items that real people labelled, as a classifier takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crowdfuse.annotations import Annotations


@dataclass(frozen=True)
class Crowd:
    """Items to train on, (N, D), with their labels row by row and gold, (N,); and items to be judged by."""

    X: NDArray[np.float32]
    annotations: Annotations
    y: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    foreign: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None
    """Items and gold of another collection, where there is one to judge by as well."""

    @property
    def classes(self) -> list[int]:
        """All classes that are said or true."""
        return sorted({*self.annotations.classes.tolist(), *self.y.tolist(), *self.y_test.tolist()})
