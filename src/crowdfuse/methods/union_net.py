"""UnionNet (Wei, Xie, Feng, Han and An, "Deep learning from multiple noisy annotators as a union", TNNLS 2022).

What all annotators say of an item is taken as one: their labels, one after the other, are one long target, and one
transition matrix leads from the K classes to all that all annotators can say. Its rows are distributions over all of
it, so that annotators are fitted together and not each for itself.
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
    """`mean_n sum_{r in S_n} -log u_n[r, y_nr]`, u_n a distribution over all that the annotators of item n can say.

    With f_n the class probabilities:
    "a": `u_n[r, y] = exp(z_nr[y]) / sum_{s in S_n, c} exp(z_ns[c])`, `z_nr = f_n W_r`.
    "b": `u_n[r, y] = sum_k f_n(k) T_n[k, r, y]`, `T_n[k, r, y] = exp(W_r[k, y]) / sum_{s in S_n, c} exp(W_s[k, c])`.

    "a" makes a distribution of the outputs, "b" of each row of the transition matrix. "b" is a mixture over the
    classes, so that its network can come to the true class probabilities: the paper proves its method consistent.
    Either way the transition matrix is the R matrices W_r side by side, all the identity at the start.

    In the paper S_n is everybody. Here it is who labelled the item, so that a step costs what its labels cost, with
    thousands of annotators too; where everybody labels everything the two are the same. Every annotator in a union says
    one thing, so all have the same share of it, whoever they are: the model is as right with labels missing as without.
    Code that is public divides the loss of "b" by the number of labels of an item, and starts 0.00001 off the identity,
    on some data sets at counted matrices; here, as in "a", each label counts the same.

    Within the union, an annotator says y of class k with `A_r[k, y] = softmax(W_r[k])[y]`: its confusion matrix.
    """

    def __init__(self, spec: ModelSpec, *, variant: Variant) -> None:
        super().__init__(spec)
        self.transition = nn.Parameter(torch.eye(spec.n_classes).repeat(spec.n_annotators, 1, 1))
        self.variant = variant

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        losses = self._of_outputs(log_f.exp(), batch) if self.variant == "a" else self._of_rows(log_f, batch)
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, labels are explained by one row of the transition matrix; the variants are the same."""
        said = self._of_outputs(one_hot(batch.gold, self.n_classes).to(h.dtype), batch)
        return super().gold_losses(h, batch) + scatter_sum(said, batch.item, batch.n_items)

    def _of_outputs(self, f: Tensor, batch: Batch) -> Tensor:
        """-log u_n[r, y] of each label by "a", (L,)."""
        those, place = active_annotators(batch.annotator, self.n_annotators)
        z = times_matrices(f, take_rows(self.transition, those), batch.item, place)
        whole = segment_logsumexp(z.logsumexp(1), batch.item, batch.n_items)
        return whole[batch.item] - z.gather(1, batch.label[:, None])[:, 0]

    def _of_rows(self, log_f: Tensor, batch: Batch) -> Tensor:
        """-log u_n[r, y] of each label by "b", (L,)."""
        those, place = active_annotators(batch.annotator, self.n_annotators)
        W = take_rows(self.transition, those)
        whole = segment_logsumexp(W.logsumexp(2).index_select(0, place), batch.item, batch.n_items)  # (B, K)
        said = label_log_probabilities(W, place, batch.label)  # W_r[k, y], (L, K)
        return -((log_f - whole).index_select(0, batch.item) + said).logsumexp(1)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        return take_rows(self.transition, annotators).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        extend_tables(self, ("transition",), count)

    def log_prior(self, features: Tensor) -> Tensor:
        """The network's prediction."""
        return self.class_logits(features).log_softmax(1)


def segment_logsumexp(values: Tensor, item: Tensor, n_items: int) -> Tensor:
    """`log sum exp` of the rows of `values` (L, ...) that belong to the same item, (B, ...); 0 where there are none.

    >>> segment_logsumexp(torch.tensor([0.0, 0.0, 100.0]), torch.tensor([0, 0, 1]), 3)
    tensor([  0.6931, 100.0000,   0.0000])
    """
    place = item.view(-1, *[1] * (values.ndim - 1)).expand_as(values)
    largest = values.new_zeros(n_items, *values.shape[1:])
    largest = largest.scatter_reduce(0, place, values.detach(), "amax", include_self=False)
    total = scatter_sum((values - largest[item]).exp(), item, n_items)
    return torch.where(total > 0, total, 1).log() + largest
