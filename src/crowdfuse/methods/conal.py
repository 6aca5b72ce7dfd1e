"""CoNAL: confusions that are common to all annotators, and individual confusions of each annotator.

There is one noise layer for all annotators, and one noise layer per annotator. These layers are like the layers of the
crowd layer method. For each label, the common layer and the annotator's own layer are mixed. The share of the common
layer depends on the annotator and on the item, because some items are hard for everybody.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from crowdfuse.functional import posterior, scatter_sum
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.crowd_layer import times_matrices
from crowdfuse.methods.data import Batch
from crowdfuse.nets.annotator_tables import active_annotators, extend_tables, take_rows

INITIAL_DIAGONAL = 2.0  # initial diagonal of all matrices, as in the authors' code


class CoNAL(Method):
    """Cross-entropy of each label on a mixture of a common and an individual noise layer.

    The loss is `mean_n sum_{r in S_n} [-log softmax(w_nr f_n G + (1 - w_nr) f_n W_r)[y_nr] - separation |G - W_r|]`,
    where f_n are the class probabilities of item n, S_n are the annotators who labelled it, y_nr are their labels, G is
    the common matrix and W_r is the matrix of annotator r. The share of common noise is `w_nr = sigmoid(u_r . v_n)`,
    where u_r is an embedding of the annotator and v_n is an embedding of the item. Both embeddings have norm 1, so w_nr
    lies between 0.27 and 0.73, and neither matrix is ever ignored. v_n is computed by a linear layer on the item's
    features (in the authors' code, by separate layers on the input). All matrices start at twice the identity.

    The softmax of row k of a matrix is P(label | true class k). The labels of an annotator depend only on the mixture
    `w G + (1 - w) W_r`, so they alone do not determine G and W_r. Two things do: what the annotators have in common,
    and the separation term. In this term, `|G - W_r|` is the Euclidean norm of all K^2 differences. The term has no
    lower bound, so `separation` must be small.

    The separation term is added once per label, so that the cost of a step depends only on its labels. The authors'
    code adds it once per annotator and step, and averages the cross-entropy over labels. So if all R annotators label
    every item, the lambda of the authors' code equals `separation / R`. Items with gold train the matrices by the
    likelihood alone; f_n is then the one-hot vector of the true class.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    separation : float
        Weight of the separation term.
    embedding : int
        Length of the embeddings u_r and v_n.

    References
    ----------
    Chu, Ma and Wang, "Learning from crowds by modeling common confusions", AAAI 2021.
    """

    confusion_given: ClassVar[Literal["true"]] = "true"

    def __init__(self, spec: ModelSpec, *, separation: float, embedding: int) -> None:
        super().__init__(spec)
        start = INITIAL_DIAGONAL * torch.eye(spec.n_classes)
        self.common = nn.Parameter(start.clone())
        self.individual = nn.Parameter(start.repeat(spec.n_annotators, 1, 1))
        self.of_item = nn.Linear(spec.trunk.n_features, embedding)
        self.of_annotator = nn.Parameter(torch.randn(spec.n_annotators, embedding))
        self.separation = separation

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the cross-entropy of the labels, minus the separation term."""
        active, position = active_annotators(batch.annotator, self.n_annotators)
        W = take_rows(self.individual, active)
        logits = self._label_logits(self.class_logits(h).softmax(1), h, W, position, batch)
        distance = (self.common - W).flatten(1).norm(dim=1)[position]
        losses = cross_entropy(logits, batch.label, reduction="none") - self.separation * distance
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy on the gold class plus the cross-entropy of the item's labels given this class, (B,)."""
        active, position = active_annotators(batch.annotator, self.n_annotators)
        f = one_hot(batch.gold, self.n_classes).to(h.dtype)
        logits = self._label_logits(f, h, take_rows(self.individual, active), position, batch)
        label_losses = cross_entropy(logits, batch.label, reduction="none")
        return super().gold_losses(h, batch) + scatter_sum(label_losses, batch.item, batch.n_items)

    def _label_logits(self, f: Tensor, h: Tensor, W: Tensor, position: Tensor, batch: Batch) -> Tensor:
        """Return the label logits (L, K) for class probabilities f (B, K) and individual matrices W (U, K, K)."""
        share = self.common_shares(h, batch.item, batch.annotator)[:, None]
        common = (f @ self.common).index_select(0, batch.item)
        return share * common + (1 - share) * times_matrices(f, W, batch.item, position)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean matrix and the mean embedding of the existing annotators."""
        super().add_annotators(count)
        extend_tables(self, ("individual", "of_annotator"), count)

    # ---- what the method says about annotators -------------------------------------------------

    def common_shares(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the share of the common noise layer in the mixture.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator : Tensor of shape (L,)
            For each pair, the position of the item in the batch and the index of the annotator.

        Returns
        -------
        shares : Tensor of shape (L,)
        """
        v = normalize(self.of_item(features)).index_select(0, item)
        return (normalize(take_rows(self.of_annotator, annotator)) * v).sum(1).sigmoid()

    def log_confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the logarithm of the confusion matrix of each pair (item, annotator), (L, K, K)."""
        share = self.common_shares(features, item, annotator)[:, None, None]
        return (share * self.common + (1 - share) * take_rows(self.individual, annotator)).log_softmax(2)

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair (item, annotator), (L, K, K)."""
        return self.log_confusions(features, item, annotator).exp()

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior class probabilities of each item, with the network's prediction as the prior, (B, K)."""
        log_A = self.log_confusions(features, item, annotator)
        log_likelihoods = log_A.gather(2, label[:, None, None].expand(-1, self.n_classes, 1))[:, :, 0]
        return posterior(self.class_logits(features).log_softmax(1), log_likelihoods, item)
