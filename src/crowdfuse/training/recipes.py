"""How a training goes: optimiser, schedule, sizes, device, seed. Names for people, functions for the loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from crowdfuse.checks.choices import check_choice, did_you_mean
from crowdfuse.checks.numbers import check_nonnegative, check_positive_integer
from crowdfuse.training.lazy_optimizers import LazyAdam, LazyAdamW, LazySGD

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
Schedule = Callable[[float], float]

OPTIMIZERS = ("adamw", "adam", "sgd")
DEVICES = ("auto", "cpu", "cuda", "mps")


def _one_cycle(progress: float) -> float:
    if progress < 0.3:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / 0.3)) / 2
    return (1 + math.cos(math.pi * (progress - 0.3) / 0.7)) / 2


SCHEDULES: dict[str, Schedule] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "one-cycle": _one_cycle,
}


@dataclass(frozen=True)
class Recipe:
    """Everything the loop needs to know but the method and the data."""

    optimizer: str | OptimizerFactory
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str | Schedule
    batch_size: int
    epochs: int
    device: str
    devices: int
    precision: str
    channels_last: bool
    compile: bool
    seed: int

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        for name in ("batch_size", "epochs", "devices"):
            check_positive_integer(name, getattr(self, name))
        for name in ("learning_rate", "momentum", "weight_decay"):
            check_nonnegative(name, getattr(self, name))
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate!r}")
        if self.seed < 0:
            raise ValueError(f"random_state must be 0 or more, got {self.seed}")
        for name, known in (("optimizer", OPTIMIZERS), ("schedule", tuple(SCHEDULES))):
            value = getattr(self, name)
            if isinstance(value, str) and value not in known:
                meant = did_you_mean(value, known)
                raise ValueError(
                    f"unknown {name} {value!r}{meant} The named ones are {', '.join(known)}, or pass a callable"
                )

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The named optimiser, or what the user's callable makes of the parameters."""
        if not isinstance(self.optimizer, str):
            return self.optimizer(parameters)
        if self.optimizer == "sgd":
            rate, decay = self.learning_rate, self.weight_decay
            return LazySGD(parameters, rate, momentum=self.momentum, weight_decay=decay, fused=True)
        kind = LazyAdamW if self.optimizer == "adamw" else LazyAdam
        return kind(parameters, self.learning_rate, weight_decay=self.weight_decay, fused=True)

    def factor(self, progress: float) -> float:
        """What the learning rate is multiplied by when a share `progress` of the steps is done."""
        return SCHEDULES[self.schedule](progress) if isinstance(self.schedule, str) else self.schedule(progress)
