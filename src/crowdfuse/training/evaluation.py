"""Evaluate the network in its current state during training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.held_out import HeldOutLabels
from crowdfuse.methods.base import Method
from crowdfuse.training.prediction import predict_logits, predict_logits_distributed, score_held_out_labels


class NetworkEvaluator:
    """Predictions and label scores of the network in its current state. The results are the same in every process.

    Parameters
    ----------
    method : Method
        The network that is being trained.
    training_inputs : Inputs
        Inputs of the training data.
    fabric : Fabric
        Processes and devices.
    batch_size : int
        Batch size used in training. Evaluation uses at least 256 rows per block.
    """

    def __init__(self, method: Method, training_inputs: Inputs, fabric: Fabric, batch_size: int) -> None:
        self.method = method
        self.training_inputs = training_inputs
        self.fabric = fabric
        self.batch_size = batch_size

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return the class logits of all rows, (n_rows, n_classes)."""
        return predict_logits_distributed(self.method, inputs, self.fabric, self.batch_size)

    def predict_training(
        self, feature_function: Callable[[Tensor], Tensor] | None = None, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Return predictions for the training data, as `crowdfuse.methods.base.Predict` describes them.

        If only some rows are selected, every process computes all of them, because they are few.
        """
        if rows is None:
            return predict_logits_distributed(
                self.method, self.training_inputs, self.fabric, self.batch_size, feature_function
            )
        inputs = self.training_inputs.take(rows)
        return predict_logits(self.method, inputs, self.fabric.device, self.batch_size, feature_function)

    def score_labels(
        self, inputs: Inputs, held_out: HeldOutLabels, label_function: Callable[..., Tensor | None]
    ) -> NDArray[np.float64] | None:
        """Return one number per held-out label, (n_held_out,), or None if `label_function` returns None."""
        return score_held_out_labels(self.method, inputs, held_out, label_function, self.fabric.device, self.batch_size)
