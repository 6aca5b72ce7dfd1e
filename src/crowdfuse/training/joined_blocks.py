"""Join blocks of rows into one array while they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class JoinedBlocks:
    """An array that is filled block by block.

    Each block is copied into the array at once. A list of blocks would fragment the memory: each block that is kept
    would lie between areas that are freed after the computation of a block, and they could not be used as one area.

    Parameters
    ----------
    n_rows : int
        Number of rows of all blocks.

    Examples
    --------
    >>> import torch
    >>> joined = JoinedBlocks(n_rows=3)
    >>> joined.append(torch.tensor([[1, 2]]))
    >>> joined.append(torch.tensor([[3, 4], [5, 6]]))
    >>> joined.rows.tolist()
    [[1, 2], [3, 4], [5, 6]]
    """

    def __init__(self, n_rows: int) -> None:
        self.n_rows, self.n_done = n_rows, 0
        self._rows: NDArray[Any] | None = None

    def append(self, block: Tensor) -> None:
        """Copy the next block into the array.

        Parameters
        ----------
        block : Tensor of shape (n_block_rows, ...)
            The rows. All blocks have the same type and the same shape after the first axis.
        """
        values = block.cpu().numpy()
        if self._rows is None:
            self._rows = np.empty((self.n_rows, *values.shape[1:]), values.dtype)
        self._rows[self.n_done : self.n_done + len(values)] = values
        self.n_done += len(values)

    @property
    def rows(self) -> NDArray[Any]:
        """All rows, of shape (n_rows, ...).

        Raises
        ------
        ValueError
            If rows are missing.
        """
        if self._rows is None or self.n_done < self.n_rows:
            raise ValueError(f"{self.n_done:,} of {self.n_rows:,} rows were computed")
        return self._rows
