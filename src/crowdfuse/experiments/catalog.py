"""All declared experiments that are run as a grid, by name."""

from __future__ import annotations

from crowdfuse.experiments import cifar, mnist

EXPERIMENTS = mnist.EXPERIMENTS | cifar.EXPERIMENTS
