"""Sample-wise label fusion (Gao et al., ECCV 2022): the paper's method.

Three heads read an item's features: class logits, a weight for each annotator, and for each annotator the
coefficients of a confusion matrix over a fixed basis of permutations. The labels of an item, cleaned by the
matrices and averaged by the weights, are the fused label on which the classifier is trained, all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from crowdfuse.functional import (
    basis_penalty,
    dense_confusions,
    fuse_by_basis,
    kl_divergence,
    penalty_form,
    permutation_basis,
    scatter_sum,
    segment_softmax,
)
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead, SeparateHeads

HeadFactory = Callable[[int, tuple[int, ...], int, int], nn.Module]
"""What makes a head, of the numbers of features, its hidden layers, and the numbers of annotators and outputs."""

MIN_GOLD_PROBABILITY = (
    1e-6  # of a fused label's share of the known class: where no permutation leads there, nothing can be learned
)


class BasisConfusions(nn.Module):
    """`P = sum_m c_m B_m`, c from a head and softmax: never built in training."""

    basis: Tensor
    form: Tensor

    def __init__(
        self,
        spec: ModelSpec,
        heads: HeadFactory,
        hidden: tuple[int, ...],
        n_bases: int,
        kind: Literal["random", "latin"],
    ) -> None:
        super().__init__()
        self.register_buffer("basis", permutation_basis(spec.n_classes, n_bases, kind, spec.seed))
        self.register_buffer("form", penalty_form(self.basis))
        # with the identity alone there is nothing to learn: the weights-only ablation
        self.head = (
            heads(spec.trunk.n_features, hidden, spec.n_annotators, len(self.basis)) if len(self.basis) > 1 else None
        )

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Coefficients (L, M)."""
        if self.head is None:
            return features.new_ones(len(item), 1)
        coefficients: Tensor = self.head(features, item, annotator).softmax(1)
        return coefficients

    def fuse(self, coefficients: Tensor, weights: Tensor, label: Tensor, item: Tensor, n_items: int) -> Tensor:
        return fuse_by_basis(weights, coefficients, label, item, self.basis, n_items)

    def penalty(self, coefficients: Tensor) -> Tensor:
        return basis_penalty(coefficients, self.form)

    def dense(self, coefficients: Tensor) -> Tensor:
        return dense_confusions(coefficients, self.basis)


class FullConfusions(nn.Module):
    """A free column-stochastic matrix a pair, for small K: what the basis does can be measured against it."""

    def __init__(self, spec: ModelSpec, heads: HeadFactory, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.n_classes = spec.n_classes
        self.head = heads(spec.trunk.n_features, hidden, spec.n_annotators, spec.n_classes**2)

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Matrices (L, K, K), axes (true, said)."""
        logits = self.head(features, item, annotator).view(-1, self.n_classes, self.n_classes)
        matrices: Tensor = logits.softmax(1)
        return matrices

    def fuse(self, matrices: Tensor, weights: Tensor, label: Tensor, item: Tensor, n_items: int) -> Tensor:
        pair = torch.arange(len(label), device=label.device)
        return scatter_sum(weights[:, None] * matrices[pair, :, label], item, n_items)

    def penalty(self, matrices: Tensor) -> Tensor:
        return (1 - matrices.diagonal(dim1=1, dim2=2)).square().sum(1)

    def dense(self, matrices: Tensor) -> Tensor:
        return matrices


class Fusion(Method):
    """`mean_n [ KL(t_n || f_n) + (lambda / R_n) sum_r sum_k (1 - P_kk)^2 ]`, gradients into both sides of the KL."""

    confusion_given = "said"

    def __init__(
        self,
        spec: ModelSpec,
        *,
        n_bases: int,
        basis: Literal["random", "latin"],
        penalty: float,
        confusions: Literal["basis", "full"],
        weights: Literal["learned", "uniform"],
        annotator_heads: Literal["shared", "separate", "embedded"],
        embedding: int,
        annotator_hidden: tuple[int, ...],
        loss_scale: Literal["plain", "paper"],
    ) -> None:
        super().__init__(spec)
        heads: HeadFactory = SeparateHeads if annotator_heads == "separate" else AnnotatorHead
        weigh: HeadFactory = AnnotatorHead
        if annotator_heads == "embedded":
            heads = weigh = partial(EmbeddedHead, embedding=AnnotatorEmbedding(spec.n_annotators, embedding))
        self.annotator_heads = annotator_heads
        self.takes_new_annotators = annotator_heads != "separate"
        self.confuse: BasisConfusions | FullConfusions = (
            BasisConfusions(spec, heads, annotator_hidden, n_bases, basis)
            if confusions == "basis"
            else FullConfusions(spec, heads, annotator_hidden)
        )
        self.weigh = (
            weigh(spec.trunk.n_features, annotator_hidden, spec.n_annotators, 1) if weights == "learned" else None
        )
        self.penalty = penalty
        self.loss_factor = 1 / spec.n_classes if loss_scale == "paper" else 1.0

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        t, c = self._fuse(h, batch.item, batch.annotator, batch.label)
        n_labels = torch.bincount(batch.item, minlength=batch.n_items)
        weight = batch.weight * (n_labels > 0)
        losses = kl_divergence(t, log_f) + self.penalty * self._penalties(c, batch.item, n_labels)
        return Loss(self.loss_factor * (weight * losses).sum(), weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Weights and matrices learn to make the known class of the labels: `-log t_n[gold]`, and the penalty."""
        t, c = self._fuse(h, batch.item, batch.annotator, batch.label)
        n_labels = torch.bincount(batch.item, minlength=batch.n_items)
        made = t.gather(1, batch.gold[:, None])[:, 0].clamp(min=MIN_GOLD_PROBABILITY)
        fusing = torch.where(n_labels > 0, -made.log(), 0)
        of_annotators = fusing + self.penalty * self._penalties(c, batch.item, n_labels)
        return super().gold_losses(h, batch) + self.loss_factor * of_annotators

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        if self.weigh is None:
            return super().weight_logits(features, item, annotator)
        scores: Tensor = self.weigh(features, item, annotator)[:, 0]
        return scores

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        return self.confuse.dense(self.confuse(features, item, annotator))

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        return self._fuse(features, item, annotator, label)[0]

    def _penalties(self, c: Tensor, item: Tensor, n_labels: Tensor) -> Tensor:
        """Of each item, (B,): the mean over its labels."""
        return scatter_sum(self.confuse.penalty(c), item, len(n_labels)) / n_labels.clamp(min=1)

    def _fuse(self, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Fused labels t (B, K), and the pairs' coefficients or matrices c that made them."""
        w = segment_softmax(self.weight_logits(h, item, annotator), item, len(h))
        c = self.confuse(h, item, annotator)
        return self.confuse.fuse(c, w, label, item, len(h)), c
