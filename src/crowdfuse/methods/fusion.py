"""Sample-wise label fusion (Gao et al., 2022).

Three heads read the features of an item. The first predicts class logits. The second predicts a weight for each
annotator. The third predicts a confusion matrix for each annotator, as coefficients over a fixed basis of permutations.
The matrices correct the labels of the item, and the weighted mean of the corrected labels is the fused label. The
classifier is trained on the fused label, and all heads are trained together.
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
"""Makes a head from the number of features, the hidden widths, and the numbers of annotators and outputs."""

MIN_GOLD_PROBABILITY = 1e-6
"""Lower bound for the probability of the gold class in a fused label, which is 0 if no permutation reaches it."""


class BasisConfusions(nn.Module):
    """Confusion matrices as mixtures of permutation matrices: `P = sum_m c_m B_m`.

    The coefficients c are the softmax of the outputs of a head. Training computes with c and never builds P. If M = 1,
    the only permutation is the identity, and there is no head: this ablation learns weights but no confusions.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    heads : HeadFactory
        Function that makes the head.
    hidden : tuple of int
        Widths of the hidden layers of the head.
    n_bases : int
        Maximum number of permutations M.
    kind : {"random", "latin"}
        Kind of the basis; see `permutation_basis`.
    """

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
        self.head = (
            heads(spec.trunk.n_features, hidden, spec.n_annotators, len(self.basis)) if len(self.basis) > 1 else None
        )

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the coefficients of the permutations for each pair (item, annotator), (L, M)."""
        if self.head is None:
            return features.new_ones(len(item), 1)
        coefficients: Tensor = self.head(features, item, annotator).softmax(1)
        return coefficients

    def fuse(self, coefficients: Tensor, weights: Tensor, label: Tensor, item: Tensor, n_items: int) -> Tensor:
        """Return the fused labels (B, K) from coefficients (L, M) and weights (L,)."""
        return fuse_by_basis(weights, coefficients, label, item, self.basis, n_items)

    def penalty(self, coefficients: Tensor) -> Tensor:
        """Return `sum_k (1 - P_kk)^2` of each pair, (L,)."""
        return basis_penalty(coefficients, self.form)

    def dense(self, coefficients: Tensor) -> Tensor:
        """Return the matrices, (L, K, K)."""
        return dense_confusions(coefficients, self.basis)


