"""Several processes that train one model: who is the first, and how all of them refuse what one of them refuses.

torchrun starts them and says so in the environment, and so do we where we start them. In a single process nothing
here does anything; torch is not even loaded.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

Value = TypeVar("Value")

PROCESS_GROUP_TIMEOUT = timedelta(hours=6)  # one machine may read or evaluate for long while the others wait
LAUNCHED_BY = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class AllProcessesError(ValueError):
    """An error that all processes raise at the same moment, so that one of them can speak for all."""


class LostProcessError(ConnectionError):
    """Another process of the training has ended."""


def launched_processes() -> tuple[int, int] | None:
    """How many processes were started on each machine, and on how many machines; None where nobody did."""
    if not all(name in os.environ for name in LAUNCHED_BY):
        return None
    total = int(os.environ["WORLD_SIZE"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", total))
    machines, left = divmod(total, here)
    if left:
        raise ValueError(
            f"torchrun started {total} processes in all and {here} of them on {socket.gethostname()}; "
            "give every machine the same --nproc-per-node"
        )
    return here, machines


def rank() -> int:
    """The number of this process among all, from 0."""
    return int(os.environ["RANK"]) if launched_processes() else 0


def is_rank_zero() -> bool:
    """Whether this process writes and speaks for all."""
    return rank() == 0


def all_gather(value: Value) -> list[Value]:
    """Everybody's value, in the order of the processes. All of them have to ask.

    >>> all_gather("a single process")
    ['a single process']
    """
    if not _several():
        return [value]
    import torch.distributed as dist

    values: list[Value | None] = [None] * dist.get_world_size()
    with raise_if_process_lost():
        dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]  # all of them are filled


@contextmanager
def raise_in_all_processes() -> Iterator[None]:
    """What one process refuses in here, by a ValueError or an OSError, all refuse when they come out of it."""
    if not _several():
        yield
        return
    error: Exception | None = None
    try:
        yield
    except (ValueError, OSError) as raised:
        error = raised
    said = all_gather(None if error is None else str(error))
    if any(text is not None for text in said):
        who, text = next((number, text) for number, text in enumerate(said) if text is not None)
        raise AllProcessesError(text if who == 0 else f"process {who + 1} of {len(said)}: {text}") from error


def is_reported_by_rank_zero(error: Exception) -> bool:
    """Whether the first process says this; if so, returns once it has, since torchrun stops all when one ends."""
    if is_rank_zero() or not isinstance(error, AllProcessesError):
        return False
    with suppress(LostProcessError):  # the first process never answers: it ends
        all_gather(None)
    return True


@contextmanager
def raise_if_process_lost() -> Iterator[None]:
    """What needs the other processes: that one of them has ended is said in words."""
    try:
        yield
    except RuntimeError as error:
        from torch.distributed import DistError  # NCCL's errors; gloo has none of its own

        if not isinstance(error, DistError) and "gloo" not in str(error):
            raise
        raise LostProcessError(
            "another process of the training has ended, so this one ends too. With a checkpoint folder, the same "
            "training goes on from the last state that was kept (crowdfuse fit --resume RUN)"
        ) from error


def _several() -> bool:
    """Whether there are other processes; connects with them where nobody has yet."""
    if launched_processes() in (None, (1, 1)):
        return False
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        # Fabric, which knows the device but comes later, takes the connection as it finds it
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PROCESS_GROUP_TIMEOUT
        )
        atexit.register(_disconnect)
    return True


def _disconnect() -> None:
    """A process that ends while the connection's threads run is aborted now and then."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
