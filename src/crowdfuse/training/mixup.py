"""Mixup: train on weighted means of two items and of their losses (Zhang et al., ICLR 2018)."""

from __future__ import annotations

import numpy as np
import torch

from crowdfuse.methods.base import Loss, Method
from crowdfuse.methods.data import Batch


def mixup_loss(method: Method, batch: Batch, concentration: float, seed: int) -> Loss:
    """Return the loss of a batch whose inputs are mixed in pairs.

    Each item i is mixed with another item j of the batch: `x = share * x_i + (1 - share) * x_j`. The loss is `share *
    loss(x, labels of i) + (1 - share) * loss(x, labels of j)`. For cross-entropy, this is the same as mixing the
    targets. This form applies to every method.

    Parameters
    ----------
    method : Method
        The network and its loss.
    batch : Batch
        The items and their labels.
    concentration : float
        Both parameters of the beta distribution from which `share` is drawn.
    seed : int
        Seed of the share and of the pairs.

    Returns
    -------
    loss : Loss
    """
    generator = np.random.default_rng(seed)
    share = float(generator.beta(concentration, concentration))
    other = batch.reorder(torch.from_numpy(generator.permutation(batch.n_items)).to(batch.row.device))
    x = share * batch.x + (1 - share) * other.x
    first, second = method.loss(batch._replace(x=x)), method.loss(other._replace(x=x))
    return Loss(share * first.total + (1 - share) * second.total, share * first.weight + (1 - share) * second.weight)
