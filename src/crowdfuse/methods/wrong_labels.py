"""What annotators say when they are wrong: tables with a zero diagonal, for the gated method."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from crowdfuse.functional import derangements, label_log_probabilities
from crowdfuse.nets.annotator_tables import PerAnnotator, active_annotators, extend_tables, take_rows

LOG_ZERO = -1e9  # the log of a chance of 0, as softmax can take it
MAX_COUNTED_CELLS = 10**7  # numbers in tables that are only looked at
PSEUDO_LABELS_PER_ROW = 2.0  # labels, spread evenly, that are added to what was counted
UNIFORM_MIXTURE_SHARE = 1e-6  # how often, with a basis, any wrong class is said


class WrongLabels(PerAnnotator):
    """`W_r[k, y]`: of an item of class k, annotator r says y instead. Rows sum to 1, the diagonal is 0."""

    n_classes: int

    def log_tables(self, annotators: Tensor) -> Tensor:
        """The logs of some annotators' tables (U,), (U, K, K), or (1, K, K) where all have the same."""
        raise NotImplementedError

    def forward(self, annotator: Tensor, label: Tensor) -> Tensor:
        """`log W_r[k, y]` of each pair and class k, (L, K); of the class that was said, what does not matter."""
        log_W, place = self._tables(annotator)
        return label_log_probabilities(log_W, place, label)

    def given(self, annotator: Tensor, truth: Tensor, label: Tensor) -> Tensor:
        """`log W_r[k, y]` where k is known, (L,); 0 where the label is right."""
        at = self(annotator, label).gather(1, truth[:, None])[:, 0]
        return torch.where(truth == label, 0, at)

    def matrices(self, annotator: Tensor) -> Tensor:
        """The tables of some pairs, (L, K, K)."""
        log_W, place = self._tables(annotator)
        return log_W.exp()[place]

    def add_annotators(self, count: int) -> None:
        """Where all have the same table, newcomers have it too."""

    def count_labels(self, annotator: Tensor, label: Tensor, f: Tensor) -> None:
        """Update tables that are counted after training; learned tables need nothing."""

    def _tables(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_tables(annotator[:1]), torch.zeros_like(annotator)


class UniformWrongLabels(WrongLabels):
    """All wrong classes alike, as the paper's made-up annotators choose them.

    That is for training. To be looked at, there are tables of what was really said, counted at the end: R x K^2
    numbers, where these are not too many.
    """

    counted_tables: Tensor

    def __init__(self, n_classes: int, n_annotators: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.is_per_annotator = n_annotators * n_classes**2 <= MAX_COUNTED_CELLS
        even = (1 - torch.eye(n_classes)) / (n_classes - 1)
        self.register_buffer("counted_tables", even.repeat(n_annotators if self.is_per_annotator else 1, 1, 1))

    def forward(self, annotator: Tensor, label: Tensor) -> Tensor:
        return torch.full((), -math.log(self.n_classes - 1), device=label.device)

    def given(self, annotator: Tensor, truth: Tensor, label: Tensor) -> Tensor:
        return torch.where(truth == label, 0.0, -math.log(self.n_classes - 1))

    def matrices(self, annotator: Tensor) -> Tensor:
        return self.counted_tables[annotator if self.is_per_annotator else torch.zeros_like(annotator)]

    def add_annotators(self, count: int) -> None:
        if self.is_per_annotator:
            extend_tables(self, ("counted_tables",), count)

    def count_labels(self, annotator: Tensor, label: Tensor, f: Tensor) -> None:
        """Tables from labels (L,), and how likely each class is for their items (L, K)."""
        K = self.n_classes
        place = annotator if self.is_per_annotator else torch.zeros_like(annotator)
        said = torch.zeros(len(self.counted_tables) * K, K, dtype=f.dtype).index_add(0, place * K + label, f)
        counts = said.view(-1, K, K).transpose(1, 2) * (1 - torch.eye(K, dtype=f.dtype))  # axes (true, said)
        even = (1 - torch.eye(K, dtype=f.dtype)) / (K - 1)
        tables = counts + PSEUDO_LABELS_PER_ROW * even
        self.counted_tables.copy_(tables / tables.sum(2, keepdim=True))


class SharedWrongLabels(WrongLabels):
    """One table for all, learned."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.logits = nn.Parameter(torch.zeros(1, n_classes, n_classes))

    def log_tables(self, annotators: Tensor) -> Tensor:
        return _without_diagonal(self.logits).log_softmax(2)


class PerAnnotatorWrongLabels(WrongLabels):
    """A table an annotator, learned, even at the start: R x K^2 numbers, of which a step moves those in its batch."""

    def __init__(self, n_classes: int, n_annotators: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.logits = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))

    def _tables(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        those, place = active_annotators(annotator, len(self.logits))
        return self.log_tables(those), place

    def log_tables(self, annotators: Tensor) -> Tensor:
        return _without_diagonal(take_rows(self.logits, annotators)).log_softmax(2)

    def add_annotators(self, count: int) -> None:
        extend_tables(self, ("logits",), count)


class BasisWrongLabels(WrongLabels):
    """The paper's basis read forward: a mixture, an annotator, of permutations that leave no class in its place."""

    basis: Tensor

    def __init__(self, n_classes: int, n_annotators: int, n_bases: int, seed: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.register_buffer("basis", derangements(n_classes, n_bases, np.random.default_rng([seed, 4])))
        self.logits = nn.Parameter(torch.zeros(n_annotators, len(self.basis)))

    def _tables(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        those, place = active_annotators(annotator, len(self.logits))
        return self.log_tables(those), place

    def log_tables(self, annotators: Tensor) -> Tensor:
        shares = take_rows(self.logits, annotators).softmax(1)
        says = nn.functional.one_hot(self.basis, self.n_classes).to(shares.dtype)  # (M, K, K)
        tables = torch.einsum("um,mky->uky", shares, says)
        # no permutation may lead from a class to a label that is said all the same
        possible = (1 - UNIFORM_MIXTURE_SHARE) * tables + UNIFORM_MIXTURE_SHARE / (self.n_classes - 1)
        return _without_diagonal(possible.log())

    def add_annotators(self, count: int) -> None:
        extend_tables(self, ("logits",), count)


def _without_diagonal(tables: Tensor) -> Tensor:
    return tables.masked_fill(torch.eye(tables.shape[1], dtype=torch.bool, device=tables.device), LOG_ZERO)
