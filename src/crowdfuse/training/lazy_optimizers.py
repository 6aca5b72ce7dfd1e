"""Optimizers that update only those rows of a table that a batch used.

These are the rows in the table's sparse gradient (see `crowdfuse.nets.annotator_tables`). Moments, weight decay and,
for Adam, the step count are kept per row. So a row that is used once per epoch takes one step per epoch, as if it were
a separate network. All other parameters are updated by torch's optimizer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer


class _Lazy(Optimizer):
    """Applies the sparse gradients row by row, removes them, and then takes torch's own step."""

    def step(self, closure: Any = None) -> Any:
        """Take one step; the arguments are the same as in torch's optimizers."""
        with torch.no_grad():
            for group in self.param_groups:
                for table in group["params"]:
                    if table.grad is not None and table.grad.is_sparse:
                        gradient = table.grad.coalesce()
                        self._step_rows(group, table, gradient.indices()[0], gradient.values())
                        table.grad = None
        return super().step(closure)

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        """Update the rows of a table in place."""
        raise NotImplementedError


class LazySGD(_Lazy, SGD):
    """SGD with momentum and weight decay that updates only the rows of a table that the batch used.

    It takes the parameters of `torch.optim.SGD`.
    """

    def step(self, closure: Any = None) -> Any:
        """Take one step; the arguments are the same as in torch's optimizers."""
        # torch's fused step needs the momentum of all parameters or of none; a parameter trained late has none yet
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
    """Adam, with weight decay added to the gradient, that updates only the rows of a table that the batch used.

    It takes the parameters of `torch.optim.Adam`.
    """

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        _adam_rows(self.state[table], group, table, rows, gradient + group["weight_decay"] * table[rows])


class LazyAdamW(_Lazy, AdamW):
    """AdamW, with weight decay separate from the gradient, that updates only the rows of a table that the batch used.

    It takes the parameters of `torch.optim.AdamW`.
    """

    def _step_rows(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
        table[rows] = table[rows] * (1 - group["lr"] * group["weight_decay"])
        _adam_rows(self.state[table], group, table, rows, gradient)


def _adam_rows(state: dict[str, Any], group: dict[str, Any], table: Tensor, rows: Tensor, gradient: Tensor) -> None:
    """Take one Adam step on the rows of a table, in place."""
    if not state:
        # torch restores the entry "step" of a stored state in single precision
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
