"""Training on gold labels: an upper bound for the other methods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.methods.base import Loss, Method
from crowdfuse.methods.data import Batch, TrainingData


class TrueLabel(Method):
    """Cross-entropy on gold: `mean_n -log f_n(gold_n)`, where f_n are the class probabilities of item n.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    """

    def training_mask(self, data: TrainingData) -> NDArray[np.bool_]:
        """Return a mask of the rows that have gold."""
        mask: NDArray[np.bool_] = data.gold >= 0
        return mask

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return 0: labels of annotators are not used."""
        return Loss(0 * h.sum(), batch.weight.new_zeros(()))
