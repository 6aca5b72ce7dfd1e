"""The training loop of all methods: phases, epochs, steps, validation, checkpoints, several processes.

All random numbers are determined by the seed, the epoch and the step. So if training is stopped and resumed, it takes
the same steps as uninterrupted training.
"""

from __future__ import annotations

import copy
import math
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from crowdfuse.io.interrupts import sigint_handler
from crowdfuse.labels.held_out import ValidationScore
from crowdfuse.methods.base import Method, Phase
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.training.batches import rows_of_rank, split_into_batches
from crowdfuse.training.checkpoints import (
    Checkpoint,
    Checkpointing,
    TrainingState,
    copy_weights,
    find_checkpoint,
    save_checkpoint,
)
from crowdfuse.training.distributed import AllProcessesError, raise_if_process_lost, raise_in_all_processes
from crowdfuse.training.evaluation import NetworkEvaluator
from crowdfuse.training.launching import (
    broadcast_from_rank_zero,
    make_fabric,
    run_in_processes,
    starts_processes,
    sum_gradients,
    synchronize_batch_norm,
)
from crowdfuse.training.mixup import mixup_loss
from crowdfuse.training.progress import TrainingPlan, make_progress_reporter, next_training
from crowdfuse.training.recipes import Recipe
from crowdfuse.training.seeding import seed_generators, step_seed
from crowdfuse.training.time_limit import affordable_epochs
from crowdfuse.training.validation import Validation

CHECKPOINT_SECONDS = 600.0  # time between two checkpoints within an epoch
MAX_EPOCH_CHECKPOINTS = 100  # checkpoints at the ends of epochs; if there are more epochs, some have no checkpoint
MIN_STEPS_PER_EPOCH = 50  # if the number of epochs is not given; an epoch may then consist of several passes


class DivergedError(AllProcessesError):
    """The loss became NaN or infinite. The error message gives epoch and step, and says what to change."""


class UnfitDataError(ValueError):
    """The method cannot learn from this data, whatever its settings. The error message lists methods that can."""


@dataclass
class TrainingResult:
    """The result of training.

    Attributes
    ----------
    weights : dict of str to Tensor
        The weights of the best epoch if there was validation, otherwise the weights of the last epoch. On the CPU.
    history : list of dict
        One dict per epoch with the keys "epoch", "loss" and "seconds", and "phase" if the method has several phases. If
        there was validation, also "candidate" (whether validation may choose the epoch), and "validation_accuracy" or
        "held_out_log_likelihood". If the epoch failed sanity checks, also "failed_checks".
    best_epoch : int or None
        The epoch that validation chose, counted from 1. None if there was no validation.
    n_epochs : int
        Planned number of epochs over all phases, before the time limit shortened the plan.
    cut_short : bool, default=False
        Whether the time limit shortened the training.
    interrupted : bool, default=False
        Whether Ctrl-C ended the training early.
    """

    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    best_epoch: int | None
    n_epochs: int
    cut_short: bool = field(default=False)
    interrupted: bool = field(default=False)


def train(
    method: Method,
    data: TrainingData,
    recipe: Recipe,
    *,
    validation: Validation | None = None,
    checkpointing: Checkpointing | None = None,
    verbose: int = 0,
    title: str = "training",
    clock: Callable[[], float] = time.monotonic,
) -> TrainingResult:
    """Train a method and return its weights.

    If a method has several phases, they are trained one after the other. Validation chooses an epoch of the last phase,
    unless `Phase.selection` of a phase says otherwise. Ctrl-C ends training and returns the result so far.

    If there is a time limit, the plan is checked after every epoch. If the remaining epochs would take too long, the
    current phase is shortened, and the learning-rate schedule is adapted to its new length. A plan that fits into the
    limit is not changed.

    Parameters
    ----------
    method : Method
        The network and its loss. It is trained in place, unless this function starts several processes.
    data : TrainingData
        Inputs, labels, gold and weights.
    recipe : Recipe
        Optimizer, schedule, sizes, device and seed.
    validation : Validation or None, default=None
        Data used to choose the best epoch. None: the last epoch is kept.
    checkpointing : Checkpointing or None, default=None
        Where to store checkpoints. If a checkpoint is already stored there, training resumes from it. None: nothing is
        stored.
    verbose : int, default=0
        0 shows nothing, 1 shows progress on standard error.
    title : str, default="training"
        Name of this training run in the progress display.
    clock : callable, default=time.monotonic
        Returns the current time in seconds, for the time limit of the recipe.

    Returns
    -------
    result : TrainingResult

    Raises
    ------
    DivergedError
        If the loss becomes NaN or infinite.
    ValueError
        If the checkpoint belongs to other settings or data, or is damaged.
    """
    fabric = make_fabric(recipe)
    job = _TrainingJob(method, data, recipe, validation, checkpointing, verbose, title, clock)
    if not starts_processes(recipe):
        fabric.launch()
        return _run(fabric, job)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.safetensors"
        result = run_in_processes(fabric, partial(_run_in_started_process, job=job, weights=weights))
        result.weights = load_file(weights)
    return result


