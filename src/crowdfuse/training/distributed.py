"""Several processes that train one model: their numbers (ranks), and how an error in one becomes an error in all.

torchrun starts the processes and describes them in environment variables. Processes that are started here get the same
variables. If there is a single process, these functions do nothing and do not import torch.
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

PROCESS_GROUP_TIMEOUT = timedelta(hours=6)  # a process may wait long while another process reads or evaluates
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # environment variables that torchrun sets


class AllProcessesError(ValueError):
    """Raised in all processes of a training run if one of them fails. Only the process with rank 0 reports it."""


class LostProcessError(ConnectionError):
    """Raised in distributed training if another process of the same training run has ended."""


def launched_processes() -> tuple[int, int] | None:
    """Return how many processes torchrun started, and on how many machines.

    Returns
    -------
    counts : tuple of int or None
        Number of processes per machine and number of machines; None if torchrun did not start this process.

    Raises
    ------
    ValueError
        If the machines have different numbers of processes.
    """
    if not all(name in os.environ for name in LAUNCHER_VARIABLES):
        return None
    total = int(os.environ["WORLD_SIZE"])
    n_here = int(os.environ.get("LOCAL_WORLD_SIZE", total))
    n_machines, remainder = divmod(total, n_here)
    if remainder:
        raise ValueError(
            f"torchrun started {total} processes in total, {n_here} of them on {socket.gethostname()}; "
            "give every machine the same --nproc-per-node"
        )
    return n_here, n_machines


def rank() -> int:
    """Return the rank of this process: its number among all processes, starting at 0.

    Returns
    -------
    rank : int

    Examples
    --------
    >>> rank()
    0
    """
    return int(os.environ["RANK"]) if launched_processes() else 0


def is_rank_zero() -> bool:
    """Return whether this process has rank 0. Rank 0 writes files and prints messages for all processes.

    Returns
    -------
    is_zero : bool

    Examples
    --------
    >>> is_rank_zero()
    True
    """
    return rank() == 0


def all_gather(value: Value) -> list[Value]:
    """Return the values that all processes pass to this function, in the order of their ranks.

    Each process passes its own value and gets the values of all processes. The function waits until all processes have
    called it.

    Parameters
    ----------
    value : object
        The value of this process; must be picklable.

    Returns
    -------
    values : list

    Raises
    ------
    LostProcessError
        If another process has ended.

    Examples
    --------
    >>> all_gather("a single process")
    ['a single process']
    """
    if not _has_other_processes():
        return [value]
    import torch.distributed as dist

    values: list[Value | None] = [None] * dist.get_world_size()
    with raise_if_process_lost():
        dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]  # all of them are filled


@contextmanager
def raise_in_all_processes() -> Iterator[None]:
    """Raise an error in all processes of a training run if one raises a ValueError or OSError in the `with` block.

    Returns
    -------
    context : context manager

    Raises
    ------
    AllProcessesError
        If there are several processes, and at least one of them raised a ValueError or OSError in the `with` block.
        The message contains the message of that error. If several processes raised an error, the message is from the
        one with the lowest rank. If there is only one process, its own error is raised instead.

    Examples
    --------
    >>> with raise_in_all_processes():
    ...     labels = [0, 1]
    """
    if not _has_other_processes():
        yield
        return
    error: Exception | None = None
    try:
        yield
    except (ValueError, OSError) as raised:
        error = raised
    messages = all_gather(None if error is None else str(error))
    for failed_rank, message in enumerate(messages):
        if message is not None:
            prefix = "" if failed_rank == 0 else f"process {failed_rank + 1} of {len(messages)}: "
            raise AllProcessesError(prefix + message) from error


def is_reported_by_rank_zero(error: Exception) -> bool:
    """Return whether the process with rank 0 reports an error, so that this process does not have to report it.

    If rank 0 reports the error, this function first waits until the process with rank 0 has ended. Without waiting,
    this process could end first. torchrun would then stop all processes, perhaps before rank 0 has reported the error.

    Parameters
    ----------
    error : Exception
        The error that this process caught.

    Returns
    -------
    is_reported : bool
    """
    if is_rank_zero() or not isinstance(error, AllProcessesError):
        return False
    with suppress(LostProcessError):  # rank 0 does not answer: this waits until it ends
        all_gather(None)
    return True


@contextmanager
def raise_if_process_lost() -> Iterator[None]:
    """Raise LostProcessError if torch raises an error about a lost connection inside the `with` block.

    Returns
    -------
    context : context manager

    Raises
    ------
    LostProcessError
        If torch lost the connection to another process of the same training run, because that process has ended.

    Examples
    --------
    >>> with raise_if_process_lost():
    ...     total = 1 + 1
    """
    try:
        yield
    except RuntimeError as error:
        from torch.distributed import DistError  # raised by NCCL; gloo raises a plain RuntimeError

        if not isinstance(error, DistError) and "gloo" not in str(error):
            raise
        raise LostProcessError(
            "another process of this training run stopped, so this process stops as well. If you set a checkpoint "
            "folder, call fit again with the same arguments: training continues from the last checkpoint (on the "
            "command line: crowdfuse fit --resume RUN_FOLDER)"
        ) from error


def _has_other_processes() -> bool:
    """Return whether there are other processes; the first call connects with them."""
    if launched_processes() in (None, (1, 1)):
        return False
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        # Fabric chooses the device later, and uses an existing connection
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PROCESS_GROUP_TIMEOUT
        )
        atexit.register(_disconnect)
    return True


def _disconnect() -> None:
    """Close the connection; otherwise the process may be aborted at its end, while the connection's threads run."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
