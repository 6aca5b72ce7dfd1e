"""The mathematics, as pure functions of tensors.

The unit is the pair (item, annotator) that has a label. A batch has B items and L such pairs; `item` (L,)
says which of the B items a pair belongs to. Nothing here builds a K x K matrix but `dense_confusions`,
which is for people to look at.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

FEW_CLASSES = 16  # with fewer, softmax over the last dimension takes torch several times as long as over another


def permutation_basis(
    n_classes: int, n_bases: int, kind: Literal["random", "latin"] = "random", seed: int = 0
) -> Tensor:
    """M distinct permutations of K classes, the identity first: `basis[m, j] = pi_m(j)`, where B_m e_j = e_pi_m(j).

    M is `min(n_bases, K!)`. `"random"` draws them uniformly, as the paper does. `"latin"` takes shuffled
    cyclic shifts, so that with M >= K every class can be reached from every label.

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
        raise ValueError(f"basis must be 'random' or 'latin', got {kind!r}")
    size = min(n_bases, math.factorial(n_classes))
    generator = np.random.default_rng(seed)
    identity = tuple(range(n_classes))
    if kind == "random" and math.factorial(n_classes) <= 40_320:
        others = list(permutations(identity))[1:]
        chosen = [identity, *(others[i] for i in generator.permutation(len(others))[: size - 1])]
        return torch.tensor(chosen)
    basis = {identity: None}  # a dict keeps the order and refuses repeats
    while len(basis) < size:
        if kind == "random":
            drawn = [generator.permutation(n_classes)]
        else:
            name = generator.permutation(n_classes)
            shifts = generator.permutation(n_classes) if len(basis) > 1 else 1 + generator.permutation(n_classes - 1)
            drawn = [name[(np.argsort(name) + shift) % n_classes] for shift in shifts]
        for permutation in drawn[: size - len(basis)]:
            basis.setdefault(tuple(permutation.tolist()))
        if kind == "latin" and len(basis) < size and n_classes <= 8:
            # squares of few classes soon repeat: fill up with what is left
            left = [p for p in permutations(identity) if p not in basis]
            for i in generator.permutation(len(left))[: size - len(basis)]:
                basis[left[i]] = None
    return torch.tensor(list(basis))


def penalty_form(basis: Tensor) -> Tensor:
    """What `basis_penalty` needs of a basis, once: with `D[m, k] = 1` where pi_m moves k, D (M, K) if K < M,
    else `H = D D^T` (M, M): `H[m, l]` counts the classes that both pi_m and pi_l move.

    >>> penalty_form(torch.tensor([[0, 1, 2], [1, 0, 2]])).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    n_bases, n_classes = basis.shape
    moves = (basis != torch.arange(n_classes, device=basis.device)).to(torch.get_default_dtype())
    return moves if n_classes < n_bases else moves @ moves.T


def basis_penalty(coefficients: Tensor, form: Tensor) -> Tensor:
    """`sum_k (1 - P_kk)^2` of each pair, (L,), for P = sum_m c_m B_m with `coefficients` c (L, M).

    Since c sums to 1, `1 - P_kk = (c D)_k`, and the penalty is `|c D|^2 = c^T H c`: no K x K matrix.

    >>> basis_penalty(torch.tensor([[0.5, 0.5]]), penalty_form(torch.tensor([[0, 1, 2], [1, 0, 2]])))
    tensor([0.5000])
    """
    product = coefficients @ form
    return product.square().sum(1) if form.shape[1] < form.shape[0] else (product * coefficients).sum(1)


def fuse_by_basis(
    weights: Tensor, coefficients: Tensor, label: Tensor, item: Tensor, basis: Tensor, n_items: int
) -> Tensor:
    """Fused labels `t_n = sum_r w_n^r P_n^r e_y`, (B, K): a scatter-add of w c_m into the classes pi_m(y).

    `weights` (L,), `coefficients` (L, M), `label` (L,), `item` (L,), `basis` (M, K).

    >>> one = torch.ones(1)
    >>> fuse_by_basis(one, torch.tensor([[0.7, 0.3]]), torch.tensor([0]), torch.tensor([0]),
    ...                  torch.tensor([[0, 1], [1, 0]]), 1)
    tensor([[0.7000, 0.3000]])
    """
    n_classes = basis.shape[1]
    reached = basis.T[label]  # (L, M): the class that each permutation makes of the label
    slot = item[:, None] * n_classes + reached
    fused = coefficients.new_zeros(n_items * n_classes)
    return fused.index_add(0, slot.flatten(), (weights[:, None] * coefficients).flatten()).view(n_items, n_classes)


def scatter_sum(values: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Sum the rows of `values` (L, ...) that belong to the same item: (B, ...).

    >>> scatter_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 0]), 3)
    tensor([5., 0., 2.])
    """
    return values.new_zeros((n_items, *values.shape[1:])).index_add(0, item, values)


