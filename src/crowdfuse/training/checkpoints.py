"""Checkpoints: the state of unfinished training in one safetensors file, with everything but tensors in its header.

The file is written under another name and then renamed. So if the process is killed, the folder holds the old or the
new file, never a damaged file.
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
FORMAT_VERSION = "4"
TENSOR_FIELDS = ("best_weights", "best_values")  # fields of TrainingState that are stored as tensors


@dataclass(frozen=True)
class Checkpointing:
    """The folder for checkpoints, and the settings and data that the checkpoints belong to.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoint file.
    identity : dict
        Settings and hashes of the data, as JSON-compatible values. Resuming from a checkpoint with another identity
        raises an error.
    """

    folder: Path
    identity: dict[str, Any]


@dataclass
class TrainingState:
    """The state of training. Together with seed, settings and data, it determines all later results exactly.

    Attributes
    ----------
    phase_index : int, default=0
        Index of the current phase, from 0.
    epoch : int, default=0
        Number of finished epochs over all phases.
    n_batches_done : int, default=0
        Number of finished batches of the current epoch.
    seconds : float, default=0.0
        Seconds of training up to the last checkpoint.
    phase_start_seconds : float, default=0.0
        Seconds of training before the current phase.
    phase_epochs : list of int or None, default=None
        Number of epochs of each phase, if the time limit has shortened the plan. None: the plan is unchanged.
    epoch_total, epoch_count : float, default=0.0
        Sum of the losses of the current epoch, and sum of the weights of its items.
    history : list of dict
        One record per finished epoch.
    best_epoch : int or None, default=None
        The best epoch so far by validation, counted from 1.
    best_values : ndarray or None, default=None
        The validation scores of the best epoch, one per validation item or per scored label.
    best_failed_checks : tuple of str, default=()
        The sanity checks that the best epoch failed.
    best_weights : dict of str to Tensor or None, default=None
        The weights of the best epoch.
    """

    phase_index: int = 0
    epoch: int = 0
    n_batches_done: int = 0
    seconds: float = 0.0
    phase_start_seconds: float = 0.0
    phase_epochs: list[int] | None = None
    epoch_total: float = 0.0
    epoch_count: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    best_values: NDArray[np.float64] | None = None
    best_failed_checks: tuple[str, ...] = ()
    best_weights: dict[str, Tensor] | None = None

    @property
    def mean_loss(self) -> float:
        """Mean loss of the current epoch so far; NaN if no item had a weight."""
        return self.epoch_total / self.epoch_count if self.epoch_count else math.nan


def save_checkpoint(checkpointing: Checkpointing, state: TrainingState, method: Method, optimizer: Optimizer) -> None:
    """Write everything that is needed to resume the training."""
    tensors = {f"model.{name}": tensor for name, tensor in method.state_dict().items()}
    tensors |= {f"resume_buffer.{name}": method.get_buffer(name) for name in method.resume_buffers}
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
        "version": FORMAT_VERSION,
        "identity": json.dumps(checkpointing.identity),
        "state": json.dumps({name: value for name, value in vars(state).items() if name not in TENSOR_FIELDS}),
        "scalars": json.dumps(scalars),
    }
    with atomic_file(checkpointing.folder / FILE_NAME) as temporary:
        # safetensors refuses tensors that share memory, such as tied weights: clone them
        clones = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
        save_file(clones, temporary, header)


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file, from which training resumes.

    Attributes
    ----------
    state : TrainingState
        State of training at the time of the checkpoint.
    tensors : dict of str to Tensor
        All stored tensors, by name.
    scalars : dict of str to dict
        The numbers in the optimizer's state, by parameter index and name.
    """

    state: TrainingState
    tensors: dict[str, Tensor]
    scalars: dict[str, dict[str, float]]

    def restore(self, method: Method, optimizer: Optimizer) -> None:
        """Load the stored values into the method and the optimizer."""
        method.load_state_dict(_with_prefix("model.", self.tensors))
        for name, tensor in _with_prefix("resume_buffer.", self.tensors).items():
            method.get_buffer(name).copy_(tensor)
        slots: dict[int, dict[str, Any]] = {}
        for name, tensor in _with_prefix("optimizer.", self.tensors).items():
            index, slot = name.split(".", 1)
            slots.setdefault(int(index), {})[slot] = tensor
        for key, values in self.scalars.items():
            slots.setdefault(int(key), {}).update(values)
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})


def find_checkpoint(checkpointing: Checkpointing) -> Checkpoint | None:
    """Return the checkpoint to resume from, or None if there is none.

    Raises
    ------
    ValueError
        If the checkpoint is damaged, has another format, or belongs to other settings or data.
    """
    path = checkpointing.folder / FILE_NAME
    if not path.exists():
        return None
    tensors, header = _read(path)
    _refuse_other_training(json.loads(header["identity"]), checkpointing.identity, path)
    state = TrainingState(**json.loads(header["state"]), best_weights=_with_prefix("best.", tensors) or None)
    state.best_failed_checks = tuple(state.best_failed_checks)
    if "best_values" in tensors:
        state.best_values = tensors["best_values"].numpy()
    return Checkpoint(state, tensors, json.loads(header["scalars"]))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the header of a checkpoint file."""
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete this file to train from the start") from error
    if header.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} was written by another version of crowdfuse; delete this file to train from the start"
        )
    return tensors, header


def _refuse_other_training(stored: dict[str, Any], current: dict[str, Any], path: Path) -> None:
    """Raise ValueError if the checkpoint was written with other settings or data."""
    changes = [
        f"{part}.{name} was {stored.get(part, {}).get(name)!r}, now {current[part].get(name)!r}"
        for part in current
        for name in sorted({*current[part], *stored.get(part, {})})
        if stored.get(part, {}).get(name) != current[part].get(name)
    ]
    if changes:
        raise ValueError(
            f"{path} belongs to a training run with other settings or data: {'; '.join(changes)}. "
            "Use the earlier settings and data again, or choose another checkpoint folder"
        )


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name starts with the prefix; the prefix is removed from the names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def copy_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the current weights on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
