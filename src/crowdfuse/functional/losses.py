"""Losses for soft targets and for noisy labels, numerically safe for probabilities of 0."""

from __future__ import annotations

import torch
from torch import Tensor


def kl_divergence(target: Tensor, log_probabilities: Tensor) -> Tensor:
    """Return `KL(target || f)` of each row, numerically safe for target entries that are 0.

    Target entries that are 0 contribute 0 to the value and to the gradient. `torch.nn.functional.kl_div` cannot be used
    for such targets, because its gradients are NaN at these entries. Fused labels (see `fuse_by_basis`) often contain
    exact zeros.

    Parameters
    ----------
    target : Tensor of shape (B, K)
        Target probabilities of each class.
    log_probabilities : Tensor of shape (B, K)
        Logarithms of the predicted class probabilities f.

    Returns
    -------
    divergence : Tensor of shape (B,)

    Examples
    --------
    >>> kl_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    positive = target > 0
    logarithm = torch.where(positive, target, 1).log()
    return torch.where(positive, target * (logarithm - log_probabilities), 0).sum(1)


def generalized_cross_entropy(log_probabilities: Tensor, target: Tensor, q: float) -> Tensor:
    """Return `(1 - p^q) / q` of each row, where p is the probability of the row's target class.

    The loss is robust to wrong labels: its gradient is p^q times the gradient of cross-entropy, so improbable targets
    have little influence. As q goes to 0, the loss approaches cross-entropy. If q is 1, the loss is 1 - p. The loss is
    computed from log p. The result is therefore precise if q is small, and finite if p underflows.

    Parameters
    ----------
    log_probabilities : Tensor of shape (B, K)
        Logarithms of the class probabilities.
    target : Tensor of shape (B,)
        Class of each row.
    q : float
        Exponent, above 0 and at most 1. A larger q gives improbable targets less influence.

    Returns
    -------
    loss : Tensor of shape (B,)

    References
    ----------
    Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks with noisy labels",
    NeurIPS 2018.

    Examples
    --------
    >>> generalized_cross_entropy(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0]), 0.5)
    tensor([1.])
    """
    log_p = log_probabilities.gather(1, target[:, None])[:, 0]
    return -(q * log_p).expm1() / q
