"""UnionNet: the labels of all annotators of an item are one joint target.

One transition matrix has a row for each of the K classes, and a column for each combination of an annotator and a
label. Each row is one distribution over all columns, so that annotators are fitted together instead of separately.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from crowdfuse.functional import label_log_probabilities, scatter_sum
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.crowd_layer import times_matrices
from crowdfuse.methods.data import Batch
from crowdfuse.methods.global_confusions import GlobalConfusions
from crowdfuse.nets.annotator_tables import active_annotators, extend_tables, take_rows

Variant = Literal["a", "b"]


class UnionNet(GlobalConfusions):
    """Likelihood of each label among all labels that the annotators of the item can give.

    The loss is `mean_n sum_{r in S_n} -log u_n[r, y_nr]`, where S_n are the annotators of item n, y_nr their labels,
    and u_n is a distribution over pairs of annotator and label. The distribution depends on `variant`; f_n are the
    class probabilities of the item, and W_r is the block of annotator r in the transition matrix:

    - "a": one softmax over all annotators and labels of the network's outputs `z_nr = f_n W_r`,
      `u_n[r, y] = exp(z_nr[y]) / sum_{s in S_n, c} exp(z_ns[c])`.
    - "b": a mixture of one distribution T_n[k] per class k, `u_n[r, y] = sum_k f_n(k) T_n[k, r, y]`, with
      `T_n[k, r, y] = exp(W_r[k, y]) / sum_{s in S_n, c} exp(W_s[k, c])`.

    The paper proves that "b" is consistent: the network can learn the true class probabilities. All W_r start as the
    identity.

    In the paper, S_n are all annotators. Here S_n are the annotators who labelled the item, so that the cost of a step
    depends only on its labels. If all annotators label every item, both are the same. Each annotator in S_n gives
    exactly one label, so all annotators have the same influence, and missing labels cause no bias. The authors' public
    code differs in two points. Its loss of "b" is divided by the item's number of labels; here each label has the same
    weight in both variants. Its W_r starts 0.00001 away from the identity, or with counted matrices on some data sets.

    The confusion matrix of an annotator is `A_r[k, y] = softmax(W_r[k])[y]`.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    variant : {"a", "b"}
        Where the softmax is applied. "a": to the outputs, after the class probabilities are multiplied by the
        transition matrix. "b": to the rows of the transition matrix, before the multiplication.

    References
    ----------
    Wei, Xie, Feng, Han and An, "Deep learning from multiple noisy annotators as a union", IEEE TNNLS 2022.
    """

    def __init__(self, spec: ModelSpec, *, variant: Variant) -> None:
        super().__init__(spec)
        self.transition = nn.Parameter(torch.eye(spec.n_classes).repeat(spec.n_annotators, 1, 1))
        self.variant = variant

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the negative log-likelihood of the labels, as the class docstring defines it."""
        log_f = self.class_logits(h).log_softmax(1)
        losses = self._output_losses(log_f.exp(), batch) if self.variant == "a" else self._row_losses(log_f, batch)
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy on gold plus the losses of the item's labels given gold, the same for both variants."""
        label_losses = self._output_losses(one_hot(batch.gold, self.n_classes).to(h.dtype), batch)
        return super().gold_losses(h, batch) + scatter_sum(label_losses, batch.item, batch.n_items)

    def _output_losses(self, f: Tensor, batch: Batch) -> Tensor:
        """Return -log u_n[r, y] of each label in variant "a", (L,)."""
        active, position = active_annotators(batch.annotator, self.n_annotators)
        z = times_matrices(f, take_rows(self.transition, active), batch.item, position)
        log_total = segment_logsumexp(z.logsumexp(1), batch.item, batch.n_items)
        return log_total[batch.item] - z.gather(1, batch.label[:, None])[:, 0]

    def _row_losses(self, log_f: Tensor, batch: Batch) -> Tensor:
        """Return -log u_n[r, y] of each label in variant "b", (L,)."""
        active, position = active_annotators(batch.annotator, self.n_annotators)
        W = take_rows(self.transition, active)
        log_total = segment_logsumexp(W.logsumexp(2).index_select(0, position), batch.item, batch.n_items)  # (B, K)
        label_logits = label_log_probabilities(W, position, batch.label)  # W_r[k, y], (L, K)
        return -((log_f - log_total).index_select(0, batch.item) + label_logits).logsumexp(1)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the confusion matrices of the U given annotators, (U, K, K)."""
        return take_rows(self.transition, annotators).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators. Their block of the transition matrix is the mean of the existing blocks."""
        super().add_annotators(count)
        extend_tables(self, ("transition",), count)

    def log_prior(self, features: Tensor) -> Tensor:
        """Return the logarithms of the network's class probabilities of each item, (B, K)."""
        return self.class_logits(features).log_softmax(1)


def segment_logsumexp(values: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Return `log sum exp` of the rows of `values` that belong to the same item.

    Parameters
    ----------
    values : Tensor of shape (L, ...)
        One row per pair (item, annotator).
    item : Tensor of shape (L,)
        Position of each pair's item.
    n_items : int
        Number of items B.

    Returns
    -------
    log_sums : Tensor of shape (B, ...)
        0 for items without pairs.

    Examples
    --------
    >>> segment_logsumexp(torch.tensor([0.0, 0.0, 100.0]), torch.tensor([0, 0, 1]), 3)
    tensor([  0.6931, 100.0000,   0.0000])
    """
    index = item.view(-1, *[1] * (values.ndim - 1)).expand_as(values)
    largest = values.new_zeros(n_items, *values.shape[1:])
    largest = largest.scatter_reduce(0, index, values.detach(), "amax", include_self=False)
    total = scatter_sum((values - largest[item]).exp(), item, n_items)
    return torch.where(total > 0, total, 1).log() + largest
