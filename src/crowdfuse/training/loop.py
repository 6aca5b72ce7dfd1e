"""The only training loop: phases, batching, devices, precision, data-parallel, checkpoint and resume, progress.

Everything random follows from the seed and the position (epoch, step) alone, so a training that was stopped
and continued takes the same steps as one that was not.
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
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from crowdfuse.io.inputs import Inputs
from crowdfuse.io.interrupts import sigint_handler
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import HeldOutLabels, ValidationScore
from crowdfuse.methods.base import HeldOutScorer, LabelFunction, Method, Phase
from crowdfuse.methods.data import Batch, TrainingData, fingerprint
from crowdfuse.training.checkpoints import Checkpoint, TrainingState, copy_weights, find_checkpoint, save_checkpoint
from crowdfuse.training.distributed import AllProcessesError, raise_if_process_lost, raise_in_all_processes
from crowdfuse.training.launching import (
    broadcast_from_rank_zero,
    make_fabric,
    run_in_processes,
    starts_processes,
    sum_gradients,
    synchronize_batch_norm,
)
from crowdfuse.training.prediction import predict_logits, predict_logits_distributed, score_held_out_labels
from crowdfuse.training.progress import make_progress_reporter
from crowdfuse.training.recipes import Recipe

CHECKPOINT_SECONDS = 600.0


@dataclass(frozen=True)
class Validation:
    """What chooses the epoch: items with gold (class positions) or annotations to agree with; or held-out labels."""

    inputs: Inputs
    reference: NDArray[np.int64] | Annotations | HeldOutLabels

    @property
    def history_key(self) -> str:
        """What the mean of a verdict is called in the history: an accuracy is no likelihood."""
        return "held_out_log_likelihood" if isinstance(self.reference, HeldOutLabels) else "validation_accuracy"

    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """What speaks for and against class logits (N, K): the share of gold or of labels that they predict, or how
        likely they make held-out labels."""
        if isinstance(self.reference, HeldOutLabels):
            return self.reference.score(logits)
        predicted = logits.argmax(1)
        if isinstance(self.reference, Annotations):
            return ValidationScore((predicted[self.reference.item] == self.reference.label).astype(np.float64), ())
        return ValidationScore((predicted == self.reference).astype(np.float64), ())

    def prefers(self, new: ValidationScore, old: ValidationScore) -> bool:
        """Whether to keep the new one."""
        return new.beats(old) if isinstance(self.reference, HeldOutLabels) else new.mean > old.mean

    def fingerprint(self) -> dict[str, str]:
        """Hashes of inputs and truth, to know them again."""
        if isinstance(self.reference, HeldOutLabels):
            return self.reference.fingerprint()
        return fingerprint(self.inputs, self.reference)


@dataclass(frozen=True)
class Checkpointing:
    """Where to keep the state of the training, and which settings and data it belongs to."""

    folder: Path
    identity: dict[str, Any]


@dataclass
class TrainingResult:
    """How a training went."""

    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    best_epoch: int | None
    n_epochs: int
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
) -> TrainingResult:
    """Train `method` and return the weights: of the best epoch where there is validation, else of the last.

    A method with phases goes through them in turn, and the best epoch is that of the last phase.
    Ctrl-C ends the training and keeps what has been learned so far.
    """
    fabric = make_fabric(recipe)
    work = _Work(method, data, recipe, validation, checkpointing, verbose, title)
    if not starts_processes(recipe):
        fabric.launch()
        return _run(fabric, work)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.safetensors"
        trained = run_in_processes(fabric, partial(_run_started, work=work, weights=weights))
        trained.weights = load_file(weights)
    return trained


class DivergedError(AllProcessesError):
    """The loss is no longer a number; the message says when, and what to change."""


class UnfitDataError(ValueError):
    """A method cannot learn from this data, whatever the settings; the message says which can."""


def check_trainable(method: Method, data: TrainingData, recipe: Recipe) -> NDArray[np.int64]:
    """Refuse what `train` could not do, before anything is done; returns the rows it will step over."""
    rows = _rows(method, data)
    if not len(rows):
        raise ValueError("there is nothing to train on: no item has a label that this method uses")
    refusal = method.unsupported_reason(data)
    if refusal is not None:
        raise UnfitDataError(refusal)
    try:
        recipe.make_optimizer(method.parameters())
        make_fabric(recipe)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"cannot train with these settings: {error}") from error
    return rows


def _rows(method: Method, data: TrainingData) -> NDArray[np.int64]:
    """The rows that training steps over."""
    return np.flatnonzero(method.training_mask(data) & (data.weight > 0))


class _Work:
    """What to train on what. Not a dataclass: Fabric walks through those when it starts processes."""

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        recipe: Recipe,
        validation: Validation | None,
        checkpointing: Checkpointing | None,
        verbose: int,
        title: str,
    ) -> None:
        self.method = method
        self.data = data
        self.recipe = recipe
        self.validation = validation
        self.checkpointing = checkpointing
        self.verbose = verbose
        self.title = title


def _run(fabric: Fabric, work: _Work) -> TrainingResult:
    """The whole training, in each process."""
    with raise_if_process_lost():
        return _Loop(fabric, work).run()


def _run_started(fabric: Fabric, work: _Work, weights: Path) -> TrainingResult:
    """In a process that was started here, where the weights still share memory with the others': copy them.

    Weights go home in a file: Fabric's own way back is a pipe that blocks once it is full.
    """
    work.method = copy.deepcopy(work.method)
    trained = _run(fabric, work)
    if fabric.is_global_zero:
        save_file(trained.weights, weights)
    trained.weights = {}
    return trained


class _Loop:
    """A training and where it stands. `state` says which phase, epoch and batch; the rest follows from it."""

    def __init__(self, fabric: Fabric, work: _Work) -> None:
        self.fabric = fabric
        self.work = work
        self.method, self.data, self.recipe = work.method, work.data, work.recipe
        # asked for in every step, and Fabric looks for them anew each time
        self.device, self.rank, self.world_size = fabric.device, fabric.global_rank, fabric.world_size
        synchronize_batch_norm(self.method, self.device, self.world_size)
        self.rows = _rows(self.method, self.data)
        self.n_batches = len(_split_into_batches(self.rows, self.recipe.batch_size))
        self.phases = self.method.phases(self.recipe.epochs)
        self.ends = list(accumulate(phase.epochs for phase in self.phases))  # epochs, over all phases
        self.learnable = [name for name, tensor in self.method.named_parameters() if tensor.requires_grad]
        self.watcher = make_progress_reporter(work.verbose if fabric.is_global_zero else 0)
        self.method.prepare(self.data)
        found = self._find_checkpoint()
        self.state = found.state if found else TrainingState()
        self.method.phase_index = self.state.phase_index
        self._set_up()
        if self.world_size > 1:
            broadcast_from_rank_zero(
                self.method.state_dict().values()
            )  # a user's own backbone may have started elsewhere in each
        if found:
            found.restore(self.method, self.optimizer)
        self.saved = time.monotonic()
        self.stop = False

    @property
    def phase(self) -> Phase:
        return self.phases[self.state.phase_index]

    def run(self) -> TrainingResult:
        state, n_epochs = self.state, self.ends[-1]
        done = state.epoch * self.n_batches + state.n_batches_done
        self.watcher.start(self.work.title, n_epochs, n_epochs * self.n_batches, done)
        self.watcher.phase(self.phase.name)
        interrupted = False
        # dropout draws from torch's own generators: give them back as they were
        generators = torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [])
        with generators, self._stopping_together():
            try:
                while state.epoch < n_epochs:
                    if state.epoch == self.ends[state.phase_index]:
                        self._next_phase()
                    self._epoch()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                self.watcher.stop()
        self._thaw(self.learnable)
        self.method.trunk._compiled_call_impl = None  # that was for training
        weights = state.best_weights if state.best_weights is not None else copy_weights(self.method)
        return TrainingResult(weights, state.history, state.best_epoch, n_epochs, interrupted)

    @contextmanager
    def _stopping_together(self) -> Iterator[None]:
        """Where there are other processes, Ctrl-C in any of them ends all at the same step."""
        if self.world_size == 1:
            yield
        else:
            with sigint_handler(self._ask_to_stop):
                yield

    def _ask_to_stop(self, *_: Any) -> None:
        self.stop = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever asks again does not want to wait

    def _find_checkpoint(self) -> Checkpoint | None:
        """What there is to continue, read by the first process: others may see an older file."""
        at = self.work.checkpointing
        if at is None:
            return None
        with raise_in_all_processes():
            found = find_checkpoint(at.folder, at.identity) if self.fabric.is_global_zero else None
        return self.fabric.broadcast(found)

    def _set_up(self) -> None:
        """Let the parts that the phase trains learn, and nothing else, and give them an optimiser."""
        own = [name for name, _ in self.method.named_parameters() if _is_trained(name, self.phase)]
        self._thaw([name for name in self.learnable if name in own])
        self.optimizer = self.recipe.make_optimizer([self.method.get_parameter(name) for name in own])
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        if self.recipe.channels_last:
            self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.recipe.compile:
            self.method.trunk.compile()
        _, self.fabric_optimizer = self.fabric.setup(self.method, self.optimizer)
        self.parameters = list(self.method.parameters())

    def _thaw(self, names: list[str]) -> None:
        """These parameters learn, and no others."""
        for name, tensor in self.method.named_parameters():
            tensor.requires_grad_(name in names)

    def _next_phase(self) -> None:
        trained = self.phase.trainable
        self.state.phase_index += 1
        self.method.phase_index = self.state.phase_index
        self.watcher.phase(self.phase.name)
        self.method.begin_phase(self.data, self._predict_training, self._held_out_scorer())
        if self.phase.trainable != trained:
            self._set_up()

    def _epoch(self) -> None:
        """One pass over the data, or what is left of it; then look at validation and keep the state."""
        began = time.monotonic()
        state, recipe = self.state, self.recipe
        order = np.random.default_rng([recipe.seed, state.epoch]).permutation(self.rows)
        batches = _split_into_batches(order, recipe.batch_size)[state.n_batches_done :]
        own = [_rows_of_rank(batch, self.rank, self.world_size) for batch in batches]
        self.method.train()
        for name, part in self.method.named_children():
            part.train(_is_trained(name, self.phase))
        with closing(self.data.stream([rows for rows, _ in own])) as stream:
            for batch, (_, counts) in zip(stream, own, strict=True):
                self._step(batch, counts)
                if time.monotonic() - self.saved > CHECKPOINT_SECONDS:
                    self._save()
        self._end_epoch(time.monotonic() - began)
        self.watcher.epoch(state.history[-1])
        self._save()

    def _step(self, batch: Batch, counts: bool) -> None:
        """One step, on this process's part of the batch; whether it counts is as in `_rows_of_rank`."""
        fabric, state, recipe = self.fabric, self.state, self.recipe
        step = state.epoch * self.n_batches + state.n_batches_done
        _seed(self.device, _step_seed(recipe.seed, step, self.rank))
        first = (self.ends[state.phase_index] - self.phase.epochs) * self.n_batches
        progress = (step - first) / (self.phase.epochs * self.n_batches)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * recipe.factor(progress)
        batch = batch.to(self.device)
        batch = batch._replace(x=batch.x.to(self.parameters[0].dtype))
        if recipe.channels_last and batch.x.ndim == 4:
            batch = batch._replace(x=batch.x.contiguous(memory_format=torch.channels_last))
        with fabric.autocast():  # Fabric does so by itself around `forward` alone
            total, weight = self.method.loss(batch)
        if not counts:
            total, weight = total * 0, weight * 0
        everywhere = self._sum_over_processes(torch.stack([total.detach(), weight.detach()]))
        loss, count = everywhere.tolist()
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} in epoch {state.epoch + 1}, step {state.n_batches_done + 1}: the training "
                f"diverged. Lower learning_rate (now {recipe.learning_rate}) or look at the inputs' scale"
            )
        self.optimizer.zero_grad()
        if count:  # a batch in which nothing counts teaches nothing
            fabric.backward(total * (1 / count))
            if self.world_size > 1:
                sum_gradients(self.parameters)
            if not isinstance(recipe.optimizer, str):
                _make_dense(self.parameters)
            self.fabric_optimizer.step()
        state.epoch_total += loss
        state.epoch_count += count
        state.n_batches_done += 1
        self.watcher.step(state.epoch, step + 1, state.mean_loss)

    def _end_epoch(self, seconds: float) -> None:
        """Write the epoch into the history, keep its weights if they are the phase's best, and move on to the next."""
        self._broadcast_buffers()
        state, validation = self.state, self.work.validation
        record: dict[str, Any] = {"epoch": state.epoch + 1, "loss": state.mean_loss}
        record["seconds"] = seconds
        if self.phase.name:
            record["phase"] = self.phase.name
        if validation is not None:
            verdict = self._verdict(validation)
            record[validation.history_key] = verdict.mean
            if verdict.failed_checks:
                record["failed_checks"] = list(verdict.failed_checks)
            if self._is_candidate() and (self._starts_over() or validation.prefers(verdict, self._best())):
                state.best_values, state.best_failed_checks = verdict.values, verdict.failed_checks
                state.best_epoch, state.best_weights = state.epoch + 1, copy_weights(self.method)
        state.history.append(record)
        state.epoch += 1
        state.n_batches_done = 0
        state.epoch_total = state.epoch_count = 0.0

    def _best(self) -> ValidationScore:
        assert self.state.best_values is not None
        return ValidationScore(self.state.best_values, self.state.best_failed_checks)

    def _is_candidate(self) -> bool:
        """Whether this epoch can be the one that is kept."""
        if self.phase.selection in ("epoch", "any"):
            return True
        return self.phase.selection == "end" and self.state.epoch + 1 == self.ends[self.state.phase_index]

    def _starts_over(self) -> bool:
        """The best of an earlier phase stays until this one has an epoch to show."""
        is_first = self.state.epoch == self.ends[self.state.phase_index] - self.phase.epochs
        return self.state.best_values is None or (is_first and self.phase.selection == "epoch")

    def _predict(self, inputs: Inputs) -> NDArray[np.float32]:
        """Class logits of all rows, (N, K), the same in every process."""
        return predict_logits_distributed(self.method, inputs, self.fabric, self.recipe.batch_size)

    def _predict_training(
        self, feature_function: Callable[[Tensor], Tensor] | None = None, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """As `Predict` has it. Some rows are few: every process computes them all."""
        if rows is None:
            return predict_logits_distributed(
                self.method, self.data.inputs, self.fabric, self.recipe.batch_size, feature_function
            )
        inputs = self.data.inputs.take(rows)
        return predict_logits(self.method, inputs, self.device, self.recipe.batch_size, feature_function)

    def _sum_over_processes(self, figures: Tensor) -> Tensor:
        if self.world_size == 1:
            return figures
        asked = figures.new_tensor([float(self.stop)])
        summed: Tensor = self.fabric.all_reduce(torch.cat([figures, asked]), reduce_op="sum")  # type: ignore[assignment]
        if summed[-1]:
            self._broadcast_buffers()
            raise KeyboardInterrupt
        return summed[:-1]

    def _verdict(self, validation: Validation) -> ValidationScore:
        """What validation says of the network as it stands: held-out labels by the method's own likelihood, if any."""
        verdict = validation.score(self._predict(validation.inputs))
        if not isinstance(validation.reference, HeldOutLabels):
            return verdict
        verdict = verdict._replace(
            failed_checks=self.method.failed_checks(verdict.failed_checks, self._predict_training)
        )
        own = self._score_held_out_labels(self._log_likelihood)
        return verdict if own is None else verdict._replace(values=own)

    def _log_likelihood(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor | None:
        """How likely the method's own model makes each label, in logs; None where it has none."""
        evidence = self.method.label_log_probabilities(features, item, annotator, label)
        if evidence is None:
            return None
        return (self.method.class_logits(features).log_softmax(1)[item] + evidence).logsumexp(1)

    def _held_out_scorer(self) -> HeldOutScorer | None:
        """Questions are answered label by label, without objections."""
        validation = self.work.validation
        if validation is None or not isinstance(validation.reference, HeldOutLabels):
            return None
        return self._verdict_on

    def _verdict_on(self, label_function: LabelFunction) -> ValidationScore:
        values = self._score_held_out_labels(label_function)
        assert values is not None
        return ValidationScore(values, ())

    def _score_held_out_labels(self, label_function: Callable[..., Tensor | None]) -> NDArray[np.float64] | None:
        """A figure for each held-out label, the same in every process; None where there is no answer."""
        validation = self.work.validation
        assert validation is not None
        assert isinstance(validation.reference, HeldOutLabels)
        return score_held_out_labels(
            self.method, validation.inputs, validation.reference, label_function, self.device, self.recipe.batch_size
        )

    def _broadcast_buffers(self) -> None:
        """Those of the first process for all: without GPUs, batch norm's running statistics are each process's own."""
        if self.world_size > 1:
            broadcast_from_rank_zero(self.method.buffers())

    def _save(self) -> None:
        at = self.work.checkpointing
        if at and self.fabric.is_global_zero:
            save_checkpoint(at.folder, at.identity, self.state, self.method, self.optimizer)
        self.saved = time.monotonic()


def _is_trained(name: str, phase: Phase) -> bool:
    """Whether a parameter or a part of the method, by its name, learns in this phase."""
    return phase.trainable is None or name.split(".")[0] in phase.trainable


def _split_into_batches(order: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Batches in this order, for any number of processes. A leftover too small for batch norm joins the one before."""
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    if len(batches) > 1 and len(batches[-1]) < 2:
        last = batches.pop()
        batches[-1] = np.concatenate([batches[-1], last])
    return batches


def _rows_of_rank(batch: NDArray[np.int64], rank: int, world_size: int) -> tuple[NDArray[np.int64], bool]:
    """The rows of a batch that a process takes, and whether they count.

    Batch norm needs two rows a process. A process that is left without takes the whole batch, which does not count:
    it has to join in whatever the others do together, and statistics over all processes stay those of the batch.
    """
    n_parts = min(world_size, max(1, len(batch) // 2))
    return (batch[rank::n_parts], True) if rank < n_parts else (batch, False)


def _make_dense(parameters: Iterable[nn.Parameter]) -> None:
    """Gradients as any optimiser of the user's own takes them."""
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()


def _seed(device: torch.device, seed: int) -> None:
    """Seed the generators in use. (`torch.manual_seed` seeds those of absent devices too, and takes a millisecond.)"""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for one step of one process: splitmix64 of the three numbers."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (mixed ^ (mixed >> 31)) & (2**63 - 1)
