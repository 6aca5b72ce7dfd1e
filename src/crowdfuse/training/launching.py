"""The processes that train together: started by torchrun, started here, or only this process."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessException, ProcessExitedException

from crowdfuse.io.interrupts import ignore_sigint
from crowdfuse.training.distributed import PROCESS_GROUP_TIMEOUT, LostProcessError, launched_processes
from crowdfuse.training.recipes import Recipe

Result = TypeVar("Result")


class UnwrappedDDPStrategy(DDPStrategy):
    """Fabric's distributed data parallel, without the wrapper around the network.

    The wrapper averages gradients over processes, and must be told which parameters have no gradient. The training loop
    needs sums over the items of all processes instead; `sum_gradients` computes them after the backward pass.
    """

    def setup_environment(self) -> None:
        """Connect the processes, without Fabric's log messages."""
        logger = logging.getLogger("lightning_fabric")
        level = logger.level
        logger.setLevel(logging.WARNING)
        super().setup_environment()
        logger.setLevel(level)

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Return the module itself, unwrapped."""
        return module


def make_fabric(recipe: Recipe) -> Fabric:
    """Return a Fabric for the processes that torchrun has started, otherwise for `recipe.devices` processes."""
    n_per_machine, n_machines = launched_processes() or (recipe.devices, 1)
    settings: dict[str, Any] = {"accelerator": recipe.device, "devices": n_per_machine, "precision": recipe.precision}
    if n_per_machine * n_machines == 1:
        return Fabric(**settings)
    strategy = UnwrappedDDPStrategy(
        start_method="spawn" if starts_processes(recipe) else "popen", timeout=PROCESS_GROUP_TIMEOUT
    )
    return Fabric(strategy=strategy, num_nodes=n_machines, **settings)


def starts_processes(recipe: Recipe) -> bool:
    """Return whether training starts several processes: more than one device, and not started by torchrun."""
    return recipe.devices > 1 and launched_processes() is None


def run_in_processes(fabric: Fabric, run: Callable[[Fabric], Result]) -> Result:
    """Start Fabric's processes, call `run` in each, and return the result of rank 0.

    Parameters
    ----------
    fabric : Fabric
        Fabric that defines how many processes to start.
    run : callable
        Called with the Fabric of the process; must be picklable.

    Returns
    -------
    result : object
        Return value of `run` in rank 0.

    Raises
    ------
    ValueError
        If `run` raised a ValueError or an OSError in a process. The message is the message of the original error.
    ChildProcessError
        If a process died.
    """
    # all processes receive Ctrl-C: the started processes end by themselves, and this process waits for them
    with tempfile.TemporaryDirectory() as name, ignore_sigint():
        folder = Path(name)
        try:
            result: Result = fabric.launch(partial(_run, run=run, folder=folder, n_threads=torch.get_num_threads()))
        except ProcessException as error:
            for error_file in sorted(folder.glob("error.*")):
                raise ValueError(error_file.read_text(encoding="utf-8")) from error
            if not isinstance(error, ProcessExitedException):
                raise
            raise ChildProcessError(
                f"a training process died, and all other processes were stopped: {error.msg.strip()}. "
                "If the process ran out of memory, use fewer devices. If you set a checkpoint folder, call fit again "
                "with the same arguments: training continues from the last checkpoint"
            ) from error
    return result


def _run(fabric: Fabric, run: Callable[[Fabric], Result], folder: Path, n_threads: int) -> Result:
    """Return the result of `run` in a process that was started here; errors are written to a file in `folder`."""
    torch.set_num_threads(n_threads)
    os.environ |= {"RANK": str(fabric.global_rank), "WORLD_SIZE": str(fabric.world_size)}  # as torchrun sets them
    try:
        result = run(fabric)
    except LostProcessError as error:  # the error of the lost process is the one to show
        raise SystemExit(1) from error
    except (ValueError, OSError) as error:
        (folder / f"error.{fabric.global_rank}").write_text(str(error), encoding="utf-8")
        raise
    fabric.barrier()
    torch.distributed.destroy_process_group()  # its threads would sometimes abort the process at its end
    return result


def broadcast_from_rank_zero(tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors of all processes with the tensors of rank 0."""
    for tensor in tensors:
        torch.distributed.broadcast(tensor.detach(), 0)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of each parameter over all processes, in place; None if no process has a gradient."""
    learnable = [parameter for parameter in parameters if parameter.requires_grad]
    # per parameter: how many processes have a gradient, and how many of these gradients are sparse
    counts = learnable[0].new_tensor([[p.grad is not None, p.grad is not None and p.grad.is_sparse] for p in learnable])
    torch.distributed.all_reduce(counts)
    flat_parts = [_flatten(p, bool(n_sparse)) for p, (_, n_sparse) in zip(learnable, counts.tolist(), strict=True)]
    flat = torch.cat(flat_parts)
    torch.distributed.all_reduce(flat)
    sums = flat.split([len(part) for part in flat_parts])
    for parameter, (n_present, n_sparse), summed in zip(learnable, counts.tolist(), sums, strict=True):
        if n_present:
            dense = summed[: parameter.numel()].view_as(parameter)
            if n_sparse:
                rows = summed[parameter.numel() :].nonzero()[:, 0]
                parameter.grad = torch.sparse_coo_tensor(
                    rows[None], dense[rows], dense.shape, is_coalesced=True, check_invariants=False
                )
            elif parameter.grad is None:
                parameter.grad = dense.clone()
            else:
                parameter.grad.copy_(dense)


def _flatten(parameter: nn.Parameter, is_sparse: bool) -> Tensor:
    """Return a gradient as one vector. A sparse gradient is followed by one number per row of the table: 1 if used."""
    gradient = parameter.grad
    dense = torch.zeros_like(parameter) if gradient is None else gradient.to_dense() if is_sparse else gradient
    if not is_sparse:
        return dense.flatten()
    used_rows = parameter.new_zeros(len(parameter))
    if gradient is not None:
        used_rows[gradient.coalesce().indices()[0]] = 1
    return torch.cat([dense.flatten(), used_rows])


def synchronize_batch_norm(method: nn.Module, device: torch.device, world_size: int) -> None:
    """Let batch norm use statistics over all processes. Done only on GPUs, because torch supports it only there."""
    if world_size > 1 and device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
