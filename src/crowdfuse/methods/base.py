"""What every method is: a trunk, a class head, a loss over a batch, and what it has to say about annotators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crowdfuse.functional import scatter_sum, segment_softmax
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.held_out import ValidationScore
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.nets.annotator_tables import PerAnnotator
from crowdfuse.nets.backbones import Trunk
from crowdfuse.nets.mlp import mlp
from crowdfuse.nets.standardize import Standardize


@dataclass(frozen=True)
class ModelSpec:
    """What a method is built for: its trunk, and how many classes and annotators there are."""

    trunk: Trunk
    standardize: Standardize | None
    augment: nn.Module | None
    n_classes: int
    n_annotators: int
    head_hidden: tuple[int, ...]
    dropout: float
    seed: int


class Loss(NamedTuple):
    """A loss as a sum and the weight of the items in it, so that means are right over uneven batches and processes."""

    total: Tensor
    weight: Tensor


class Phase(NamedTuple):
    """A stretch of the training, in which the loop trains one thing.

    The learning-rate schedule runs over it, and validation chooses an epoch of it: the model is the best epoch of
    the last phase, unless `chosen` says otherwise. The network is carried on between phases as it stands.
    """

    name: str  # "" for a training that has no phases to speak of
    epochs: int
    trainable: tuple[str, ...] | None = None
    """Which attributes of the method learn; the others are frozen, in evaluation mode. None: all learn.

    Where it differs from that of the phase before there is a new optimiser; else the old one goes on.
    """
    selection: Literal["epoch", "end", "any", "never"] = "epoch"
    """What validation chooses among: this phase's epochs and nothing before ("epoch"); the ends of this and earlier
    phases ("end"); this phase's epochs and what earlier phases offered ("any"); "never": nothing of this phase."""


class Predict(Protocol):
    """The network as it stands, in evaluation mode, on the training data."""

    def __call__(
        self, feature_function: Callable[[Tensor], Tensor] | None = None, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Class logits (N, K) of all rows, or of some; instead of logits, what `ask` makes of features (B, D)."""


LabelFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From features (B, D) and labels as item, annotator and label, (L,) each, to a figure a label, (L,)."""

HeldOutScorer = Callable[[LabelFunction], ValidationScore]
"""The answers on held-out labels, by the network as it stands: log-likelihoods of them."""


class Method(nn.Module, ABC):
    """Base of all methods. A method defines `crowd_loss`, and, where it models annotators, the four questions below.

    By itself a method believes all annotators alike.
    """

    confusion_given: ClassVar[Literal["said", "true"] | None] = None
    """What the confusion matrices are conditioned on: P(true | said), P(said | true), or there are none."""

    resume_buffers: ClassVar[tuple[str, ...]] = ()
    """Buffers that are not part of the model, but that a training which goes on needs."""

    phase_index: int = 0
    """Which of its phases is being trained. The loop keeps it, also over a stop and a resume."""

    loss_factor: float = 1.0
    """What the loss is multiplied by, where a method follows the paper in dividing it by K."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.augment = spec.augment or nn.Identity()
        self.standardize = spec.standardize or nn.Identity()
        self.trunk = spec.trunk.module
        self.classify = mlp(spec.trunk.n_features, spec.head_hidden, spec.n_classes, spec.dropout)
        self.n_classes = spec.n_classes
        self.n_annotators = spec.n_annotators

    def fit_standardization(self, inputs: Inputs, rows: NDArray[np.int64]) -> None:
        """Set mean and scale of the input standardization, if there is one."""
        if isinstance(self.standardize, Standardize):
            self.standardize.measure(inputs, rows)

    def features(self, x: Tensor) -> Tensor:
        """Inputs (B, ...) to features (B, D)."""
        features: Tensor = self.trunk(self.standardize(self.augment(x)))
        return features

    def logits(self, x: Tensor) -> Tensor:
        """Inputs (B, ...) to class logits (B, K)."""
        return self.class_logits(self.features(x))

    def class_logits(self, h: Tensor) -> Tensor:
        """Features (B, D) to class logits (B, K)."""
        logits: Tensor = self.classify(h)
        return logits

    def loss(self, batch: Batch) -> Loss:
        """The loss of a batch: its sum, and the weight of the items in it."""
        h = self.features(batch.x)
        known = batch.gold >= 0
        if not known.any():
            return self.crowd_loss(h, batch)
        certain = batch.select(known)
        losses = self.gold_losses(h[known], certain)
        total, weight = (certain.weight * losses).sum(), certain.weight.sum()
        if not known.all():
            rest = self.crowd_loss(h[~known], batch.select(~known))
            total, weight = total + rest.total, weight + rest.weight
        return Loss(total, weight)

    @abstractmethod
    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """The loss of items whose class only their labels tell of: features h (B, D), and the batch they come from."""

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """The losses (B,) of items whose class is known for certain: cross-entropy.

        A method that learns about annotators adds what their labels of these items tell of them.
        """
        return self.loss_factor * cross_entropy(self.class_logits(h), batch.gold, reduction="none")

    def training_mask(self, data: TrainingData) -> NDArray[np.bool_]:
        """Which rows take part in training: those that have a label, or gold."""
        mask: NDArray[np.bool_] = (np.diff(data.annotations.indptr) > 0) | (data.gold >= 0)
        return mask

    def unsupported_reason(self, data: TrainingData) -> str | None:
        """Why it cannot learn from this data, if so, and which methods can: asked before any work."""
        return None

    def prepare(self, data: TrainingData) -> None:
        """Look at the whole training data once, before the first step."""

    def phases(self, epochs: int) -> list[Phase]:
        """What is trained in turn, for a budget of `epochs`: all at once."""
        return [Phase("", epochs)]

    takes_new_annotators: bool = True
    """Whether an annotator can be added who learns like the others."""

    def add_annotators(self, count: int) -> None:
        """Make room for `count` annotators more, who are taken to be like the average one."""
        for part in self.modules():
            if isinstance(part, PerAnnotator):
                part.add_annotators(count)
        self.n_annotators += count

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Draw conclusions from the training so far, before the first step of each phase but the first.

        `score_held_out` is there where labels were held out.

        What is learned here belongs in buffers or parameters, changed in place: so checkpoints hold it, and all
        processes share it. What belongs to the rows of the training data, and not to the model, is a buffer that is
        not persistent, and named in `kept`.
        """

    def label_log_probabilities(
        self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor
    ) -> Tensor | None:
        """`log p(label | class)` of each label and class, (L, K), by a model that is to be believed; None for no such.

        Labels that were kept out are judged by it where there is one, else by one model for all methods: see `HeldOut`.
        """
        return None

    def failed_checks(self, label_checks: tuple[str, ...], predict: Predict) -> tuple[str, ...]:
        """What speaks against the network as it stands, where labels alone speak against it as `found`."""
        return label_checks

    # ---- what it has to say about annotators, for pairs (item, annotator) --------------------

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Scores (L,) whose softmax over an item's pairs are the annotators' weights."""
        return features.new_zeros(len(item))

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Confusion matrices (L, K, K), axes (true, said)."""
        raise TypeError(f"{type(self).__name__} has no confusion matrices; GatedClassifier and others do")

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """What the labels of each item amount to, (B, K); rows of items without labels are 0."""
        weights = segment_softmax(self.weight_logits(features, item, annotator), item, len(features))
        return scatter_sum(weights[:, None] * nn.functional.one_hot(label, self.n_classes), item, len(features))