def check_trainable(method: Method, data: TrainingData, recipe: Recipe) -> NDArray[np.int64]:
    """Raise the errors that `train` would raise about data and settings, before any work.

    Parameters
    ----------
    method : Method
        The network to train.
    data : TrainingData
        The training data.
    recipe : Recipe
        The settings.

    Returns
    -------
    rows : ndarray of shape (n_rows,)
        The rows that training uses.

    Raises
    ------
    UnfitDataError
        If the method cannot learn from this data.
    ValueError
        If there are no items to train on, or if the optimizer or the device rejects the settings.
    """
    rows = _training_rows(method, data)
    if not len(rows):
        raise ValueError(
            "cannot train: no item has a label or a gold label that this method uses; pass items with labels"
        )
    reason = method.unsupported_reason(data)
    if reason is not None:
        raise UnfitDataError(reason)
    try:
        recipe.make_optimizer(method.parameters())
        make_fabric(recipe)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"cannot train with these settings: {error}") from error
    return rows


def _training_rows(method: Method, data: TrainingData) -> NDArray[np.int64]:
    """Return the rows that training uses."""
    return np.flatnonzero(method.training_mask(data) & (data.weight > 0))


class _TrainingJob:
    """The arguments of `train`. Not a dataclass, because Fabric traverses dataclasses when it starts processes."""

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        recipe: Recipe,
        validation: Validation | None,
        checkpointing: Checkpointing | None,
        verbose: int,
        title: str,
        clock: Callable[[], float],
    ) -> None:
        self.method = method
        self.data = data
        self.recipe = recipe
        self.validation = validation
        self.checkpointing = checkpointing
        self.verbose = verbose
        self.title = title
        self.clock = clock
        self.series = next_training()


def _run(fabric: Fabric, job: _TrainingJob) -> TrainingResult:
    """Run the whole training in this process."""
    with raise_if_process_lost():
        return _Loop(fabric, job).run()


def _run_in_started_process(fabric: Fabric, job: _TrainingJob, weights: Path) -> TrainingResult:
    """Run the training in a process that was started here, and write the weights to a file.

    The processes share the memory of the weights, so each takes a copy. Fabric would return results through a pipe,
    which blocks once it is full; hence the file.
    """
    job.method = copy.deepcopy(job.method)
    result = _run(fabric, job)
    if fabric.is_global_zero:
        save_file(result.weights, weights)
    result.weights = {}
    return result


