"""COINNet (Nguyen, Ibrahim and Fu, NeurIPS 2024): confusion matrices, and items on which they do not hold.

"Noisy Label Learning with Instance-Dependent Outliers: Identifiability via Crowd Wisdom". On most items annotators err
as their matrices say; on a few they err in a way of the item's own, together. Each label of an item may have an outlier
term that explains what the matrix cannot, and using any costs an item so much that few items do.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from crowdfuse.functional import posterior, scatter_sum
from crowdfuse.methods.base import ModelSpec, Phase
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.geo_crowd_net import GeoCrowdNet

POWER = 0.4  # p, as in the paper's code: a little of an outlier term costs nearly as much as a lot
EPSILON = 1e-10
N_SOLVER_ITERATIONS = 20
WARMUP_EPOCH_SHARE = 0.3  # of the epochs: a network that knows nothing yet finds outliers everywhere


class COINNet(GeoCrowdNet):
    """`mean_n [sum_{r in S_n} -log(q_nr + d_nr) + cost M_n (sum_r d_nr^2 / M_n + eps)^(p/2)]`, less a volume,

    `volume_weight log det G`, as in `GeoCrowdNet`; the loss is the least over all outlier terms d.

    `q_nr = (f_n A_r)[y_nr]`, `G = K mean_n f_n f_n^T` and `cost = outlier_weight log K`: with a weight of 1 an item is
    an outlier about where its labels are less likely than chance. M_n is the number of its labels, or the mean of that
    over items where it is more: a single wrong label makes no outlier, and neither do many labels.

    The paper has a term e_nr for every class, with `f_n A_r + e_nr` a distribution, and the norm of all terms of an
    item. All that the likelihood sees of a term is what it adds to the label, d_nr, between 0 and 1 - q_nr; the rest is
    taken from other classes, and the norm of e_nr is d_nr but for a factor between 1 and sqrt(2), which the weight
    absorbs. The powers of M_n are there so that an item with more labels is no outlier sooner. In the authors' code the
    terms of an item cost 0.01 M_n (sum_r |e_nr|^2)^(p/2) beside a sum over labels, about 1/200 of ours with ten classes
    and three labels: theirs start at 0 and grow by small steps, while the network learns, and never come near the
    least.

    The terms of an item depend on those of no other. So they are not learned step by step and stored: the best ones
    follow from network, matrices and labels (`outlier_terms`), and the loss is what is left with these. Nothing is kept
    for rows, a step costs what its labels do, and any items can be asked for their terms at any time. Gold items
    have terms for what the matrices say of the class that is known.

    The best terms for a network that knows nothing yet make outliers of whole classes, which then are never learned. So
    there are none in the first 30 % of the epochs, as there are hardly any in the authors' code at first. (That share
    is the first that was tried, after test accuracy had been seen to fall without it.)
    """

    mean_labels_per_item: Tensor

    def __init__(self, spec: ModelSpec, *, outlier_weight: float, volume_weight: float, start: float | None) -> None:
        super().__init__(spec, regularizer="f", volume_weight=volume_weight, start=start)
        self.cost = outlier_weight * math.log(spec.n_classes)
        self.register_buffer("mean_labels_per_item", torch.ones(()))

    def prepare(self, data: TrainingData) -> None:
        """How many labels an item usually has."""
        counts = np.diff(data.annotations.indptr)
        labelled = counts > 0
        self.mean_labels_per_item.fill_(float(np.average(counts[labelled], weights=data.weight[labelled])))

    def unsupported_reason(self, data: TrainingData) -> str | None:
        if ((np.diff(data.annotations.indptr) > 1) & (data.weight > 0)).any():
            return None
        return (
            "coin-net finds outliers by what several annotators say of one item, and no item has two labels to train "
            "on: take a method that needs no overlap, such as trace-reg, gated or majority-vote"
        )

    def phases(self, epochs: int) -> list[Phase]:
        """First the matrices alone."""
        without = max(1, round(WARMUP_EPOCH_SHARE * epochs))
        if without >= epochs:
            return [Phase("matrices", epochs)]
        return [Phase("matrices", without, selection="never"), Phase("outliers", epochs - without)]

    def item_losses(self, log_likelihood: Tensor, batch: Batch) -> Tensor:
        if self.phase_index == 0:
            return super().item_losses(log_likelihood, batch)
        return outlier_losses(log_likelihood, batch.item, batch.n_items, self.cost, self.mean_labels_per_item)

    def outliers(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """How far the labels of each item are explained by outlier terms, (L,): what is added to their likelihood."""
        log_q = (self.log_prior(features)[item] + self.class_log_likelihoods(annotator, label)).logsumexp(1)
        return outlier_terms(log_q.exp(), item, len(features), self.cost, self.mean_labels_per_item)

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class given the item's labels: those of an outlier tell little."""
        terms = self.outliers(features, item, annotator, label)
        evidence = torch.logaddexp(self.class_log_likelihoods(annotator, label), terms.log()[:, None])
        return posterior(self.log_prior(features), evidence, item)


