"""Training on the labels of one annotator only."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch, TrainingData


class SingleAnnotator(Method):
    """Cross-entropy on the labels of one annotator.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    annotator : int
        Index of the annotator, from 0.
    """

    def __init__(self, spec: ModelSpec, *, annotator: int) -> None:
        super().__init__(spec)
        self.annotator = annotator

    def training_mask(self, data: TrainingData) -> NDArray[np.bool_]:
        """Return a mask of the rows that have a label of this annotator, or gold."""
        ann = data.annotations
        mask: NDArray[np.bool_] = data.gold >= 0
        mask[ann.item[ann.annotator == self.annotator]] = True
        return mask

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the cross-entropy on the annotator's labels."""
        own = batch.annotator == self.annotator
        item, label = batch.item[own], batch.label[own]
        losses = cross_entropy(self.class_logits(h)[item], label, reduction="none")
        weight = batch.weight[item]
        return Loss((weight * losses).sum(), weight.sum())

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return 0 for this annotator and minus infinity for all others."""
        return torch.where(annotator == self.annotator, 0.0, -torch.inf).to(features.dtype)
