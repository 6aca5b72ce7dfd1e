"""Split an epoch into batches, and a batch into one part per process."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def split_into_batches(order: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Return the batches of an epoch, which are the same for any number of processes.

    Parameters
    ----------
    order : ndarray of shape (n_rows,)
        Rows of the training data in the order of the epoch.
    batch_size : int
        Rows per batch.

    Returns
    -------
    batches : list of ndarray
        All batches have `batch_size` rows, except the last batch, which has the remaining rows. If a single row
        remains, it joins the previous batch, because batch norm needs at least two rows.

    Examples
    --------
    >>> [batch.tolist() for batch in split_into_batches(np.arange(7), 3)]
    [[0, 1, 2], [3, 4, 5, 6]]
    """
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    if len(batches) > 1 and len(batches[-1]) < 2:
        last = batches.pop()
        batches[-1] = np.concatenate([batches[-1], last])
    return batches


def rows_of_rank(batch: NDArray[np.int64], rank: int, world_size: int) -> tuple[NDArray[np.int64], bool]:
    """Return the rows of a batch that one process computes, and whether they contribute to the loss.

    Batch norm needs at least two rows per process, so a small batch may have fewer parts than there are processes. A
    process without a part computes the whole batch with weight 0. It cannot skip the batch, because every process must
    take part in every collective operation. It computes the whole batch, so that statistics over all processes equal
    the statistics of the batch.

    Parameters
    ----------
    batch : ndarray of shape (n_rows,)
        Rows of the training data.
    rank : int
        Number of the process, from 0.
    world_size : int
        Number of processes.

    Returns
    -------
    rows : ndarray
        Rows that this process computes.
    counts : bool
        Whether these rows contribute to the loss; False if another process computes them.

    Examples
    --------
    >>> [rows_of_rank(np.arange(5), rank, world_size=3) for rank in range(3)]
    [(array([0, 2, 4]), True), (array([1, 3]), True), (array([0, 1, 2, 3, 4]), False)]
    """
    n_parts = min(world_size, max(1, len(batch) // 2))
    return (batch[rank::n_parts], True) if rank < n_parts else (batch, False)
