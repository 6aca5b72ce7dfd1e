"""How a training gets its processes: those that torchrun has started, some that are started here, or just this one."""

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
    """Fabric's processes, devices and connections without its wrapper around the network.

    The wrapper averages what a process has, and must be told to expect parameters that a process has no gradient for.
    The loop needs sums, over the items of all processes: `sum_gradients` does that, in one go after the backward pass.
    """

    def setup_environment(self) -> None:
        """Connect, without Fabric's announcements of it."""
        log = logging.getLogger("lightning_fabric")
        before = log.level
        log.setLevel(logging.WARNING)
        super().setup_environment()
        log.setLevel(before)

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        return module


def make_fabric(recipe: Recipe) -> Fabric:
    """As many processes as torchrun has started, else as many as there are to be devices."""
    here, machines = launched_processes() or (recipe.devices, 1)
    where: dict[str, Any] = {"accelerator": recipe.device, "devices": here, "precision": recipe.precision}
    if here * machines == 1:
        return Fabric(**where)
    strategy = UnwrappedDDPStrategy(
        start_method="spawn" if starts_processes(recipe) else "popen", timeout=PROCESS_GROUP_TIMEOUT
    )
    return Fabric(strategy=strategy, num_nodes=machines, **where)


def starts_processes(recipe: Recipe) -> bool:
    """Whether there are to be several processes, and nobody has started them."""
    return recipe.devices > 1 and launched_processes() is None


def run_in_processes(fabric: Fabric, run: Callable[[Fabric], Result]) -> Result:
    """Start Fabric's processes, let each `run`, and return what the first of them returns."""
    # Ctrl-C is heard by all: the processes come to an end by it, and here that is waited for
    with tempfile.TemporaryDirectory() as name, ignore_sigint():
        folder = Path(name)
        try:
            result: Result = fabric.launch(partial(_run, run=run, folder=folder, n_threads=torch.get_num_threads()))
        except ProcessException as error:
            for said in sorted(folder.glob("error.*")):
                raise ValueError(said.read_text(encoding="utf-8")) from error
            if not isinstance(error, ProcessExitedException):
                raise
            raise ChildProcessError(
                f"a process of the training has died, and the others were stopped: {error.msg.strip()}. "
                "Perhaps memory ran out: try fewer devices. With a checkpoint folder, the same training goes on from "
                "the last state that was kept"
            ) from error
    return result


def _run(fabric: Fabric, run: Callable[[Fabric], Result], folder: Path, n_threads: int) -> Result:
    """In each process that was started here."""
    torch.set_num_threads(n_threads)
    os.environ |= {"RANK": str(fabric.global_rank), "WORLD_SIZE": str(fabric.world_size)}  # as torchrun says it
    try:
        result = run(fabric)
    except LostProcessError as error:  # the one that was lost is what to speak of
        raise SystemExit(1) from error
    except (ValueError, OSError) as error:
        (folder / f"error.{fabric.global_rank}").write_text(str(error), encoding="utf-8")
        raise
    fabric.barrier()
    torch.distributed.destroy_process_group()  # a process that ends while its threads run is aborted now and then
    return result


def broadcast_from_rank_zero(tensors: Iterable[Tensor]) -> None:
    """The first process's values for all."""
    for tensor in tensors:
        torch.distributed.broadcast(tensor.detach(), 0)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients over all processes. One that no process has stays away, as it does in a single process."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    known = learning[0].new_tensor([[p.grad is not None, p.grad is not None and p.grad.is_sparse] for p in learning])
    torch.distributed.all_reduce(known)
    own = [_flat(p, bool(is_sparse)) for p, (_, is_sparse) in zip(learning, known.tolist(), strict=True)]
    flat = torch.cat(own)
    torch.distributed.all_reduce(flat)
    sums = flat.split([len(part) for part in own])
    for parameter, (is_known, is_sparse), summed in zip(learning, known.tolist(), sums, strict=True):
        if is_known:
            dense = summed[: parameter.numel()].view_as(parameter)
            if is_sparse:
                rows = summed[parameter.numel() :].nonzero()[:, 0]
                parameter.grad = torch.sparse_coo_tensor(
                    rows[None], dense[rows], dense.shape, is_coalesced=True, check_invariants=False
                )
            elif parameter.grad is None:
                parameter.grad = dense.clone()
            else:
                parameter.grad.copy_(dense)


def _flat(parameter: nn.Parameter, is_sparse: bool) -> Tensor:
    """A gradient in a row of numbers; after one that is sparse, which rows of the table it has to do with."""
    gradient = parameter.grad
    dense = torch.zeros_like(parameter) if gradient is None else gradient.to_dense() if is_sparse else gradient
    if not is_sparse:
        return dense.flatten()
    touched = parameter.new_zeros(len(parameter))
    if gradient is not None:
        touched[gradient.coalesce().indices()[0]] = 1
    return torch.cat([dense.flatten(), touched])


def synchronize_batch_norm(method: nn.Module, device: torch.device, world_size: int) -> None:
    """On GPUs, batch norm below `method` takes its statistics over all processes; torch has that for GPUs alone."""
    if world_size > 1 and device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
