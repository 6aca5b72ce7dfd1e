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
    """Evaluates the network in its current state: predictions for inputs, and scores of held-out labels.

    In distributed training, the results are the same in every process.

    Parameters
    ----------
    method : Method
        The network that is being trained.
    training_inputs : Inputs
        Inputs of the training data.
    fabric : Fabric
        The Lightning Fabric object that defines the processes and the device.
    batch_size : int
        Batch size used in training. Evaluation computes this many rows at once, but at least 256.
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
        """Return the class logits of the training data, or the results of `feature_function` for its features.

        The parameters are those of `crowdfuse.methods.base.Predict`. If `rows` is given, every process computes all of
        these rows, because they are few.
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
        """Return the result of `label_function` for each held-out label, (n_held_out,); None if this result is None.

        `crowdfuse.training.prediction.score_held_out_labels` describes the parameters.
        """
        return score_held_out_labels(self.method, inputs, held_out, label_function, self.fabric.device, self.batch_size)
