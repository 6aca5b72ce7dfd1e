"""Multi-annotator deep learning (MaDL): confusion matrices per item, and lower weights for similar annotators.

One network predicts the class. A second network predicts how well an annotator labels an item, from embeddings of the
annotator and the item. Together the networks must explain the labels. Annotators with similar embeddings make similar
mistakes. They may copy each other, and a hundred copies are not a hundred independent opinions. So an annotator who is
similar to many others has a low weight in the loss.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

from crowdfuse.functional import posterior, scatter_sum
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding
from crowdfuse.nets.annotator_tables import active_annotators

Confusions = Literal["isotropic", "diagonal", "full"]

PERFORMANCE_HIDDEN_WIDTH = 128  # width of the performance network's hidden layer
MIN_KERNEL_GAMMA = 1e-3  # smallest sharpness of the kernel, since its prior may have an infinite density at 0
MAX_COMPARED_ANNOTATORS = 1000  # if there are more, `weight_logits` compares with this many, evenly spaced


class MaDL(Method):
    """Likelihood of each label, weighted by how unique its annotator is.

    The loss is `mean_n sum_{r in S_n} [-w_r log sum_k f_n(k) A_nr[k, y_nr] - log Gamma(g)]`. S_n are the annotators who
    labelled item n, and y_nr are their labels. f_n are the class probabilities, and A_nr is the confusion matrix of
    annotator r on item n. The weight `w_r` is `1 / sum_s exp(-g |e_r - e_s|^2)`, scaled to mean 1, where e_r is the
    embedding of annotator r. The number g is the sharpness of this similarity kernel. It is learned with a gamma prior
    of density `Gamma(g)`.

    A_nr is computed from `performance = out(relu(e_r + hidden([e_r, u_n, product(e_r x u_n)])))`. Here u_n is the
    item's embedding, which has the same length as e_r. The brackets [...] are a concatenation, and x is the outer
    product. `out`, `hidden` and `product` are layers.

    As in the authors' code, no gradient flows from the weights to the embeddings, or from the performance to the
    backbone. This implementation differs from the authors' code in four points:

    - Annotators have no features: e_r is a row of a table. It starts at 0, so at first all annotators are alike and
      have weight 1.
    - The outer product is of e_r and u_n. In the authors' code, it is of the sum e_r + u_n with itself.
    - `hidden` has layer norm. In the authors' code, it has batch norm, which fails if there is a single label. If there
      is no norm, the ReLU of some annotators becomes 0 on every item and stays 0.
    - If there are more than 100 annotators, weights are computed among the annotators in the batch, with a U x U kernel
      for U annotators.

    Items with gold train the classifier. Each of their labels also trains the performance network, with weight 1.

    Since every item has its own matrices, the data does not determine the rows of classes other than the item's class.
    If `confusions` is "full", so many matrices explain the labels that the labels hardly determine the classifier.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    confusions : {"isotropic", "diagonal", "full"}
        Output of the performance network for a pair. "isotropic": one number; its sigmoid is the probability of a right
        label. "diagonal": one such number per class. In both cases, all wrong labels are equally likely. "full": one
        number per cell of the matrix, with a softmax over each row.
    weights : {"density", "uniform"}
        "density": the weights w_r of the formula above. "uniform": all weights are 1.
    eta : float
        Initial probability that an annotator is right, set in the bias of `out`.
    embedding : int
        Length of the embeddings.
    gamma_prior : tuple of float
        Shape and rate of the gamma prior of g.

    References
    ----------
    Herde, Huseljic and Sick, "Multi-annotator deep learning: a probabilistic framework for classification", TMLR 2023.
    """

    confusion_given = "true"

    def __init__(
        self,
        spec: ModelSpec,
        *,
        confusions: Confusions,
        weights: Literal["density", "uniform"],
        eta: float,
        embedding: int,
        gamma_prior: tuple[float, float],
    ) -> None:
        super().__init__(spec)
        self.kind = confusions
        self.weights_by_density = weights == "density"
        self.of_annotator = AnnotatorEmbedding(spec.n_annotators, embedding)
        self.of_item = nn.Linear(spec.trunk.n_features, embedding)
        self.product = nn.Linear(embedding**2, embedding)
        self.hidden = nn.Sequential(
            nn.Linear(3 * embedding, PERFORMANCE_HIDDEN_WIDTH),
            nn.LayerNorm(PERFORMANCE_HIDDEN_WIDTH),
            nn.ReLU(),
            nn.Linear(PERFORMANCE_HIDDEN_WIDTH, embedding),
            nn.LayerNorm(embedding),
        )
        n_classes = spec.n_classes
        self.out = nn.Linear(embedding, {"isotropic": 1, "diagonal": n_classes, "full": n_classes**2}[confusions])
        log_odds = math.log(eta / (1 - eta))
        with torch.no_grad():
            if confusions == "full":
                self.out.bias.copy_(((log_odds + math.log(n_classes - 1)) * torch.eye(n_classes)).flatten())
            else:
                self.out.bias.fill_(log_odds)
        self.shape, self.rate = gamma_prior
        self.gamma = nn.Parameter(torch.tensor(max(0.0, self.shape - 1) / self.rate))  # the mode of the prior

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the weighted negative log-likelihood of the labels, minus the log-prior."""
        log_f = self.class_logits(h).log_softmax(1)
        log_likelihoods = self.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
        losses = -(log_f[batch.item] + log_likelihoods).logsumexp(1)
        if self.weights_by_density:
            losses = self._label_weights(batch.annotator) * losses - self._log_gamma_prior()
        weight = batch.labelled_weight.sum()
        return Loss((batch.weight[batch.item] * losses).sum(), weight)

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return cross-entropy on gold plus the negative log-likelihood of the item's labels given gold, (B,)."""
        log_likelihoods = self.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
        log_likelihood = log_likelihoods.gather(1, batch.gold[batch.item][:, None])[:, 0]
        return super().gold_losses(h, batch) - scatter_sum(log_likelihood, batch.item, batch.n_items)

    def _label_weights(self, annotator: Tensor) -> Tensor:
        """Return the weight of each label, (L,), with mean 1 over the compared annotators."""
        active, position = active_annotators(annotator, self.n_annotators)
        embeddings = self.of_annotator.table.detach()[active]
        rarity = 1 / mean_similarity(embeddings, embeddings, self._sharpness())
        return (rarity / rarity.mean())[position]

    def _sharpness(self) -> Tensor:
        """Return the sharpness g of the kernel."""
        return self.gamma.clamp(min=MIN_KERNEL_GAMMA)

    def _log_gamma_prior(self) -> Tensor:
        """Return the log-density of the sharpness."""
        g = self._sharpness()
        scale = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return scale + (self.shape - 1) * g.log() - self.rate * g

    def _performance(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the performance logits of each pair, (L, 1), (L, K) or (L, K * K)."""
        e = self.of_annotator(annotator)
        u = self.of_item(features.detach()).index_select(0, item)
        product = self.product((e[:, :, None] * u[:, None]).flatten(1))
        performance: Tensor = self.out((e + self.hidden(torch.cat([e, u, product], 1))).relu())
        return performance

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log p(y | k)` for each label y and each possible true class k, (L, K)."""
        logits = self._performance(features, item, annotator)
        n_classes = self.n_classes
        if self.kind == "full":
            log_A = logits.view(-1, n_classes, n_classes).log_softmax(2)
            return log_A.gather(2, label[:, None, None].expand(-1, n_classes, 1))[:, :, 0]
        is_label = one_hot(label, n_classes).bool()
        return torch.where(is_label, logsigmoid(logits), logsigmoid(-logits) - math.log(n_classes - 1))

    # ---- what the method says about annotators -------------------------------------------------

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair (item, annotator), P(label | true class), (L, K, K)."""
        logits = self._performance(features, item, annotator)
        n_classes = self.n_classes
        if self.kind == "full":
            return logits.view(-1, n_classes, n_classes).softmax(2)
        right = torch.eye(n_classes, device=logits.device)
        g = logits.sigmoid()[:, :, None]
        return g * right + (1 - g) * (1 - right) / (n_classes - 1)

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the logarithm of the annotator's weight, up to a constant, (L,)."""
        if not self.weights_by_density:
            return super().weight_logits(features, item, annotator)
        active, position = active_annotators(annotator, self.n_annotators)
        table = self.of_annotator.table.detach()
        n_compared = min(len(table), MAX_COMPARED_ANNOTATORS)
        compared = torch.linspace(0, len(table) - 1, n_compared, device=table.device).round().long()
        return -mean_similarity(table[active], table[compared], self._sharpness()).log()[position]

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior class probabilities of each item, given its input and labels, (B, K)."""
        log_f = self.class_logits(features).log_softmax(1)
        return posterior(log_f, self.label_log_probabilities(features, item, annotator, label), item)


def mean_similarity(embeddings: Tensor, others: Tensor, sharpness: Tensor) -> Tensor:
    """Return, for each embedding a, the mean of `exp(-g |a - b|^2)` over the embeddings b in `others`.

    Parameters
    ----------
    embeddings : Tensor of shape (U, Q)
        Embeddings a.
    others : Tensor of shape (V, Q)
        Embeddings b to compare with.
    sharpness : Tensor of shape ()
        Sharpness g of the kernel.

    Returns
    -------
    similarity : Tensor of shape (U,)

    Examples
    --------
    >>> mean_similarity(torch.tensor([[0.0], [9.0]]), torch.tensor([[0.0], [0.0], [0.0], [9.0]]), torch.tensor(1.0))
    tensor([0.7500, 0.2500])
    """
    squares = (embeddings**2).sum(1)[:, None] + (others**2).sum(1) - 2 * embeddings @ others.T
    return (-sharpness * squares.clamp(min=0)).exp().mean(1)
