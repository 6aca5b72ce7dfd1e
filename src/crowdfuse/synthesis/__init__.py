"""Synthetic annotators for tests of methods: it is known which of their labels are right."""

from crowdfuse.synthesis.habit import habit_annotators
from crowdfuse.synthesis.hammer_spammer import hammer_spammer_annotators
from crowdfuse.synthesis.networks import network_annotators
from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd
from crowdfuse.synthesis.two_moons import two_moon_annotators
from crowdfuse.synthesis.weakness import weakness_annotators

__all__ = [
    "SyntheticCrowd",
    "habit_annotators",
    "hammer_spammer_annotators",
    "network_annotators",
    "two_moon_annotators",
    "weakness_annotators",
]
