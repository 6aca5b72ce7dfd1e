"""CoNAL (Chu, Ma and Wang, "Learning from crowds by modeling common confusions", AAAI 2021): common and own noise.

Annotators confuse some classes because everybody does, and others because they do. So there is one noise layer for
all and one an annotator, like those of the crowd layer, and for each label a weight says which of the two it came from:
it depends on the item, which may be one that everybody finds hard, and on the annotator.
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

INITIAL_DIAGONAL = 2.0  # on the diagonal of all matrices, as in the authors' code


class CoNAL(Method):
    """`mean_n sum_{r in S_n} [-log softmax(w_nr f_n G + (1 - w_nr) f_n W_r)[y_nr] - separation |G - W_r|]`.

    f_n are the class probabilities, G is the common matrix, W_r the annotator's, and `w_nr = sigmoid(u_r . v_n)` how
    much of the label is common: u_r and v_n, of length 1, describe annotator and item, v_n by a linear layer on the
    item's features (in the authors' code by layers of its own on the input). So w_nr lies between 0.27 and 0.73:
    neither matrix is ever out of play. All matrices start at twice the identity.

    Row k of a matrix is read as P(said | true = k) by its softmax. Since only `w G + (1 - w) W_r` is seen in a label,
    the matrices are told apart by what annotators have in common, and by the pull on `|G - W_r|`, the length of all K^2
    differences. Nothing bounds that pull from below but how small `separation` is.

    The pull counts once a label, so that a step costs what its labels cost. Where everybody labels everything that is
    the authors' code, which counts it once an annotator and step, and takes the mean over labels of the rest: its
    lambda is ours over R. From gold the matrices learn by their likelihood alone, with f_n the class.
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
        those, place = active_annotators(batch.annotator, self.n_annotators)
        W = take_rows(self.individual, those)
        logits = self._said_logits(self.class_logits(h).softmax(1), h, W, place, batch)
        apart = (self.common - W).flatten(1).norm(dim=1)[place]
        losses = cross_entropy(logits, batch.label, reduction="none") - self.separation * apart
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by one row of the two matrices."""
        those, place = active_annotators(batch.annotator, self.n_annotators)
        f = one_hot(batch.gold, self.n_classes).to(h.dtype)
        logits = self._said_logits(f, h, take_rows(self.individual, those), place, batch)
        said = cross_entropy(logits, batch.label, reduction="none")
        return super().gold_losses(h, batch) + scatter_sum(said, batch.item, batch.n_items)

    def _said_logits(self, f: Tensor, h: Tensor, W: Tensor, place: Tensor, batch: Batch) -> Tensor:
        """What annotators with matrices W (U, K, K) make of class probabilities f (B, K): (L, K)."""
        share = self.common_shares(h, batch.item, batch.annotator)[:, None]
        common = (f @ self.common).index_select(0, batch.item)
        return share * common + (1 - share) * times_matrices(f, W, batch.item, place)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        extend_tables(self, ("individual", "of_annotator"), count)

    # ---- what it has to say about annotators ---------------------------------------------------

    def common_shares(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """How much of what the annotator says of the item is common noise, w_nr, (L,)."""
        v = normalize(self.of_item(features)).index_select(0, item)
        return (normalize(take_rows(self.of_annotator, annotator)) * v).sum(1).sigmoid()

    def log_confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """The logs of the matrices of pairs, common and individual put together, (L, K, K)."""
        share = self.common_shares(features, item, annotator)[:, None, None]
        return (share * self.common + (1 - share) * take_rows(self.individual, annotator)).log_softmax(2)

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        return self.log_confusions(features, item, annotator).exp()

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class given the item's labels, with the network's prediction as the prior."""
        log_A = self.log_confusions(features, item, annotator)
        evidence = log_A.gather(2, label[:, None, None].expand(-1, self.n_classes, 1))[:, :, 0]
        return posterior(self.class_logits(features).log_softmax(1), evidence, item)
