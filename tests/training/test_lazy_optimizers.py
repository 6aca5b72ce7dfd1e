"""Rows that a batch uses are updated as torch would update them; all others stay unchanged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW

from crowdfuse.nets.annotator_tables import MAX_DENSE_GRADIENT_ROWS, take_rows
from crowdfuse.training.lazy_optimizers import LazyAdam, LazyAdamW, LazySGD

KINDS: list[tuple[Any, Any, dict[str, float]]] = [
    (LazySGD, SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (LazySGD, SGD, {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}),
    (LazyAdam, Adam, {"lr": 0.1, "weight_decay": 0.01}),
    (LazyAdamW, AdamW, {"lr": 0.1, "weight_decay": 0.01}),
]


def table(n_rows: int = MAX_DENSE_GRADIENT_ROWS + 1) -> nn.Parameter:
    return nn.Parameter(torch.randn(n_rows, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


@pytest.mark.parametrize(("lazy", "usual", "settings"), KINDS)
def test_each_row_is_updated_like_a_separate_parameter(lazy: Any, usual: Any, settings: dict[str, float]) -> None:
    whole = table()
    alone = [nn.Parameter(row.detach().clone()) for row in whole]
    optimizer = lazy([whole], fused=True, **settings)
    optimizers = [usual([row], **settings) for row in alone]
    batches = [[3, 7, 3], [7], [3, 100], [50, 7, 7, 7]]
    generator = torch.Generator().manual_seed(1)
    for rows in batches:
        slope = torch.randn(len(rows), 2, 3, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        (take_rows(whole, torch.tensor(rows)) * slope).sum().backward()
        assert whole.grad is not None
        assert whole.grad.is_sparse
        optimizer.step()
        for row in set(rows):
            optimizers[row].zero_grad()
            sum((alone[row] * slope[place]).sum() for place, other in enumerate(rows) if other == row).backward()  # type: ignore[union-attr]  # a tensor
            optimizers[row].step()
    torch.testing.assert_close(whole.detach(), torch.stack([row.detach() for row in alone]), rtol=1e-12, atol=1e-12)


def test_other_parameters_are_left_to_torch() -> None:
    one, two, rows = nn.Linear(3, 2), nn.Linear(3, 2), table()
    two.load_state_dict(one.state_dict())
    lazy, usual = LazyAdamW([*one.parameters(), rows], lr=0.1), AdamW(two.parameters(), lr=0.1)
    for _ in range(3):
        for layer, optimizer in ((one, lazy), (two, usual)):
            optimizer.zero_grad()
            (
                layer(torch.ones(1, 3)).sum() + (take_rows(rows, torch.tensor([1])).sum() if layer is one else 0)
            ).backward()
            optimizer.step()
    assert torch.equal(one.weight, two.weight)


def test_a_table_of_few_rows_has_a_dense_gradient() -> None:
    few = table(MAX_DENSE_GRADIENT_ROWS)
    take_rows(few, torch.tensor([3, 3])).sum().backward()
    assert few.grad is not None
    assert not few.grad.is_sparse
    assert few.grad.sum() == 12


def test_the_sparse_gradient_equals_the_dense_one() -> None:
    rows = torch.tensor([5, 100, 5])
    dense, sparse = table(), table()
    slope = torch.randn(3, 2, 3, dtype=torch.float64)
    (dense.index_select(0, rows).square() * slope).sum().backward()
    (take_rows(sparse, rows).square() * slope).sum().backward()
    assert sparse.grad is not None
    torch.testing.assert_close(sparse.grad.to_dense(), dense.grad)


@pytest.mark.parametrize(("lazy", "usual", "settings"), KINDS)
def test_a_parameter_may_get_its_first_gradient_late(lazy: Any, usual: Any, settings: dict[str, float]) -> None:
    """As in a training with phases, where a part has no gradient until its phase."""
    sides = []
    for kind, more in ((lazy, {"fused": True}), (usual, {"foreach": False})):
        early, late = (nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
        optimizer = kind([early, late], **settings, **more)
        for step in range(5):
            optimizer.zero_grad()
            (early.square().sum() + (late.pow(3).sum() if step > 1 else 0)).backward()
            optimizer.step()
        sides.append(torch.stack([early, late]).detach())
    torch.testing.assert_close(sides[0], sides[1], rtol=1e-12, atol=1e-12)
    assert (sides[0][1] != 1).all()