def segment_softmax(scores: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Softmax of the pairs' scores (L,) over the pairs of the same item: only labels that exist take part.

    Where all scores of an item are minus infinity, nobody counts and all weights are 0.

    >>> segment_softmax(torch.tensor([1.0, 1.0, 7.0]), torch.tensor([0, 0, 1]), 2)
    tensor([0.5000, 0.5000, 1.0000])
    """
    largest = scores.detach().new_full((n_items,), -torch.inf).scatter_reduce(0, item, scores.detach(), "amax")
    exponential = (scores - largest.nan_to_num(neginf=0)[item]).exp()
    total = scatter_sum(exponential, item, n_items).clamp(min=torch.finfo(scores.dtype).tiny)
    return exponential / total[item]


def vote_shares(label: Tensor, item: Tensor, n_items: int, n_classes: int) -> Tensor:
    """How the labels of each item are spread over the classes, (B, K); rows of items without labels are 0.

    >>> vote_shares(torch.tensor([1, 1, 0, 2]), torch.tensor([0, 0, 0, 1]), 3, 3)
    tensor([[0.3333, 0.6667, 0.0000],
            [0.0000, 0.0000, 1.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    votes = torch.bincount(item * n_classes + label, minlength=n_items * n_classes).view(n_items, n_classes)
    return votes / votes.sum(1, keepdim=True).clamp(min=1)


def label_log_probabilities(log_confusions: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
    """`log A_r[k, y]` of each pair and class k, (L, K): how likely the annotator says y of an item of class k.

    `log_confusions` (R, K, K) are the logs of one matrix an annotator, axes (true, said), rows summing to 1.

    >>> A = torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
    >>> label_log_probabilities(A.log(), torch.tensor([0, 0]), torch.tensor([0, 1])).exp()
    tensor([[0.9000, 0.4000],
            [0.1000, 0.6000]])
    """
    n_classes = log_confusions.shape[1]
    columns = log_confusions.transpose(1, 2).flatten(0, 1)  # by annotator and label
    return columns.index_select(0, annotator * n_classes + label)


def mixture_log_likelihood(
    log_f: Tensor, log_confusions: Tensor, item: Tensor, annotator: Tensor, label: Tensor
) -> Tensor:
    """`log sum_k f_n(k) A_r[k, y]` of each pair, (L,): how likely the label is, whatever the class.

    `log_f` (B, K) are the logs of class probabilities, `log_confusions` (R, K, K) those of one matrix an annotator.
    Summed as they are, which takes half the time of a sum in logs; in logs where one would be lost in rounding.

    >>> A = torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
    >>> mixture_log_likelihood(torch.tensor([[0.5, 0.5]]).log(), A.log(), *torch.tensor([[0], [0], [1]])).exp()
    tensor([0.3500])
    """
    n_classes = log_f.shape[1]
    columns = log_confusions.transpose(1, 2).flatten(0, 1)  # by annotator and label
    column = annotator * n_classes + label
    likely = (log_f.exp().index_select(0, item) * columns.exp().index_select(0, column)).sum(1)
    if not len(likely) or likely.detach().min() > 1e-20:
        return likely.log()
    return (log_f.index_select(0, item) + columns.index_select(0, column)).logsumexp(1)


def rowwise_mixture_log_likelihood(class_logits: Tensor, matrix_logits: Tensor, labels: Tensor) -> Tensor:
    """`log sum_k f(k) A[k, y]` of S labels y of each row, (L, S), where each row has a matrix of its own.

    `f` is the softmax of `class_logits` (L, K), `A` that of `matrix_logits` (L, K, K) over what is said, `labels`
    (L, S). In logs, and of the matrices only what was said is summed. The gradient is written out: with
    `q(k) = f(k) A[k, y] / p(y)` it is `q - f` for the classes, `q(k) ([c = y] - A[k, c])` for the matrices.

    >>> f, A = torch.tensor([[0.5, 0.5]]), torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
    >>> rowwise_mixture_log_likelihood(f.log(), A.log(), torch.tensor([[0, 1]])).exp()
    tensor([[0.6500, 0.3500]])
    """
    found: Tensor = _SaidLogLikelihood.apply(class_logits, matrix_logits, labels)  # type: ignore[no-untyped-call]  # torch has no types here
    return found


class _SaidLogLikelihood(torch.autograd.Function):
    """Of tensors (L, K), (L, K, K) and (L, S); where classes are few, with L moved last, which takes torch a third of
    the time. `k` and `c` are the dimensions of the class and of what is said."""

    @staticmethod
    def forward(ctx: Any, class_logits: Tensor, matrix_logits: Tensor, labels: Tensor) -> Tensor:
        n_classes = class_logits.shape[1]
        ctx.rows, k, c = (-1, 0, 1) if n_classes < FEW_CLASSES else (0, 1, 2)
        log_f, log_A, labels = (
            part.movedim(0, ctx.rows).contiguous() for part in (class_logits, matrix_logits, labels)
        )
        log_f, log_A = log_f.log_softmax(k), log_A.log_softmax(c)
        places = torch.stack([labels] * n_classes, k)
        joint = log_A.gather(c, places) + log_f.unsqueeze(c)
        log_p = joint.logsumexp(k)
        ctx.save_for_backward(log_f, log_A, places, joint, log_p)
        return log_p.movedim(ctx.rows, 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        log_f, log_A, places, joint, log_p = ctx.saved_tensors
        k, c = (0, 1) if ctx.rows else (1, 2)
        gradient = gradient.movedim(0, ctx.rows)
        q = (joint - log_p.unsqueeze(k)).exp() * gradient.unsqueeze(k)
        of_class = q.sum(c)
        of_matrix = (log_A.exp() * -of_class.unsqueeze(c)).scatter_add_(c, places, q)
        of_class = of_class - log_f.exp() * gradient.sum(k, keepdim=True)
        return of_class.movedim(ctx.rows, 0), of_matrix.movedim(ctx.rows, 0), None


def expected_class_log_likelihood(said: Tensor, *, above_chance: bool) -> Tensor:
    """How well each class k explains what an annotator says of an item, (..., K), given the shares q of what is said.

    An annotator who is right with probability g, and whose wrong labels are even, says k with probability g and every
    other class with (1 - g) / (K - 1). With the g that fits best, which is q_k, a label is worth
    `q_k log q_k + (1 - q_k) log((1 - q_k) / (K - 1))`: much where q_k is large, and also where it is far below 1 / K,
    as nobody who guesses avoids a class by chance. With `above_chance` only labels that speak for k count: g is at
    least 1 / K.

    >>> said = torch.tensor([0.6, 0.4, 0.0, 0.0])
    >>> expected_class_log_likelihood(said, above_chance=True)
    tensor([-1.1125, -1.3322, -1.3863, -1.3863])
    >>> expected_class_log_likelihood(torch.tensor([1/3, 1/3, 1/3, 0.0]), above_chance=False)
    tensor([-1.3689, -1.3689, -1.3689, -1.0986])
    """
    n_classes = said.shape[-1]
    q = said.clamp(1e-6, 1 - 1e-6)
    if above_chance:
        q = q.clamp(min=1 / n_classes)
    return q * q.log() + (1 - q) * ((1 - q).log() - math.log(n_classes - 1))


def derangements(n_classes: int, n_bases: int, generator: np.random.Generator) -> Tensor:
    """Distinct permutations that leave no class in its place, (M, K): all of them where `n_bases` allows, else drawn.

    >>> derangements(3, 5, np.random.default_rng(0)).tolist()
    [[1, 2, 0], [2, 0, 1]]
    """
    if n_classes <= 8:
        every = [p for p in permutations(range(n_classes)) if all(k != said for k, said in enumerate(p))]
        chosen = every if len(every) <= n_bases else [every[i] for i in generator.permutation(len(every))[:n_bases]]
        return torch.tensor(chosen)
    n_possible = 1
    for k in range(1, n_classes + 1):
        n_possible = k * n_possible + (-1) ** k
    found: dict[tuple[int, ...], None] = {}
    while len(found) < min(n_bases, n_possible):
        drawn = generator.permutation(n_classes)
        if (drawn != np.arange(n_classes)).all():
            found.setdefault(tuple(drawn.tolist()))
    return torch.tensor(list(found))


def posterior(log_prior: Tensor, log_likelihoods: Tensor, item: Tensor) -> Tensor:
    """By Bayes, `q_n(k)` proportional to `prior_n(k) prod_r A_r[k, y_nr]`, (B, K); rows of items without labels are 0.

    In logs, since the product over many labels would underflow. `log_prior` (B, K), `evidence` (L, K) as from
    `label_log_probabilities`.

    >>> evidence = torch.tensor([[0.9, 0.4], [0.9, 0.4]]).log()
    >>> posterior(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log(), evidence, torch.tensor([0, 0]))
    tensor([[0.8351, 0.1649],
            [0.0000, 0.0000]])
    """
    n_items = len(log_prior)
    labelled = torch.bincount(item, minlength=n_items) > 0
    return (log_prior + scatter_sum(log_likelihoods, item, n_items)).softmax(1) * labelled[:, None]


def kl_divergence(target: Tensor, log_probabilities: Tensor) -> Tensor:
    """`KL(target || f)` of each row, (B,), with 0 log 0 = 0 and a gradient of 0 through entries that are 0.

    `torch.nn.functional.kl_div` has NaN gradients there, and fused labels often hold exact zeros.

    >>> kl_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    positive = target > 0
    logarithm = torch.where(positive, target, 1).log()
    return torch.where(positive, target * (logarithm - log_probabilities), 0).sum(1)


def generalized_cross_entropy(log_probabilities: Tensor, target: Tensor, q: float) -> Tensor:
    """`(1 - p^q) / q` of each row, (B,), p the probability of its class `target` (B,); 0 < q <= 1.

    For small q it is cross-entropy, for q = 1 it is 1 - p; its gradient is p^q times that of cross-entropy. Computed
    from logs, so that a small q loses no digits and a p that underflows gives no NaN.

    >>> generalized_cross_entropy(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0]), 0.5)
    tensor([1.])
    """
    log_p = log_probabilities.gather(1, target[:, None])[:, 0]
    return -(q * log_p).expm1() / q


def dense_confusions(coefficients: Tensor, basis: Tensor) -> Tensor:
    """The matrices `P = sum_m c_m B_m`, (L, K, K), axes (true, said): columns sum to 1.

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
