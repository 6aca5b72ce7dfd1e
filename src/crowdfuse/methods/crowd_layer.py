"""Crowd layer (Rodrigues and Pereira, "Deep learning from crowds", AAAI 2018): a last layer an annotator, on top.

The network says what an item is, and each annotator's layer turns that into what the annotator says of it. All are
trained at once on the labels as they come, by backpropagation alone. To predict, the layers are taken off again.
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
from crowdfuse.nets.annotator_tables import active_annotators, extend_tables, take_rows

MAX_DENSE_CELLS_PER_PAIR = 16  # times the labels: so many products cost less in one than each with a copy of its matrix

Layer = Literal["matrix", "vector", "bias", "vector+bias"]


class CrowdLayer(GlobalConfusions):
    """`mean_n sum_{r in S_n} -log softmax(g_r(f_n))[y_nr]`, f_n the class probabilities, g_r the annotator's layer:

    "matrix": `g_r(f) = f W_r`, the paper's MW; "vector": `w_r * f`, VW; "bias": `f + b_r`, VB; "vector+bias":
    `w_r * f + b_r`, VW+B. All start as the identity: W_r = I, w_r = 1, b_r = 0.

    The layer acts on probabilities, and a softmax follows, as in the authors' code: where the network is sure of class
    k, the annotator says y with `A_r[k, y] = softmax(g_r(e_k))[y]`, and that is the confusion matrix that is shown.
    Where it is not sure the model is no mixture of these, so the probabilities of the network are not to be believed
    as such. At the start A_r is right with probability e / (e + K - 1): little where there are many classes.

    Each label counts the same, as in the authors' code. With the class known from gold, a label is explained by A_r
    alone.
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
        logits = self.said_logits(self.class_logits(h).softmax(1), batch.item, batch.annotator)
        losses = cross_entropy(logits, batch.label, reduction="none")
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def said_logits(self, f: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """`g_r(f_n)`: what layers make of class probabilities f (B, K), for pairs (L,), (L,) to (L, K)."""
        if "matrix" in self.tables:
            those, place = active_annotators(annotator, self.n_annotators)
            return times_matrices(f, take_rows(self.matrix, those), item, place)
        logits = f.index_select(0, item)
        if "vector" in self.tables:
            logits = logits * take_rows(self.vector, annotator)
        if "bias" in self.tables:
            logits = logits + take_rows(self.bias, annotator)
        return logits

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by its annotator's matrix alone."""
        of_truth = self.class_log_likelihoods(batch.annotator, batch.label).gather(1, batch.gold[batch.item][:, None])[
            :, 0
        ]
        return super().gold_losses(h, batch) - scatter_sum(of_truth, batch.item, batch.n_items)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        if "matrix" in self.tables:
            return take_rows(self.matrix, annotators).log_softmax(2)
        K = self.n_classes
        certain = torch.eye(K, device=annotators.device)
        each = torch.arange(K, device=annotators.device).repeat(len(annotators))
        return self.said_logits(certain, each, annotators.repeat_interleave(K)).view(-1, K, K).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        extend_tables(self, self.tables, count)

    def log_prior(self, features: Tensor) -> Tensor:
        """The network's prediction."""
        return self.class_logits(features).log_softmax(1)


def times_matrices(f: Tensor, matrices: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
    """`f_n W_r` of each pair (item, annotator), (L, K), for f (B, K) and matrices (U, K, K).

    >>> W = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [2.0, 0.0]]])
    >>> times_matrices(torch.tensor([[0.9, 0.1]]), W, torch.tensor([0, 0]), torch.tensor([0, 1]))
    tensor([[0.9000, 0.1000],
            [0.2000, 1.8000]])
    """
    n_items, n_matrices = len(f), len(matrices)
    if n_items * n_matrices > MAX_DENSE_CELLS_PER_PAIR * len(item):
        return torch.bmm(f.index_select(0, item)[:, None], matrices.index_select(0, annotator))[:, 0]
    every = f @ matrices.permute(1, 0, 2).flatten(1)  # (B, U K)
    return every.view(n_items * n_matrices, -1).index_select(0, item * n_matrices + annotator)
