"""Multi-annotator deep learning, MaDL (Herde, Huseljic and Sick, TMLR 2023): who is right where, who is one of many.

A network says what an item is, a second one how an annotator does on it, from an embedding of each; together they must
explain the labels. Annotators whose embeddings lie close together err alike, as copies do, and a hundred copies are no
hundred opinions: in the loss an annotator counts the less, the more others there are like it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

from crowdfuse.functional import posterior, scatter_sum
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding
from crowdfuse.nets.annotator_tables import active_annotators

Confusions = Literal["isotropic", "diagonal", "full"]

HIDDEN = 128  # width of the performance network's hidden layer
MIN_KERNEL_GAMMA = 1e-3  # the least sharpness of the kernel, above which its prior has a finite density
MAX_COMPARED_ANNOTATORS = 1000  # annotators, evenly chosen, whom an annotator is compared with by those who look inside


class MaDL(Method):
    """`mean_n sum_{r in S_n} [-w_r log sum_k f_n(k) A_nr[k, y_nr] - log Gamma(g)]`, with A_nr the matrix of item and
    annotator, g the kernel's sharpness and `w_r` proportional to `1 / sum_s exp(-g |e_r - e_s|^2)`, mean 1.

    With e_r the annotator's embedding and u_n the item's, both of the same width, and `[...]` concatenation:
    `performance = out(relu(e_r + hidden([e_r, u_n, product(e_r x u_n)])))`, x the outer product. What comes out is one
    number ("isotropic"), one a class ("diagonal") or one a cell ("full"). Of the first two the sigmoid is how likely
    the annotator is right, all wrong classes being alike; of the last, the softmax of each row is the matrix. The bias
    of `out` starts where annotators are right with probability `eta`.

    As in the authors' code, weights have no gradient to the embeddings and performance has none to the backbone: both
    look on. Otherwise decided here: annotators have no features but who they are, so e_r is a row of a table, which
    starts at 0, all annotators alike and of weight 1. The outer product is of e_r and u_n, theirs of their sum with
    itself. `hidden` has layer norm where theirs has batch norm, which one label alone would break; without either,
    annotators fall where the ReLU is 0 on every item, and stay there. Of more than 100 annotators, weights are among
    those in the batch: the kernel is over these, U x U numbers for U annotators. Items with gold teach the class, and
    the performance network by each label, unweighted.

    Where matrices are of each item, rows of classes that it is not of are learned from nothing, and with "full" so many
    matrices explain the labels that the network may be any of them.
    """

    confusion_given = "true"

    def __init__(
        self,
        spec: ModelSpec,
        *,
        confusions: Confusions,
        weights: Literal["density", "uniform"],
        eta: float,
        embedding: int,
        gamma_prior: tuple[float, float],
    ) -> None:
        super().__init__(spec)
        self.kind = confusions
        self.by_density = weights == "density"
        self.of_annotator = AnnotatorEmbedding(spec.n_annotators, embedding)
        self.of_item = nn.Linear(spec.trunk.n_features, embedding)
        self.product = nn.Linear(embedding**2, embedding)
        self.hidden = nn.Sequential(
            nn.Linear(3 * embedding, HIDDEN),
            nn.LayerNorm(HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, embedding),
            nn.LayerNorm(embedding),
        )
        n_classes = spec.n_classes
        self.out = nn.Linear(embedding, {"isotropic": 1, "diagonal": n_classes, "full": n_classes**2}[confusions])
        odds = math.log(eta / (1 - eta))
        with torch.no_grad():
            if confusions == "full":
                self.out.bias.copy_(((odds + math.log(n_classes - 1)) * torch.eye(n_classes)).flatten())
            else:
                self.out.bias.fill_(odds)
        self.shape, self.rate = gamma_prior
        self.gamma = nn.Parameter(torch.tensor(max(0.0, self.shape - 1) / self.rate))  # where the prior is highest

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        evidence = self.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
        losses = -(log_f[batch.item] + evidence).logsumexp(1)
        if self.by_density:
            losses = self._weights(batch.annotator) * losses - self._log_prior()
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by how its annotator does alone."""
        evidence = self.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
        of_truth = evidence.gather(1, batch.gold[batch.item][:, None])[:, 0]
        return super().gold_losses(h, batch) - scatter_sum(of_truth, batch.item, batch.n_items)

    def _weights(self, annotator: Tensor) -> Tensor:
        """How much each label counts, (L,): over the annotators that are compared the mean is 1."""
        those, place = active_annotators(annotator, self.n_annotators)
        embeddings = self.of_annotator.table.detach()[those]
        rarity = 1 / mean_similarity(embeddings, embeddings, self._sharpness())
        return (rarity / rarity.mean())[place]

    def _sharpness(self) -> Tensor:
        return self.gamma.clamp(min=MIN_KERNEL_GAMMA)

    def _log_prior(self) -> Tensor:
        """The log of the gamma density of the sharpness."""
        g = self._sharpness()
        scale = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return scale + (self.shape - 1) * g.log() - self.rate * g

    def _performance(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """What the annotator makes of the item, as logits, (L, 1), (L, K) or (L, K * K)."""
        e = self.of_annotator(annotator)
        u = self.of_item(features.detach()).index_select(0, item)
        product = self.product((e[:, :, None] * u[:, None]).flatten(1))
        performance: Tensor = self.out((e + self.hidden(torch.cat([e, u, product], 1))).relu())
        return performance

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        logits = self._performance(features, item, annotator)
        n_classes = self.n_classes
        if self.kind == "full":
            log_A = logits.view(-1, n_classes, n_classes).log_softmax(2)
            return log_A.gather(2, label[:, None, None].expand(-1, n_classes, 1))[:, :, 0]
        is_said = one_hot(label, n_classes).bool()
        return torch.where(is_said, logsigmoid(logits), logsigmoid(-logits) - math.log(n_classes - 1))

    # ---- what it has to say about annotators ---------------------------------------------------

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        logits = self._performance(features, item, annotator)
        n_classes = self.n_classes
        if self.kind == "full":
            return logits.view(-1, n_classes, n_classes).softmax(2)
        right = torch.eye(n_classes, device=logits.device)
        g = logits.sigmoid()[:, :, None]
        return g * right + (1 - g) * (1 - right) / (n_classes - 1)

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Weights in proportion to those of the loss: how much of an opinion of its own an annotator is."""
        if not self.by_density:
            return super().weight_logits(features, item, annotator)
        those, place = active_annotators(annotator, self.n_annotators)
        table = self.of_annotator.table.detach()
        chosen = (
            torch.linspace(0, len(table) - 1, min(len(table), MAX_COMPARED_ANNOTATORS), device=table.device)
            .round()
            .long()
        )
        return -mean_similarity(table[those], table[chosen], self._sharpness()).log()[place]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class, given the item and all its labels."""
        log_f = self.class_logits(features).log_softmax(1)
        return posterior(log_f, self.label_log_probabilities(features, item, annotator, label), item)


def mean_similarity(these: Tensor, others: Tensor, sharpness: Tensor) -> Tensor:
    """How much others are like each of these, (U,): the mean of `exp(-g |a - b|^2)` over `others` b (V, Q).

    >>> mean_similarity(torch.tensor([[0.0], [9.0]]), torch.tensor([[0.0], [0.0], [0.0], [9.0]]), torch.tensor(1.0))
    tensor([0.7500, 0.2500])
    """
    squares = (these**2).sum(1)[:, None] + (others**2).sum(1) - 2 * these @ others.T
    return (-sharpness * squares.clamp(min=0)).exp().mean(1)
