"""Likelihoods of labels given the class, and the posterior of the class given the labels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from crowdfuse.functional.segments import scatter_sum

MIN_CLASSES_FOR_ROWS_FIRST = 16
"""If there are fewer classes, torch's softmax over the last dimension is several times slower than over another."""


def label_log_probabilities(log_confusions: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
    """Return `log A_r[k, y]` for each label y and class k: the log-probability of the label if the class is k.

    Parameters
    ----------
    log_confusions : Tensor of shape (R, K, K)
        Logarithms of one confusion matrix A_r per annotator. `A_r[k, y]` is the probability that annotator r gives
        label y to an item of class k, so rows sum to 1.
    annotator : Tensor of shape (L,)
        Annotator r of each label.
    label : Tensor of shape (L,)
        The labels y.

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
    """Return `log sum_k f_n(k) A_r[k, y]` for each label y: the log-probability of the label.

    f_n are the class probabilities of the label's item n, and A_r is the confusion matrix of the label's annotator r.
    The sum is computed from probabilities, because log-sum-exp takes twice as long. Log-sum-exp is used only if the
    probability of a label would underflow.

    Parameters
    ----------
    log_f : Tensor of shape (B, K)
        Logarithms of the class probabilities of each item.
    log_confusions : Tensor of shape (R, K, K)
        Logarithms of one confusion matrix A_r per annotator. `A_r[k, y]` is the probability that annotator r gives
        label y to an item of class k, so rows sum to 1.
    item : Tensor of shape (L,)
        For each label, the position of its item in the batch.
    annotator : Tensor of shape (L,)
        Annotator of each label.
    label : Tensor of shape (L,)
        The labels y.

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
    """Return the log-probabilities of the labels in each row of a batch. Each row has its own confusion matrix.

    The probability of label y is `p(y) = sum_k f(k) A[k, y]`, with the class probabilities f and the confusion matrix A
    of the row. The logarithm of p(y) is computed by log-sum-exp.

    The gradient of log p(y) is implemented explicitly. Let `q(k) = f(k) A[k, y] / p(y)`. The gradient with respect to
    the class logits is `q - f`. The gradient with respect to the matrix logit `[k, c]` is `q(k) (1 - A[k, c])` if c is
    the label y, and `-q(k) A[k, c]` otherwise.

    Parameters
    ----------
    class_logits : Tensor of shape (L, K)
        Class logits of each row; f is their softmax.
    matrix_logits : Tensor of shape (L, K, K)
        Logits of the confusion matrices, axes (row, true class, annotator's label). A is their softmax over the last
        axis.
    labels : Tensor of shape (L, S)
        The S labels y of each row.

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

    If there are few classes, the dimension of the rows is moved last, because torch then takes a third of the time. `k`
    and `c` are the dimensions of the true class and of the label.
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

    The annotator gives the labels with probabilities q. Suppose that k is the true class, and model the annotator as
    follows: label k has probability g, and each of the K - 1 other labels has probability `(1 - g) / (K - 1)`. The
    expected log-likelihood of a label is then `q_k log g + (1 - q_k) log((1 - g) / (K - 1))`. It is highest for
    g = q_k. The returned value of class k is this maximum, `q_k log q_k + (1 - q_k) log((1 - q_k) / (K - 1))`.

    The value is lowest for q_k = 1 / K. It is high if q_k is far above 1 / K: the model then describes an annotator who
    usually gives the true class. It is also high if q_k is far below 1 / K: the model then describes an annotator who
    avoids the true class.

    Parameters
    ----------
    label_probabilities : Tensor of shape (..., K)
        Probabilities q of the labels that the annotator would give.
    above_chance : bool
        If True, g must be at least 1 / K. Then the value is high only if q_k is far above 1 / K, and all classes with
        q_k <= 1 / K have the lowest value, -log K. If False, g may be any probability.

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


def posterior(log_prior: Tensor, log_likelihoods: Tensor, item: Tensor) -> Tensor:
    """Return the posterior class probabilities of each item, given its labels.

    The posterior of class k for item n is proportional to `prior_n(k) prod_r A_r[k, y_nr]`. The product is over the
    annotators r who labelled the item, and y_nr is the label that r gave. `A_r[k, y]` is the probability that annotator
    r gives label y to an item of class k. The posterior is computed in logarithms, because the product over many labels
    would underflow.

    Parameters
    ----------
    log_prior : Tensor of shape (B, K)
        Logarithms of the prior class probabilities of each item.
    log_likelihoods : Tensor of shape (L, K)
        `log A_r[k, y]` of each label and class, as returned by `label_log_probabilities`.
    item : Tensor of shape (L,)
        For each label, the position of its item in the batch.

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
