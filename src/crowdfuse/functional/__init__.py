"""The mathematics of the methods, as pure functions of tensors.

All functions work on labelled pairs: an item and an annotator who labelled it. A batch has B items and L labelled
pairs. There are K classes, R annotators and, in a basis, M permutations. For each pair, the argument `item` of shape
(L,) holds the position of its item in the batch. Only `dense_confusions` builds confusion matrices (K x K), and
training does not use it.
"""

from __future__ import annotations

from crowdfuse.functional.fusion_loss import basis_penalty, fuse_by_basis, penalty_form
from crowdfuse.functional.label_likelihoods import (
    expected_class_log_likelihood,
    label_log_probabilities,
    mixture_log_likelihood,
    posterior,
    rowwise_mixture_log_likelihood,
)
from crowdfuse.functional.losses import generalized_cross_entropy, kl_divergence
from crowdfuse.functional.permutation_basis import dense_confusions, derangements, permutation_basis
from crowdfuse.functional.segments import scatter_sum, segment_softmax, vote_shares

__all__ = [
    "basis_penalty",
    "dense_confusions",
    "derangements",
    "expected_class_log_likelihood",
    "fuse_by_basis",
    "generalized_cross_entropy",
    "kl_divergence",
    "label_log_probabilities",
    "mixture_log_likelihood",
    "penalty_form",
    "permutation_basis",
    "posterior",
    "rowwise_mixture_log_likelihood",
    "scatter_sum",
    "segment_softmax",
    "vote_shares",
]
