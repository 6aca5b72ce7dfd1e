"""The state of an unfinished training in one file: tensors as safetensors, the rest as JSON in its header.

One file, written beside and renamed, so that a kill at any moment leaves the old state or the new one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from crowdfuse.io.files import atomic_file
from crowdfuse.methods.base import Method

FILE_NAME = "checkpoint.safetensors"
VERSION = "4"
TENSORS = ("best_weights", "best_values")


@dataclass
class TrainingState:
    """Where a training stands. Together with seed, settings and data it decides every later bit."""

    phase_index: int = 0
    epoch: int = 0  # over all phases
    n_batches_done: int = 0  # batches of this epoch that are done
    epoch_total: float = 0.0  # the epoch's loss so far, as a sum and a count
    epoch_count: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    best_values: NDArray[np.float64] | None = None  # what validation said of the best epoch, and against it
    best_failed_checks: tuple[str, ...] = ()
    best_weights: dict[str, Tensor] | None = None

    @property
    def mean_loss(self) -> float:
        """The epoch's loss so far; NaN where nothing has counted."""
        return self.epoch_total / self.epoch_count if self.epoch_count else math.nan


def save_checkpoint(
    folder: Path, identity: dict[str, Any], state: TrainingState, module: Method, optimizer: Optimizer
) -> None:
    """Write everything that continuing needs; `identity` says which settings and data it belongs to."""
    tensors = {f"model.{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"resume_buffer.{name}": module.get_buffer(name) for name in module.resume_buffers}
    if state.best_values is not None:
        tensors["best_values"] = torch.from_numpy(state.best_values)
    scalars: dict[str, dict[str, float]] = {}
    for index, slots in optimizer.state_dict()["state"].items():
        for name, value in slots.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            elif value is not None:
                scalars.setdefault(str(index), {})[name] = value
    for name, tensor in (state.best_weights or {}).items():
        tensors[f"best.{name}"] = tensor
    header = {
        "version": VERSION,
        "identity": json.dumps(identity),
        "state": json.dumps({name: value for name, value in vars(state).items() if name not in TENSORS}),
        "scalars": json.dumps(scalars),
    }
    with atomic_file(folder / FILE_NAME) as temporary:
        # clones, since safetensors refuses tensors that share memory, as tied weights do
        whole = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
        save_file(whole, temporary, header)


@dataclass(frozen=True)
class Checkpoint:
    """A stopped training: first where it stood, then, once its optimiser is there, everything else."""

    state: TrainingState
    tensors: dict[str, Tensor]
    scalars: dict[str, dict[str, float]]

    def restore(self, module: Method, optimizer: Optimizer) -> None:
        """Put module and optimiser back to where they stood."""
        module.load_state_dict(_under("model.", self.tensors))
        for name, tensor in _under("resume_buffer.", self.tensors).items():
            module.get_buffer(name).copy_(tensor)
        slots: dict[int, dict[str, Any]] = {}
        for name, tensor in _under("optimizer.", self.tensors).items():
            index, slot = name.split(".", 1)
            slots.setdefault(int(index), {})[slot] = tensor
        for key, values in self.scalars.items():
            slots.setdefault(int(key), {}).update(values)
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})


def find_checkpoint(folder: Path, identity: dict[str, Any]) -> Checkpoint | None:
    """What there is to continue, if it belongs to these settings and data; None where there is nothing."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    tensors, header = _read(path)
    _refuse_other(json.loads(header["identity"]), identity, path)
    state = TrainingState(**json.loads(header["state"]), best_weights=_under("best.", tensors) or None)
    state.best_failed_checks = tuple(state.best_failed_checks)
    if "best_values" in tensors:
        state.best_values = tensors["best_values"].numpy()
    return Checkpoint(state, tensors, json.loads(header["scalars"]))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to start over") from error
    if header.get("version") != VERSION:
        raise ValueError(f"{path} was written by another version of crowdfuse; delete it to start over")
    return tensors, header


def _refuse_other(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """A checkpoint continues only the training it belongs to: the same settings, the same data."""
    changed = [
        f"{part}.{name} was {found.get(part, {}).get(name)!r}, now {wanted[part].get(name)!r}"
        for part in wanted
        for name in sorted({*wanted[part], *found.get(part, {})})
        if found.get(part, {}).get(name) != wanted[part].get(name)
    ]
    if changed:
        raise ValueError(
            f"{path} belongs to another training: {'; '.join(changed)}. "
            "Go back to those settings and data, or give another checkpoint folder"
        )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def copy_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """The weights as they are now, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
