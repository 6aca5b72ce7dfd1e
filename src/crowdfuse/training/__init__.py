"""The training loop of all methods: batches, recipes, optimizers, checkpoints, processes, prediction, progress.

This package re-exports only what works without torch. `train` is in `crowdfuse.training.loop`, settings are in
`crowdfuse.training.recipes`, and the classes that choose the epoch are in `crowdfuse.training.validation`.
"""

from __future__ import annotations

from crowdfuse.training.distributed import (
    AllProcessesError,
    LostProcessError,
    all_gather,
    is_rank_zero,
    is_reported_by_rank_zero,
    launched_processes,
    raise_if_process_lost,
    raise_in_all_processes,
    rank,
)

__all__ = [
    "AllProcessesError",
    "LostProcessError",
    "all_gather",
    "is_rank_zero",
    "is_reported_by_rank_zero",
    "launched_processes",
    "raise_if_process_lost",
    "raise_in_all_processes",
    "rank",
]
