"""Trace regularisation (Tanno et al., CVPR 2019): one global confusion matrix an annotator, learned with the network.

The network says what an item is, the matrix what the annotator makes of it; together they must explain the labels.
Many pairs of network and matrices explain them equally well. A small pull on the traces chooses among them the
annotators who are wrong the most, and so the network that has to be right.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crowdfuse.batches import Batch
from crowdfuse.functional import label_evidence, scatter_sum
from crowdfuse.methods.base import Loss, Problem
from crowdfuse.methods.global_confusions import GlobalConfusions


class TraceReg(GlobalConfusions):
    """`mean_n sum_{r in S_n} -log (f_n A_r)[y_nr] + trace_weight sum_r tr(A_r)`, f_n the class probabilities.

    `A_r` is a softmax over each row of free logits, which start at the identity matrix. They are parameters like
    all others: the optimiser's weight decay pulls at them too.
    """

    def __init__(self, problem: Problem, *, trace_weight: float) -> None:
        super().__init__(problem)
        self.confusion_logits = nn.Parameter(torch.eye(problem.n_classes).repeat(problem.n_annotators, 1, 1))
        self.trace_weight = trace_weight

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        log_A = self.log_confusions()
        evidence = label_evidence(log_A, batch.annotator, batch.label)
        losses = -(log_f.index_select(0, batch.item) + evidence).logsumexp(1)
        traces = log_A.diagonal(dim1=1, dim2=2).exp().sum()
        weight = (batch.weight * (torch.bincount(batch.item, minlength=batch.n_items) > 0)).sum()
        # the sum is divided by the weight of the items: times that weight, the traces count once a step
        return Loss((batch.weight[batch.item] * losses).sum() + self.trace_weight * traces * weight, weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by its annotator's matrix alone."""
        evidence = label_evidence(self.log_confusions(), batch.annotator, batch.label)
        of_truth = evidence.gather(1, batch.gold[batch.item][:, None])[:, 0]
        return super().gold_losses(h, batch) - scatter_sum(of_truth, batch.item, batch.n_items)

    def log_confusions(self) -> Tensor:
        return self.confusion_logits.log_softmax(2)

    def log_prior(self, features: Tensor) -> Tensor:
        """The network's prediction."""
        log_f: Tensor = self.classify(features).log_softmax(1)
        return log_f
