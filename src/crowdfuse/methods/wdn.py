"""Weighted doctor net (WDN): one network per annotator, and a weight for each network.

Phase 1 trains the networks. They share the trunk and the hidden layers of the class head. Each annotator has an output
layer that is trained on the annotator's labels. Phase 2 freezes the networks and learns weights such that the weighted
average of the networks' predictions comes close to the vote.
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
    """One network per annotator, then a weighted average of the networks' predictions.

    In the formulas, p_nr are the class probabilities of annotator r's network for item n. S_n are the annotators who
    labelled the item, y_nr are their labels, and t_n are the vote shares.

    - Phase 1, networks: the loss is `mean_n sum_{r in S_n} -log p_nr[y_nr]`. For prediction, all networks have the same
      weight.
    - Phase 2, weights "softmax", as in Guan et al. (2018): the loss is
      `mean_n KL(t_n || sum_r softmax(w)_r p_nr)`. All weights start equal.
    - Phase 2, weights "released", as in the code of Gao et al. (2022): the loss is
      `mean_n KL(t_n || softmax_k(sum_r w_r p_nr))`. The weights w are any real numbers, initially drawn from a normal
      distribution.

    The average is over all annotators who have labels, even if they did not label the item, so predicting a batch costs
    O(B R K). Both losses of phase 2 are smallest if the average equals the vote. So the weights show which annotators
    determine the vote, not which annotators are right.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    weights : {"released", "softmax"}
        Form of the weighted average. "softmax": weights are positive and sum to 1. "released": weights are any real
        numbers.
    weight_epochs : int
        Number of epochs of the second phase.
    loss_scale : {"plain", "paper"}
        "paper": the loss of the second phase is divided by K, as in the code of Gao et al. (2022). "plain": it is not.

    References
    ----------
    Guan, Gulshan, Dai and Hinton, "Who said what: modeling individual labelers improves classification", AAAI 2018.
    Gao et al., "Learning from multiple annotator noisy labels via sample-wise label fusion", ECCV 2022.
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
        # hidden layers of the class head are shared; there is one output layer per annotator
        self.classify = nn.Sequential(*dense_layers(spec.trunk.n_features, spec.head_hidden, spec.dropout))
        width = spec.head_hidden[-1] if spec.head_hidden else spec.trunk.n_features
        self.last = AnnotatorHead(width, (), spec.n_annotators, spec.n_classes)
        self.weights = nn.Parameter(torch.ones(spec.n_annotators))  # equal weights in both forms
        self.register_buffer("labelled", torch.zeros(spec.n_annotators, dtype=torch.bool))
        self.released = weights == "released"
        self.weight_epochs = weight_epochs
        self.weights_scale = 1 / spec.n_classes if loss_scale == "paper" else 1.0
        self.seed = spec.seed

    def phases(self, epochs: int) -> list[Phase]:
        """Return two phases: the networks for `epochs` epochs, then the weights for `weight_epochs` more epochs."""
        return [
            Phase("networks", epochs, trainable=("augment", "trunk", "classify", "last")),
            Phase("weights", self.weight_epochs, trainable=("weights",)),
        ]

    def prepare(self, data: TrainingData) -> None:
        """Store which annotators have labels. All other networks stay untrained and are left out of the average."""
        ann = data.annotations
        counts = np.bincount(ann.annotator, data.weight[ann.item], minlength=self.n_annotators)
        self.labelled |= torch.from_numpy(counts > 0).to(self.labelled.device)

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Draw the initial weights at random, if `weights` is "released"."""
        if self.released:
            start = np.random.default_rng([self.seed, 3]).standard_normal(self.n_annotators)
            with torch.no_grad():
                self.weights.copy_(torch.from_numpy(start))

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss of the networks in the first phase, and the loss of the weights in the second phase."""
        weight = batch.labelled_weight.sum()
        if self.phase_index == 0:
            return Loss((batch.weight * self._network_losses(h, batch)).sum(), weight)
        shares = vote_shares(batch.label, batch.item, batch.n_items, self.n_classes)
        kl = kl_divergence(shares, self.class_logits(h).log_softmax(1))  # 0 without labels
        return Loss(self.weights_scale * (batch.weight * kl).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each item with gold, (B,).

        It is the cross-entropy of the average prediction on gold. In the first phase, the loss of the networks on the
        item's labels is added.
        """
        average_losses = super().gold_losses(h, batch)
        if self.phase_index == 0:
            return average_losses + self._network_losses(h, batch)
        return self.weights_scale * average_losses

    def _network_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the summed cross-entropy of each item's labels, (B,)."""
        logits = self.last(self.classify(h), batch.item, batch.annotator)
        return scatter_sum(cross_entropy(logits, batch.label, reduction="none"), batch.item, batch.n_items)

    def class_logits(self, h: Tensor) -> Tensor:
        """Return the average of the networks' predictions, as class logits (B, K).

        They are `sum_r w_r p_nr` if `weights` is "released", and `log sum_r softmax(w)_r p_nr` if it is "softmax".
        """
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
        """Return the weight of each annotator's network in the average.

        Returns
        -------
        weights : Tensor of shape (R,)
            If `weights` is "softmax", they are nonnegative and sum to 1. If it is "released", they are any real
            numbers.
        """
        return self.weights * self.labelled if self.released else self._log_shares().exp()

    def _log_shares(self) -> Tensor:
        """Return the logarithms of the "softmax" weights, computed by log-softmax because log(0) has no gradient."""
        return self.weights.masked_fill(~self.labelled, -torch.inf).log_softmax(0)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators; they are left out of the average, since their networks are untrained."""
        super().add_annotators(count)
        extend_tables(self, ("weights",), count)
        self.labelled = torch.cat([self.labelled, self.labelled.new_zeros(count)])

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the logarithm of the annotator's weight, (L,).

        Negative weights are set to 0. If no weight is positive, all weights are equal. Annotators without training
        labels have the mean weight of the other annotators.
        """
        weights = self.average().clamp(min=0)
        if not weights.any():
            return weights.new_zeros(len(annotator))
        mean_weight = weights[self.labelled].mean()
        return torch.where(self.labelled, weights, mean_weight).log()[annotator]
