"""GeoCrowdNet (Ibrahim, Nguyen and Fu, ICLR 2023): confusion matrices that a volume makes the only ones.

"Deep Learning From Crowdsourced Labels: Coupled Cross-Entropy Minimization, Identifiability, and Regularization".
Network and matrices together explain the labels, and many pairs of them do so equally well: a network that is less
sure with annotators who are less often wrong, or the other way round. Among all of these, take the one whose class
probabilities spread the furthest, or the one whose matrices do.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from crowdfuse.functional import mixture_log_likelihood, scatter_sum
from crowdfuse.methods.base import Loss, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.methods.global_confusions import GlobalConfusions
from crowdfuse.nets.annotator_tables import active_annotators, append_mean_rows, take_rows

JITTER = 1e-3  # added to the eigenvalues, which are 1 where the volume is largest


class GeoCrowdNet(GlobalConfusions):
    """`mean_n sum_{r in S_n} -log (f_n A_r)[y_nr] - volume_weight log det G`, f_n the class probabilities.

    For "f", `G = K mean_n f_n f_n^T`: right where some items are certainly of each class, however bad annotators are.
    For "w", `G = mean_r A_r A_r^T`: right where each class has annotators who know it, however unsure the items are.

    The paper has sums in place of the means, `F F^T` and `W^T W`: that shifts the logarithm by a constant, and with
    means its value does not depend on the size of a batch, and is at most 0, but for a jitter that keeps it finite
    where a batch has fewer items than classes. The paper's are of all data; a step has those of its batch: labelled
    items by their weights, and annotators by their labels, so that a step costs what its labels do. Where everybody
    labels everything that is every annotator once. With several processes each has a part of the batch, and its volume.

    An item's labels are summed here, and in the authors' code the loss is a mean over labels: our `volume_weight` is
    their lambda times the labels an item has. Theirs is 0.001 on MNIST, 0.1 or 0.2 on LabelMe (0.25 to 0.5 here).

    `A_r` is a softmax over each row of free logits. They start where annotators are right with probability `start`, or,
    as in the authors' code, at the identity matrix: there that probability is e / (e + K - 1).
    """

    def __init__(
        self, spec: ModelSpec, *, regularizer: Literal["f", "w"], volume_weight: float, start: float | None
    ) -> None:
        super().__init__(spec)
        logit = 1.0 if start is None else math.log(start / (1 - start) * (spec.n_classes - 1))
        self.confusion_logits = nn.Parameter((logit * torch.eye(spec.n_classes)).repeat(spec.n_annotators, 1, 1))
        self.regularizer = regularizer
        self.volume_weight = volume_weight

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        log_f = self.class_logits(h).log_softmax(1)
        those, place = active_annotators(batch.annotator, self.n_annotators)
        log_A = self.log_confusions(those)
        losses = self.item_losses(mixture_log_likelihood(log_f, log_A, batch.item, place, batch.label), batch)
        weight = batch.labelled_weight
        if self.regularizer == "f":
            volume = log_volume(log_f.exp(), weight)
        else:
            labels = scatter_sum(batch.weight[batch.item], place, len(those))
            said = log_A.exp().transpose(1, 2)  # (annotator, said, true)
            volume = log_volume(said.flatten(0, 1), labels.repeat_interleave(self.n_classes))
        return Loss((batch.weight * losses).sum() - self.volume_weight * weight.sum() * volume, weight.sum())

    def item_losses(self, log_likelihood: Tensor, batch: Batch) -> Tensor:
        """What the labels of each item cost, (B,), from their log-likelihoods (L,)."""
        return scatter_sum(-log_likelihood, batch.item, batch.n_items)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """With the class known, a label is explained by its annotator's matrix alone."""
        of_truth = self.class_log_likelihoods(batch.annotator, batch.label).gather(1, batch.gold[batch.item][:, None])[
            :, 0
        ]
        return super().gold_losses(h, batch) + self.item_losses(of_truth, batch)

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        return self.class_log_likelihoods(annotator, label)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        return take_rows(self.confusion_logits, annotators).log_softmax(2)

    def log_prior(self, features: Tensor) -> Tensor:
        """The network's prediction."""
        return self.class_logits(features).log_softmax(1)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        matrices = append_mean_rows(self.confusion_logits.detach().softmax(2), count)
        self.confusion_logits = nn.Parameter(matrices.log())


def log_volume(rows: Tensor, weight: Tensor) -> Tensor:
    """`log det(K sum_i w_i x_i x_i^T / sum_i w_i + JITTER I)` of rows x (n, K): for K rows that are the K classes, 0.

    In single precision at least, whatever the rest of a training is computed in.

    >>> log_volume(torch.eye(3), torch.ones(3)).round(decimals=2)
    tensor(0.)
    >>> log_volume(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.ones(2)).round(decimals=2)  # the jitter alone
    tensor(-6.9100)
    """
    n_classes = rows.shape[1]
    rows = rows.to(torch.promote_types(rows.dtype, weight.dtype))
    with torch.autocast(rows.device.type, enabled=False):
        share = n_classes * weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        gram = rows.T @ (share[:, None] * rows)
        volume: Tensor = torch.linalg.slogdet(gram + JITTER * torch.eye(n_classes, device=rows.device)).logabsdet
    return volume
