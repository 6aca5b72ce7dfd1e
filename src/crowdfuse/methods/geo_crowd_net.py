"""GeoCrowdNet: confusion matrices made identifiable by a volume term.

The network and the matrices together explain the labels. Many combinations explain the labels equally well: for example
a less certain network with more accurate annotators, or the reverse. The volume term selects one combination: the one
in which the class probabilities of different items (or the matrices) differ most from each other.
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
    """Likelihood of each label with a volume term.

    The loss is `mean_n sum_{r in S_n} -log (f_n A_r)[y_nr] - volume_weight log det G`. Here f_n are the class
    probabilities of item n, S_n are the annotators who labelled it, y_nr are their labels, and A_r is the confusion
    matrix of annotator r. The matrix G depends on `regularizer`:

    - "f": `G = K mean_n f_n f_n^T`. The solution is then unique if each class has some items that certainly belong to
      it, even if all annotators are bad.
    - "w": `G = mean_r A_r A_r^T`. The solution is then unique if each class has annotators who know it, even if all
      items are ambiguous.

    The paper uses sums instead of means: `F F^T`, where F are the class probabilities of all items, and `W^T W`, where
    W are the confusion matrices of all annotators. The means change the logarithm only by a constant, and they do not
    depend on the batch size. With the means, the logarithm is at most 0. (A small multiple of the identity is added to
    G, which keeps the logarithm finite if a batch has fewer items than classes. This can make the logarithm slightly
    larger than 0.) G is computed from the batch, so that the cost of a step depends only on its labels. The mean over
    items is weighted by item weight, and the mean over annotators by number of labels. If there are several processes,
    each uses its part of the batch.

    The losses of an item's labels are summed here, while the authors' code averages over labels. So `volume_weight`
    equals the authors' lambda times the number of labels per item. Their lambda is 0.001 on MNIST. It is 0.1 or 0.2 on
    LabelMe, which has about 2.5 labels per item, so this corresponds to a `volume_weight` of 0.25 to 0.5.

    `A_r` is the softmax over each row of free logits.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    regularizer : {"f", "w"}
        Matrix whose volume is maximized: the class probabilities ("f") or the confusion matrices ("w").
    volume_weight : float
        Weight of the volume term.
    start : float or None
        Initial probability that an annotator is right. None: the logits of A_r start as the identity, as in the
        authors' code. The probability is then e / (e + K - 1), where e is Euler's number.

    References
    ----------
    Ibrahim, Nguyen and Fu, "Deep learning from crowdsourced labels: coupled cross-entropy minimization,
    identifiability, and regularization", ICLR 2023.
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
        """Return the negative log-likelihood of the labels, minus the volume term."""
        log_f = self.class_logits(h).log_softmax(1)
        active, position = active_annotators(batch.annotator, self.n_annotators)
        log_A = self.log_confusions(active)
        losses = self.item_losses(mixture_log_likelihood(log_f, log_A, batch.item, position, batch.label), batch)
        weight = batch.labelled_weight
        if self.regularizer == "f":
            volume = log_volume(log_f.exp(), weight)
        else:
            label_weight = scatter_sum(batch.weight[batch.item], position, len(active))
            columns = log_A.exp().transpose(1, 2)  # (annotator, said, true)
            volume = log_volume(columns.flatten(0, 1), label_weight.repeat_interleave(self.n_classes))
        return Loss((batch.weight * losses).sum() - self.volume_weight * weight.sum() * volume, weight.sum())

    def item_losses(self, log_likelihood: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each item's labels: the negative sum of their log-likelihoods.

        Parameters
        ----------
        log_likelihood : Tensor of shape (L,)
            Log-likelihood of each label.
        batch : Batch
            The items and their labels.

        Returns
        -------
        losses : Tensor of shape (B,)
        """
        return scatter_sum(-log_likelihood, batch.item, batch.n_items)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy on gold plus the loss of the item's labels given the gold class, (B,)."""
        log_likelihood = self.gold_label_log_likelihood(batch.annotator, batch.label, batch.gold[batch.item])
        return super().gold_losses(h, batch) + self.item_losses(log_likelihood, batch)

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log A_r[k, y]` for each label y of an annotator r and each possible true class k, (L, K)."""
        return self.class_log_likelihoods(annotator, label)

    def log_confusions(self, annotators: Tensor) -> Tensor:
        """Return the logarithms of the confusion matrices of the U given annotators, (U, K, K)."""
        return take_rows(self.confusion_logits, annotators).log_softmax(2)

    def log_prior(self, features: Tensor) -> Tensor:
        """Return the logarithms of the network's class probabilities of each item, (B, K)."""
        return self.class_logits(features).log_softmax(1)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, with the mean of the existing confusion matrices."""
        super().add_annotators(count)
        matrices = append_mean_rows(self.confusion_logits.detach().softmax(2), count)
        self.confusion_logits = nn.Parameter(matrices.log())


def log_volume(rows: Tensor, weight: Tensor) -> Tensor:
    """Return `log det(K sum_i w_i x_i x_i^T / sum_i w_i + JITTER I)`, computed in at least single precision.

    `JITTER` is a small constant, which keeps the result finite. Without it, the result would be 0 if the rows are the
    one-hot vectors of the K classes, with equal weights.

    Parameters
    ----------
    rows : Tensor of shape (n, K)
        Rows x_i.
    weight : Tensor of shape (n,)
        Weights w_i.

    Returns
    -------
    log_volume : Tensor of shape ()

    Examples
    --------
    >>> log_volume(torch.eye(3), torch.ones(3)).round(decimals=2)
    tensor(0.)
    >>> log_volume(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.ones(2)).round(decimals=2)  # log 0 without the jitter
    tensor(-6.9100)
    """
    n_classes = rows.shape[1]
    rows = rows.to(torch.promote_types(rows.dtype, weight.dtype))
    with torch.autocast(rows.device.type, enabled=False):
        share = n_classes * weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
        gram = rows.T @ (share[:, None] * rows)
        volume: Tensor = torch.linalg.slogdet(gram + JITTER * torch.eye(n_classes, device=rows.device)).logabsdet
    return volume
