"""The mathematics of the methods, as pure functions of tensors.

The unit is the labelled pair (item, annotator). A batch has B items, L labelled pairs and K classes; `item` (L,) gives
the position of each pair's item in the batch. Only `dense_confusions` builds K x K matrices; it is not used in
training.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

MIN_CLASSES_FOR_ROWS_FIRST = 16
"""With fewer classes, torch's softmax over the last dimension takes several times as long as over another."""

MAX_ENUMERATED_CLASSES = 8
"""Up to this many classes all permutations are listed (8! = 40,320)."""


def permutation_basis(
    n_classes: int, n_bases: int, kind: Literal["random", "latin"] = "random", seed: int = 0
) -> Tensor:
    """Return M distinct permutations of K classes, the identity first.

    Permutation m is the matrix B_m with `B_m e_j = e_{pi_m(j)}`. There are `M = min(n_bases, K!)` of them.

    Parameters
    ----------
    n_classes : int
        Number of classes K, at least 2.
    n_bases : int
        Largest number of permutations, at least 1.
    kind : {"random", "latin"}, default="random"
        "random" draws permutations uniformly without repetition, as in the paper. "latin" uses shuffled cyclic shifts,
        so that for M >= K every class can be reached from every label.
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
        raise ValueError(f"basis must be 'random' or 'latin', got {kind!r}")
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


def penalty_form(basis: Tensor) -> Tensor:
    """Return the matrix of the quadratic form in `basis_penalty`, which depends on the basis alone.

    Let `D[m, k] = 1` where pi_m moves class k, else 0. The penalty is `|c D|^2 = c^T H c` with `H = D D^T`, where
    `H[m, l]` counts the classes that both pi_m and pi_l move. The smaller of the two matrices is returned.

    Parameters
    ----------
    basis : Tensor of shape (M, K)
        Permutations, as from `permutation_basis`.

    Returns
    -------
    form : Tensor of shape (M, K) or (M, M)
        D if K < M, else H.

    Examples
    --------
    >>> penalty_form(torch.tensor([[0, 1, 2], [1, 0, 2]])).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    n_bases, n_classes = basis.shape
    moves = (basis != torch.arange(n_classes, device=basis.device)).to(torch.get_default_dtype())
    return moves if n_classes < n_bases else moves @ moves.T


def basis_penalty(coefficients: Tensor, form: Tensor) -> Tensor:
    """Return the penalty `sum_k (1 - P_kk)^2` of each pair, for `P = sum_m c_m B_m`.

    Since the coefficients sum to 1, `1 - P_kk = (c D)_k`, so no K x K matrix is built (see `penalty_form`).

    Parameters
    ----------
    coefficients : Tensor of shape (L, M)
        Coefficients c of each pair; rows sum to 1.
    form : Tensor of shape (M, K) or (M, M)
        The result of `penalty_form`.

    Returns
    -------
    penalty : Tensor of shape (L,)

    Examples
    --------
    >>> basis_penalty(torch.tensor([[0.5, 0.5]]), penalty_form(torch.tensor([[0, 1, 2], [1, 0, 2]])))
    tensor([0.5000])
    """
    product = coefficients @ form
    return product.square().sum(1) if form.shape[1] < form.shape[0] else (product * coefficients).sum(1)


def fuse_by_basis(
    weights: Tensor, coefficients: Tensor, label: Tensor, item: Tensor, basis: Tensor, n_items: int
) -> Tensor:
    """Return the fused labels `t_n = sum_r w_n^r P_n^r e_{y_n^r}`, with `P = sum_m c_m B_m`.

    They are a scatter-add of `w c_m` into the classes `pi_m(y)`.

    Parameters
    ----------
    weights : Tensor of shape (L,)
        Weight w of each pair.
    coefficients : Tensor of shape (L, M)
        Coefficients c of each pair.
    label : Tensor of shape (L,)
        Label y of each pair.
    item : Tensor of shape (L,)
        Position of each pair's item.
    basis : Tensor of shape (M, K)
        Permutations, as from `permutation_basis`.
    n_items : int
        Number of items B.

    Returns
    -------
    fused : Tensor of shape (B, K)
        Rows of items without labels are 0.

    Examples
    --------
    >>> one = torch.ones(1)
    >>> fuse_by_basis(one, torch.tensor([[0.7, 0.3]]), torch.tensor([0]), torch.tensor([0]),
    ...               torch.tensor([[0, 1], [1, 0]]), 1)
    tensor([[0.7000, 0.3000]])
    """
    n_classes = basis.shape[1]
    reached = basis.T[label]  # (L, M): the class to which each permutation maps the label
    cell = item[:, None] * n_classes + reached
    fused = coefficients.new_zeros(n_items * n_classes)
    return fused.index_add(0, cell.flatten(), (weights[:, None] * coefficients).flatten()).view(n_items, n_classes)


