"""Gold labels: what the classifier could do if everybody were right. The upper bound, never a competitor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from crowdfuse.batches import Batch, TrainingData
from crowdfuse.methods.base import Loss, Method


class TrueLabel(Method):
    """Cross-entropy on gold."""

    def trains_on(self, data: TrainingData) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = data.gold >= 0
        return mask

    def loss(self, batch: Batch) -> Loss:
        weight = batch.weight * (batch.gold >= 0)
        losses = cross_entropy(self.logits(batch.x), batch.gold.clamp(min=0), reduction="none")
        return Loss((weight * losses).sum(), weight.sum())
