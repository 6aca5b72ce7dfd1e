"""Crowd layer: one output layer per annotator on top of the network.

The network predicts the class, and each annotator's layer turns the prediction into the annotator's labels. Network and
layers are trained together by backpropagation on the labels. The layers are not used for prediction.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crowdfuse.functional import scatter_sum
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.methods.global_confusions import GlobalConfusions
from crowdfuse.nets.annotator_heads import MAX_DENSE_CELLS_PER_PAIR
from crowdfuse.nets.annotator_tables import active_annotators, extend_tables, take_rows

Layer = Literal["matrix", "vector", "bias", "vector+bias"]


class CrowdLayer(GlobalConfusions):
    """Cross-entropy of each label on the output of its annotator's layer.

    The loss is `mean_n sum_{r in S_n} -log softmax(g_r(f_n))[y_nr]`, where f_n are the class probabilities of item n,
    S_n are the annotators who labelled it, y_nr are their labels and g_r is the layer of annotator r. All labels have
    the same weight, as in the authors' code.

    The layer acts on probabilities and is followed by a softmax, as in the authors' code. If the network is certain of
    class k, annotator r gives label y with probability `A_r[k, y] = softmax(g_r(e_k))[y]`, where e_k is the one-hot
    vector of class k. A_r is the reported confusion matrix. If the network is not certain, the distribution of the
    label is not `f_n A_r`, so the network's probabilities are not calibrated. Before training, an annotator is right
    with probability e / (e + K - 1), where e is Euler's number. This probability is low if there are many classes.

    For items with gold, the likelihood of label y is `A_r[gold, y]`.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    layer : {"matrix", "vector", "bias", "vector+bias"}
        Form of the layer g_r. "matrix": `f W_r` (MW in the paper). "vector": `w_r * f` (VW). "bias": `f + b_r` (VB).
        "vector+bias": `w_r * f + b_r` (VW+B). All start as the identity: W_r = I, w_r = 1, b_r = 0.

    References
    ----------
    Rodrigues and Pereira, "Deep learning from crowds", AAAI 2018.
    """

    matrix: nn.Parameter
    vector: nn.Parameter
    bias: nn.Parameter

    def __init__(self, spec: ModelSpec, *, layer: Layer) -> None:
        super().__init__(spec)
        R, K = spec.n_annotators, spec.n_classes
        self.tables: tuple[str, ...] = {
            "matrix": ("matrix",),
            "vector": ("vector",),
            "bias": ("bias",),
            "vector+bias": ("vector", "bias"),
        }[layer]
        starts = {"matrix": torch.eye(K).repeat(R, 1, 1), "vector": torch.ones(R, K), "bias": torch.zeros(R, K)}
        for name in self.tables:
            self.register_parameter(name, nn.Parameter(starts[name]))

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the cross-entropy of the labels, each on the output of its annotator's layer."""
        logits = self.label_logits(self.class_logits(h).softmax(1), batch.item, batch.annotator)
        losses = cross_entropy(logits, batch.label, reduction="none")
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def label_logits(self, f: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item n, annotator r), the output `g_r(f_n)` of the annotator's layer.

        Parameters
        ----------
        f : Tensor of shape (B, K)
            Class probabilities of the items.
        item, annotator : Tensor of shape (L,)
            For each pair, the position of the item in the batch and the index of the annotator.

        Returns
        -------
        logits : Tensor of shape (L, K)
        """
        if "matrix" in self.tables:
            active, position = active_annotators(annotator, self.n_annotators)
            return times_matrices(f, take_rows(self.matrix, active), item, position)
        logits = f.index_select(0, item)
        if "vector" in self.tables:
            logits = logits * take_rows(self.vector, annotator)
        if "bias" in self.tables:
            logits = logits + take_rows(self.bias, annotator)
        return logits

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy on gold plus the negative log-likelihood of the item's labels given gold, (B,)."""
        log_likelihood = self.gold_label_log_likelihood(batch.annotator, batch.label, batch.gold[batch.item])
        return super().gold_losses(h, batch) - scatter_sum(log_likelihood, batch.item, batch.n_items)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the confusion matrices of the U given annotators, (U, K, K)."""
        if "matrix" in self.tables:
            return take_rows(self.matrix, annotators).log_softmax(2)
        K = self.n_classes
        certain = torch.eye(K, device=annotators.device)
        true_class = torch.arange(K, device=annotators.device).repeat(len(annotators))
        return self.label_logits(certain, true_class, annotators.repeat_interleave(K)).view(-1, K, K).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean of the existing annotators' layers."""
        super().add_annotators(count)
        extend_tables(self, self.tables, count)

    def log_prior(self, features: Tensor) -> Tensor:
        """Return the logarithms of the network's class probabilities of each item, (B, K)."""
        return self.class_logits(features).log_softmax(1)


def times_matrices(f: Tensor, matrices: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
    """Return `f_n W_r` of each pair (item, annotator).

    Parameters
    ----------
    f : Tensor of shape (B, K)
        One row per item.
    matrices : Tensor of shape (U, K, K)
        One matrix W_r per annotator.
    item, annotator : Tensor of shape (L,)
        Position of the item in `f` and of the annotator in `matrices`.

    Returns
    -------
    products : Tensor of shape (L, K)

    Examples
    --------
    >>> W = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [2.0, 0.0]]])
    >>> times_matrices(torch.tensor([[0.9, 0.1]]), W, torch.tensor([0, 0]), torch.tensor([0, 1]))
    tensor([[0.9000, 0.1000],
            [0.2000, 1.8000]])
    """
    n_items, n_matrices = len(f), len(matrices)
    if n_items * n_matrices > MAX_DENSE_CELLS_PER_PAIR * len(item):
        return torch.bmm(f.index_select(0, item)[:, None], matrices.index_select(0, annotator))[:, 0]
    dense = f @ matrices.permute(1, 0, 2).flatten(1)  # (B, U K)
    return dense.view(n_items * n_matrices, -1).index_select(0, item * n_matrices + annotator)
