"""Tables with a row an annotator, of which a batch needs a few: gradients of these rows alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MAX_DENSE_TABLE_ROWS = 100  # rows: below, gradients of the whole table cost less than the care for some of it


def take_rows(table: Tensor, rows: Tensor) -> Tensor:
    """`table[rows]`; the gradient of a table with many rows is sparse: work and memory grow with `rows` alone.

    >>> table = nn.Parameter(torch.zeros(1000, 2))
    >>> take_rows(table, torch.tensor([7, 3, 7])).sum().backward()
    >>> table.grad.coalesce().indices().tolist(), table.grad.coalesce().values().tolist()
    ([[3, 7]], [[1.0, 1.0], [2.0, 2.0]])
    """
    if len(table) <= MAX_DENSE_TABLE_ROWS or not torch.is_grad_enabled():
        return table.index_select(0, rows)
    taken: Tensor = _TakeRows.apply(table, rows)  # type: ignore[no-untyped-call]  # torch has no types here
    return taken


def active_annotators(annotator: Tensor, n_annotators: int) -> tuple[Tensor, Tensor]:
    """Which annotators to compute for some labels (L,): sorted numbers (U,), and each label's place among them (L,).

    Where there are few, all: that costs less than finding out.

    >>> active_annotators(torch.tensor([7, 3, 7]), 1000)
    (tensor([3, 7]), tensor([1, 0, 1]))
    >>> active_annotators(torch.tensor([2, 0]), 3)
    (tensor([0, 1, 2]), tensor([2, 0]))
    """
    if n_annotators <= MAX_DENSE_TABLE_ROWS:
        return torch.arange(n_annotators, device=annotator.device), annotator
    those, place = annotator.unique(return_inverse=True)
    return those, place


def append_mean_rows(table: Tensor, count: int) -> Tensor:
    """The table with `count` rows more, each the mean of those that are there.

    >>> append_mean_rows(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), 1)
    tensor([[1., 2.],
            [3., 6.],
            [2., 4.]])
    """
    return torch.cat([table, table.mean(0, keepdim=True).expand(count, *table.shape[1:])])


def extend_tables(module: nn.Module, names: tuple[str, ...], count: int) -> None:
    """Give tables of a module, parameters or buffers, `count` rows more: those of the average annotator."""
    for name in names:
        table = getattr(module, name)
        longer = append_mean_rows(table.detach(), count)
        setattr(module, name, nn.Parameter(longer) if isinstance(table, nn.Parameter) else longer)


class PerAnnotator(nn.Module):
    """A part of a network that holds something for each annotator."""

    def add_annotators(self, count: int) -> None:
        """Make room for `count` annotators more, who are taken to be like the average one."""
        raise NotImplementedError


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = table.shape
        return table.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(rows[None], gradient, ctx.shape, check_invariants=False), None
