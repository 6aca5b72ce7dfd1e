"""Trace regularisation (Tanno et al., CVPR 2019): one global confusion matrix an annotator, learned with the network.

The network says what an item is, the matrix what the annotator makes of it; together they must explain the labels.
Many pairs of network and matrices explain them equally well. A small pull on the traces chooses among them the
annotators who are wrong the most, and so the network that has to be right.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from crowdfuse.functional import mixture_log_likelihood, scatter_sum
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.methods.global_confusions import GlobalConfusions
from crowdfuse.nets.annotator_tables import active_annotators, append_mean_rows, take_rows


class TraceReg(GlobalConfusions):
    """`mean_n sum_{r in S_n} [-log (f_n A_r)[y_nr] + trace_weight tr(A_r)]`, f_n the class probabilities.

    Where everybody labels everything, that is the paper's: the traces count once a step. All matrices are R x K^2
    numbers, of which a step computes and moves those of the annotators in its batch.

    `A_r` is a softmax over each row of free logits. They start where annotators are right with probability `start`,
    or at the identity matrix: there that probability is e / (e + K - 1), 23 % for ten classes, 3 % for a hundred. They
    are parameters like all others: the optimiser's weight decay pulls at them too.
    """

    def __init__(self, spec: ModelSpec, *, trace_weight: float, start: float | None) -> None:
        super().__init__(spec)
        logit = 1.0 if start is None else math.log(start / (1 - start) * (spec.n_classes - 1))
        start_logits = logit * torch.eye(spec.n_classes)
        self.confusion_logits = nn.Parameter(start_logits.repeat(spec.n_annotators, 1, 1))
        self.trace_weight = trace_weight

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        those, place = active_annotators(batch.annotator, self.n_annotators)
        log_A = self.log_confusions(those)
        losses = -mixture_log_likelihood(log_f, log_A, batch.item, place, batch.label)
        traces = log_A.diagonal(dim1=1, dim2=2).exp().sum(1)[place]
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * (losses + self.trace_weight * traces)).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by its annotator's matrix alone."""
        of_truth = self.class_log_likelihoods(batch.annotator, batch.label).gather(1, batch.gold[batch.item][:, None])[
            :, 0
        ]
        return super().gold_losses(h, batch) - scatter_sum(of_truth, batch.item, batch.n_items)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        return take_rows(self.confusion_logits, annotators).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        matrices = append_mean_rows(self.confusion_logits.detach().softmax(2), count)
        self.confusion_logits = nn.Parameter(matrices.log())

    def log_prior(self, features: Tensor) -> Tensor:
        """The network's prediction."""
        log_f: Tensor = self.classify(features).log_softmax(1)
        return log_f
