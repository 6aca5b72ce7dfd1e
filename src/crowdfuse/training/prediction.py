"""Logits of many rows, block by block, in evaluation mode."""

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

FeatureFunction = Callable[[Tensor], Tensor]


def predict_logits(
    method: Method,
    inputs: Inputs,
    device: torch.device | str,
    batch_size: int,
    feature_function: FeatureFunction | None = None,
) -> NDArray[np.float32]:
    """Class logits of all rows, (N, K), in evaluation mode; or what `ask` makes of features (B, D) instead."""
    return _logits(
        method, inputs, device, evaluation_blocks(len(inputs), batch_size), feature_function or method.class_logits
    )


def predict_logits_distributed(
    method: Method, inputs: Inputs, fabric: Fabric, batch_size: int, feature_function: FeatureFunction | None = None
) -> NDArray[np.float32]:
    """The same in every process, each of which computes a part of the blocks. `ask` gives K figures too."""
    if fabric.world_size == 1:
        return predict_logits(method, inputs, fabric.device, batch_size, feature_function)
    blocks = evaluation_blocks(len(inputs), batch_size)
    own = blocks[fabric.global_rank :: fabric.world_size]
    method.eval()
    everywhere = torch.zeros(len(inputs), method.n_classes, device=fabric.device)
    if own:
        logits = torch.from_numpy(_logits(method, inputs, fabric.device, own, feature_function or method.class_logits))
        everywhere[torch.from_numpy(np.concatenate(own)).to(fabric.device)] = logits.to(fabric.device)
    torch.distributed.all_reduce(everywhere)  # a row is 0 in all processes but one
    return everywhere.cpu().numpy()


def _logits(
    method: Method,
    inputs: Inputs,
    device: torch.device | str,
    blocks: Sequence[NDArray[np.int64]],
    ask: FeatureFunction,
) -> NDArray[np.float32]:
    method.eval()
    dtype = next(method.parameters()).dtype
    out = []
    with torch.inference_mode(), closing(inputs.stream(blocks)) as stream:
        for block in stream:
            x = torch.from_numpy(block).to(device, dtype)
            out.append(ask(method.features(x)).float().cpu().numpy())
    return np.concatenate(out)


def score_held_out_labels(
    method: Method,
    inputs: Inputs,
    held: HeldOutLabels,
    label_function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor | None],
    device: torch.device | str,
    batch_size: int,
) -> NDArray[np.float64] | None:
    """What a question gives on each held-out label, (H,); `inputs` are those of their items. None for no answer."""
    method.eval()
    dtype = next(method.parameters()).dtype
    blocks = evaluation_blocks(len(inputs), batch_size)
    out = []
    with torch.inference_mode(), closing(inputs.stream(blocks)) as stream:
        for rows, x in zip(blocks, stream, strict=True):
            those = np.flatnonzero((held.item >= rows[0]) & (held.item <= rows[-1]))
            labels = (held.item[those] - rows[0], held.annotator[those], held.label[those])
            h = method.features(torch.from_numpy(x).to(device, dtype))
            answer = label_function(h, *(torch.from_numpy(part).to(device) for part in labels))
            if answer is None:
                return None
            out.append(answer.double().cpu().numpy())
    return np.concatenate(out)


def evaluation_blocks(n_rows: int, batch_size: int) -> list[NDArray[np.int64]]:
    """Row numbers in blocks, larger than in training: nothing is kept for gradients."""
    size = max(256, batch_size)
    return [np.arange(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
