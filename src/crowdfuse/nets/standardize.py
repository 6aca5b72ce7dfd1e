"""Standardization of inputs as a part of the model, so that prediction applies it automatically."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crowdfuse.io.inputs import Inputs

MAX_ROWS_READ = 4096  # rows used for the statistics if inputs are read from files
MAX_BLOCK_ROWS = 4096  # rows read at a time from inputs in memory
MAX_BLOCK_VALUES = 1 << 24  # values read at a time; if rows are wide, fewer rows are read
FILE_BLOCK_ROWS = 64  # rows from files are large


class Standardize(nn.Module):
    """Map inputs x to `(x - mean) / scale`.

    Inputs of shape (D,) have one mean and one scale per feature. Images of shape (C, H, W) have one mean and one scale
    per channel. Inputs of any other shape have a single mean and a single scale. Until `measure` is called, inputs are
    returned unchanged.

    Parameters
    ----------
    shape : tuple of int
        Shape of one input.

    Examples
    --------
    >>> standardize = Standardize((2,))
    >>> standardize.measure(Inputs(np.array([[0.0, 5.0], [2.0, 5.0]], np.float32)), np.arange(2))
    >>> standardize(torch.tensor([[4.0, 6.0]]))
    tensor([[3., 1.]])
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
        """Compute mean and scale from the given rows, in float64.

        If the inputs are not in memory, at most 4,096 of these rows are read, evenly spaced. The scale is the standard
        deviation, or 1 for a constant feature.

        Parameters
        ----------
        inputs : Inputs
            The training inputs.
        rows : ndarray of shape (n_rows,)
            Positions in `inputs` of the rows from which mean and scale are computed.
        """
        block_rows = min(MAX_BLOCK_ROWS, max(1, MAX_BLOCK_VALUES // max(1, int(np.prod(inputs.item_shape)))))
        if not inputs.in_memory:
            rows = rows[np.linspace(0, len(rows) - 1, min(MAX_ROWS_READ, len(rows))).round().astype(np.int64)]
            block_rows = FILE_BLOCK_ROWS
        total = square = np.zeros(1)
        count = 0.0
        axes_by_dimension: dict[int, tuple[int, ...]] = {1: (0,), 3: (0, 2, 3)}
        axes = axes_by_dimension.get(len(inputs.item_shape), tuple(range(1 + len(inputs.item_shape))))
        with closing(inputs.stream(np.array_split(rows, max(1, len(rows) // block_rows)))) as blocks:
            for block in blocks:
                values = block.astype(np.float64)
                total = total + values.sum(axes)
                square = square + (values**2).sum(axes)
                count += values.size / max(1, np.prod(np.shape(total)))
        mean = total / count
        spread = np.sqrt(np.maximum(square / count - mean**2, 0))
        spread = np.where(spread > 1e-7 * np.maximum(np.abs(mean), 1), spread, 1)
        self.mean.copy_(torch.from_numpy(np.reshape(mean, self.mean.shape)))
        self.scale.copy_(torch.from_numpy(np.reshape(spread, self.scale.shape)))

    def forward(self, x: Tensor) -> Tensor:
        """Return standardized inputs.

        Parameters
        ----------
        x : Tensor of shape (N, ...)
            Inputs.

        Returns
        -------
        standardized : Tensor of the same shape
        """
        return (x - self.mean) / self.scale