class _Loop:
    """One training run. `state` holds phase, epoch and batch; everything else follows from it."""

    def __init__(self, fabric: Fabric, job: _TrainingJob) -> None:
        self.fabric = fabric
        self.job = job
        self.method, self.data, self.recipe = job.method, job.data, job.recipe
        # every step reads these, and Fabric would look them up each time
        self.device, self.rank, self.world_size = fabric.device, fabric.global_rank, fabric.world_size
        synchronize_batch_norm(self.method, self.device, self.world_size)
        self.network = NetworkEvaluator(self.method, self.data.inputs, fabric, self.recipe.batch_size)
        self.rows = _training_rows(self.method, self.data)
        n_batches_per_pass = len(split_into_batches(self.rows, self.recipe.batch_size))
        self.n_passes = 1 if self.recipe.epochs is not None else -(-MIN_STEPS_PER_EPOCH // n_batches_per_pass)
        self.n_batches = self.n_passes * n_batches_per_pass
        if self.recipe.epochs is None:
            self.phases = self.method.default_phases(n_batches_per_pass, self.n_batches)
        else:
            self.phases = self.method.phases(self.recipe.epochs)
        self.planned_epochs = [phase.epochs for phase in self.phases]
        self.learnable = [name for name, tensor in self.method.named_parameters() if tensor.requires_grad]
        self.reporter = make_progress_reporter(job.verbose if fabric.is_global_zero else 0)
        self.method.prepare(self.data)
        checkpoint = self._find_checkpoint()
        self.state = checkpoint.state if checkpoint else TrainingState()
        self.start_time = job.clock() - self.state.seconds
        self._set_phase_epochs(self.state.phase_epochs or self.planned_epochs)
        self.method.phase_index = self.state.phase_index
        self._set_up_phase()
        if self.world_size > 1:
            # the user's backbone may have been initialized differently in each process
            broadcast_from_rank_zero(self.method.state_dict().values())
        if checkpoint:
            checkpoint.restore(self.method, self.optimizer)
        self.last_saved = time.monotonic()
        self.stop_requested = False

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self.phases[self.state.phase_index]

    def run(self) -> TrainingResult:
        """Train from the current state to the end."""
        state = self.state
        self.reporter.start(
            TrainingPlan(
                title=self.job.title,
                n_epochs=self.phase_ends[-1],
                n_steps_per_epoch=self.n_batches,
                n_steps_done=state.epoch * self.n_batches + state.n_batches_done,
                series=self.job.series,
                max_time=self.recipe.max_time,
            )
        )
        self.reporter.start_phase(self.phase.name)
        interrupted = False
        # dropout uses torch's global generators: restore them afterwards
        generators = torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [])
        with generators, self._stop_all_on_ctrl_c():
            try:
                while state.epoch < self.phase_ends[-1]:
                    if state.epoch == self.phase_ends[state.phase_index]:
                        self._start_next_phase()
                    self._run_epoch()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                self.reporter.stop()
        self._make_learnable(self.learnable)
        for module in self.method.backbones():
            module._compiled_call_impl = None  # compiled for training only
        weights = state.best_weights if state.best_weights is not None else copy_weights(self.method)
        n_epochs, cut_short = sum(self.planned_epochs), state.phase_epochs is not None
        return TrainingResult(weights, state.history, state.best_epoch, n_epochs, cut_short, interrupted)

    # ---- phases ----

    def _start_next_phase(self) -> None:
        trainable_before = self.phase.trainable
        self.state.phase_index += 1
        self.state.phase_start_seconds = self._seconds()
        self.method.phase_index = self.state.phase_index
        self.reporter.start_phase(self.phase.name)
        validation = self.job.validation
        scorer = None if validation is None else validation.held_out_scorer(self.network)
        self.method.begin_phase(self.data, self.network.predict_training, scorer)
        if self.phase.trainable != trainable_before:
            self._set_up_phase()

    def _set_up_phase(self) -> None:
        """Make only the parts that this phase trains learnable, and create their optimizer."""
        trained = [name for name, _ in self.method.named_parameters() if _is_trained(name, self.phase)]
        self._make_learnable([name for name in self.learnable if name in trained])
        self.optimizer = self.recipe.make_optimizer([self.method.get_parameter(name) for name in trained])
        self.learning_rates = [group["lr"] for group in self.optimizer.param_groups]
        if self.recipe.channels_last:
            self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.recipe.compile:
            for module in self.method.backbones():
                module.compile()
        _, self.fabric_optimizer = self.fabric.setup(self.method, self.optimizer)
        self.parameters = list(self.method.parameters())

    def _make_learnable(self, names: list[str]) -> None:
        """Set `requires_grad` of these parameters, and clear it for all others."""
        for name, tensor in self.method.named_parameters():
            tensor.requires_grad_(name in names)

    # ---- the time limit ----

    def _seconds(self) -> float:
        """Return the seconds of training so far, including the time before an interruption."""
        return self.job.clock() - self.start_time

    def _set_phase_epochs(self, epochs: list[int]) -> None:
        """Set how many epochs each phase has."""
        self.phases = [phase._replace(epochs=count) for phase, count in zip(self.phases, epochs, strict=True)]
        self.phase_ends = list(accumulate(epochs))  # in epochs over all phases

    def _shorten_phase(self, max_time: float) -> None:
        """Drop the epochs of this phase that do not fit into its share of the time; called at the end of each epoch.

        When a phase begins, the remaining time is divided among this phase and all later phases, in proportion to their
        numbers of epochs.
        """
        state = self.state
        epochs = [phase.epochs for phase in self.phases]
        n_done = state.epoch + 1 - (self.phase_ends[state.phase_index] - self.phase.epochs)
        seconds = self._seconds() - state.phase_start_seconds
        seconds_left = max_time - state.phase_start_seconds
        planned = self.planned_epochs[state.phase_index :]
        n_kept = self.fabric.broadcast(affordable_epochs(self.phase.epochs, n_done, seconds, planned, seconds_left))
        if n_kept < self.phase.epochs:
            epochs[state.phase_index] = n_kept
            state.phase_epochs = epochs
            self._set_phase_epochs(epochs)
            self.reporter.shorten(self.phase_ends[-1])

    # ---- epochs and steps ----

    def _run_epoch(self) -> None:
        """Run the remaining steps of the epoch, then validate and save."""
        start = time.monotonic()
        state, recipe = self.state, self.recipe
        generator = np.random.default_rng([recipe.seed, state.epoch])
        passes = [split_into_batches(generator.permutation(self.rows), recipe.batch_size) for _ in range(self.n_passes)]
        batches = list(chain.from_iterable(passes))[state.n_batches_done :]
        parts = [rows_of_rank(batch, self.rank, self.world_size) for batch in batches]
        self.method.train()
        for name, module in self.method.named_children():
            module.train(_is_trained(name, self.phase))
        with closing(self.data.stream([rows for rows, _ in parts])) as stream:
            for batch, (_, counts) in zip(stream, parts, strict=True):
                self._run_step(batch, counts)
                if time.monotonic() - self.last_saved > CHECKPOINT_SECONDS:
                    self._save_checkpoint()
        self._end_epoch(time.monotonic() - start)
        kept = None if state.best_epoch is None else state.history[state.best_epoch - 1]
        self.reporter.end_epoch(state.history[-1], kept)
        if state.epoch % max(1, self.phase_ends[-1] // MAX_EPOCH_CHECKPOINTS) == 0:
            self._save_checkpoint()

    def _run_step(self, batch: Batch, counts: bool) -> None:
        """Take one step on this process's part of the batch; `counts` is as in `rows_of_rank`."""
        state, recipe = self.state, self.recipe
        step = state.epoch * self.n_batches + state.n_batches_done
        seed_generators(self.device, step_seed(recipe.seed, step, self.rank))
        self._set_learning_rate(step)
        batch = self._to_device(batch)
        with self.fabric.autocast():  # Fabric applies autocast to `forward` only
            if recipe.mixup:
                total, weight = mixup_loss(self.method, batch, recipe.mixup, step_seed(recipe.seed, step, self.rank))
            else:
                total, weight = self.method.loss(batch)
        if not counts:
            total, weight = total * 0, weight * 0
        loss, count = self._sum_over_processes(torch.stack([total.detach(), weight.detach()])).tolist()
        if not math.isfinite(loss):
            raise DivergedError(
                f"training diverged: the loss is {loss} in epoch {state.epoch + 1}, step {state.n_batches_done + 1}. "
                f"Lower learning_rate (now {recipe.learning_rate}), or check the scale of the inputs"
            )
        self.optimizer.zero_grad()
        if count:  # otherwise no item of the batch has a weight
            self.fabric.backward(total * (1 / count))
            if self.world_size > 1:
                sum_gradients(self.parameters)
            if not isinstance(recipe.optimizer, str):
                _make_gradients_dense(self.parameters)
            self.fabric_optimizer.step()
        state.epoch_total += loss
        state.epoch_count += count
        state.n_batches_done += 1
        self.reporter.end_step(state.epoch, step + 1, state.mean_loss)

    def _set_learning_rate(self, step: int) -> None:
        """Apply the schedule, which runs over the steps of the phase."""
        first_step = (self.phase_ends[self.state.phase_index] - self.phase.epochs) * self.n_batches
        progress = (step - first_step) / (self.phase.epochs * self.n_batches)
        for group, learning_rate in zip(self.optimizer.param_groups, self.learning_rates, strict=True):
            group["lr"] = learning_rate * self.recipe.learning_rate_factor(progress)

    def _to_device(self, batch: Batch) -> Batch:
        """The batch on the device, in the precision and memory format of the network."""
        batch = batch.to(self.device)
        batch = batch._replace(x=batch.x.to(self.parameters[0].dtype))
        if self.recipe.channels_last and batch.x.ndim == 4:
            batch = batch._replace(x=batch.x.contiguous(memory_format=torch.channels_last))
        return batch

    def _end_epoch(self, seconds: float) -> None:
        """Add the epoch to the history, keep its weights if they are the best so far, and go to the next epoch."""
        self._broadcast_buffers()
        state = self.state
        if self.recipe.max_time is not None:
            self._shorten_phase(self.recipe.max_time)
        record: dict[str, Any] = {"epoch": state.epoch + 1, "loss": state.mean_loss, "seconds": seconds}
        if self.phase.name:
            record["phase"] = self.phase.name
        if self.job.validation is not None:
            self._validate(self.job.validation, record)
        if self.phase.selection == "never" and self.phase.trainable is not None and state.best_weights is not None:
            # the epoch was chosen in an earlier phase: its weights get what this phase trains
            weights = copy_weights(self.method)
            state.best_weights |= {name: tensor for name, tensor in weights.items() if _is_trained(name, self.phase)}
        state.history.append(record)
        state.epoch += 1
        state.n_batches_done = 0
        state.epoch_total = state.epoch_count = 0.0

    # ---- choosing the epoch ----

    def _validate(self, validation: Validation, record: dict[str, Any]) -> None:
        """Score the network, add the score to the record, and keep the weights if they are the best so far."""
        state = self.state
        score = validation.evaluate(self.network)
        record[validation.history_key] = score.mean
        record["candidate"] = self._is_candidate()
        if score.failed_checks:
            record["failed_checks"] = list(score.failed_checks)
        replaces = self._replaces_earlier_phases()
        if replaces:
            state.history = [earlier | {"candidate": False} for earlier in state.history]
        if self._is_candidate() and (replaces or validation.is_better(score, self._best())):
            state.best_values, state.best_failed_checks = score.values, score.failed_checks
            state.best_epoch, state.best_weights = state.epoch + 1, copy_weights(self.method)

    def _best(self) -> ValidationScore:
        """The score of the best epoch so far."""
        assert self.state.best_values is not None
        return ValidationScore(self.state.best_values, self.state.best_failed_checks)

    def _is_candidate(self) -> bool:
        """Whether validation may choose this epoch."""
        if self.phase.selection in ("epoch", "any"):
            return True
        return self.phase.selection == "end" and self.state.epoch + 1 == self.phase_ends[self.state.phase_index]

    def _replaces_earlier_phases(self) -> bool:
        """Return whether this epoch is kept without comparison: the first candidate, or the first of its phase."""
        is_first = self.state.epoch == self.phase_ends[self.state.phase_index] - self.phase.epochs
        return self.state.best_values is None or (is_first and self.phase.selection == "epoch")

    # ---- several processes, Ctrl-C, checkpoints ----

    def _sum_over_processes(self, values: Tensor) -> Tensor:
        """Return the sum over all processes; raise KeyboardInterrupt in all of them if one was asked to stop."""
        if self.world_size == 1:
            return values
        stop = values.new_tensor([float(self.stop_requested)])
        summed: Tensor = self.fabric.all_reduce(torch.cat([values, stop]), reduce_op="sum")  # type: ignore[assignment]
        if summed[-1]:
            self._broadcast_buffers()
            raise KeyboardInterrupt
        return summed[:-1]

    def _broadcast_buffers(self) -> None:
        """Copy the buffers of rank 0 to all: on CPUs, each process has its own running statistics of batch norm."""
        if self.world_size > 1:
            broadcast_from_rank_zero(self.method.buffers())

    @contextmanager
    def _stop_all_on_ctrl_c(self) -> Iterator[None]:
        """If there are several processes, let Ctrl-C in one of them end all processes at the same step."""
        if self.world_size == 1:
            yield
        else:
            with sigint_handler(self._request_stop):
                yield

    def _request_stop(self, *_: Any) -> None:
        self.stop_requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C stops at once

    def _find_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint to resume from. Only rank 0 reads it: other processes might see an older file."""
        checkpointing = self.job.checkpointing
        if checkpointing is None:
            return None
        with raise_in_all_processes():
            checkpoint = find_checkpoint(checkpointing) if self.fabric.is_global_zero else None
        return self.fabric.broadcast(checkpoint)

    def _save_checkpoint(self) -> None:
        checkpointing = self.job.checkpointing
        self.state.seconds = self._seconds()
        if checkpointing and self.fabric.is_global_zero:
            save_checkpoint(checkpointing, self.state, self.method, self.optimizer)
        self.last_saved = time.monotonic()


def _is_trained(name: str, phase: Phase) -> bool:
    """Whether the phase trains a parameter or a module of the method, given its name."""
    return phase.trainable is None or name.split(".")[0] in phase.trainable


def _make_gradients_dense(parameters: Iterable[nn.Parameter]) -> None:
    """Convert sparse gradients to dense gradients, which every optimizer accepts."""
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()
