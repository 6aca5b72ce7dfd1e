"""Seeds of the random numbers inside a training step, such as dropout."""

from __future__ import annotations

import torch


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed for one step of one process: a hash (splitmix64) of the three numbers.

    >>> step_seed(0, 0, 0), step_seed(0, 1, 0) != step_seed(0, 0, 1)
    (0, True)
    """
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (mixed ^ (mixed >> 31)) & (2**63 - 1)


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed torch's generators of the CPU and of `device`.

    `torch.manual_seed` is not used because it also seeds devices that are not in use, which takes a millisecond.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
