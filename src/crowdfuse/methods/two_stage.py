"""Aggregate first, then train: before training, the labels of each item are combined into one target."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.functional import kl_divergence
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.global_confusions import CountedConfusions


class TwoStage(CountedConfusions):
    """Training on the consensus of an aggregation method.

    If the target is soft, the loss is `mean_n KL(t_n || f_n)`, where t_n are the class probabilities of item n by the
    aggregator, and f_n by the network. If the target is hard, the loss is cross-entropy on the most probable class of
    t_n. The confusion matrices are counted as if t_n were the true class, as in Dawid-Skene.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    aggregator : str
        Name of the aggregation method, a key of `crowdfuse.aggregation.AGGREGATORS`.
    target : {"soft", "hard"}
        "soft": train on the class probabilities t_n. "hard": train on the most probable class of t_n.
    """

    target: Tensor

    def __init__(self, spec: ModelSpec, *, aggregator: str, target: Literal["soft", "hard"]) -> None:
        super().__init__(spec)
        self.aggregator = aggregator
        self.is_soft = target == "soft"
        self.seed = spec.seed

    def prepare(self, data: TrainingData) -> None:
        """Aggregate the labels of rows with positive weight. Only the aggregator "dawid-skene" uses gold."""
        rows = np.flatnonzero((data.weight > 0) & (np.diff(data.annotations.indptr) > 0))
        soft, consensus = np.zeros((len(data), self.n_classes), np.float32), np.zeros(len(data), np.int64)
        if len(rows):
            ann = data.annotations[rows]
            options: dict[str, Any] = {"seed": self.seed}
            if self.aggregator == "dawid-skene":
                options["gold"] = [ann.classes[code] if code >= 0 else None for code in data.gold[rows]]
            result = AGGREGATORS[self.aggregator](ann, **options)
            soft[rows], consensus[rows] = result.class_probabilities, result.consensus_codes
        self.estimate_confusions(data, sparse.csr_array(soft))
        self.register_buffer("target", torch.from_numpy(soft if self.is_soft else consensus), persistent=False)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss against the consensus."""
        logits = self.class_logits(h)
        target = self.target.to(batch.row.device)[batch.row]
        if self.is_soft:
            losses = kl_divergence(target.to(logits.dtype), logits.log_softmax(1))
        else:
            losses = cross_entropy(logits, target, reduction="none")
        weight = batch.labelled_weight
        return Loss((weight * losses).sum(), weight.sum())
