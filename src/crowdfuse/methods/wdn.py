"""Weighted doctor net (Guan et al., AAAI 2018): a classifier for each annotator, and how much each of them counts.

First the networks: the trunk and the hidden layers of the class head are shared, and each annotator has a last layer
of its own, trained on its labels alone. Then the weights: with the networks frozen, how to average them so that the
average comes close to the vote.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crowdfuse.functional import kl_divergence, scatter_sum, vote_shares
from crowdfuse.methods.base import HeldOutScorer, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.nets.annotator_heads import AnnotatorHead
from crowdfuse.nets.annotator_tables import extend_tables
from crowdfuse.nets.mlp import dense_layers


class WDN(Method):
    """With p_nr the class probabilities of annotator r's network, and t_n the vote shares:

    networks: `mean_n sum_{r in S_n} -log p_nr[y_nr]`; all annotators count the same in the average.
    weights: `mean_n KL(t_n || sum_r softmax(w)_r p_nr)` for "softmax", as in Guan et al., from the plain average on;
    `mean_n KL(t_n || softmax_k(sum_r w_r p_nr))` for "released", w free and from a normal start, as in the fusion
    paper's code.

    The average is over all annotators who have labels, whoever labelled the item: O(B R K) to predict a batch.
    Both losses are least where the average is the vote, so the weights say who makes up the vote, not who is right.
    """

    labelled: Tensor

    def __init__(
        self,
        spec: ModelSpec,
        *,
        weights: Literal["released", "softmax"],
        weight_epochs: int,
        loss_scale: Literal["plain", "paper"],
    ) -> None:
        super().__init__(spec)
        # the class head's hidden layers are shared; its last one is one an annotator
        self.classify = nn.Sequential(*dense_layers(spec.trunk.n_features, spec.head_hidden, spec.dropout))
        width = spec.head_hidden[-1] if spec.head_hidden else spec.trunk.n_features
        self.last = AnnotatorHead(width, (), spec.n_annotators, spec.n_classes)
        self.weights = nn.Parameter(torch.ones(spec.n_annotators))  # the plain average, either way
        self.register_buffer("labelled", torch.zeros(spec.n_annotators, dtype=torch.bool))
        self.released = weights == "released"
        self.weight_epochs = weight_epochs
        self.weights_scale = 1 / spec.n_classes if loss_scale == "paper" else 1.0
        self.seed = spec.seed

    def phases(self, epochs: int) -> list[Phase]:
        return [
            Phase("networks", epochs, trainable=("augment", "trunk", "classify", "last")),
            Phase("weights", self.weight_epochs, trainable=("weights",)),
        ]

    def prepare(self, data: TrainingData) -> None:
        """An annotator without a label has a network that knows nothing: leave it out of the average."""
        ann = data.annotations
        counts = np.bincount(ann.annotator, data.weight[ann.item], minlength=self.n_annotators)
        self.labelled |= torch.from_numpy(counts > 0).to(self.labelled.device)

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        if self.released:
            start = np.random.default_rng([self.seed, 3]).standard_normal(self.n_annotators)
            with torch.no_grad():
                self.weights.copy_(torch.from_numpy(start))

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        weight = batch.labelled_weight.sum()
        if self.phase_index == 0:
            return Loss((batch.weight * self._of_networks(h, batch)).sum(), weight)
        shares = vote_shares(batch.label, batch.item, batch.n_items, self.n_classes)
        kl = kl_divergence(shares, self.class_logits(h).log_softmax(1))  # 0 without labels
        return Loss(self.weights_scale * (batch.weight * kl).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """The networks still learn what their annotators say; the average, what is right."""
        of_average = super().gold_losses(h, batch)
        return of_average + self._of_networks(h, batch) if self.phase_index == 0 else self.weights_scale * of_average

    def _of_networks(self, h: Tensor, batch: Batch) -> Tensor:
        """The cross-entropies of each item's labels, summed, (B,)."""
        logits = self.last(self.classify(h), batch.item, batch.annotator)
        return scatter_sum(cross_entropy(logits, batch.label, reduction="none"), batch.item, batch.n_items)

    def class_logits(self, h: Tensor) -> Tensor:
        """`sum_r w_r p_nr` for "released", `log sum_r softmax(w)_r p_nr` for "softmax"."""
        h = self.classify(h)
        pair = torch.arange(len(h) * self.n_annotators, device=h.device)
        each = self.last(h, pair // self.n_annotators, pair % self.n_annotators)
        log_p = each.view(len(h), self.n_annotators, self.n_classes).log_softmax(2)
        logits: Tensor = (
            (self.average()[:, None] * log_p.exp()).sum(1)
            if self.released
            else (self._log_shares()[:, None] + log_p).logsumexp(1)
        )
        return logits

    def average(self) -> Tensor:
        """The weights in the average, (R,): for "released" of any size and sign, for "softmax" summing to 1."""
        return self.weights * self.labelled if self.released else self._log_shares().exp()

    def _log_shares(self) -> Tensor:
        """The logs of the "softmax" weights: the log of a weight of 0 would have no gradient."""
        return self.weights.masked_fill(~self.labelled, -torch.inf).log_softmax(0)

    def add_annotators(self, count: int) -> None:
        """They have no part in the average: nothing is known of what they would say."""
        super().add_annotators(count)
        extend_tables(self, ("weights",), count)
        self.labelled = torch.cat([self.labelled, self.labelled.new_zeros(count)])

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """The logs of the weights. Who has a negative one counts for nothing; where all do, all count the same.

        Who has no labels that were trained on counts as much as the others do on average.
        """
        weights = self.average().clamp(min=0)
        if not weights.any():
            return weights.new_zeros(len(annotator))
        usual = weights[self.labelled].mean()
        return torch.where(self.labelled, weights, usual).log()[annotator]
