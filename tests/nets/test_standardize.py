from __future__ import annotations

import numpy as np
import pytest
import torch

from crowdfuse.io.inputs import Inputs
from crowdfuse.nets.standardize import Standardize


@pytest.mark.parametrize(
    ("shape", "axes"), [((5,), (0,)), ((3, 6, 7), (0, 2, 3)), ((6, 7), (0, 1, 2))], ids=["rows", "channels", "grey"]
)
def test_training_inputs_get_mean_0_and_standard_deviation_1(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).normal(50, 9, (9000, *shape)).astype(np.float32)  # more than one block
    layer = Standardize(shape)
    layer.measure(Inputs(X), np.arange(9000))
    scaled = layer(torch.from_numpy(X)).numpy().astype(np.float64)
    np.testing.assert_allclose(scaled.mean(axes), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(axes), 1, atol=1e-4)


def test_only_given_rows_count_and_a_constant_has_scale_1() -> None:
    X = np.array([[1.0, 7.0], [3.0, 7.0], [1000.0, 7.0]], np.float32)
    layer = Standardize((2,))
    layer.measure(Inputs(X), np.array([0, 1]))
    assert layer(torch.from_numpy(X[:2])).tolist() == [[-1.0, 0.0], [1.0, 0.0]]
