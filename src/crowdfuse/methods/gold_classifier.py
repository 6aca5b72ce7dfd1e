"""A small classifier fitted to a few items with gold, used if it is more accurate than the labels alone.

Its input is a description of an item: the features of the item, and the labels that annotators would probably give to
it. These labels are informative even if it is unknown which annotators are right. So a few items with gold are enough,
even if they are too few to train a network.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

MIN_GOLD_ITEMS = 10
N_GOLD_FOLDS = 5
LOGISTIC_REGRESSION_C = 10.0  # inverse regularization strength, for descriptions of mean norm 1
UNSEEN_CLASS_BIAS = -1e6  # bias of classes without gold, so that they are never predicted


class GoldClassifier(NamedTuple):
    """A linear classifier of item descriptions.

    The description of an item consists of its features and of the labels that annotators would probably give to it.
    There are K classes, G items with gold, and D numbers in a description.

    Parameters
    ----------
    weight : Tensor of shape (K, D)
        Coefficients.
    bias : Tensor of shape (K,)
        Intercepts.
    is_correct_out_of_fold : ndarray of bool of shape (G,)
        For each item with gold, whether a classifier that was fitted without the item classifies it correctly.
    """

    weight: Tensor
    bias: Tensor
    is_correct_out_of_fold: NDArray[np.bool_]

    def __call__(self, descriptions: Tensor) -> Tensor:
        """Map descriptions (B, D) to logits (B, K)."""
        return descriptions @ self.weight.to(descriptions).T + self.bias.to(descriptions)


def fit_gold_classifier(
    descriptions: NDArray[np.float32], gold: NDArray[np.int64], label_classes: NDArray[np.int64], n_classes: int
) -> GoldClassifier | None:
    """Fit a classifier to items with gold, and return it if it is more accurate than the classes inferred from labels.

    The accuracy of the classifier is measured by cross-validation on the items with gold, and compared with the
    accuracy of the inferred classes on the same items. The classifier counts as more accurate if the difference is
    larger than its standard error.

    Parameters
    ----------
    descriptions : ndarray of shape (G, D)
        Descriptions of the items with gold, such as their features.
    gold : ndarray of shape (G,)
        True class of each of these items.
    label_classes : ndarray of shape (G,)
        Class of each of these items, as inferred from labels alone.
    n_classes : int
        Number of classes K.

    Returns
    -------
    classifier : GoldClassifier or None
        None if the classifier is not more accurate, if there are fewer than 10 items with gold, or if all of them have
        the same class.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    >>> gold = (x[:, 0] > 0).astype(np.int64)
    >>> classifier = fit_gold_classifier(x, gold, 1 - gold, 2)               # the labels say the opposite
    >>> classifier(torch.tensor([[-0.5], [0.5]])).argmax(1)
    tensor([0, 1])
    >>> fit_gold_classifier(x, gold, gold, 2) is None
    True
    """
    if len(gold) < MIN_GOLD_ITEMS or len(np.unique(gold)) < 2:
        return None
    fold = np.random.default_rng(0).permutation(len(gold)) % N_GOLD_FOLDS
    is_correct = np.zeros(len(gold), bool)
    for i in range(N_GOLD_FOLDS):
        weight, bias = _fit_logistic(descriptions[fold != i], gold[fold != i], n_classes)
        is_correct[fold == i] = (descriptions[fold == i] @ weight.T + bias).argmax(1) == gold[fold == i]
    gain = is_correct.astype(float) - (label_classes == gold)
    if not gain.mean() > gain.std() / math.sqrt(len(gain)):
        return None
    weight, bias = _fit_logistic(descriptions, gold, n_classes)
    return GoldClassifier(torch.from_numpy(weight), torch.from_numpy(bias), is_correct)


def _fit_logistic(
    descriptions: NDArray[np.float32], gold: NDArray[np.int64], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights (K, D) and biases (K,) of a logistic regression; classes without gold are never predicted."""
    weight, bias = np.zeros((n_classes, descriptions.shape[1])), np.full(n_classes, UNSEEN_CLASS_BIAS)
    seen = np.unique(gold)
    if len(seen) == 1:
        bias[seen] = 0.0
        return weight, bias
    mean = descriptions.mean(0)
    scale = max(1e-6, math.sqrt(float(((descriptions - mean) ** 2).sum(1).mean())))
    model = LogisticRegression(C=LOGISTIC_REGRESSION_C, max_iter=500).fit((descriptions - mean) / scale, gold)
    if len(seen) == 2:
        weight[seen[1]], bias[seen] = model.coef_[0], (0.0, model.intercept_[0])
    else:
        weight[seen], bias[seen] = model.coef_, model.intercept_
    weight /= scale
    return weight, bias - np.where(bias > UNSEEN_CLASS_BIAS, weight @ mean, 0.0)
