"""What gold makes of what annotators would say: a small classifier on top, if it is better than the labels alone.

A network that knows what every annotator would say of an item knows a great deal about the item, whoever is right. So
a few items with gold, too few to train a network on, go a long way here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

MIN_GOLD_ITEMS = 10  # gold items
FOLDS = 5
LOGISTIC_REGRESSION_C = 10.0  # of the evidence against the prior, where descriptions have a length of 1 on average


class GoldClassifier(NamedTuple):
    """A linear classifier of described items, and how it did on gold that it had not seen."""

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)
    is_correct_out_of_fold: NDArray[np.bool_]
    """Whether each gold item was right when it was left out of the fit."""

    def __call__(self, described: Tensor) -> Tensor:
        """(B, D) to logits (B, K)."""
        return described @ self.weight.to(described).T + self.bias.to(described)


def fit_gold_classifier(
    described: NDArray[np.float32], gold: NDArray[np.int64], by_labels: NDArray[np.int64], n_classes: int
) -> GoldClassifier | None:
    """A classifier from gold items' descriptions (G, D), if it beats what labels make of these items, (G,).

    Beats: in cross-validation, paired, by more than one standard error; None if it does not, or gold is too little.

    >>> x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    >>> gold = (x[:, 0] > 0).astype(np.int64)
    >>> found = fit_gold_classifier(x, gold, 1 - gold, 2)                    # the labels say the opposite
    >>> found(torch.tensor([[-0.5], [0.5]])).argmax(1)
    tensor([0, 1])
    >>> fit_gold_classifier(x, gold, gold, 2) is None
    True
    """
    if len(gold) < MIN_GOLD_ITEMS or len(np.unique(gold)) < 2:
        return None
    fold = np.random.default_rng(0).permutation(len(gold)) % FOLDS
    right = np.zeros(len(gold), bool)
    for out in range(FOLDS):
        weight, bias = _fit(described[fold != out], gold[fold != out], n_classes)
        right[fold == out] = (described[fold == out] @ weight.T + bias).argmax(1) == gold[fold == out]
    gain = right.astype(float) - (by_labels == gold)
    if not gain.mean() > gain.std() / math.sqrt(len(gain)):
        return None
    weight, bias = _fit(described, gold, n_classes)
    return GoldClassifier(torch.from_numpy(weight), torch.from_numpy(bias), right)


def _fit(
    described: NDArray[np.float32], gold: NDArray[np.int64], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logistic regression: weights (K, D) and biases (K,); a class that gold does not have is never chosen."""
    weight, bias = np.zeros((n_classes, described.shape[1])), np.full(n_classes, -1e6)
    seen = np.unique(gold)
    if len(seen) == 1:
        bias[seen] = 0.0
        return weight, bias
    mean = described.mean(0)
    scale = max(1e-6, math.sqrt(float(((described - mean) ** 2).sum(1).mean())))
    model = LogisticRegression(C=LOGISTIC_REGRESSION_C, max_iter=500).fit((described - mean) / scale, gold)
    if len(seen) == 2:
        weight[seen[1]], bias[seen] = model.coef_[0], (0.0, model.intercept_[0])
    else:
        weight[seen], bias[seen] = model.coef_, model.intercept_
    weight /= scale
    return weight, bias - np.where(bias > -1e6, weight @ mean, 0.0)
