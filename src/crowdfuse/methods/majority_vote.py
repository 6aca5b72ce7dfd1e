"""Majority vote: all annotators have the same weight."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse.functional import kl_divergence
from crowdfuse.labels.votes import argmax_breaking_ties
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch, TrainingData


class MajorityVote(Method):
    """Training on the majority vote.

    Let f_n be the class probabilities of the network for item n. If the vote is soft, the loss is `mean_n KL(v_n ||
    f_n)`, where v_n are the vote shares: for each class, the fraction of the item's labels that name it. If the vote is
    hard, the loss is `mean_n -log f_n(w_n)`, where w_n is the class with the most labels.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    vote : {"soft", "hard"}
        "soft": train on the vote shares. "hard": train on the class with the most labels; ties are broken at random,
        using the seed.
    loss_scale : {"plain", "paper"}
        "paper": the loss is divided by the number of classes K, as in the code of Gao et al. (2022). "plain": it is
        not.
    """

    winner: Tensor

    def __init__(
        self, spec: ModelSpec, *, vote: Literal["soft", "hard"], loss_scale: Literal["plain", "paper"]
    ) -> None:
        super().__init__(spec)
        self.vote = vote
        self.loss_factor = 1 / spec.n_classes if loss_scale == "paper" else 1.0
        self.seed = spec.seed

    def prepare(self, data: TrainingData) -> None:
        """Compute the class with the most labels for each item, if the vote is hard."""
        if self.vote == "hard":
            shares = np.nan_to_num(data.annotations.vote_shares())
            draws = np.random.default_rng([self.seed, 1]).random(shares.shape)
            self.register_buffer("winner", torch.from_numpy(argmax_breaking_ties(shares, draws)), persistent=False)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss against the vote."""
        logits = self.class_logits(h)
        if self.vote == "soft":
            shares = self.fused(h, batch.item, batch.annotator, batch.label)
            losses = kl_divergence(shares, logits.log_softmax(1))
        else:
            losses = cross_entropy(logits, self.winner.to(batch.row.device)[batch.row], reduction="none")
        weight = batch.labelled_weight
        return Loss(self.loss_factor * (weight * losses).sum(), weight.sum())
