"""All declared experiments that are run as a grid, by name and size."""

from __future__ import annotations

import torch

from crowdfuse.checks.choices import check_choice
from crowdfuse.experiments import cifar, imagenet, mnist, networks
from crowdfuse.experiments import noise_types as kinds
from crowdfuse.experiments.grid import Experiment

SCALES = ("desk", "paper")

PAPER_EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *mnist.EXPERIMENTS,
        *kinds.EXPERIMENTS,
        *cifar.declare(cifar.PAPER_SCALE),
        *networks.declare(cifar.PAPER_SCALE),
        *imagenet.declare(imagenet.PAPER_SCALE),
    )
}
SMALL_EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *cifar.declare(cifar.SMALL_SCALE),
        *networks.declare(cifar.SMALL_SCALE),
        *imagenet.declare(imagenet.SMALL_SCALE),
    )
}


def has_gpu() -> bool:
    """Whether there is one that torch can use."""
    return torch.cuda.is_available() or torch.backends.mps.is_available()


def find_experiment(name: str, scale: str | None) -> Experiment:
    """The experiment at the size asked for; not said, at a desk's where there is no GPU and there is such a size.

    >>> find_experiment("table2", "desk").title
    'CIFAR-100 features, three annotators with a weakness'
    """
    if scale is None:
        scale = "paper" if has_gpu() or name not in SMALL_EXPERIMENTS else "desk"
    if check_choice("--scale", scale, SCALES) == "desk":
        if name not in SMALL_EXPERIMENTS:
            raise ValueError(f"{name} has one size, the paper's: leave --scale out")
        return SMALL_EXPERIMENTS[name]
    return PAPER_EXPERIMENTS[name]


def size_of(name: str, experiment: Experiment) -> str | None:
    """Which of its two sizes an experiment has; None where there is but one.

    >>> size_of("table2", find_experiment("table2", "desk")), size_of("table1", find_experiment("table1", None))
    ('desk', None)
    """
    if name not in SMALL_EXPERIMENTS:
        return None
    return "paper" if experiment is PAPER_EXPERIMENTS[name] else "desk"
