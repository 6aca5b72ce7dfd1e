"""Tables with one row per annotator. A batch reads only some rows, and only these rows get gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MAX_DENSE_GRADIENT_ROWS = 100  # up to this many rows, a dense gradient of the whole table is faster than a sparse one


def take_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Return `table[rows]`, with a sparse gradient if the table has more than 100 rows.

    With a sparse gradient, time and memory of the backward pass depend on `len(rows)` but not on the length of the
    table.

    Parameters
    ----------
    table : Tensor of shape (R, ...)
        A parameter or buffer with one row per annotator.
    rows : Tensor of shape (L,)
        Row numbers; repeats are allowed.

    Returns
    -------
    values : Tensor of shape (L, ...)

    Examples
    --------
    >>> table = nn.Parameter(torch.zeros(1000, 2))
    >>> take_rows(table, torch.tensor([7, 3, 7])).sum().backward()
    >>> table.grad.coalesce().indices().tolist(), table.grad.coalesce().values().tolist()
    ([[3, 7]], [[1.0, 1.0], [2.0, 2.0]])
    """
    if len(table) <= MAX_DENSE_GRADIENT_ROWS or not torch.is_grad_enabled():
        return table.index_select(0, rows)
    values: Tensor = _TakeRows.apply(table, rows)  # type: ignore[no-untyped-call]  # torch has no types here
    return values


def active_annotators(annotator: Tensor, n_annotators: int) -> tuple[Tensor, Tensor]:
    """Return the annotators who gave the labels of a batch, and for each label its annotator's position among them.

    If `n_annotators` is at most 100, all annotators are returned, because selecting some of them would take longer.

    Parameters
    ----------
    annotator : Tensor of shape (L,)
        Annotator of each label.
    n_annotators : int
        Number of annotators.

    Returns
    -------
    active : Tensor of shape (U,)
        Annotator indices, sorted.
    position : Tensor of shape (L,)
        `active[position]` equals `annotator`.

    Examples
    --------
    >>> active_annotators(torch.tensor([7, 3, 7]), 1000)
    (tensor([3, 7]), tensor([1, 0, 1]))
    >>> active_annotators(torch.tensor([2, 0]), 3)
    (tensor([0, 1, 2]), tensor([2, 0]))
    """
    if n_annotators <= MAX_DENSE_GRADIENT_ROWS:
        return torch.arange(n_annotators, device=annotator.device), annotator
    active, position = annotator.unique(return_inverse=True)
    return active, position


def append_mean_rows(table: Tensor, count: int) -> Tensor:
    """Return the table with `count` more rows, each the mean of the existing rows.

    Parameters
    ----------
    table : Tensor of shape (R, ...)
        One row per annotator.
    count : int
        Number of rows to append.

    Returns
    -------
    longer : Tensor of shape (R + count, ...)

    Examples
    --------
    >>> append_mean_rows(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), 1)
    tensor([[1., 2.],
            [3., 6.],
            [2., 4.]])
    """
    return torch.cat([table, table.mean(0, keepdim=True).expand(count, *table.shape[1:])])


def extend_tables(module: nn.Module, names: tuple[str, ...], count: int) -> None:
    """Append `count` rows, each the mean of the existing rows, to tables of a module, in place.

    Parameters
    ----------
    module : nn.Module
        The module that holds the tables.
    names : tuple of str
        Attribute names of the tables, which are parameters or buffers.
    count : int
        Number of rows to append to each table.

    Examples
    --------
    >>> module = nn.Embedding(2, 3)
    >>> extend_tables(module, ("weight",), 4)
    >>> module.weight.shape
    torch.Size([6, 3])
    """
    for name in names:
        table = getattr(module, name)
        longer = append_mean_rows(table.detach(), count)
        setattr(module, name, nn.Parameter(longer) if isinstance(table, nn.Parameter) else longer)


class PerAnnotator(nn.Module):
    """Base class of modules with parameters or buffers per annotator.

    A module that inherits from this class must define `add_annotators`. `Method.add_annotators` calls `add_annotators`
    of each `PerAnnotator` in the method.
    """

    def add_annotators(self, count: int) -> None:
        """Append annotators, each with the mean parameters of the existing annotators.

        If mean parameters would be useless, as in `SeparateHeads`, a new annotator gets the mean outputs instead.

        Parameters
        ----------
        count : int
            Number of annotators to add.
        """
        raise NotImplementedError


class _TakeRows(torch.autograd.Function):
    """`table[rows]`, with a sparse gradient of the table."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        """Return the rows."""
        ctx.save_for_backward(rows)
        ctx.shape = table.shape
        return table.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the table as a sparse tensor."""
        (rows,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(rows[None], gradient, ctx.shape, check_invariants=False), None
