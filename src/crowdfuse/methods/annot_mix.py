"""Annot-mix (Herde, Lührs, Huseljic and Sick, ECAI 2024): mixup that knows who said what.

Mixup trains on blends of two inputs and their labels, which makes wrong labels hard to learn by heart. With several
annotators a label belongs to an item and to an annotator, so all three are blended: a little of this item, this
annotator and this label, the rest of another's. A network says what an item is, a confusion matrix what the annotator
makes of it, and a matrix depends on its annotator by an embedding, which can be blended.
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
    """With s = (x, e, y) a labelled pair's input, annotator embedding and label, s' another of the batch, drawn by a
    permutation, and `m ~ Beta(alpha, alpha)` drawn for each pair:

    `mean_n sum_{r in S_n} -m log p(y) - (1 - m) log p(y')`, where `p = f(m x + (1 - m) x') A(m e + (1 - m) e')`.

    `A(e) = softmax(W e + b)`, a row at a time. b starts where annotators are right with probability `eta`, e at 0: all
    annotators alike. Annotators have no features but who they are, and mixing one-hot features is mixing embeddings.

    Inputs are mixed after augmentation, once an item, and before the backbone, which therefore runs once a labelled
    pair, not once an item: with three labels an item a step takes three times as long. No two pairs share a mixed
    input, so that this is the least there is. With alpha 0 nothing is mixed, and the backbone runs once an item.

    The matrices are those of scikit-activeml's version, which has the same authors; their own code lets them depend on
    the item too. Decided here: e starts at 0; a label counts as much as its own item, in its own pair and in the pair
    that it is mixed into; gold items are certain and not mixed. The figures are no calibrated likelihood, as mixing
    makes them cautious.
    """

    def __init__(self, spec: ModelSpec, *, alpha: float, eta: float, embedding: int) -> None:
        super().__init__(spec)
        self.alpha = alpha
        if alpha:
            self.shares = Beta(alpha, alpha, validate_args=False)
        self.embed = AnnotatorEmbedding(spec.n_annotators, embedding)
        self.confuse = nn.Linear(embedding, spec.n_classes**2)
        right = math.log(eta / (1 - eta) * (spec.n_classes - 1))
        with torch.no_grad():
            self.confuse.bias.copy_((right * torch.eye(spec.n_classes)).flatten())

    def loss(self, batch: Batch) -> Loss:
        """Of mixed pairs; gold items go through the backbone beside them, so that batch norm never sees one row."""
        if not self.alpha:
            return super().loss(batch)
        x = self.standardize(self.augment(batch.x))
        known = batch.gold >= 0
        if not known.any():
            return self._mixed_loss(x, batch, x[:0], None)
        return self._mixed_loss(x[~known], batch.select(~known), x[known], batch.select(known))

    def _mixed_loss(self, x: Tensor, crowd: Batch, x_certain: Tensor, certain: Batch | None) -> Loss:
        n_pairs = len(crowd.item)
        share = self.shares.sample((n_pairs,)).to(x)
        other = torch.randperm(n_pairs, device=x.device)
        mixed = _mix(share, x.index_select(0, crowd.item), x.index_select(0, crowd.item[other]))
        h = self.trunk(mixed if certain is None else torch.cat([mixed, x_certain]))
        total = self._mixed_losses(h[:n_pairs], crowd, share, other).sum()
        weight = crowd.labelled_weight.sum()
        if certain is None:
            return Loss(total, weight)
        of_gold = certain.weight * self.gold_losses(h[n_pairs:], certain)
        return Loss(total + of_gold.sum(), weight + certain.weight.sum())

    def _mixed_losses(self, h: Tensor, batch: Batch, share: Tensor, other: Tensor) -> Tensor:
        """The losses of features h (L, D) of mixed pairs, (L,): item weights included."""
        e = self.embed(batch.annotator)
        matrices = self.confuse(_mix(share, e, e.index_select(0, other))).view(-1, self.n_classes, self.n_classes)
        labels = torch.stack([batch.label, batch.label[other]], 1)
        log_p = rowwise_mixture_log_likelihood(self.class_logits(h), matrices, labels)
        weight = batch.weight[batch.item]
        counts = torch.stack([share * weight, (1 - share) * weight[other]], 1)
        return -(counts * log_p).sum(1)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Without mixing."""
        log_f = self.class_logits(h).log_softmax(1)
        those, place = active_annotators(batch.annotator, self.n_annotators)
        losses = -mixture_log_likelihood(log_f, self.log_confusions(those), batch.item, place, batch.label)
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by its annotator's matrix alone."""
        of_truth = self.class_log_likelihoods(batch.annotator, batch.label).gather(1, batch.gold[batch.item][:, None])[
            :, 0
        ]
        return super().gold_losses(h, batch) - scatter_sum(of_truth, batch.item, batch.n_items)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        return self._log_matrices(self.embed(annotators))

    def _log_matrices(self, embeddings: Tensor) -> Tensor:
        logits: Tensor = self.confuse(embeddings).view(-1, self.n_classes, self.n_classes)
        return logits.log_softmax(2)

    def log_prior(self, features: Tensor) -> Tensor:
        """The network's prediction."""
        return self.class_logits(features).log_softmax(1)


def _mix(share: Tensor, values: Tensor, others: Tensor) -> Tensor:
    """`m v + (1 - m) v'` of each pair, (L, ...), with `share` m (L,), `values` v and `others` v', (L, ...) each."""
    return torch.lerp(others, values, share.view(-1, *[1] * (values.ndim - 1)))
