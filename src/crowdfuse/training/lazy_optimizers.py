"""Optimisers that move only those rows of a table that a batch had to do with.

A gradient that is sparse (see `nets/rows.py`) says which rows these are. Their moments, their weight decay and, for
Adam, the count of their steps are theirs alone: a row that is seen once an epoch makes a step an epoch, like a network
of its own. All other parameters are left to torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer


class _Lazy(Optimizer):
    """Takes the sparse gradients out of the way, row by row, before torch's own step."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for table in group["params"]:
                    if table.grad is not None and table.grad.is_sparse:
                        gradient = table.grad.coalesce()
                        self._step_rows(group, table, gradient.indices()[0], gradient.values())
                        table.grad = None
        return super().step(closure)

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        raise NotImplementedError


class LazySGD(_Lazy, SGD):
    """SGD with momentum and weight decay."""

    def step(self, closure: Any = None) -> Any:
        # torch's fused step wants momenta of all parameters or of none: one that begins to learn late has none yet
        for group in self.param_groups:
            for values in group["params"] if group["momentum"] else ():
                if values.grad is not None and self.state[values].get("momentum_buffer") is None:
                    self.state[values]["momentum_buffer"] = torch.zeros_like(values)
        return super().step(closure)

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        gradient = gradient + group["weight_decay"] * table[rows]
        if group["momentum"]:
            momenta = self.state[table]["momentum_buffer"]
            gradient = gradient + group["momentum"] * momenta[rows]
            momenta[rows] = gradient
        table[rows] = table[rows] - group["lr"] * gradient


class LazyAdam(_Lazy, Adam):
    """Adam; weight decay is part of the gradient."""

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        _adam_rows(self.state[table], group, table, rows, gradient + group["weight_decay"] * table[rows])


class LazyAdamW(_Lazy, AdamW):
    """AdamW; weight decay is apart from the gradient."""

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        table[rows] = table[rows] * (1 - group["lr"] * group["weight_decay"])
        _adam_rows(self.state[table], group, table, rows, gradient)


def _adam_rows(state: dict[str, Any], group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
    if not state:
        # torch knows a state by this name, and restores it in single precision
        state["step"] = torch.zeros(len(table), dtype=torch.float32, device=table.device)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
    first, second = group["betas"]
    steps = state["step"][rows] + 1
    mean = state["exp_avg"][rows].lerp(gradient, 1 - first)
    square = state["exp_avg_sq"][rows].lerp(gradient.square(), 1 - second)
    state["step"][rows], state["exp_avg"][rows], state["exp_avg_sq"][rows] = steps, mean, square
    steps = steps.to(table.dtype).view(-1, *[1] * (table.ndim - 1))
    spread = (square / (1 - second**steps)).sqrt() + group["eps"]
    table[rows] = table[rows] - group["lr"] * mean / (1 - first**steps) / spread
