"""COINNet: one confusion matrix per annotator, and outlier terms for items to which the matrices do not apply.

On most items, annotators make the errors that their matrices predict. On a few items, the outliers, several annotators
make other errors, which depend on the item. Each label may have an outlier term: a probability that is added to the
prediction of the matrix. The loss penalizes outlier terms, so that few items have them.
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

POWER = 0.4  # p, as in the paper's code: a small outlier term costs nearly as much as a large outlier term
EPSILON = 1e-10
N_SOLVER_ITERATIONS = 20
WARMUP_EPOCH_SHARE = 0.3  # first part of the epochs, without outliers: an untrained network finds them everywhere


class COINNet(GeoCrowdNet):
    """Likelihood of each label with outlier terms per item and a volume term.

    The loss is the minimum over outlier terms d of `mean_n [sum_{r in S_n} -log(q_nr + d_nr) + cost M_n (sum_r d_nr^2 /
    M_n + eps)^(p/2)] - volume_weight log det G`, where S_n are the annotators who labelled item n, y_nr are their
    labels, f_n are the item's class probabilities and A_r is the confusion matrix of annotator r. The likelihood of a
    label is `q_nr = (f_n A_r)[y_nr]`. The cost of outlier terms is `cost = outlier_weight log K`, with the constants p
    (`POWER`) and eps (`EPSILON`). If `outlier_weight` is 1, an item is an outlier roughly if its labels are less likely
    than chance. M_n is the larger of the item's number of labels and the mean number of labels per item. So an item
    does not become an outlier because of a single wrong label, or only because it has many labels. The volume term has
    `G = K mean_n f_n f_n^T`, as in `GeoCrowdNet`.

    In the paper, the outlier term of a label is a vector e_nr with one entry per class, such that `f_n A_r + e_nr` is a
    distribution. The norm of all terms of an item is penalized. The likelihood depends only on the entry of the given
    label, d_nr, which lies between 0 and 1 - q_nr. The other entries subtract the same amount from the other classes.
    So the norm of e_nr equals d_nr up to a factor between 1 and sqrt(2), which is absorbed by the weight. The factor
    and the divisor M_n keep items with more labels from becoming outliers sooner. The authors' code also sums the
    losses of an item's labels, but there the terms of an item cost `0.01 M_n (sum_r |e_nr|^2)^(p/2)`. For ten classes
    and three labels, this is about 1/200 of the cost here. In the authors' code, the terms start at 0, grow in small
    steps while the network learns, and never come close to the minimum.

    The terms of an item do not depend on other items. So the best terms are computed from network, matrices and labels
    (`outlier_terms`); they are not learned as parameters. Therefore nothing is stored per item, the cost of a step
    depends only on its labels, and the terms of any item can be computed at any time. For items with gold, the terms
    apply to the likelihood under the gold class.

    As long as the network is untrained, the best terms would turn whole classes into outliers, and these classes would
    never be learned. So there are no outlier terms in the first 30 % of the epochs. In the authors' code, the terms are
    close to 0 at first. (30 % is the first value that was tried. Without this warm-up, the test accuracy was lower.)

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    outlier_weight : float
        Cost of outlier terms, in units of log K.
    volume_weight : float
        Weight of the volume term.
    start : float or None
        Initial probability that an annotator is right; see `GeoCrowdNet`.

    References
    ----------
    Nguyen, Ibrahim and Fu, "Noisy label learning with instance-dependent outliers: identifiability via crowd wisdom",
    NeurIPS 2024.
    """

    mean_labels_per_item: Tensor

    def __init__(self, spec: ModelSpec, *, outlier_weight: float, volume_weight: float, start: float | None) -> None:
        super().__init__(spec, regularizer="f", volume_weight=volume_weight, start=start)
        self.cost = outlier_weight * math.log(spec.n_classes)
        self.register_buffer("mean_labels_per_item", torch.ones(()))

    def prepare(self, data: TrainingData) -> None:
        """Set the mean number of labels per labelled item."""
        counts = np.diff(data.annotations.indptr)
        labelled = counts > 0
        self.mean_labels_per_item.fill_(float(np.average(counts[labelled], weights=data.weight[labelled])))

    def unsupported_reason(self, data: TrainingData) -> str | None:
        """Return an error message if no training item has two or more labels."""
        if ((np.diff(data.annotations.indptr) > 1) & (data.weight > 0)).any():
            return None
        return (
            "coin-net finds outliers by comparing the labels of an item, but no training item has two or more labels; "
            "use a method that works with one label per item, such as trace-reg, gated or majority-vote"
        )

    def phases(self, epochs: int) -> list[Phase]:
        """Return two phases: the first without outlier terms, the second with outlier terms."""
        warmup = max(1, round(WARMUP_EPOCH_SHARE * epochs))
        if warmup >= epochs:
            return [Phase("matrices", epochs)]
        return [Phase("matrices", warmup, selection="never"), Phase("outliers", epochs - warmup)]

    def item_losses(self, log_likelihood: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each item's labels, with the best outlier terms in the second phase, (B,)."""
        if self.phase_index == 0:
            return super().item_losses(log_likelihood, batch)
        return outlier_losses(log_likelihood, batch.item, batch.n_items, self.cost, self.mean_labels_per_item)

    def outliers(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the outlier term of each label: the probability that is added to the likelihood of the label.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator, label : Tensor of shape (L,)
            For each label, the position of the item in the batch, the index of the annotator, and the class.

        Returns
        -------
        terms : Tensor of shape (L,)
        """
        log_q = (self.log_prior(features)[item] + self.class_log_likelihoods(annotator, label)).logsumexp(1)
        return outlier_terms(log_q.exp(), item, len(features), self.cost, self.mean_labels_per_item)

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior class probabilities of each item, (B, K). Labels of outliers are weak evidence."""
        terms = self.outliers(features, item, annotator, label)
        log_likelihoods = torch.logaddexp(self.class_log_likelihoods(annotator, label), terms.log()[:, None])
        return posterior(self.log_prior(features), log_likelihoods, item)


def outlier_losses(log_likelihood: Tensor, item: Tensor, n_items: int, cost: float, mean_labels: Tensor) -> Tensor:
    """Return the loss of each item's labels, minimized over the outlier terms.

    Each outlier term is computed from the likelihood q of its label. Gradients flow through this computation only for
    terms at their upper bound 1 - q. For all other terms, the derivative of the loss with respect to the term is 0,
    because they are at a minimum of the loss.

    Parameters
    ----------
    log_likelihood : Tensor of shape (L,)
        Log-likelihood of each label.
    item : Tensor of shape (L,)
        For each label, the position of its item in the batch.
    n_items : int
        Number of items B.
    cost : float
        Factor of the cost of outlier terms.
    mean_labels : Tensor of shape ()
        Mean number of labels per item.

    Returns
    -------
    losses : Tensor of shape (B,)

    Examples
    --------
    >>> likelihood = torch.tensor([0.9, 0.01, 0.01])
    >>> outlier_losses(likelihood.log(), torch.tensor([0, 1, 1]), 2, 1.0, torch.tensor(2.0))
    tensor([0.1054, 1.9720])
    """
    likelihood = log_likelihood.exp()
    terms = outlier_terms(likelihood.detach(), item, n_items, cost, mean_labels)
    is_used = terms > 0
    terms = torch.where(is_used & (terms >= 1 - likelihood), 1 - likelihood, terms)
    losses = -torch.where(is_used, torch.where(is_used, likelihood + terms, 1).log(), log_likelihood)
    return scatter_sum(losses, item, n_items) + _outlier_costs(terms, item, n_items, cost, mean_labels)


def outlier_terms(likelihood: Tensor, item: Tensor, n_items: int, cost: float, mean_labels: Tensor) -> Tensor:
    """Return the outlier terms d that minimize the loss of each item.

    The loss is `sum_r -log(q_r + d_r) + cost M ((sum_r d_r^2 / M + eps)^(p/2) - eps^(p/2))` with `0 <= d_r <= 1 - q_r`,
    where q_r is the likelihood of the label of annotator r, M is the larger of the item's number of labels and
    `mean_labels`, and p and eps are the constants `POWER` and `EPSILON`.

    There are two candidates: d = 0, and the result of an iteration that starts at `d = 1 - q`. The candidate with the
    lower loss is returned. Each step of the iteration replaces the cost by an upper bound that equals the cost at the
    current d: `a sum_r d_r^2 / 2` plus a constant. The new d is the minimum of the loss with this bound,
    `d_r = (sqrt(q_r^2 + 4 / a) - q_r) / 2`, or `1 - q_r` if this is smaller. So no step increases the loss.

    Parameters
    ----------
    likelihood : Tensor of shape (L,)
        Likelihood q of each label.
    item : Tensor of shape (L,)
        For each label, the position of its item in the batch.
    n_items : int
        Number of items B.
    cost : float
        Factor of the cost of outlier terms.
    mean_labels : Tensor of shape ()
        Mean number of labels per item.

    Returns
    -------
    terms : Tensor of shape (L,)

    Examples
    --------
    >>> outlier_terms(torch.tensor([0.9, 0.01, 0.01]), torch.tensor([0, 1, 1]), 2, 1.0, torch.tensor(2.0))
    tensor([0.0000, 0.9900, 0.9900])
    """
    terms = 1 - likelihood
    for _ in range(N_SOLVER_ITERATIONS):
        _, square = _mean_squares(terms, item, n_items, mean_labels)
        a = cost * POWER * (square + EPSILON) ** (POWER / 2 - 1)
        terms = (((likelihood.square() + 4 / a[item]).sqrt() - likelihood) / 2).minimum(1 - likelihood)
    _, square = _mean_squares(terms, item, n_items, mean_labels)
    gain = scatter_sum((likelihood + terms).log() - likelihood.log(), item, n_items)
    is_outlier = (square > EPSILON) & (gain > _outlier_costs(terms, item, n_items, cost, mean_labels))
    return terms * is_outlier[item]


def _mean_squares(terms: Tensor, item: Tensor, n_items: int, mean_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return M and `sum_r d_r^2 / M` of each item, (B,) each."""
    count = torch.bincount(item, minlength=n_items).to(terms.dtype).maximum(mean_labels)
    return count, scatter_sum(terms.square(), item, n_items) / count


def _outlier_costs(terms: Tensor, item: Tensor, n_items: int, cost: float, mean_labels: Tensor) -> Tensor:
    """Return `cost M ((sum_r d_r^2 / M + eps)^(p/2) - eps^(p/2))` of each item, (B,)."""
    count, square = _mean_squares(terms, item, n_items, mean_labels)
    powers: Tensor = (square + EPSILON) ** (POWER / 2) - EPSILON ** (POWER / 2)
    return cost * count * powers
