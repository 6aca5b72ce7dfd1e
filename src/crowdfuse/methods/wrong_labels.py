"""Distributions of wrong labels for the gated method, as tables with a zero diagonal."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from crowdfuse.functional import derangements, label_log_probabilities
from crowdfuse.nets.annotator_tables import PerAnnotator, active_annotators, extend_tables, take_rows

LOG_ZERO = -1e9  # stands for log 0 in a softmax
MAX_COUNTED_CELLS = 10**7  # if the tables of all annotators had more cells, one table is counted for all annotators
PSEUDO_LABELS_PER_ROW = 2.0  # added to the counts of each row, spread uniformly over the wrong classes
UNIFORM_MIXTURE_SHARE = 1e-6  # probability of a uniform wrong label, in mixtures of permutations


class WrongLabels(PerAnnotator):
    """Tables `W_r[k, y]`: the probability that annotator r gives label y to an item of class k, if r is wrong.

    Rows sum to 1 and the diagonal is 0.
    """

    n_classes: int

    def log_tables(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the given annotators' tables.

        Parameters
        ----------
        annotators : Tensor of shape (U,)
            Annotator indices.

        Returns
        -------
        log_tables : Tensor of shape (U, K, K), or (1, K, K) if all annotators share a table
        """
        raise NotImplementedError

    def forward(self, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log W_r[k, y]` for each label y of an annotator r, and each class k.

        Parameters
        ----------
        annotator, label : Tensor of shape (L,)
            Annotator and class of each label.

        Returns
        -------
        log_probabilities : Tensor of shape (L, K)
            The value for k = y is arbitrary, because label y is not wrong if the true class is y.
        """
        log_W, position = self._active_tables(annotator)
        return label_log_probabilities(log_W, position, label)

    def given(self, annotator: Tensor, truth: Tensor, label: Tensor) -> Tensor:
        """Return `log W_r[k, y]` for each label y of an annotator r, where k is the true class; 0 if y is right.

        Parameters
        ----------
        annotator, truth, label : Tensor of shape (L,)
            For each label, the annotator, the true class of the item, and the class that the label names.

        Returns
        -------
        log_probabilities : Tensor of shape (L,)
        """
        log_probabilities = self(annotator, label).gather(1, truth[:, None])[:, 0]
        return torch.where(truth == label, 0, log_probabilities)

    def matrices(self, annotator: Tensor) -> Tensor:
        """Return, for each label, the table of its annotator.

        Parameters
        ----------
        annotator : Tensor of shape (L,)
            Annotator of each label.

        Returns
        -------
        tables : Tensor of shape (L, K, K)
        """
        log_W, position = self._active_tables(annotator)
        return log_W.exp()[position]

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators. The implementation in the base class does nothing, which suits a shared table."""

    def count_labels(self, annotator: Tensor, label: Tensor, f: Tensor) -> None:
        """Count the tables after training. The base class does nothing, which suits learned tables.

        Parameters
        ----------
        annotator, label : Tensor of shape (L,)
            Annotator and class of each label.
        f : Tensor of shape (L, K)
            For each label, the class probabilities of its item.
        """

    def _active_tables(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-tables to compute, (U, K, K), and the position of each pair's table among them, (L,)."""
        return self.log_tables(annotator[:1]), torch.zeros_like(annotator)


class UniformWrongLabels(WrongLabels):
    """All wrong labels are equally likely.

    This is assumed in training. After training, tables are counted from the actual labels, for inspection only.

    Parameters
    ----------
    n_classes, n_annotators : int
        Numbers of classes and annotators.

    Attributes
    ----------
    counted_tables : Tensor of shape (R, K, K), or (1, K, K) if R K^2 is over 10^7
        Axes (annotator, true class, annotator's label).
    """

    counted_tables: Tensor

    def __init__(self, n_classes: int, n_annotators: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.is_per_annotator = n_annotators * n_classes**2 <= MAX_COUNTED_CELLS
        uniform = (1 - torch.eye(n_classes)) / (n_classes - 1)
        self.register_buffer("counted_tables", uniform.repeat(n_annotators if self.is_per_annotator else 1, 1, 1))

    def forward(self, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the logarithm of 1 / (K - 1) as a scalar, which broadcasts to (L, K)."""
        return torch.full((), -math.log(self.n_classes - 1), device=label.device)

    def given(self, annotator: Tensor, truth: Tensor, label: Tensor) -> Tensor:
        """Return the logarithm of 1 / (K - 1) for wrong labels and 0 for right labels, (L,)."""
        return torch.where(truth == label, 0.0, -math.log(self.n_classes - 1))

    def matrices(self, annotator: Tensor) -> Tensor:
        """Return, for each label, the counted table of its annotator, (L, K, K)."""
        return self.counted_tables[annotator if self.is_per_annotator else torch.zeros_like(annotator)]

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean of the existing tables."""
        if self.is_per_annotator:
            extend_tables(self, ("counted_tables",), count)

    def count_labels(self, annotator: Tensor, label: Tensor, f: Tensor) -> None:
        """Count the tables from labels (L,) and the class probabilities f (L, K) of their items."""
        K = self.n_classes
        table = annotator if self.is_per_annotator else torch.zeros_like(annotator)
        sums = torch.zeros(len(self.counted_tables) * K, K, dtype=f.dtype).index_add(0, table * K + label, f)
        counts = sums.view(-1, K, K).transpose(1, 2) * (1 - torch.eye(K, dtype=f.dtype))  # axes (true, label)
        uniform = (1 - torch.eye(K, dtype=f.dtype)) / (K - 1)
        tables = counts + PSEUDO_LABELS_PER_ROW * uniform
        self.counted_tables.copy_(tables / tables.sum(2, keepdim=True))


class SharedWrongLabels(WrongLabels):
    """One learned table for all annotators.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.logits = nn.Parameter(torch.zeros(1, n_classes, n_classes))

    def log_tables(self, annotators: Tensor) -> Tensor:
        """Return the logarithm of the table, (1, K, K)."""
        return _without_diagonal(self.logits).log_softmax(2)


class PerAnnotatorWrongLabels(WrongLabels):
    """One learned table per annotator, initially uniform. A step changes only the tables of annotators in its batch.

    Parameters
    ----------
    n_classes, n_annotators : int
        Numbers of classes and annotators.
    """

    def __init__(self, n_classes: int, n_annotators: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.logits = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))

    def _active_tables(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-tables of the annotators in the batch, and the position of each pair's table."""
        active, position = active_annotators(annotator, len(self.logits))
        return self.log_tables(active), position

    def log_tables(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the tables of the U given annotators, (U, K, K)."""
        return _without_diagonal(take_rows(self.logits, annotators)).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean logits of the existing annotators."""
        extend_tables(self, ("logits",), count)


class BasisWrongLabels(WrongLabels):
    """One table per annotator: a learned mixture of permutations without fixed points.

    Gao et al. (2022) use mixtures of permutations to map labels to true classes. Here they map the true class to a
    wrong label, so no permutation may map a class to itself.

    Parameters
    ----------
    n_classes, n_annotators : int
        Numbers of classes and annotators.
    n_bases : int
        Maximum number of permutations.
    seed : int
        Seed with which the permutations are drawn.
    """

    basis: Tensor

    def __init__(self, n_classes: int, n_annotators: int, n_bases: int, seed: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.register_buffer("basis", derangements(n_classes, n_bases, np.random.default_rng([seed, 4])))
        self.logits = nn.Parameter(torch.zeros(n_annotators, len(self.basis)))

    def _active_tables(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-tables of the annotators in the batch, and the position of each pair's table."""
        active, position = active_annotators(annotator, len(self.logits))
        return self.log_tables(active), position

    def log_tables(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the tables of the U given annotators, (U, K, K)."""
        shares = take_rows(self.logits, annotators).softmax(1)
        permutations = nn.functional.one_hot(self.basis, self.n_classes).to(shares.dtype)  # (M, K, K)
        tables = torch.einsum("um,mky->uky", shares, permutations)
        # no label may have probability 0, even if no permutation reaches it
        smoothed = (1 - UNIFORM_MIXTURE_SHARE) * tables + UNIFORM_MIXTURE_SHARE / (self.n_classes - 1)
        return _without_diagonal(smoothed.log())

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean logits of the existing annotators."""
        extend_tables(self, ("logits",), count)


def _without_diagonal(tables: Tensor) -> Tensor:
    """Return the tables with `LOG_ZERO` on the diagonal."""
    return tables.masked_fill(torch.eye(tables.shape[1], dtype=torch.bool, device=tables.device), LOG_ZERO)
