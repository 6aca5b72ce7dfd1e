"""The toy example of Gao et al. (2022): points on two half moons, standardized, split into training and test sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_moons

Split = Literal["text", "code"]


@dataclass(frozen=True)
class TwoMoons:
    """Points on two half moons: class 0 is the upper moon, class 1 is the lower moon.

    Parameters
    ----------
    X_train, X_test : ndarray of shape (n_points, 2)
        Standardized points.
    y_train, y_test : ndarray of shape (n_points,)
        Class numbers.
    """

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def make_two_moons(seed: int, n_points: int = 20_000, split: Split = "text") -> TwoMoons:
    """Generate points on two half moons, with Gaussian noise of standard deviation 0.05, and standardize them.

    Parameters
    ----------
    seed : int
        Seed of the points and of the split.
    n_points : int, default=20000
        Number of points.
    split : {'text', 'code'}, default='text'
        'text': four fifths of the points are the training set, as the paper of Gao et al. (2022) says. 'code': one
        fifth of the points is the training set, as in the code of the same authors.

    Returns
    -------
    data : TwoMoons

    Examples
    --------
    >>> make_two_moons(0).X_train.shape, make_two_moons(0, split="code").X_train.shape
    ((16000, 2), (4000, 2))
    """
    X, y = make_moons(n_points, noise=0.05, random_state=seed)
    X = (X - X.mean(0)) / X.std(0)
    order = np.random.default_rng(seed).permutation(n_points)
    n_train = n_points * 4 // 5 if split == "text" else n_points // 5
    train, test = order[:n_train], order[n_train:]
    return TwoMoons(X[train], y[train], X[test], y[test])
