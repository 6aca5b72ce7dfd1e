"""The fused label and the penalty of the fusion method, computed from basis coefficients without K x K matrices."""

from __future__ import annotations

import torch
from torch import Tensor


def fuse_by_basis(
    weights: Tensor, coefficients: Tensor, label: Tensor, item: Tensor, basis: Tensor, n_items: int
) -> Tensor:
    """Return the fused label of each item: the weighted mean of its labels, each corrected by a confusion matrix.

    The fused label of item n is `t_n = sum_r w_n^r P_n^r e_{y_n^r}`, with confusion matrices `P = sum_m c_m B_m`. The
    sum is over the annotators r who labelled the item. For each pair (item, annotator), w is the weight, c_m are the
    coefficients, y is the label and e_y is the one-hot vector of the label. The permutation matrix B_m maps class j to
    class pi_m(j). The sum is computed without building matrices: `w c_m` is added to the entry of class `pi_m(y)`.

    Parameters
    ----------
    weights : Tensor of shape (L,)
        Weight w of each pair.
    coefficients : Tensor of shape (L, M)
        Coefficients c of each pair.
    label : Tensor of shape (L,)
        Label y of each pair.
    item : Tensor of shape (L,)
        For each pair, the position of its item in the batch.
    basis : Tensor of shape (M, K)
        Permutations, as returned by `permutation_basis`.
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


def penalty_form(basis: Tensor) -> Tensor:
    """Return the matrix that `basis_penalty` needs to compute penalties with the given basis.

    Let `D[m, k]` be 1 if permutation pi_m of the basis maps class k to another class, else 0. For coefficients c, the
    penalty is `|c D|^2`. This equals `c^T H c` with `H = D D^T`, so the penalty can be computed from D or from H. The
    smaller of the two matrices is returned.

    Parameters
    ----------
    basis : Tensor of shape (M, K)
        Permutations, as returned by `permutation_basis`.

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
    """Return the penalty `sum_k (1 - P_kk)^2` of each pair (item, annotator).

    P is the confusion matrix of the pair, `P = sum_m c_m B_m`, with coefficients c and permutation matrices B_m. If P
    is the identity, the penalty is 0. The penalty is computed without building P. Let `D[m, k]` be 1 if B_m maps class
    k to another class, else 0. P_kk is the sum of the coefficients whose permutations map class k to itself. Since all
    coefficients sum to 1, `1 - P_kk` is the sum of the other coefficients, `(c D)_k`.

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
