"""All declared experiments that are run as a grid, by name."""

from __future__ import annotations

from crowdfuse.experiments import cifar, mnist, networks

EXPERIMENTS = mnist.EXPERIMENTS | cifar.EXPERIMENTS | {networks.SUPP3.name: networks.SUPP3}