def outlier_losses(log_likelihood: Tensor, item: Tensor, n_items: int, cost: float, mean_labels: Tensor) -> Tensor:
    """What the labels of each item cost with the best outlier terms, (B,), from their log-likelihoods (L,).

    Terms that fill up the likelihood to 1 move with it; others are at their best, where their gradient is 0.

    >>> likely = torch.tensor([0.9, 0.01, 0.01])
    >>> outlier_losses(likely.log(), torch.tensor([0, 1, 1]), 2, 1.0, torch.tensor(2.0))
    tensor([0.1054, 1.9720])
    """
    likely = log_likelihood.exp()
    terms = outlier_terms(likely.detach(), item, n_items, cost, mean_labels)
    moved = terms > 0
    terms = torch.where(moved & (terms >= 1 - likely), 1 - likely, terms)
    losses = -torch.where(moved, torch.where(moved, likely + terms, 1).log(), log_likelihood)
    return scatter_sum(losses, item, n_items) + _cost(terms, item, n_items, cost, mean_labels)


def outlier_terms(likely: Tensor, item: Tensor, n_items: int, cost: float, mean_labels: Tensor) -> Tensor:
    """The terms d (L,) that are best for labels of likelihood q (L,): the least

    `sum_r -log(q_r + d_r) + cost M ((sum_r d_r^2 / M + eps)^(p/2) - eps^(p/2))` of each item, `0 <= d_r <= 1 - q_r`,
    M the number of its labels, or `usual` where that is more.

    None at all, or what is reached from all that is possible: in turn, the power is replaced by the parabola that
    touches it from above, and `d_r = (sqrt(q_r^2 + 4 / a) - q_r) / 2` is least for `a d_r^2 / 2`. That never goes up.

    >>> outlier_terms(torch.tensor([0.9, 0.01, 0.01]), torch.tensor([0, 1, 1]), 2, 1.0, torch.tensor(2.0))
    tensor([0.0000, 0.9900, 0.9900])
    """
    terms = 1 - likely
    for _ in range(N_SOLVER_ITERATIONS):
        _, square = _squares(terms, item, n_items, mean_labels)
        a = cost * POWER * (square + EPSILON) ** (POWER / 2 - 1)
        terms = (((likely.square() + 4 / a[item]).sqrt() - likely) / 2).minimum(1 - likely)
    _, square = _squares(terms, item, n_items, mean_labels)
    gained = scatter_sum((likely + terms).log() - likely.log(), item, n_items)
    is_outlier = (square > EPSILON) & (gained > _cost(terms, item, n_items, cost, mean_labels))
    return terms * is_outlier[item]


def _squares(terms: Tensor, item: Tensor, n_items: int, mean_labels: Tensor) -> tuple[Tensor, Tensor]:
    """M and `sum_r d_r^2 / M` of each item, (B,) each."""
    count = torch.bincount(item, minlength=n_items).to(terms.dtype).maximum(mean_labels)
    return count, scatter_sum(terms.square(), item, n_items) / count


def _cost(terms: Tensor, item: Tensor, n_items: int, cost: float, mean_labels: Tensor) -> Tensor:
    """`cost M ((sum_r d_r^2 / M + eps)^(p/2) - eps^(p/2))` of each item, (B,)."""
    count, square = _squares(terms, item, n_items, mean_labels)
    powers: Tensor = (square + EPSILON) ** (POWER / 2) - EPSILON ** (POWER / 2)
    return cost * count * powers
