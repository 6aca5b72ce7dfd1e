"""First aggregate, then train: what most people do. The labels are made into one target an item before any learning."""

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
    """`mean_n KL(t_n || f_n)`, t_n the soft label that an aggregator made of the labels; or cross-entropy on its best.

    The matrices are counted with t_n for the truth; those of Dawid and Skene are so by definition.
    """

    target: Tensor

    def __init__(self, spec: ModelSpec, *, aggregator: str, target: Literal["soft", "hard"]) -> None:
        super().__init__(spec)
        self.aggregator = aggregator
        self.is_soft = target == "soft"
        self.seed = spec.seed

    def prepare(self, data: TrainingData) -> None:
        """Aggregate the labels of the rows that count; Dawid and Skene alone know what to do with gold."""
        rows = np.flatnonzero((data.weight > 0) & (np.diff(data.annotations.indptr) > 0))
        soft, best = np.zeros((len(data), self.n_classes), np.float32), np.zeros(len(data), np.int64)
        if len(rows):
            ann = data.annotations[rows]
            given: dict[str, Any] = {"seed": self.seed}
            if self.aggregator == "dawid-skene":
                given["gold"] = [ann.classes[code] if code >= 0 else None for code in data.gold[rows]]
            result = AGGREGATORS[self.aggregator](ann, **given)
            soft[rows], best[rows] = result.class_probabilities, result.consensus_codes
        self.estimate_confusions(data, sparse.csr_array(soft))
        self.register_buffer("target", torch.from_numpy(soft if self.is_soft else best), persistent=False)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        logits = self.class_logits(h)
        target = self.target.to(batch.row.device)[batch.row]
        if self.is_soft:
            losses = kl_divergence(target.to(logits.dtype), logits.log_softmax(1))
        else:
            losses = cross_entropy(logits, target, reduction="none")
        weight = batch.labelled_weight
        return Loss((weight * losses).sum(), weight.sum())
