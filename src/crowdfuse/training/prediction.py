"""Predictions for many rows, block by block, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.held_out import HeldOutLabels
from crowdfuse.methods.base import Method
from crowdfuse.training.joined_blocks import JoinedBlocks

FeatureFunction = Callable[[Tensor], Tensor]
"""Maps features (n_rows, n_features) to one row of numbers per item."""

MIN_EVALUATION_BLOCK_ROWS = 256  # evaluation stores no gradients, so its blocks can be larger than training batches


def predict_logits(
    method: Method,
    inputs: Inputs,
    device: torch.device | str,
    batch_size: int,
    feature_function: FeatureFunction | None = None,
) -> NDArray[np.float32]:
    """Return the class logits of all rows, in evaluation mode.

    Parameters
    ----------
    method : Method
        The network.
    inputs : Inputs
        The inputs of the rows.
    device : torch.device or str
        Device that holds the network.
    batch_size : int
        Number of rows that are computed at once; values below 256 are raised to 256.
    feature_function : callable or None, default=None
        Function that maps features (n_rows, n_features) to the values to return. None: the class logits.

    Returns
    -------
    logits : ndarray of shape (n_rows, n_classes)
        If `feature_function` is given, its results for all rows.
    """
    blocks = evaluation_blocks(len(inputs), batch_size)
    return _predict_blocks(method, inputs, device, blocks, feature_function or method.class_logits)


def predict_logits_distributed(
    method: Method, inputs: Inputs, fabric: Fabric, batch_size: int, feature_function: FeatureFunction | None = None
) -> NDArray[np.float32]:
    """Return the class logits of all rows in every process, although each process computes only a part of the rows.

    The parameters are the same as in `predict_logits`. If there are several processes, `feature_function` must return
    one number per class.
    """
    if fabric.world_size == 1:
        return predict_logits(method, inputs, fabric.device, batch_size, feature_function)
    blocks = evaluation_blocks(len(inputs), batch_size)
    own_blocks = blocks[fabric.global_rank :: fabric.world_size]
    method.eval()
    total = torch.zeros(len(inputs), method.n_classes, device=fabric.device)
    if own_blocks:
        logits = torch.from_numpy(
            _predict_blocks(method, inputs, fabric.device, own_blocks, feature_function or method.class_logits)
        )
        total[torch.from_numpy(np.concatenate(own_blocks)).to(fabric.device)] = logits.to(fabric.device)
    torch.distributed.all_reduce(total)  # each row is 0 in all processes but one
    return total.cpu().numpy()


def _predict_blocks(
    method: Method,
    inputs: Inputs,
    device: torch.device | str,
    blocks: Sequence[NDArray[np.int64]],
    feature_function: FeatureFunction,
) -> NDArray[np.float32]:
    """Return the results of `feature_function` for all blocks, concatenated."""
    method.eval()
    dtype = next(method.parameters()).dtype
    joined = JoinedBlocks(sum(map(len, blocks)))
    with torch.inference_mode(), closing(inputs.stream(blocks)) as stream:
        for block in stream:
            x = torch.from_numpy(block).to(device, dtype)
            joined.append(feature_function(method.features(x)).float())
    return joined.rows


def score_held_out_labels(
    method: Method,
    inputs: Inputs,
    held_out: HeldOutLabels,
    label_function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor | None],
    device: torch.device | str,
    batch_size: int,
) -> NDArray[np.float64] | None:
    """Apply a function, such as the log-likelihood, to each held-out label, with the network in evaluation mode.

    Parameters
    ----------
    method : Method
        The network.
    inputs : Inputs
        Inputs of the items to which the held-out labels belong.
    held_out : HeldOutLabels
        The labels.
    label_function : callable
        Takes features (n_rows, n_features), and the items, annotators and classes of the labels, each (n_labels,).
        Returns one number per label, or None if the method cannot compute them.
    device : torch.device or str
        Device that holds the network.
    batch_size : int
        Number of rows that are computed at once; values below 256 are raised to 256.

    Returns
    -------
    values : ndarray of shape (n_held_out,) or None
        The results of `label_function`. None if it returns None.
    """
    method.eval()
    dtype = next(method.parameters()).dtype
    blocks = evaluation_blocks(len(inputs), batch_size)
    joined = JoinedBlocks(len(held_out.item))
    with torch.inference_mode(), closing(inputs.stream(blocks)) as stream:
        for rows, x in zip(blocks, stream, strict=True):
            in_block = np.flatnonzero((held_out.item >= rows[0]) & (held_out.item <= rows[-1]))
            columns = (held_out.item[in_block] - rows[0], held_out.annotator[in_block], held_out.label[in_block])
            features = method.features(torch.from_numpy(x).to(device, dtype))
            values = label_function(features, *(torch.from_numpy(column).to(device) for column in columns))
            if values is None:
                return None
            joined.append(values.cpu().double())  # not every device has double precision
    return joined.rows


def evaluation_blocks(n_rows: int, batch_size: int) -> list[NDArray[np.int64]]:
    """Return row numbers in blocks of `batch_size` rows, or of 256 if `batch_size` is smaller.

    >>> [len(block) for block in evaluation_blocks(600, batch_size=64)]
    [256, 256, 88]
    """
    size = max(MIN_EVALUATION_BLOCK_ROWS, batch_size)
    return [np.arange(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
