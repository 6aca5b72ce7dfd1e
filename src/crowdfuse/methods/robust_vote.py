"""The vote, learned with a loss that distrusts it: generalised cross-entropy (Zhang and Sabuncu, NeurIPS 2018).

"Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels".

Cross-entropy pulls hardest at the items whose label the network finds least likely. Where labels are wrong, these are
the wrong ones, and a network that is trained for long learns them by heart. Generalised cross-entropy pulls at an item
less, the less likely the network finds its label. It lies between cross-entropy, which learns fast, and the mean
absolute error, which hardly minds wrong labels and learns slowly.
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
    """Hard: `mean_n (1 - f_n(v_n)^q) / q`, v_n the winner of the vote on item n, ties broken from the seed. Soft:
    `mean_n mean_{r in S_n} (1 - f_n(y_nr)^q) / q`.

    The votes are those of the majority vote, so that the loss is the only difference. The paper has one label an item,
    so that it knows neither from the other. Its truncated variant, which leaves out items below a threshold in turns,
    is not here. Gold is no vote: it has cross-entropy.
    """

    def __init__(self, spec: ModelSpec, *, q: float, vote: Literal["soft", "hard"]) -> None:
        super().__init__(spec, vote=vote, loss_scale="plain")
        self.q = q

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        counts = torch.bincount(batch.item, minlength=batch.n_items)
        if self.vote == "soft":
            of_labels = generalized_cross_entropy(log_f.index_select(0, batch.item), batch.label, self.q)
            losses = scatter_sum(of_labels, batch.item, batch.n_items) / counts.clamp(min=1)
        else:
            losses = generalized_cross_entropy(log_f, self.winner.to(batch.row.device)[batch.row], self.q)
        weight = batch.weight * (counts > 0)
        return Loss((weight * losses).sum(), weight.sum())