def scatter_sum(values: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Sum the rows of `values` that belong to the same item.

    Parameters
    ----------
    values : Tensor of shape (L, ...)
        One row per pair.
    item : Tensor of shape (L,)
        Position of each pair's item.
    n_items : int
        Number of items B.

    Returns
    -------
    sums : Tensor of shape (B, ...)
        0 for items without pairs.

    Examples
    --------
    >>> scatter_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 0]), 3)
    tensor([5., 0., 2.])
    """
    return values.new_zeros((n_items, *values.shape[1:])).index_add(0, item, values)


def segment_softmax(scores: Tensor, item: Tensor, n_items: int) -> Tensor:
    """Return the softmax of scores over the pairs of the same item, so that only existing labels get weight.

    Parameters
    ----------
    scores : Tensor of shape (L,)
        Score of each pair. If all scores of an item are minus infinity, all its weights are 0.
    item : Tensor of shape (L,)
        Position of each pair's item.
    n_items : int
        Number of items B.

    Returns
    -------
    weights : Tensor of shape (L,)
        They sum to 1 over the pairs of an item.

    Examples
    --------
    >>> segment_softmax(torch.tensor([1.0, 1.0, 7.0]), torch.tensor([0, 0, 1]), 2)
    tensor([0.5000, 0.5000, 1.0000])
    """
    largest = scores.detach().new_full((n_items,), -torch.inf).scatter_reduce(0, item, scores.detach(), "amax")
    exponential = (scores - largest.nan_to_num(neginf=0)[item]).exp()
    total = scatter_sum(exponential, item, n_items).clamp(min=torch.finfo(scores.dtype).tiny)
    return exponential / total[item]


def vote_shares(label: Tensor, item: Tensor, n_items: int, n_classes: int) -> Tensor:
    """Return the share of each item's labels that each class got.

    Parameters
    ----------
    label : Tensor of shape (L,)
        Label of each pair.
    item : Tensor of shape (L,)
        Position of each pair's item.
    n_items : int
        Number of items B.
    n_classes : int
        Number of classes K.

    Returns
    -------
    shares : Tensor of shape (B, K)
        Rows of items without labels are 0.

    Examples
    --------
    >>> vote_shares(torch.tensor([1, 1, 0, 2]), torch.tensor([0, 0, 0, 1]), 3, 3)
    tensor([[0.3333, 0.6667, 0.0000],
            [0.0000, 0.0000, 1.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    votes = torch.bincount(item * n_classes + label, minlength=n_items * n_classes).view(n_items, n_classes)
    return votes / votes.sum(1, keepdim=True).clamp(min=1)


def label_log_probabilities(log_confusions: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
    """Return `log A_r[k, y]` of each pair and class k: the log-probability of the label if the item's class is k.

    Parameters
    ----------
    log_confusions : Tensor of shape (R, K, K)
        Logarithms of one matrix A_r per annotator, axes (true, said), rows summing to 1.
    annotator : Tensor of shape (L,)
        Annotator r of each pair.
    label : Tensor of shape (L,)
        Label y of each pair.

    Returns
    -------
    log_probabilities : Tensor of shape (L, K)

    Examples
    --------
    >>> A = torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
    >>> label_log_probabilities(A.log(), torch.tensor([0, 0]), torch.tensor([0, 1])).exp()
    tensor([[0.9000, 0.4000],
            [0.1000, 0.6000]])
    """
    n_classes = log_confusions.shape[1]
    columns = log_confusions.transpose(1, 2).flatten(0, 1)  # rows are (annotator, label)
    return columns.index_select(0, annotator * n_classes + label)


def mixture_log_likelihood(
    log_f: Tensor, log_confusions: Tensor, item: Tensor, annotator: Tensor, label: Tensor
) -> Tensor:
    """Return `log sum_k f_n(k) A_r[k, y]` of each pair: the log-probability of the label given class probabilities f.

    The sum is computed from probabilities, which takes half the time of a sum in logarithms, unless one of them would
    underflow.

    Parameters
    ----------
    log_f : Tensor of shape (B, K)
        Logarithms of the class probabilities of each item.
    log_confusions : Tensor of shape (R, K, K)
        Logarithms of one matrix A_r per annotator, axes (true, said), rows summing to 1.
    item : Tensor of shape (L,)
        Position of each pair's item.
    annotator : Tensor of shape (L,)
        Annotator of each pair.
    label : Tensor of shape (L,)
        Label of each pair.

    Returns
    -------
    log_likelihood : Tensor of shape (L,)

    Examples
    --------
    >>> A = torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
    >>> mixture_log_likelihood(torch.tensor([[0.5, 0.5]]).log(), A.log(), *torch.tensor([[0], [0], [1]])).exp()
    tensor([0.3500])
    """
    n_classes = log_f.shape[1]
    columns = log_confusions.transpose(1, 2).flatten(0, 1)  # rows are (annotator, label)
    column = annotator * n_classes + label
    probability = (log_f.exp().index_select(0, item) * columns.exp().index_select(0, column)).sum(1)
    if not len(probability) or probability.detach().min() > 1e-20:
        return probability.log()
    return (log_f.index_select(0, item) + columns.index_select(0, column)).logsumexp(1)


def rowwise_mixture_log_likelihood(class_logits: Tensor, matrix_logits: Tensor, labels: Tensor) -> Tensor:
    """Return `log sum_k f(k) A[k, y]` of S labels y per row, where each row has its own matrix A.

    Sums are in logarithms. The gradient is written out: with `q(k) = f(k) A[k, y] / p(y)` it is `q - f` for the class
    logits and `q(k) ([c = y] - A[k, c])` for the matrix logits.

    Parameters
    ----------
    class_logits : Tensor of shape (L, K)
        f is their softmax.
    matrix_logits : Tensor of shape (L, K, K)
        A is their softmax over the last axis; axes (true, said).
    labels : Tensor of shape (L, S)
        The labels y of each row.

    Returns
    -------
    log_likelihood : Tensor of shape (L, S)

    Examples
    --------
    >>> f, A = torch.tensor([[0.5, 0.5]]), torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
    >>> rowwise_mixture_log_likelihood(f.log(), A.log(), torch.tensor([[0, 1]])).exp()
    tensor([[0.6500, 0.3500]])
    """
    log_p: Tensor = _RowwiseMixture.apply(class_logits, matrix_logits, labels)  # type: ignore[no-untyped-call]
    return log_p


class _RowwiseMixture(torch.autograd.Function):
    """`rowwise_mixture_log_likelihood` with its gradient.

    With few classes the dimension of the rows is moved last, which takes torch a third of the time. `k` and `c` are the
    dimensions of the true class and of the label.
    """

    @staticmethod
    def forward(ctx: Any, class_logits: Tensor, matrix_logits: Tensor, labels: Tensor) -> Tensor:
        """Return the log-likelihoods (L, S)."""
        n_classes = class_logits.shape[1]
        ctx.rows, k, c = (-1, 0, 1) if n_classes < MIN_CLASSES_FOR_ROWS_FIRST else (0, 1, 2)
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
        """Return the gradients of class logits and matrix logits."""
        log_f, log_A, places, joint, log_p = ctx.saved_tensors
        k, c = (0, 1) if ctx.rows else (1, 2)
        gradient = gradient.movedim(0, ctx.rows)
        q = (joint - log_p.unsqueeze(k)).exp() * gradient.unsqueeze(k)
        of_class = q.sum(c)
        of_matrix = (log_A.exp() * -of_class.unsqueeze(c)).scatter_add_(c, places, q)
        of_class = of_class - log_f.exp() * gradient.sum(k, keepdim=True)
        return of_class.movedim(ctx.rows, 0), of_matrix.movedim(ctx.rows, 0), None


def expected_class_log_likelihood(label_probabilities: Tensor, *, above_chance: bool) -> Tensor:
    """Return how well each class explains an annotator's label distribution for an item.

    The annotator model is: right with probability g, wrong labels uniform. It gives label k the probability g if k is
    the true class, and every other label `(1 - g) / (K - 1)`. Given the probabilities q of the annotator's labels, the
    best g for class k is q_k, and the expected log-likelihood of a label is
    `q_k log q_k + (1 - q_k) log((1 - q_k) / (K - 1))`. It is high where q_k is large, and also where q_k is far below
    1 / K, since nobody who guesses avoids a class by chance.

    Parameters
    ----------
    label_probabilities : Tensor of shape (..., K)
        Probabilities q of the labels that the annotator would give.
    above_chance : bool
        Whether g is at least 1 / K, so that only frequent labels count as evidence for a class.

    Returns
    -------
    log_likelihood : Tensor of shape (..., K)

    Examples
    --------
    >>> q = torch.tensor([0.6, 0.4, 0.0, 0.0])
    >>> expected_class_log_likelihood(q, above_chance=True)
    tensor([-1.1125, -1.3322, -1.3863, -1.3863])
    >>> expected_class_log_likelihood(torch.tensor([1/3, 1/3, 1/3, 0.0]), above_chance=False)
    tensor([-1.3689, -1.3689, -1.3689, -1.0986])
    """
    n_classes = label_probabilities.shape[-1]
    q = label_probabilities.clamp(1e-6, 1 - 1e-6)
    if above_chance:
        q = q.clamp(min=1 / n_classes)
    return q * q.log() + (1 - q) * ((1 - q).log() - math.log(n_classes - 1))


def derangements(n_classes: int, n_bases: int, generator: np.random.Generator) -> Tensor:
    """Return distinct permutations that leave no class in its place.

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    n_bases : int
        Largest number of permutations. If there are more derangements, they are drawn at random.
    generator : numpy.random.Generator
        Source of the draw.

    Returns
    -------
    basis : Tensor of shape (M, K)

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


def posterior(log_prior: Tensor, log_likelihoods: Tensor, item: Tensor) -> Tensor:
    """Return the posterior `q_n(k)`, proportional to `prior_n(k) prod_r A_r[k, y_nr]`.

    It is computed in logarithms, since the product over many labels would underflow.

    Parameters
    ----------
    log_prior : Tensor of shape (B, K)
        Logarithms of the class probabilities before the labels are known.
    log_likelihoods : Tensor of shape (L, K)
        `log A_r[k, y]` of each pair and class, as from `label_log_probabilities`.
    item : Tensor of shape (L,)
        Position of each pair's item.

    Returns
    -------
    posterior : Tensor of shape (B, K)
        Rows of items without labels are 0.

    Examples
    --------
    >>> log_likelihoods = torch.tensor([[0.9, 0.4], [0.9, 0.4]]).log()
    >>> posterior(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log(), log_likelihoods, torch.tensor([0, 0]))
    tensor([[0.8351, 0.1649],
            [0.0000, 0.0000]])
    """
    n_items = len(log_prior)
    labelled = torch.bincount(item, minlength=n_items) > 0
    return (log_prior + scatter_sum(log_likelihoods, item, n_items)).softmax(1) * labelled[:, None]


def kl_divergence(target: Tensor, log_probabilities: Tensor) -> Tensor:
    """Return `KL(target || f)` of each row, with 0 log 0 = 0 and gradient 0 through target entries that are 0.

    `torch.nn.functional.kl_div` has NaN gradients there, and fused labels often contain exact zeros.

    Parameters
    ----------
    target : Tensor of shape (B, K)
        Probabilities.
    log_probabilities : Tensor of shape (B, K)
        Logarithms of f.

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
    """Return `(1 - p^q) / q` of each row, where p is the probability of its target class.

    It approaches cross-entropy as q goes to 0 and is 1 - p for q = 1; its gradient is p^q times that of cross-entropy.
    It is computed from logarithms, so that a small q loses no digits and a p that underflows gives no NaN.

    Parameters
    ----------
    log_probabilities : Tensor of shape (B, K)
        Logarithms of the class probabilities.
    target : Tensor of shape (B,)
        Class of each row.
    q : float
        0 < q <= 1.

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


def dense_confusions(coefficients: Tensor, basis: Tensor) -> Tensor:
    """Return the confusion matrices `P = sum_m c_m B_m` of each pair.

    Parameters
    ----------
    coefficients : Tensor of shape (L, M)
        Coefficients c of each pair.
    basis : Tensor of shape (M, K)
        Permutations, as from `permutation_basis`.

    Returns
    -------
    matrices : Tensor of shape (L, K, K)
        Axes (true, said); columns sum to 1.

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
