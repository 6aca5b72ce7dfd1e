"""Max-MIG: a classifier of items and an aggregator of labels that learn from each other.

The classifier reads the input of an item, and the aggregator reads the labels of the item. Given the class, input and
labels are assumed to be independent, so all the information that they share is about the class. Training maximizes this
mutual information. Annotators who copy each other add nothing to it.
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
    """Negative mutual information gain of classifier and aggregator.

    This is the variant of the paper (see References) that uses the KL divergence. The loss is
    `-mean_i [1 + log m_ii] + mean_{i != j} m_ij` with `m_ij = sum_k h_i(k) g_j(k) / p(k)`. h_i are the class
    probabilities of item i by the classifier. `g_j = softmax(log p + sum_{r in S_j} W_r[y_jr])` are the class
    probabilities of item j by the aggregator, where S_j are the annotators who labelled item j, y_jr are their labels,
    and p is a class prior. The second mean is over pairs of different items, weighted by the product of the two item
    weights. It factors over the classes, so the cost of a step grows with B K plus the number of labels. Items without
    labels are left out of both means. If a batch has only one item, the loss is 0. If there are several processes, each
    compares the items of its own part of the batch.

    `W_r[y]` starts as `log P(label y of annotator r | class)`, counted as if the vote shares were the truth. So g
    starts as the posterior class probabilities given the labels. A pseudo-count is added to each count; in the paper's
    code, it is larger. For labels that annotator r never gives, `W_r[y]` starts at 0. On CIFAR-10, the paper's code
    learns W more slowly than h; here both have the same learning rate. The prior p and the initial W are computed from
    the first training data. If training continues with other data, W changes by training only, and a new annotator
    starts with the average of all annotators.

    For items with gold, the loss is `-log h_i(gold) - log g_i(gold)`. The second term is left out if the item has no
    labels.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    prior : {"votes", "uniform"}
        The class prior p. "votes": the mean of the vote shares. "uniform": the same for all classes, as in the paper's
        code.

    References
    ----------
    Cao, Xu, Kong and Wang, "Max-MIG: an information theoretic approach for joint learning from crowds", ICLR 2019.
    """

    prior: Tensor
    is_initialized: Tensor

    def __init__(self, spec: ModelSpec, *, prior: Literal["votes", "uniform"]) -> None:
        super().__init__(spec)
        n_classes = spec.n_classes
        self.uses_vote_prior = prior == "votes"
        # W: rows are (annotator, label), columns are classes
        self.label_log_evidence = nn.Parameter(torch.zeros(spec.n_annotators * n_classes, n_classes))
        self.register_buffer("prior", torch.full((n_classes,), 1 / n_classes))
        self.register_buffer("is_initialized", torch.zeros((), dtype=torch.bool))

    def unsupported_reason(self, data: TrainingData) -> str | None:
        """Return an error message if all labels are by one annotator, unless the model has been trained before."""
        ann = data.annotations
        n_annotators = len(np.unique(ann.annotator[data.weight[ann.item] > 0]))
        if n_annotators > 1 or self.is_initialized:
            return None
        return (
            "max-mig learns from the information that several annotators share, but all labels to train on are by one "
            "annotator; use a method that works with one annotator, such as majority-vote or robust-vote"
        )

    def prepare(self, data: TrainingData) -> None:
        """Set W and the prior from the votes, unless the model has been trained before."""
        if self.is_initialized:
            return
        ann, K = data.annotations, self.n_classes
        weight = data.weight.astype(np.float64) / np.maximum(np.diff(ann.indptr), 1)
        votes = sparse.csr_array((weight[ann.item], (ann.item, ann.label)), shape=(len(data), K))
        cell = (ann.annotator.astype(np.int64) * K + ann.label, ann.item)
        labels = sparse.csr_array((np.ones(ann.n_labels), cell), shape=(self.n_annotators * K, len(data)))
        counts = (labels @ votes).toarray().reshape(self.n_annotators, K, K)
        shares = (PSEUDO_COUNT_PER_CELL + counts) / (PSEUDO_COUNT_PER_CELL + counts).sum(1, keepdims=True)
        start = np.where(counts.any(2, keepdims=True), np.log(shares), 0).reshape(-1, K)
        with torch.no_grad():
            self.label_log_evidence.copy_(torch.from_numpy(start))
        if self.uses_vote_prior:
            shares = PSEUDO_COUNT_PER_CELL + votes.sum(0)
            self.prior.copy_(torch.from_numpy(shares / shares.sum()))
        self.is_initialized.fill_(True)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the negative mutual information gain of the batch."""
        weight = batch.labelled_weight
        log_g = self._log_aggregated(batch.item, batch.annotator, batch.label, batch.n_items)
        log_ratio = self.class_logits(h).log_softmax(1) - self.prior.log()
        gain = mutual_information_gain(log_ratio, log_g, weight)
        weight = weight * ((weight > 0).sum() > 1)
        return Loss(-weight.sum() * gain, weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy of the classifier plus the cross-entropy of the aggregator, (B,)."""
        log_g = self._log_aggregated(batch.item, batch.annotator, batch.label, batch.n_items)
        labelled = torch.bincount(batch.item, minlength=batch.n_items) > 0
        return super().gold_losses(h, batch) - labelled * log_g.gather(1, batch.gold[:, None])[:, 0]

    def _log_aggregated(self, item: Tensor, annotator: Tensor, label: Tensor, n_items: int) -> Tensor:
        """Return `log g` of each item, (B, K); the log-prior for items without labels."""
        evidence = take_rows(self.label_log_evidence, annotator * self.n_classes + label)
        return (self.prior.log() + scatter_sum(evidence, item, n_items)).log_softmax(1)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean W of the existing annotators."""
        super().add_annotators(count)
        per_annotator = self.label_log_evidence.detach().view(-1, self.n_classes, self.n_classes)
        self.label_log_evidence = nn.Parameter(append_mean_rows(per_annotator, count).flatten(0, 1))

    # ---- what the method says about annotators -------------------------------------------------

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the logarithm of a standard deviation, (L,).

        It is the standard deviation of the annotator's W over the classes. This measures how much the annotator's
        labels change the class probabilities of the aggregator. If W is 0, the annotator has almost no weight.
        """
        per_annotator = self.label_log_evidence.view(-1, self.n_classes, self.n_classes)
        spread = (per_annotator - per_annotator.mean(2, keepdim=True)).square().mean((1, 2)).sqrt()
        return spread.clamp(min=1e-6).log()[annotator]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the aggregator's class probabilities, from the labels alone, (B, K)."""
        labelled = torch.bincount(item, minlength=len(features)) > 0
        return self._log_aggregated(item, annotator, label, len(features)).exp() * labelled[:, None]


def mutual_information_gain(log_ratio: Tensor, log_g: Tensor, weight: Tensor) -> Tensor:
    """Return `mean_i [1 + log m_ii] - mean_{i != j} m_ij` with `m_ij = sum_k exp(log_ratio_i(k) + log_g_j(k))`.

    Both means are weighted. The weight of a pair (i, j) is the product of the two item weights.

    Parameters
    ----------
    log_ratio : Tensor of shape (B, K)
        `log h_i(k) - log p(k)` of the classifier.
    log_g : Tensor of shape (B, K)
        `log g_j(k)` of the aggregator.
    weight : Tensor of shape (B,)
        Item weights.

    Returns
    -------
    gain : Tensor of shape ()
        0 if fewer than two items have a positive weight.

    Examples
    --------
    >>> h = torch.eye(2).clamp(min=1e-9).log()  # the two items have different classes: 1 + log 2
    >>> mutual_information_gain(h - torch.tensor(0.5).log(), h, torch.ones(2))
    tensor(1.6931)
    """
    if (weight > 0).sum() < 2:
        return (log_ratio.sum() + log_g.sum()) * 0
    weight = weight / weight.sum()
    matching = (log_ratio + log_g).logsumexp(1)
    crossed = (weight @ log_ratio.exp()) @ (weight @ log_g.exp()) - (weight.square() * matching.exp()).sum()
    return 1 + weight @ matching - crossed / (1 - weight.square().sum())
