"""Model-bootstrapped EM (Khetan et al., ICLR 2018): the network's own predictions say who is right how often.

In turn: train on what the labels are believed to amount to; take the network's predictions for the truth and count
what each annotator says of each class; believe the labels accordingly. The first belief is the vote.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse
from torch import Tensor

from crowdfuse.functional import vote_shares
from crowdfuse.methods.base import HeldOutScorer, Loss, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.global_confusions import CountedConfusions


class MBEM(CountedConfusions):
    """`mean_n -sum_k q_n(k) log f_n(k)`: cross-entropy on a posterior q, which each round finds anew.

    q starts as the vote shares. Before each later round, with c_n the network's hard prediction of item n, and every
    item counting as much as its weight:

    M-step: `prior(k) = share of items with c_n = k`, `A_r[k, y] = share of y among r's labels of items with c_n = k`.
    E-step: `q_n(k)` proportional to `prior(k) prod_{r in S_n} A_r[k, y_nr]`.

    Network and optimiser are carried on between rounds. q follows from prior, matrices and the item's labels, so it
    is computed a batch at a time and nothing is kept an item.
    """

    def __init__(self, spec: ModelSpec, *, rounds: int, chosen: Literal["epoch", "round"]) -> None:
        super().__init__(spec)
        self.rounds = rounds
        self.chosen: Literal["epoch", "end"] = "epoch" if chosen == "epoch" else "end"

    def phases(self, epochs: int) -> list[Phase]:
        """The epochs split evenly over the rounds, the first ones getting what is left over."""
        least, more = divmod(epochs, self.rounds)
        return [
            Phase(f"round {i + 1} of {self.rounds}", least + (i < more), selection=self.chosen)
            for i in range(self.rounds)
        ]

    def prepare(self, data: TrainingData) -> None:
        """Matrices by the vote shares, so that there are some from the start."""
        ann = data.annotations
        shares = 1 / np.diff(ann.indptr)[ann.item]
        self.estimate_confusions(
            data, sparse.csr_array((shares, (ann.item, ann.label)), shape=(len(data), self.n_classes))
        )

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Matrices by the network's hard predictions."""
        rows = np.arange(len(data))
        hard = (np.ones(len(data)), (rows, predict().argmax(1)))
        self.estimate_confusions(data, sparse.csr_array(hard, shape=(len(data), self.n_classes)))

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        q = (
            vote_shares(batch.label, batch.item, batch.n_items, self.n_classes)
            if self.phase_index == 0
            else self.fused(h, batch.item, batch.annotator, batch.label)
        )
        weight = batch.labelled_weight
        return Loss(-(weight[:, None] * q * log_f).sum(), weight.sum())
