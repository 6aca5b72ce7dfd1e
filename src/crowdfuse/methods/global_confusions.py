"""Methods with one confusion matrix an annotator, the same on every item: what an annotator says of each true class."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from crowdfuse.functional import label_log_probabilities, posterior
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.nets.annotator_tables import active_annotators, extend_tables

PSEUDO_COUNT_PER_CELL = 0.01  # added to every count: what was never seen is unlikely, not impossible


class GlobalConfusions(Method):
    """A method with matrices `A_r[k, y] = P(annotator r says y | the item is of class k)`, rows summing to 1."""

    confusion_given: ClassVar[Literal["true"]] = "true"

    @abstractmethod
    def log_confusions(self, annotators: Tensor) -> Tensor:
        """The logs of the matrices of some annotators (U,), (U, K, K), axes (true, said)."""

    @abstractmethod
    def log_prior(self, features: Tensor) -> Tensor:
        """What is known of each item before its labels are: log class probabilities (B, K)."""

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        those, place = active_annotators(annotator, self.n_annotators)
        return self.log_confusions(those).exp()[place]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class given the item's labels."""
        return posterior(self.log_prior(features), self.class_log_likelihoods(annotator, label), item)

    def class_log_likelihoods(self, annotator: Tensor, label: Tensor) -> Tensor:
        """`log A_r[k, y]` of each pair and class k, (L, K), from the matrices of those annotators alone."""
        those, place = active_annotators(annotator, self.n_annotators)
        return label_log_probabilities(self.log_confusions(those), place, label)


class CountedConfusions(GlobalConfusions):
    """Matrices and a class prior that are counted, not learned by gradients: R x K^2 numbers are kept."""

    prior: Tensor
    matrices: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        n_classes, n_annotators = spec.n_classes, spec.n_annotators
        self.register_buffer("prior", torch.full((n_classes,), 1 / n_classes))
        self.register_buffer("matrices", torch.full((n_annotators, n_classes, n_classes), 1 / n_classes))

    def log_confusions(self, annotators: Tensor) -> Tensor:
        return self.matrices[annotators].log()

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        extend_tables(self, ("matrices",), count)

    def log_prior(self, features: Tensor) -> Tensor:
        """The share of each class, the same for every item."""
        return self.prior.log().expand(len(features), -1)

    def estimate_confusions(self, data: TrainingData, classes: sparse.csr_array) -> None:
        """The M-step: prior and matrices, with `classes` (N, K) taken for the truth, but for gold, which is it.

        Who has no labels in this data keeps the matrix that is there.
        """
        ann, known = data.annotations, data.gold >= 0
        gold = (np.ones(known.sum()), (np.flatnonzero(known), data.gold[known]))
        classes = sparse.diags_array(1.0 - known) @ classes + sparse.csr_array(gold, shape=classes.shape)
        counted = data.weight * ((np.diff(ann.indptr) > 0) | known)
        prior = PSEUDO_COUNT_PER_CELL + counted @ classes
        # each label adds its item's row of classes to what is counted for its annotator and what was said
        said = (ann.annotator.astype(np.int64) * self.n_classes + ann.label, ann.item)
        pairs = sparse.csr_array((counted[ann.item], said), shape=(self.n_annotators * self.n_classes, len(data)))
        counts = PSEUDO_COUNT_PER_CELL + (pairs @ classes).toarray()
        matrices = counts.reshape(self.n_annotators, self.n_classes, self.n_classes).transpose(0, 2, 1)
        seen = np.bincount(ann.annotator, minlength=self.n_annotators) > 0
        self.prior.copy_(torch.from_numpy(prior / prior.sum()))
        self.matrices[seen] = torch.from_numpy((matrices / matrices.sum(2, keepdims=True))[seen]).to(self.matrices)
