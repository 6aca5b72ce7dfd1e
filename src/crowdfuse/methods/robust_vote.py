"""Majority vote with generalized cross-entropy, a loss that is robust to wrong labels.

Cross-entropy has its largest gradients on items whose label has a low predicted probability. If some labels are wrong,
these are mostly the items with wrong labels, and long training memorizes them. Generalized cross-entropy gives such
items smaller gradients. It lies between two losses: cross-entropy, which learns fast, and the mean absolute error,
which hardly reacts to wrong labels but learns slowly.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from crowdfuse.functional import generalized_cross_entropy, scatter_sum
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.methods.majority_vote import MajorityVote


class RobustVote(MajorityVote):
    """Training on the majority vote with generalized cross-entropy.

    If the vote is hard, the loss is `mean_n (1 - f_n(w_n)^q) / q`, where f_n are the class probabilities of item n and
    w_n is the class with the most labels. If the vote is soft, the loss is `mean_n mean_{r in S_n} (1 - f_n(y_nr)^q) /
    q`, where S_n are the annotators who labelled item n and y_nr are their labels. For items with gold, the loss is
    cross-entropy. Ties are broken as in `MajorityVote`. The paper's truncated variant is not implemented.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    q : float
        Exponent, above 0 and at most 1. As q goes to 0, the loss approaches cross-entropy. If q is 1, the loss is
        proportional to the mean absolute error.
    vote : {"soft", "hard"}
        "soft": average the loss over the labels of an item. "hard": train on the class with the most labels.

    References
    ----------
    Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks with noisy labels",
    NeurIPS 2018.
    """

    def __init__(self, spec: ModelSpec, *, q: float, vote: Literal["soft", "hard"]) -> None:
        super().__init__(spec, vote=vote, loss_scale="plain")
        self.q = q

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the generalized cross-entropy against the vote."""
        log_f = self.class_logits(h).log_softmax(1)
        counts = torch.bincount(batch.item, minlength=batch.n_items)
        if self.vote == "soft":
            label_losses = generalized_cross_entropy(log_f.index_select(0, batch.item), batch.label, self.q)
            losses = scatter_sum(label_losses, batch.item, batch.n_items) / counts.clamp(min=1)
        else:
            losses = generalized_cross_entropy(log_f, self.winner.to(batch.row.device)[batch.row], self.q)
        weight = batch.weight * (counts > 0)
        return Loss((weight * losses).sum(), weight.sum())
