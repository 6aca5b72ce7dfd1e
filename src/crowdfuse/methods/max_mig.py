"""Max-MIG (Cao, Xu, Kong and Wang, ICLR 2019): classifier and aggregator, each of which learns from the other.

"Max-MIG: an Information Theoretic Approach for Joint Learning from Crowds". The classifier sees the item, the
aggregator its labels. Given the class, these have nothing to do with each other: what both know is the class. So make
them tell as much as possible about each other. Annotators who copy one another add nothing to that.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from crowdfuse.functional import scatter_sum
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.global_confusions import PSEUDO_COUNT_PER_CELL
from crowdfuse.nets.annotator_tables import append_mean_rows, take_rows


class MaxMIG(Method):
    """`-mean_i [1 + log m_ii] + mean_{i != j} m_ij`, with `m_ij = sum_k h_i(k) g_j(k) / p(k)`: the paper's, for KL.

    h_i are the class probabilities of item i, `g_j = softmax(log p + sum_{r in S_j} W_r[y_jr])` those of the labels of
    item j, and p is a class prior. The mean over crossed pairs, by the product of their weights, factors through
    the classes: a step costs B K and its labels. Items without labels have no part in either mean, and one that is
    alone in its batch has nothing to be told apart from. With several processes, each crosses its own part of a batch.

    `W_r[y]` starts as `log P(r says y | class)`, counted with the vote shares for the truth, so g as a posterior by
    these, and at 0 for what r never says. So does the paper's code, with a larger floor under the shares, and on
    CIFAR-10 it learns W slower than h: here at the same rate. p is the mean of the vote shares, or uniform, as in the
    paper's code. Both are of the first training data: later data changes W by learning alone, and a newcomer starts as
    the average annotator.

    Gold is learned by both: `-log h_i(gold) - log g_i(gold)`, the latter where the item has labels.
    """

    prior: Tensor
    is_initialized: Tensor

    def __init__(self, spec: ModelSpec, *, prior: Literal["votes", "uniform"]) -> None:
        super().__init__(spec)
        n_classes = spec.n_classes
        self.uses_vote_prior = prior == "votes"
        self.label_log_evidence = nn.Parameter(
            torch.zeros(spec.n_annotators * n_classes, n_classes)
        )  # (annotator, said), true
        self.register_buffer("prior", torch.full((n_classes,), 1 / n_classes))
        self.register_buffer("is_initialized", torch.zeros((), dtype=torch.bool))

    def unsupported_reason(self, data: TrainingData) -> str | None:
        ann = data.annotations
        n_annotators = len(np.unique(ann.annotator[data.weight[ann.item] > 0]))
        if n_annotators > 1 or self.is_initialized:  # one that knows others can go on with one of them
            return None
        return (
            "max-mig learns from what annotators and items tell of each other, and the labels to train on are all by "
            "one annotator: take a method that believes it, such as majority-vote or robust-vote"
        )

    def prepare(self, data: TrainingData) -> None:
        """The start, by the vote; a model that has learned already goes on from where it is."""
        if self.is_initialized:
            return
        ann, K = data.annotations, self.n_classes
        weight = data.weight.astype(np.float64) / np.maximum(np.diff(ann.indptr), 1)
        votes = sparse.csr_array((weight[ann.item], (ann.item, ann.label)), shape=(len(data), K))
        rows = (ann.annotator.astype(np.int64) * K + ann.label, ann.item)
        said = sparse.csr_array((np.ones(ann.n_labels), rows), shape=(self.n_annotators * K, len(data)))
        counts = (said @ votes).toarray().reshape(self.n_annotators, K, K)
        shares = (PSEUDO_COUNT_PER_CELL + counts) / (PSEUDO_COUNT_PER_CELL + counts).sum(1, keepdims=True)
        start = np.where(counts.any(2, keepdims=True), np.log(shares), 0).reshape(-1, K)
        with torch.no_grad():
            self.label_log_evidence.copy_(torch.from_numpy(start))
        if self.uses_vote_prior:
            shares = PSEUDO_COUNT_PER_CELL + votes.sum(0)
            self.prior.copy_(torch.from_numpy(shares / shares.sum()))
        self.is_initialized.fill_(True)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        weight = batch.labelled_weight
        log_g = self._log_aggregated(batch.item, batch.annotator, batch.label, batch.n_items)
        log_ratio = self.class_logits(h).log_softmax(1) - self.prior.log()
        gain = mutual_information_gain(log_ratio, log_g, weight)
        weight = weight * ((weight > 0).sum() > 1)
        return Loss(-weight.sum() * gain, weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """The aggregator learns what its labels amount to."""
        log_g = self._log_aggregated(batch.item, batch.annotator, batch.label, batch.n_items)
        labelled = torch.bincount(batch.item, minlength=batch.n_items) > 0
        return super().gold_losses(h, batch) - labelled * log_g.gather(1, batch.gold[:, None])[:, 0]

    def _log_aggregated(self, item: Tensor, annotator: Tensor, label: Tensor, n_items: int) -> Tensor:
        """`log g` of each item, (B, K); without labels, the prior."""
        told = take_rows(self.label_log_evidence, annotator * self.n_classes + label)
        return (self.prior.log() + scatter_sum(told, item, n_items)).log_softmax(1)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        each = self.label_log_evidence.detach().view(-1, self.n_classes, self.n_classes)
        self.label_log_evidence = nn.Parameter(append_mean_rows(each, count).flatten(0, 1))

    # ---- what it has to say about annotators ---------------------------------------------------

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Weights in proportion to how far the labels of an annotator move the aggregate: the spread of its evidence.

        Whose labels are taken to say nothing has none.
        """
        each = self.label_log_evidence.view(-1, self.n_classes, self.n_classes)
        spread = (each - each.mean(2, keepdim=True)).square().mean((1, 2)).sqrt()
        return spread.clamp(min=1e-6).log()[annotator]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """What the aggregator makes of the labels alone: the classifier has no part in it."""
        labelled = torch.bincount(item, minlength=len(features)) > 0
        return self._log_aggregated(item, annotator, label, len(features)).exp() * labelled[:, None]


def mutual_information_gain(log_ratio: Tensor, log_g: Tensor, weight: Tensor) -> Tensor:
    """`mean_i [1 + log m_ii] - mean_{i != j} m_ij` with `m_ij = sum_k exp(log_ratio_i(k) + log_g_j(k))`.

    Means by weight (B,), and by the product of two for the crossed pairs. Where there is at most one item of any
    weight, 0.

    >>> h = torch.eye(2).clamp(min=1e-9).log()  # no crossed pair is alike: 1 + log 2
    >>> mutual_information_gain(h - torch.tensor(0.5).log(), h, torch.ones(2))
    tensor(1.6931)
    """
    if (weight > 0).sum() < 2:
        return (log_ratio.sum() + log_g.sum()) * 0
    weight = weight / weight.sum()
    matching = (log_ratio + log_g).logsumexp(1)
    crossed = (weight @ log_ratio.exp()) @ (weight @ log_g.exp()) - (weight.square() * matching.exp()).sum()
    return 1 + weight @ matching - crossed / (1 - weight.square().sum())
