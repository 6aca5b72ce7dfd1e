"""Base classes of methods with one confusion matrix per annotator, the same for every item."""

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

PSEUDO_COUNT_PER_CELL = 0.01  # added to every count, so that no label has probability 0


class GlobalConfusions(Method):
    """Base class of methods with one confusion matrix per annotator r: `A_r[k, y] = P(label y | true class k)`.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.

    See Also
    --------
    CountedConfusions : Base class of methods that estimate these matrices from counts, not by gradient descent.
    """

    confusion_given: ClassVar[Literal["true"]] = "true"

    @abstractmethod
    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the given annotators' confusion matrices.

        Parameters
        ----------
        annotators : Tensor of shape (U,)
            Annotator indices.

        Returns
        -------
        log_confusions : Tensor of shape (U, K, K)
            Axes (annotator, true class, annotator's label).
        """

    @abstractmethod
    def log_prior(self, features: Tensor) -> Tensor:
        """Return the log-probability of each class for each item, before the labels of the item are known.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.

        Returns
        -------
        log_prior : Tensor of shape (B, K)
        """

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the confusion matrix of the annotator.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator : Tensor of shape (L,)
            For each pair, the position of the item in the batch and the index of the annotator.

        Returns
        -------
        matrices : Tensor of shape (L, K, K)
            Axes (pair, true class, annotator's label); rows sum to 1.
        """
        active, position = active_annotators(annotator, self.n_annotators)
        return self.log_confusions(active).exp()[position]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior class probabilities of each item, computed from its prior (`log_prior`) and its labels.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator, label : Tensor of shape (L,)
            For each label, the position of the item in the batch, the index of the annotator, and the class.

        Returns
        -------
        posterior : Tensor of shape (B, K)
            Rows of items without labels are 0.
        """
        return posterior(self.log_prior(features), self.class_log_likelihoods(annotator, label), item)

    def class_log_likelihoods(self, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log A_r[k, y]` for each label y and class k: the log-probability of the label if the class is k.

        A_r is the confusion matrix of the annotator r who gave the label.

        Parameters
        ----------
        annotator : Tensor of shape (L,)
            Annotator of each label.
        label : Tensor of shape (L,)
            Class of each label.

        Returns
        -------
        log_likelihoods : Tensor of shape (L, K)
        """
        active, position = active_annotators(annotator, self.n_annotators)
        return label_log_probabilities(self.log_confusions(active), position, label)

    def gold_label_log_likelihood(self, annotator: Tensor, label: Tensor, gold: Tensor) -> Tensor:
        """Return `log A_r[gold, y]` for each label y: the log-probability of the label given the item's gold class.

        A_r is the confusion matrix of the annotator r who gave the label.

        Parameters
        ----------
        annotator : Tensor of shape (L,)
            Annotator of each label.
        label : Tensor of shape (L,)
            Class of each label.
        gold : Tensor of shape (L,)
            For each label, the gold class of its item.

        Returns
        -------
        log_likelihood : Tensor of shape (L,)
        """
        return self.class_log_likelihoods(annotator, label).gather(1, gold[:, None])[:, 0]


class CountedConfusions(GlobalConfusions):
    """Base class of methods that estimate confusion matrices and a class prior from counts, not by gradient descent.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.

    Attributes
    ----------
    prior : Tensor of shape (K,)
        Prior probability of each class.
    matrices : Tensor of shape (R, K, K)
        Confusion matrices, with axes (annotator, true class, annotator's label); rows sum to 1.
    """

    prior: Tensor
    matrices: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        n_classes, n_annotators = spec.n_classes, spec.n_annotators
        self.register_buffer("prior", torch.full((n_classes,), 1 / n_classes))
        self.register_buffer("matrices", torch.full((n_annotators, n_classes, n_classes), 1 / n_classes))

    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the given annotators' confusion matrices.

        Parameters
        ----------
        annotators : Tensor of shape (U,)
            Annotator indices.

        Returns
        -------
        log_confusions : Tensor of shape (U, K, K)
            Axes (annotator, true class, annotator's label).
        """
        return self.matrices[annotators].log()

    def add_annotators(self, count: int) -> None:
        """Append annotators whose confusion matrix is the mean of all existing matrices.

        Parameters
        ----------
        count : int
            Number of annotators to add.
        """
        super().add_annotators(count)
        extend_tables(self, ("matrices",), count)

    def log_prior(self, features: Tensor) -> Tensor:
        """Return the logarithm of the class prior, the same for every item.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.

        Returns
        -------
        log_prior : Tensor of shape (B, K)
        """
        return self.prior.log().expand(len(features), -1)

    def estimate_confusions(self, data: TrainingData, classes: sparse.csr_array) -> None:
        """Set `prior` and `matrices` from weighted counts, as in the M-step of EM.

        The true class of a row is uncertain, so the row is counted once for each class. The count is the row's weight
        times the probability of the class. The labels of the row are counted in the same way. Annotators without labels
        in this data keep their matrices.

        Parameters
        ----------
        data : TrainingData
            The training data.
        classes : csr_array of shape (N, K)
            Class probabilities of each row. Ignored for rows with gold, whose gold class has probability 1.
        """
        ann, known = data.annotations, data.gold >= 0
        gold = (np.ones(known.sum()), (np.flatnonzero(known), data.gold[known]))
        classes = sparse.diags_array(1.0 - known) @ classes + sparse.csr_array(gold, shape=classes.shape)
        row_weight = data.weight * ((np.diff(ann.indptr) > 0) | known)
        prior = PSEUDO_COUNT_PER_CELL + row_weight @ classes
        # each label adds its item's class probabilities to the counts of its annotator and label
        cell = (ann.annotator.astype(np.int64) * self.n_classes + ann.label, ann.item)
        pairs = sparse.csr_array((row_weight[ann.item], cell), shape=(self.n_annotators * self.n_classes, len(data)))
        counts = PSEUDO_COUNT_PER_CELL + (pairs @ classes).toarray()
        matrices = counts.reshape(self.n_annotators, self.n_classes, self.n_classes).transpose(0, 2, 1)
        seen = np.bincount(ann.annotator, minlength=self.n_annotators) > 0
        self.prior.copy_(torch.from_numpy(prior / prior.sum()))
        self.matrices[seen] = torch.from_numpy((matrices / matrices.sum(2, keepdims=True))[seen]).to(self.matrices)
