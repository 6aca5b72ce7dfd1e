"""Inputs brought to mean 0 and spread 1, inside the model, so that whoever predicts need not remember how."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crowdfuse.io.inputs import Inputs

MAX_ROWS_READ = 4096  # rows that are looked at where each has to be read and decoded first


class Standardize(nn.Module):
    """`(x - mean) / scale`, a feature at a time for rows, a channel at a time for images.

    The numbers come from `measure`, on the training inputs; before that it does nothing.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        size: tuple[int, ...] = (shape[0],) if len(shape) in (1, 3) else (1,)
        size += (1,) * (2 if len(shape) == 3 else len(shape) - 1)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def measure(self, inputs: Inputs, rows: np.ndarray[Any, Any]) -> None:
        """Mean and spread over these rows, block by block in float64.

        Of inputs that are not in memory, over 4,096 of the rows at most, evenly chosen.
        """
        size = 4096
        if not inputs.in_memory:
            rows = rows[np.linspace(0, len(rows) - 1, min(MAX_ROWS_READ, len(rows))).round().astype(np.int64)]
            size = 64  # such rows are large
        total = square = np.zeros(1)
        count = 0.0
        # a figure a feature of rows, a channel of images, and one for all of anything else
        known: dict[int, tuple[int, ...]] = {1: (0,), 3: (0, 2, 3)}
        axes = known.get(len(inputs.item_shape), tuple(range(1 + len(inputs.item_shape))))
        with closing(inputs.stream(np.array_split(rows, max(1, len(rows) // size)))) as blocks:
            for block in blocks:
                values = block.astype(np.float64)
                total = total + values.sum(axes)
                square = square + (values**2).sum(axes)
                count += values.size / max(1, np.prod(np.shape(total)))
        mean = total / count
        spread = np.sqrt(np.maximum(square / count - mean**2, 0))
        spread = np.where(spread > 1e-7 * np.maximum(np.abs(mean), 1), spread, 1)  # a constant says nothing
        self.mean.copy_(torch.from_numpy(np.reshape(mean, self.mean.shape)))
        self.scale.copy_(torch.from_numpy(np.reshape(spread, self.scale.shape)))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale
