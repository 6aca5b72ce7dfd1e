"""The base class of all methods: a trunk (the backbone), a class head, a loss over a batch, and optional hooks.

`crowdfuse.methods._template` is a file to copy for a new method.
"""

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
    """The arguments from which every method is built.

    Parameters
    ----------
    trunk : Trunk
        The backbone.
    standardize : Standardize or None
        Standardization of the inputs; None for no standardization.
    augment : nn.Module or None
        Augmentation of the training inputs; None for no augmentation.
    n_classes : int
        Number of classes K.
    n_annotators : int
        Number of annotators R.
    head_hidden : tuple of int
        Widths of the hidden layers of the class head, the MLP that turns features into class logits.
    dropout : float
        Dropout probability in the class head.
    seed : int
        Seed of the method's own random draws. The initial weights do not use this seed: they come from torch's
        generator, which the estimator seeds.
    """

    trunk: Trunk
    standardize: Standardize | None
    augment: nn.Module | None
    n_classes: int
    n_annotators: int
    head_hidden: tuple[int, ...]
    dropout: float
    seed: int


class Loss(NamedTuple):
    """The loss of a batch, as a weighted sum and the sum of the weights.

    The mean loss is `total / weight`. Both numbers are kept, because the exact mean over several batches is the sum of
    their totals divided by the sum of their weights. The same holds for several processes.

    Parameters
    ----------
    total : Tensor of shape ()
        Weighted sum of the losses of the items.
    weight : Tensor of shape ()
        Sum of the weights of the items in `total`.
    """

    total: Tensor
    weight: Tensor


class Phase(NamedTuple):
    """A part of the training. Each phase starts with the weights that the network has at the end of the previous phase.

    A separate learning-rate schedule runs over each phase. Without validation, training returns the weights of the last
    epoch of the last phase.

    Parameters
    ----------
    name : str
        Name shown to users; "" if training has only one phase.
    epochs : int
        Number of epochs of the phase.
    trainable : tuple of str, optional
        Attributes of the method (modules, parameters or buffers) that are trained in this phase, by name, such as
        "trunk". All other modules are frozen and in evaluation mode. None, the default, trains everything. If
        `trainable` is the same as in the previous phase, the optimizer is kept; otherwise a new optimizer is created.
    selection : {"epoch", "end", "any", "never"}, default="epoch"
        Validation chooses the best epoch among several epochs, called candidates. This setting says which epochs of
        this phase are candidates. "epoch": all epochs, and the candidates of earlier phases are dropped. "end": only
        the last epoch. "any": all epochs. "never": no epoch. With "end", "any" and "never", the candidates of earlier
        phases remain. If a phase has "never" and sets `trainable`, the trained network combines two sets of weights:
        the parts in `trainable` have their weights from the end of this phase, and all other parts have their weights
        from the chosen epoch.
    """

    name: str
    epochs: int
    trainable: tuple[str, ...] | None = None
    selection: Literal["epoch", "end", "any", "never"] = "epoch"


class Predict(Protocol):
    """A function that returns the outputs of the current network, in evaluation mode, for rows of the training data."""

    def __call__(
        self, feature_function: Callable[[Tensor], Tensor] | None = None, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Return outputs for rows of the training data.

        Parameters
        ----------
        feature_function : callable, optional
            Maps features (B, D) to outputs (B, ...). Default: the class logits (B, K).
        rows : ndarray of shape (n_rows,), optional
            Rows to predict. Default: all.

        Returns
        -------
        outputs : ndarray of shape (n_rows, ...)
        """


LabelFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Takes features (B, D), and the items, annotators and classes of L labels. Returns one number per label, (L,)."""

HeldOutScorer = Callable[[LabelFunction], ValidationScore]
"""Takes a function that computes log-likelihoods of labels, and returns its score on the held-out labels."""


class Method(nn.Module, ABC):
    """Base class of all methods: a network, the loss that it is trained with, and optional hooks.

    A subclass must define `crowd_loss`. It may override hooks for training (`prepare`, `phases`, `begin_phase`, ...)
    and hooks that describe annotators (`weight_logits`, `confusions`, `accuracies`, `fused`,
    `label_log_probabilities`). If a subclass does not override `weight_logits`, all annotators have the same weight.

    In this package, B is the number of items in a batch, L the number of their labels, D the number of features, K the
    number of classes, R the number of annotators, and N the number of rows of the training data. A pair is an item and
    an annotator who labelled it.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.

    Attributes
    ----------
    confusion_given : {"said", "true"} or None
        Which probabilities the confusion matrices hold. "said": P(true class | annotator's label). "true":
        P(annotator's label | true class). None if the method has no confusion matrices.
    resume_buffers : tuple of str
        Names of non-persistent buffers (not saved with the model) that are needed to resume training.
    phase_index : int
        Index of the phase that is being trained, from 0. The training loop sets it.
    loss_factor : float
        Factor by which the loss is multiplied: 1 / K if the loss is scaled as in the code of Gao et al. (2022),
        otherwise 1.
    takes_new_annotators : bool
        Whether annotators can be added to a fitted model.
    default_passes, min_passes, min_steps, max_steps : int
        Length of training if the number of epochs is not given: `default_passes` passes over the data. If these passes
        have fewer than `min_steps` steps, training is extended to `min_steps` steps. If they have more than `max_steps`
        steps, training is shortened to `max_steps` steps, but not below `min_passes` passes.

    See Also
    --------
    crowdfuse.methods.global_confusions.GlobalConfusions : Base class for one confusion matrix per annotator.
    """

    confusion_given: ClassVar[Literal["said", "true"] | None] = None
    resume_buffers: ClassVar[tuple[str, ...]] = ()
    phase_index: int = 0
    loss_factor: float = 1.0
    takes_new_annotators: bool = True
    default_passes: ClassVar[int] = 40
    min_passes: ClassVar[int] = 10
    min_steps: ClassVar[int] = 400
    max_steps: ClassVar[int] = 20_000

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.augment = spec.augment or nn.Identity()
        self.standardize = spec.standardize or nn.Identity()
        self.trunk = spec.trunk.module
        self.classify = mlp(spec.trunk.n_features, spec.head_hidden, spec.n_classes, spec.dropout)
        self.n_classes = spec.n_classes
        self.n_annotators = spec.n_annotators

    # ---- the network ---------------------------------------------------------------------------

    def features(self, x: Tensor) -> Tensor:
        """Return the features that the trunk (the backbone) computes from inputs.

        Parameters
        ----------
        x : Tensor of shape (B, ...)
            Inputs.

        Returns
        -------
        features : Tensor of shape (B, D)
        """
        features: Tensor = self.trunk(self.standardize(self.augment(x)))
        return features

    def logits(self, x: Tensor) -> Tensor:
        """Return the class logits of inputs.

        Parameters
        ----------
        x : Tensor of shape (B, ...)
            Inputs.

        Returns
        -------
        logits : Tensor of shape (B, K)
        """
        return self.class_logits(self.features(x))

    def backbones(self) -> list[nn.Module]:
        """Return the modules that `torch.compile` compiles for training.

        The implementation in the base class returns `trunk`. A subclass whose backbones are not in `trunk` must return
        these backbones instead.

        Returns
        -------
        modules : list of nn.Module
        """
        return [self.trunk]

    def class_logits(self, h: Tensor) -> Tensor:
        """Return the class logits of features.

        Parameters
        ----------
        h : Tensor of shape (B, D)
            Features.

        Returns
        -------
        logits : Tensor of shape (B, K)
        """
        logits: Tensor = self.classify(h)
        return logits

    # ---- the loss ------------------------------------------------------------------------------

    def loss(self, batch: Batch) -> Loss:
        """Return the loss of a batch, from `gold_losses` for items with gold and from `crowd_loss` for all other items.

        Gold means the trusted true class of an item.

        Parameters
        ----------
        batch : Batch
            Items and their labels.

        Returns
        -------
        loss : Loss
        """
        h = self.features(batch.x)
        known = batch.gold >= 0
        if not known.any():
            return self.crowd_loss(h, batch)
        gold_batch = batch.select(known)
        losses = self.gold_losses(h[known], gold_batch)
        total, weight = (gold_batch.weight * losses).sum(), gold_batch.weight.sum()
        if not known.all():
            rest = self.crowd_loss(h[~known], batch.select(~known))
            total, weight = total + rest.total, weight + rest.weight
        return Loss(total, weight)

    @abstractmethod
    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss of items without gold, which is computed from their labels.

        Parameters
        ----------
        h : Tensor of shape (B, D)
            Features of the items.
        batch : Batch
            The items and their labels.

        Returns
        -------
        loss : Loss
            Items without labels must have weight 0.
        """

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each item with gold.

        The implementation in the base class returns the cross-entropy of the predicted class probabilities on the gold
        class. Methods that model the annotators add a loss for the labels of the item.

        Parameters
        ----------
        h : Tensor of shape (B, D)
            Features of the items.
        batch : Batch
            The items, their labels and their gold.

        Returns
        -------
        losses : Tensor of shape (B,)
        """
        return self.loss_factor * cross_entropy(self.class_logits(h), batch.gold, reduction="none")

    # ---- hooks of the training -----------------------------------------------------------------

    def unsupported_reason(self, data: TrainingData) -> str | None:
        """Return an error message if the method cannot learn from this data, and None if it can.

        The message says why, and which other methods can learn from the data. The training loop raises it as an error
        before training starts. The implementation in the base class returns None.

        Parameters
        ----------
        data : TrainingData
            The training data.

        Returns
        -------
        reason : str or None
        """
        return None

    def training_mask(self, data: TrainingData) -> NDArray[np.bool_]:
        """Return a mask of the rows to train on.

        The implementation in the base class selects all rows with a label or gold.

        Parameters
        ----------
        data : TrainingData
            The training data.

        Returns
        -------
        mask : ndarray of bool of shape (N,)
        """
        mask: NDArray[np.bool_] = (np.diff(data.annotations.indptr) > 0) | (data.gold >= 0)
        return mask

    def fit_standardization(self, inputs: Inputs, rows: NDArray[np.int64]) -> None:
        """Compute mean and scale of the inputs for `standardize`. If inputs are not standardized, nothing happens.

        Parameters
        ----------
        inputs : Inputs
            The training inputs.
        rows : ndarray of shape (n_rows,)
            Rows from which mean and scale are computed.
        """
        if isinstance(self.standardize, Standardize):
            self.standardize.measure(inputs, rows)

    def prepare(self, data: TrainingData) -> None:
        """Initialize the method from the training data. Called before the first step of every training run.

        The implementation in the base class does nothing.

        Parameters
        ----------
        data : TrainingData
            The training data.
        """

    def phases(self, epochs: int) -> list[Phase]:
        """Return the phases of training, given the number of epochs.

        The implementation in the base class returns a single phase.

        Parameters
        ----------
        epochs : int
            Number of epochs that the user has set. The epochs of all phases usually add up to this number.

        Returns
        -------
        phases : list of Phase
        """
        return [Phase("", epochs)]

    def default_phases(self, n_steps_per_pass: int, n_steps_per_epoch: int) -> list[Phase]:
        """Return the default phases of training, which are used if the user does not set the number of epochs.

        Parameters
        ----------
        n_steps_per_pass : int
            Steps of one pass over the data.
        n_steps_per_epoch : int
            Steps of one epoch, which consists of several passes if there are few items.

        Returns
        -------
        phases : list of Phase
            The lengths of the phases, in epochs. In the base class, `default_steps` gives the number of training steps;
            converted to epochs and rounded up, this is the sum of the lengths.
        """
        return self.phases(-(-self.default_steps(n_steps_per_pass) // n_steps_per_epoch))

    def default_steps(self, n_steps_per_pass: int) -> int:
        """Return the default number of training steps, which is used if the user does not set the number of epochs.

        Parameters
        ----------
        n_steps_per_pass : int
            Steps of one pass over the data.

        Returns
        -------
        n_steps : int
            Number of steps of `default_passes` passes over the data, with two limits. The upper limit is `max_steps` or
            the number of steps of `min_passes` passes, whichever is larger. The lower limit is `min_steps`.
        """
        most = max(self.max_steps, self.min_passes * n_steps_per_pass)
        return max(min(self.default_passes * n_steps_per_pass, most), self.min_steps)

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Update the method at the start of each phase, except the first phase.

        The implementation in the base class does nothing. An override must write its results into buffers or
        parameters, in place. Only then do checkpoints contain the results, and all processes have the same values. If a
        result has one value per row of the training data, its buffer must be non-persistent and listed in
        `resume_buffers`.

        Parameters
        ----------
        data : TrainingData
            The training data.
        predict : Predict
            Function that applies the current network to the training data.
        score_held_out : HeldOutScorer or None
            Function that scores the network on held-out labels; None if no labels were held out.
        """

    def failed_checks(self, label_checks: tuple[str, ...], predict: Predict) -> tuple[str, ...]:
        """Return a description of each sanity check that the current network fails.

        Validation prefers an epoch without failed checks to any epoch with failed checks. The implementation in the
        base class returns `label_checks` unchanged.

        Parameters
        ----------
        label_checks : tuple of str
            Descriptions of the failed checks that compare the predicted classes with the labels.
        predict : Predict
            Function that applies the current network to the training data.

        Returns
        -------
        failed_checks : tuple of str
        """
        return label_checks

    def limitations(self) -> tuple[str, ...]:
        """Return sentences that tell the user about problems of this training run.

        The implementation in the base class returns an empty tuple. The consensus stores these sentences as
        `limitations`; `fit`, the report and the review page show them.

        Returns
        -------
        limitations : tuple of str
        """
        return ()

    def add_annotators(self, count: int) -> None:
        """Append annotators, each with the mean parameters of the existing annotators.

        If mean parameters would be useless, as in `SeparateHeads`, a new annotator gets the mean outputs instead.

        The implementation in the base class extends all submodules of class `PerAnnotator`. A subclass may have other
        parameters or buffers with one row per annotator. The subclass must then override `add_annotators`, call
        `super().add_annotators(count)`, and append rows to these parameters and buffers.

        Parameters
        ----------
        count : int
            Number of annotators to add.
        """
        for part in self.modules():
            if isinstance(part, PerAnnotator):
                part.add_annotators(count)
        self.n_annotators += count

    # ---- what the method says about annotators, for pairs (item, annotator) --------------------

    def label_log_probabilities(
        self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor
    ) -> Tensor | None:
        """Return `log p(label | class)` for each label and each possible true class, or None.

        Held-out labels (labels that are kept out of training) are scored with these probabilities. A method that cannot
        estimate the probabilities reliably returns None, and so does the base class. Held-out labels are then scored
        with a general annotator model; see `crowdfuse.labels.held_out`.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator, label : Tensor of shape (L,)
            For each label, the position of the item in the batch, the index of the annotator, and the class.

        Returns
        -------
        log_probabilities : Tensor of shape (L, K) or None
        """
        return None

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return one score per pair (item, annotator).

        A softmax over the pairs of an item turns the scores into the annotators' weights. In the implementation of the
        base class, all scores are 0, so all annotators of an item have the same weight.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator : Tensor of shape (L,)
            For each pair, the position of the item in the batch and the index of the annotator.

        Returns
        -------
        scores : Tensor of shape (L,)
        """
        return features.new_zeros(len(item))

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair (item, annotator).

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator : Tensor of shape (L,)
            For each pair, the position of the item in the batch and the index of the annotator.

        Returns
        -------
        matrices : Tensor of shape (L, K, K)
            Axes (pair, true class, annotator's label). If `confusion_given` is "true", the matrices hold P(annotator's
            label | true class), and each row sums to 1. If it is "said", they hold P(true class | annotator's label),
            and each column sums to 1.

        Raises
        ------
        TypeError
            If the method has no confusion matrices.
        """
        raise TypeError(f"{type(self).__name__} has no confusion matrices; use another method, such as GatedClassifier")

    def accuracies(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the probability that the annotator gives the true class.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator : Tensor of shape (L,)
            For each pair, the position of the item in the batch and the index of the annotator.

        Returns
        -------
        accuracies : Tensor of shape (L,)

        Raises
        ------
        TypeError
            If the method does not estimate accuracies.
        """
        raise TypeError(f"{type(self).__name__} does not estimate annotators' accuracies per item; use GatedClassifier")

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the fused label of each item: a vector of class probabilities computed from its labels.

        The implementation in the base class returns the weighted mean of the item's one-hot labels. The weights are the
        softmax of `weight_logits` over the labels of the item.

        Parameters
        ----------
        features : Tensor of shape (B, D)
            Features of the items.
        item, annotator, label : Tensor of shape (L,)
            For each label, the position of the item in the batch, the index of the annotator, and the class.

        Returns
        -------
        fused : Tensor of shape (B, K)
            Rows of items without labels are 0.
        """
        weights = segment_softmax(self.weight_logits(features, item, annotator), item, len(features))
        return scatter_sum(weights[:, None] * nn.functional.one_hot(label, self.n_classes), item, len(features))
