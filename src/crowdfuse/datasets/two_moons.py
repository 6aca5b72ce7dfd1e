"""The paper's toy example: 20,000 points on two half moons, standardised, split into training and test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_moons

Split = Literal["text", "code"]


@dataclass(frozen=True)
class TwoMoons:
    """Class 0 is the upper moon, class 1 the lower one."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def two_moons(seed: int, n_points: int = 20_000, split: Split = "text") -> TwoMoons:
    """Two moons with noise 0.05. `split="text"` trains on four fifths, as the paper says; its code trains on one.

    >>> two_moons(0).X_train.shape, two_moons(0, split="code").X_train.shape
    ((16000, 2), (4000, 2))
    """
    X, y = make_moons(n_points, noise=0.05, random_state=seed)
    X = (X - X.mean(0)) / X.std(0)
    order = np.random.default_rng(seed).permutation(n_points)
    n_train = n_points * 4 // 5 if split == "text" else n_points // 5
    train, test = order[:n_train], order[n_train:]
    return TwoMoons(X[train], y[train], X[test], y[test])
