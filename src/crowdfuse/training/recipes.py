"""The settings of training: optimizer, schedule, sizes, device, seed."""

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
"""Takes the parameters to train and returns an optimizer."""

Schedule = Callable[[float], float]
"""Maps the fraction of steps done, from 0 to 1, to a factor that multiplies the learning rate."""

OPTIMIZERS = ("adamw", "adam", "sgd")
DEVICES = ("auto", "cpu", "cuda", "mps")


def _one_cycle(progress: float) -> float:
    """Return a factor that rises from 0.04 to 1 in the first 30 % of the steps, then falls to 0, along cosines."""
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
    """All settings of training except the method and the data. There are no defaults.

    Parameters
    ----------
    optimizer : {"adamw", "adam", "sgd"} or callable
        Name, or a function that takes the parameters to train and returns an optimizer.
    learning_rate : float
        Base learning rate, above 0; the schedule multiplies it.
    momentum : float
        Momentum of "sgd".
    weight_decay : float
        Weight decay of the named optimizers.
    schedule : {"constant", "cosine", "one-cycle"} or callable
        Name, or a function. The function takes the fraction of the phase's steps that are done, from 0 to 1, and
        returns a factor that multiplies the learning rate.
    batch_size : int
        Items per step, over all processes.
    epochs : int or None
        Number of passes over the data; a method with several phases divides them among its phases. None: the method
        chooses the number, depending on the number of items.
    max_time : float or None
        Time limit for training in seconds; None for no limit. If the planned epochs would take longer, the plan is
        shortened: each phase gets its share of the time, and at least one epoch.
    mixup : float
        Mixup (Zhang et al., 2018): both parameters of the beta distribution from which the shares of mixed items are
        drawn. 0: items are not mixed.
    device : {"auto", "cpu", "cuda", "mps"}
        Where to compute.
    devices : int
        Number of processes to start on this machine; ignored if torchrun has started them.
    precision : str
        Numeric precision, as named in Lightning Fabric: for example "32-true" or "bf16-mixed".
    channels_last : bool
        Whether images use PyTorch's channels-last memory format.
    compile : bool
        Whether `torch.compile` compiles the backbone for training.
    seed : int
        Seed of all random numbers, 0 or more.

    Raises
    ------
    ValueError
        If a setting is out of range or unknown.

    Examples
    --------
    >>> recipe = Recipe("sgd", 0.1, 0.9, 1e-4, "cosine", 64, 10, None, 0.0, "cpu", 1, "32-true", False, False, 0)
    >>> recipe.learning_rate_factor(0.5)
    0.5
    """

    optimizer: str | OptimizerFactory
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str | Schedule
    batch_size: int
    epochs: int | None
    max_time: float | None
    mixup: float
    device: str
    devices: int
    precision: str
    channels_last: bool
    compile: bool
    seed: int

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        for name in ("batch_size", "devices") if self.epochs is None else ("batch_size", "epochs", "devices"):
            check_positive_integer(name, getattr(self, name))
        for name in ("learning_rate", "momentum", "weight_decay", "mixup"):
            check_nonnegative(name, getattr(self, name))
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate!r}")
        if self.seed < 0:
            raise ValueError(f"random_state must be 0 or more, got {self.seed}")
        for name, known in (("optimizer", OPTIMIZERS), ("schedule", tuple(SCHEDULES))):
            value = getattr(self, name)
            if isinstance(value, str) and value not in known:
                raise ValueError(
                    f"unknown {name} {value!r}{did_you_mean(value, known)} Use one of {', '.join(known)}, or pass a "
                    "callable"
                )

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return an optimizer for these parameters: the named one, or the result of the function in `optimizer`.

        Parameters
        ----------
        parameters : iterable of Parameter
            The parameters to train.

        Returns
        -------
        optimizer : Optimizer
        """
        if not isinstance(self.optimizer, str):
            return self.optimizer(parameters)
        if self.optimizer == "sgd":
            rate, decay = self.learning_rate, self.weight_decay
            return LazySGD(parameters, rate, momentum=self.momentum, weight_decay=decay, fused=True)
        kind = LazyAdamW if self.optimizer == "adamw" else LazyAdam
        return kind(parameters, self.learning_rate, weight_decay=self.weight_decay, fused=True)

    def learning_rate_factor(self, progress: float) -> float:
        """Return the factor that multiplies the learning rate at a point of the phase.

        Parameters
        ----------
        progress : float
            Fraction of the steps of the phase that are done, from 0 to 1.

        Returns
        -------
        factor : float
        """
        return SCHEDULES[self.schedule](progress) if isinstance(self.schedule, str) else self.schedule(progress)
