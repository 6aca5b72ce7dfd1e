"""One annotator's labels and nobody else's: plain cross-entropy on them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch, TrainingData


class SingleAnnotator(Method):
    """Cross-entropy on the labels of one annotator, given by position."""

    def __init__(self, spec: ModelSpec, *, annotator: int) -> None:
        super().__init__(spec)
        self.annotator = annotator

    def training_mask(self, data: TrainingData) -> NDArray[np.bool_]:
        ann = data.annotations
        mask: NDArray[np.bool_] = data.gold >= 0
        mask[ann.item[ann.annotator == self.annotator]] = True
        return mask

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        own = batch.annotator == self.annotator
        item, label = batch.item[own], batch.label[own]
        losses = cross_entropy(self.class_logits(h)[item], label, reduction="none")
        weight = batch.weight[item]
        return Loss((weight * losses).sum(), weight.sum())

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        return torch.where(annotator == self.annotator, 0.0, -torch.inf).to(features.dtype)
