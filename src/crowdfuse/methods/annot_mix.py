"""Annot-mix: mixup of inputs, labels and annotators.

Mixup trains on mixtures of two inputs and their labels, which makes wrong labels hard to memorize. If there are several
annotators, a label belongs to an item and to an annotator. Each training example is therefore a mixture of two labels:
of their inputs, their annotators and their classes. The network predicts the class, and a confusion matrix turns the
class into the annotator's label. The matrix is computed from an embedding of the annotator, and embeddings can be
mixed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Beta

from crowdfuse.functional import mixture_log_likelihood, rowwise_mixture_log_likelihood, scatter_sum
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.methods.global_confusions import GlobalConfusions
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding
from crowdfuse.nets.annotator_tables import active_annotators


class AnnotMix(GlobalConfusions):
    """Likelihood of mixed labels.

    Each training example is a mixture of two labels: of their inputs, their annotators and their classes. A labelled
    pair is one label with its input x, the embedding e of its annotator and its class y. Each pair is mixed with
    another pair `(x', e', y')` of the batch, which a random permutation selects. The share m of the first pair in the
    mixture is drawn from `Beta(alpha, alpha)`. The loss is `mean_n sum_{r in S_n} -m log p(y) - (1 - m) log p(y')`,
    where S_n are the annotators who labelled item n. The label probabilities of the mixture are
    `p = f(m x + (1 - m) x') A(m e + (1 - m) e')`, with the network's class probabilities f and the confusion matrix A.
    The matrix is `A(e) = softmax(W e + b)`, with a softmax over each row. Initially, e is 0 and b is such that
    annotators are right with probability `eta`, so all annotators are alike.

    Inputs are augmented once per item and then mixed. The backbone reads the mixed inputs, so it runs once per labelled
    pair. If items have three labels, a step takes three times as long as without mixing. If `alpha` is 0, nothing is
    mixed, and the backbone runs once per item.

    The matrices depend on the annotator alone, as in the version that the same authors wrote for scikit-activeml. In
    the code of their paper, the matrices also depend on the item. This implementation makes three choices of its own.
    Embeddings e start at 0. A label has the weight of its item, both in its own pair and in the pair that it is mixed
    into. Items with gold are not mixed.

    Mixing makes predictions less confident, so the probabilities are not calibrated.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    alpha : float
        Both parameters of the Beta distribution; 0 for no mixing.
    eta : float
        Initial probability that an annotator is right.
    embedding : int
        Length of an annotator's embedding.

    References
    ----------
    Herde, Lührs, Huseljic and Sick, "Annot-Mix: learning with noisy class labels from multiple annotators via a mixup
    extension", ECAI 2024.
    """

    def __init__(self, spec: ModelSpec, *, alpha: float, eta: float, embedding: int) -> None:
        super().__init__(spec)
        self.alpha = alpha
        if alpha:
            self.shares = Beta(alpha, alpha, validate_args=False)
        self.embed = AnnotatorEmbedding(spec.n_annotators, embedding)
        self.confuse = nn.Linear(embedding, spec.n_classes**2)
        start_logit = math.log(eta / (1 - eta) * (spec.n_classes - 1))
        with torch.no_grad():
            self.confuse.bias.copy_((start_logit * torch.eye(spec.n_classes)).flatten())

    def loss(self, batch: Batch) -> Loss:
        """Return the loss of mixed pairs and of items with gold.

        Mixed pairs and items with gold go through the backbone in one batch. Otherwise, a single item with gold would
        be a batch of its own, for which batch norm can fail.
        """
        if not self.alpha:
            return super().loss(batch)
        x = self.standardize(self.augment(batch.x))
        known = batch.gold >= 0
        if not known.any():
            return self._mixed_loss(x, batch, x[:0], None)
        return self._mixed_loss(x[~known], batch.select(~known), x[known], batch.select(known))

    def _mixed_loss(self, x: Tensor, crowd: Batch, x_gold: Tensor, gold_batch: Batch | None) -> Loss:
        """Return the loss of mixed pairs of `crowd` and of the items with gold, if any."""
        n_pairs = len(crowd.item)
        share = self.shares.sample((n_pairs,)).to(x)
        other = torch.randperm(n_pairs, device=x.device)
        mixed = _mix(share, x.index_select(0, crowd.item), x.index_select(0, crowd.item[other]))
        h = self.trunk(mixed if gold_batch is None else torch.cat([mixed, x_gold]))
        total = self._pair_losses(h[:n_pairs], crowd, share, other).sum()
        weight = crowd.labelled_weight.sum()
        if gold_batch is None:
            return Loss(total, weight)
        gold_losses = gold_batch.weight * self.gold_losses(h[n_pairs:], gold_batch)
        return Loss(total + gold_losses.sum(), weight + gold_batch.weight.sum())

    def _pair_losses(self, h: Tensor, batch: Batch, share: Tensor, other: Tensor) -> Tensor:
        """Return the losses (L,) of mixed pairs with features h (L, D), including item weights."""
        e = self.embed(batch.annotator)
        matrices = self.confuse(_mix(share, e, e.index_select(0, other))).view(-1, self.n_classes, self.n_classes)
        labels = torch.stack([batch.label, batch.label[other]], 1)
        log_p = rowwise_mixture_log_likelihood(self.class_logits(h), matrices, labels)
        weight = batch.weight[batch.item]
        label_weights = torch.stack([share * weight, (1 - share) * weight[other]], 1)
        return -(label_weights * log_p).sum(1)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the negative log-likelihood of the labels without mixing."""
        log_f = self.class_logits(h).log_softmax(1)
        active, position = active_annotators(batch.annotator, self.n_annotators)
        losses = -mixture_log_likelihood(log_f, self.log_confusions(active), batch.item, position, batch.label)
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy plus the negative log-likelihood of the item's labels given its class, (B,)."""
        log_likelihood = self.gold_label_log_likelihood(batch.annotator, batch.label, batch.gold[batch.item])
        return super().gold_losses(h, batch) - scatter_sum(log_likelihood, batch.item, batch.n_items)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the confusion matrices of the U given annotators, (U, K, K)."""
        logits: Tensor = self.confuse(self.embed(annotators)).view(-1, self.n_classes, self.n_classes)
        return logits.log_softmax(2)

    def log_prior(self, features: Tensor) -> Tensor:
        """Return the logarithms of the network's class probabilities of each item, (B, K)."""
        return self.class_logits(features).log_softmax(1)


def _mix(share: Tensor, values: Tensor, others: Tensor) -> Tensor:
    """Return `m v + (1 - m) v'` of each pair, with shares m (L,), values v and others v' of shape (L, ...)."""
    return torch.lerp(others, values, share.view(-1, *[1] * (values.ndim - 1)))