class FullConfusions(nn.Module):
    """Confusion matrices that are predicted without a basis; columns sum to 1.

    There is one matrix per pair (item, annotator), and the head has K^2 outputs per pair. This is meant for comparison
    with `BasisConfusions`, if there are few classes.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    heads : HeadFactory
        Function that makes the head.
    hidden : tuple of int
        Widths of the hidden layers of the head.
    """

    def __init__(self, spec: ModelSpec, heads: HeadFactory, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.n_classes = spec.n_classes
        self.head = heads(spec.trunk.n_features, hidden, spec.n_annotators, spec.n_classes**2)

    def forward(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the matrix of each pair, (L, K, K), axes (pair, true class, annotator's label)."""
        logits = self.head(features, item, annotator).view(-1, self.n_classes, self.n_classes)
        matrices: Tensor = logits.softmax(1)
        return matrices

    def fuse(self, matrices: Tensor, weights: Tensor, label: Tensor, item: Tensor, n_items: int) -> Tensor:
        """Return the fused labels (B, K) from matrices (L, K, K) and weights (L,)."""
        pair = torch.arange(len(label), device=label.device)
        return scatter_sum(weights[:, None] * matrices[pair, :, label], item, n_items)

    def penalty(self, matrices: Tensor) -> Tensor:
        """Return `sum_k (1 - P_kk)^2` of each pair, (L,)."""
        return (1 - matrices.diagonal(dim1=1, dim2=2)).square().sum(1)

    def dense(self, matrices: Tensor) -> Tensor:
        """Return the matrices, (L, K, K)."""
        return matrices


class Fusion(Method):
    """KL divergence between the fused label and the classifier's prediction, with a penalty on the confusion matrices.

    The loss is `mean_n [ KL(t_n || f_n) + (penalty / R_n) sum_{r in S_n} sum_k (1 - P_n,kk^r)^2 ]`, where `t_n = sum_{r
    in S_n} w_n^r P_n^r e_{y_n^r}` is the fused label of item n. f_n are the classifier's probabilities. S_n are the R_n
    annotators who labelled the item. The weights w_n are a softmax over S_n of the weight head's outputs. e_y is the
    one-hot vector of label y. Column j of the confusion matrix `P_n^r` is the distribution of the true class of item n
    if annotator r gives label j. Gradients flow into both sides of the KL divergence. Items without labels contribute
    nothing.

    For items with gold, the loss is the sum of cross-entropy, `-log t_n[gold]` and the penalty.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    n_bases : int
        Maximum number of permutations M. If it is 1, weights are learned but no confusions (an ablation).
    basis : {"random", "latin"}
        Kind of the basis; see `permutation_basis`.
    penalty : float
        Weight of the penalty (lambda in the paper).
    confusions : {"basis", "full"}
        "basis": mixtures of the permutations in the basis. "full": any matrix whose columns sum to 1, one per pair.
    weights : {"learned", "uniform"}
        "learned": weights are predicted by the network. "uniform": all weights are equal; only confusions are learned
        (an ablation).
    annotator_heads : {"shared", "separate", "embedded"}
        Class of the heads that predict weights and matrices. "shared": `AnnotatorHead`. "separate": `SeparateHeads` for
        the matrices and `AnnotatorHead` for the weights. "embedded": `EmbeddedHead`.
    embedding : int
        Length of an annotator's embedding, used only if `annotator_heads` is "embedded".
    annotator_hidden : tuple of int
        Widths of the hidden layers of the heads for weights and matrices.
    loss_scale : {"plain", "paper"}
        "paper": the loss is divided by K, as in the paper's code. "plain": it is not.

    References
    ----------
    Gao et al., "Learning from multiple annotator noisy labels via sample-wise label fusion", ECCV 2022.
    """

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
        """Return the KL divergence to the fused labels, and the penalty."""
        log_f = self.class_logits(h).log_softmax(1)
        t, c = self._fuse(h, batch.item, batch.annotator, batch.label)
        n_labels = torch.bincount(batch.item, minlength=batch.n_items)
        weight = batch.weight * (n_labels > 0)
        losses = kl_divergence(t, log_f) + self.penalty * self._penalties(c, batch.item, n_labels)
        return Loss(self.loss_factor * (weight * losses).sum(), weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy, `-log t_n[gold]` of the fused label, and the penalty, (B,)."""
        t, c = self._fuse(h, batch.item, batch.annotator, batch.label)
        n_labels = torch.bincount(batch.item, minlength=batch.n_items)
        gold_probability = t.gather(1, batch.gold[:, None])[:, 0].clamp(min=MIN_GOLD_PROBABILITY)
        fusion_losses = torch.where(n_labels > 0, -gold_probability.log(), 0)
        annotator_losses = fusion_losses + self.penalty * self._penalties(c, batch.item, n_labels)
        return super().gold_losses(h, batch) + self.loss_factor * annotator_losses

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the outputs of the weight head, or 0 for uniform weights, (L,)."""
        if self.weigh is None:
            return super().weight_logits(features, item, annotator)
        scores: Tensor = self.weigh(features, item, annotator)[:, 0]
        return scores

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair (item, annotator), P(true class | label), (L, K, K)."""
        return self.confuse.dense(self.confuse(features, item, annotator))

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the fused label of each item, (B, K)."""
        return self._fuse(features, item, annotator, label)[0]

    def _penalties(self, c: Tensor, item: Tensor, n_labels: Tensor) -> Tensor:
        """Return the mean penalty over the labels of each item, (B,)."""
        return scatter_sum(self.confuse.penalty(c), item, len(n_labels)) / n_labels.clamp(min=1)

    def _fuse(self, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return the fused labels t (B, K), and the coefficients or matrices c of the pairs."""
        w = segment_softmax(self.weight_logits(h, item, annotator), item, len(h))
        c = self.confuse(h, item, annotator)
        return self.confuse.fuse(c, w, label, item, len(h)), c
