"""Sets of permutations whose weighted means are confusion matrices: random, Latin, and without fixed points."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Literal

import numpy as np
import torch
from torch import Tensor

MAX_ENUMERATED_CLASSES = 8
"""Up to this number of classes, all permutations are listed (8! = 40,320)."""


def permutation_basis(
    n_classes: int, n_bases: int, kind: Literal["random", "latin"] = "random", seed: int = 0
) -> Tensor:
    """Return M distinct permutations of K classes, the identity first.

    The number of permutations is `M = min(n_bases, K!)`. Permutation m maps class j to class pi_m(j). Its matrix is
    B_m, with `B_m e_j = e_{pi_m(j)}` for the one-hot vector e_j of class j. Weighted means of the matrices B_m are
    confusion matrices; see `dense_confusions`.

    Parameters
    ----------
    n_classes : int
        Number of classes K, at least 2.
    n_bases : int
        Number of permutations to return, at least 1. If only fewer permutations of K classes exist, all of them are
        returned.
    kind : {"random", "latin"}, default="random"
        "random": permutations are drawn uniformly without repetition, as in Gao et al. (2022). "latin": the classes are
        put in a random order, and the permutations are cyclic shifts of this order. If M >= K, all K shifts are used,
        so each class is mapped to every class by one of them. If M > K, M - K more permutations are needed. If K <= 8,
        they are drawn at random. If K > 8, they are cyclic shifts of further random orders.
    seed : int, default=0
        Seed of the draw.

    Returns
    -------
    basis : Tensor of shape (M, K)
        `basis[m, j] = pi_m(j)`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    Gao et al., "Learning from multiple annotator noisy labels via sample-wise label fusion", ECCV 2022.

    Examples
    --------
    >>> permutation_basis(3, 100).shape
    torch.Size([6, 3])
    >>> sorted(permutation_basis(4, 4, kind="latin")[:, 2].tolist())
    [0, 1, 2, 3]
    """
    if n_classes < 2:
        raise ValueError(f"a basis needs at least 2 classes, got {n_classes}")
    if n_bases < 1:
        raise ValueError(f"n_bases must be at least 1, got {n_bases}")
    if kind not in ("random", "latin"):
        raise ValueError(f"the kind of basis must be 'random' or 'latin', got {kind!r}")
    size = min(n_bases, math.factorial(n_classes))
    generator = np.random.default_rng(seed)
    identity = tuple(range(n_classes))
    if kind == "random" and n_classes <= MAX_ENUMERATED_CLASSES:
        others = list(permutations(identity))[1:]
        chosen = [identity, *(others[i] for i in generator.permutation(len(others))[: size - 1])]
        return torch.tensor(chosen)
    basis = {identity: None}  # a dict keeps the order and drops repeats
    while len(basis) < size:
        if kind == "random":
            drawn = [generator.permutation(n_classes)]
        else:
            order = generator.permutation(n_classes)
            shifts = generator.permutation(n_classes) if len(basis) > 1 else 1 + generator.permutation(n_classes - 1)
            drawn = [order[(np.argsort(order) + shift) % n_classes] for shift in shifts]
        for permutation in drawn[: size - len(basis)]:
            basis.setdefault(tuple(permutation.tolist()))
        if kind == "latin" and len(basis) < size and n_classes <= MAX_ENUMERATED_CLASSES:
            # Latin squares of few classes soon repeat: draw the rest from the unused permutations
            unused = [p for p in permutations(identity) if p not in basis]
            for i in generator.permutation(len(unused))[: size - len(basis)]:
                basis[unused[i]] = None
    return torch.tensor(list(basis))


def derangements(n_classes: int, n_bases: int, generator: np.random.Generator) -> Tensor:
    """Return distinct permutations that map no class to itself (derangements).

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    n_bases : int
        Number of derangements to return. If more than `n_bases` derangements of K classes exist, `n_bases` of them are
        drawn at random. Otherwise, all are returned.
    generator : numpy.random.Generator
        Random generator for the draw.

    Returns
    -------
    basis : Tensor of shape (M, K)
        `basis[m, j]` is the class to which permutation m maps class j.

    Examples
    --------
    >>> derangements(3, 5, np.random.default_rng(0)).tolist()
    [[1, 2, 0], [2, 0, 1]]
    """
    if n_classes <= MAX_ENUMERATED_CLASSES:
        every = [p for p in permutations(range(n_classes)) if all(k != image for k, image in enumerate(p))]
        chosen = every if len(every) <= n_bases else [every[i] for i in generator.permutation(len(every))[:n_bases]]
        return torch.tensor(chosen)
    n_possible = 1
    for k in range(1, n_classes + 1):
        n_possible = k * n_possible + (-1) ** k
    chosen_once: dict[tuple[int, ...], None] = {}  # a dict keeps the order and drops repeats
    while len(chosen_once) < min(n_bases, n_possible):
        drawn = generator.permutation(n_classes)
        if (drawn != np.arange(n_classes)).all():
            chosen_once.setdefault(tuple(drawn.tolist()))
    return torch.tensor(list(chosen_once))


def dense_confusions(coefficients: Tensor, basis: Tensor) -> Tensor:
    """Return the confusion matrix `P = sum_m c_m B_m` of each pair (item, annotator).

    `B_m` is the matrix of permutation m, and `c_m` is its coefficient.

    Parameters
    ----------
    coefficients : Tensor of shape (L, M)
        Coefficients c of each pair.
    basis : Tensor of shape (M, K)
        Permutations, as returned by `permutation_basis`.

    Returns
    -------
    matrices : Tensor of shape (L, K, K)
        Axes (pair, true class, annotator's label). Column y is the distribution of the true class if the annotator's
        label is y. If the coefficients of a pair sum to 1, each column sums to 1.

    Examples
    --------
    >>> dense_confusions(torch.tensor([[0.75, 0.25]]), torch.tensor([[0, 1], [1, 0]]))
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]])
    """
    n_pairs, n_classes = len(coefficients), basis.shape[1]
    matrices = coefficients.new_zeros(n_pairs, n_classes, n_classes)
    said = torch.arange(n_classes, device=basis.device)
    for weight, permutation in zip(coefficients.T, basis, strict=True):
        matrices[:, permutation, said] += weight[:, None]
    return matrices
