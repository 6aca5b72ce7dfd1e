"""All experiments that run as a grid (many runs with different settings), by name and scale."""

from __future__ import annotations

import torch

from crowdfuse.checks.choices import check_choice
from crowdfuse.experiments import cifar, imagenet, mnist, networks, noise_types
from crowdfuse.experiments.grid import Experiment

SCALES = ("desk", "paper")

PAPER_EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *mnist.EXPERIMENTS,
        *noise_types.EXPERIMENTS,
        *cifar.declare_experiments(cifar.PAPER_SCALE),
        *networks.declare_experiments(cifar.PAPER_SCALE),
        *imagenet.declare_experiments(imagenet.PAPER_SCALE),
    )
}
SMALL_EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *cifar.declare_experiments(cifar.SMALL_SCALE),
        *networks.declare_experiments(cifar.SMALL_SCALE),
        *imagenet.declare_experiments(imagenet.SMALL_SCALE),
    )
}


def has_gpu() -> bool:
    """Return whether torch can use a GPU on this machine."""
    return torch.cuda.is_available() or torch.backends.mps.is_available()


def find_experiment(name: str, scale: str | None = None) -> Experiment:
    """Return an experiment by its name, at one of its scales.

    Parameters
    ----------
    name : str
        Name of the experiment, as in `crowdfuse reproduce NAME`.
    scale : {"desk", "paper"} or None, default=None
        "desk" trains a small network on frozen features. "paper" trains as Gao et al. (2022) did. None means "paper" if
        there is a GPU or if the experiment has only this scale, otherwise "desk".

    Returns
    -------
    Experiment

    Raises
    ------
    ValueError
        If the scale is unknown, or if the experiment does not have this scale.

    Examples
    --------
    >>> find_experiment("table2", "desk").title
    'CIFAR-100 features, three annotators with a weakness'
    """
    if scale is None:
        scale = "paper" if has_gpu() or name not in SMALL_EXPERIMENTS else "desk"
    if check_choice("--scale", scale, SCALES) == "desk":
        if name not in SMALL_EXPERIMENTS:
            raise ValueError(f"--scale desk: {name} can only be run at the scale 'paper'; leave out --scale")
        return SMALL_EXPERIMENTS[name]
    return PAPER_EXPERIMENTS[name]


def scale_of(name: str, experiment: Experiment) -> str | None:
    """Return the scale of an experiment, "desk" or "paper", or None if the experiment has only one scale.

    Examples
    --------
    >>> scale_of("table2", find_experiment("table2", "desk")), scale_of("table1", find_experiment("table1"))
    ('desk', None)
    """
    if name not in SMALL_EXPERIMENTS:
        return None
    return "paper" if experiment is PAPER_EXPERIMENTS[name] else "desk"
