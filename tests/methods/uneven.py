"""Small random crowds with missing labels, for comparing losses with their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.base import ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.nets import make_trunk

SHAPES = [(7, 3, 3), (5, 1, 2), (2, 4, 6), (30, 150, 4), (1, 2, 3)]  # items, annotators, classes


def spec(n_annotators: int, n_classes: int) -> ModelSpec:
    torch.manual_seed(0)
    trunk = make_trunk("mlp", (4,), (8,), 0.0)
    return ModelSpec(trunk, None, None, n_classes, n_annotators, head_hidden=(), dropout=0.0, seed=0)


def crowd(shape: tuple[int, int, int], gold: Any = None) -> tuple[TrainingData, NDArray[Any]]:
    """Return data in which some items have no label and weights differ, and the label matrix, -1 where missing."""
    n_items, n_annotators, n_classes = shape
    generator = np.random.default_rng(shape)
    Y = generator.integers(0, n_classes, (n_items, n_annotators))
    Y[generator.random(Y.shape) < (0.9 if n_annotators > 10 else 0.4)] = -1
    Y[0, 0] = n_classes - 1
    if n_items > 4:
        Y[4] = -1
    weight = generator.uniform(0.5, 2, n_items).astype(np.float32)
    ann = Annotations.from_matrix(Y, classes=range(n_classes))
    X = generator.normal(size=(n_items, 4)).astype(np.float32)
    return TrainingData(Inputs(X), ann, np.full(n_items, -1) if gold is None else np.asarray(gold), weight), Y
