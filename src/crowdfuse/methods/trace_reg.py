"""Trace regularization: one confusion matrix per annotator, learned together with the network.

The network predicts the class, and the matrix turns the class into the annotator's label. Together they must explain
the labels. Many combinations of network and matrices explain the labels equally well. A small penalty on the traces of
the matrices selects the combination with the noisiest annotators, and therefore the most confident network.
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
    """Likelihood of each label with a penalty on the traces of the confusion matrices.

    The loss is `mean_n sum_{r in S_n} [-log (f_n A_r)[y_nr] + trace_weight tr(A_r)]`, where f_n are the class
    probabilities of item n, S_n are the annotators who labelled it, y_nr are their labels, and A_r is the confusion
    matrix of annotator r. Here the trace of an annotator is added once per label, in the paper once per step. If all
    annotators label every item, both losses are the same.

    `A_r` is a softmax over each row of a table of logits. The logits are parameters, so weight decay acts on them too.
    A step computes only the matrices of the annotators in its batch.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    trace_weight : float
        Weight of the traces.
    start : float or None
        Initial probability that an annotator is right. None: the logits of A_r start as the identity. The probability
        is then `e / (e + K - 1)`, where e is Euler's number: 23 % for 10 classes, 3 % for 100.

    References
    ----------
    Tanno, Saeedi, Sankaranarayanan, Alexander and Silberman, "Learning from noisy labels by regularized estimation of
    annotator confusion", CVPR 2019.
    """

    def __init__(self, spec: ModelSpec, *, trace_weight: float, start: float | None) -> None:
        super().__init__(spec)
        logit = 1.0 if start is None else math.log(start / (1 - start) * (spec.n_classes - 1))
        start_logits = logit * torch.eye(spec.n_classes)
        self.confusion_logits = nn.Parameter(start_logits.repeat(spec.n_annotators, 1, 1))
        self.trace_weight = trace_weight

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the negative log-likelihood of the labels, plus the weighted traces."""
        log_f = self.class_logits(h).log_softmax(1)
        active, position = active_annotators(batch.annotator, self.n_annotators)
        log_A = self.log_confusions(active)
        losses = -mixture_log_likelihood(log_f, log_A, batch.item, position, batch.label)
        traces = log_A.diagonal(dim1=1, dim2=2).exp().sum(1)[position]
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * (losses + self.trace_weight * traces)).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy on gold plus the negative log-likelihood of the item's labels given gold, (B,)."""
        log_likelihood = self.gold_label_log_likelihood(batch.annotator, batch.label, batch.gold[batch.item])
        return super().gold_losses(h, batch) - scatter_sum(log_likelihood, batch.item, batch.n_items)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the confusion matrices of the U given annotators, (U, K, K)."""
        return take_rows(self.confusion_logits, annotators).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean of the existing confusion matrices."""
        super().add_annotators(count)
        matrices = append_mean_rows(self.confusion_logits.detach().softmax(2), count)
        self.confusion_logits = nn.Parameter(matrices.log())

    def log_prior(self, features: Tensor) -> Tensor:
        """Return the logarithms of the network's class probabilities of each item, (B, K)."""
        log_f: Tensor = self.classify(features).log_softmax(1)
        return log_f
