"""Choose the epoch by accuracy on gold, agreement with labels, or likelihood of held-out labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import HeldOutLabels, ValidationScore
from crowdfuse.methods.base import HeldOutScorer, LabelFunction, Method
from crowdfuse.methods.data import fingerprint
from crowdfuse.training.evaluation import NetworkEvaluator


@dataclass(frozen=True)
class Validation(ABC):
    """Base class of validation data: data used to choose the best epoch.

    Parameters
    ----------
    inputs : Inputs
        Inputs of the validation items.

    Attributes
    ----------
    history_key : str
        Name of the mean score in the training history (`TrainingResult.history`).
    uses_gold : bool
        Whether gold labels are used to choose the epoch.
    """

    inputs: Inputs

    history_key: ClassVar[str] = "validation_accuracy"
    uses_gold: ClassVar[bool] = False

    @abstractmethod
    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """Return the score of class logits, (n_items, n_classes), of the validation items."""

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Return hashes of the validation data. Training resumes from a checkpoint only with the same data."""

    def evaluate(self, network: NetworkEvaluator) -> ValidationScore:
        """Return the score of the network in its current state."""
        return self.score(network.predict(self.inputs))

    def is_better(self, new: ValidationScore, old: ValidationScore) -> bool:
        """Return whether the new epoch has a higher mean score than the best epoch so far."""
        return new.mean > old.mean

    def held_out_scorer(self, network: NetworkEvaluator) -> HeldOutScorer | None:
        """Return a function that scores the held-out labels.

        The implementation in the base class returns None, because only `HeldOutLabelValidation` has held-out labels.
        """
        return None


@dataclass(frozen=True)
class GoldValidation(Validation):
    """Validation by the accuracy on items with gold labels.

    Parameters
    ----------
    inputs : Inputs
        Inputs of the validation items.
    gold : ndarray of shape (n_items,)
        Gold label of each item, as a position in the list of classes.

    Examples
    --------
    >>> validation = GoldValidation(Inputs(np.zeros((3, 2))), np.array([0, 1, 1]))
    >>> round(validation.score(np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).mean, 2)
    0.67
    """

    gold: NDArray[np.int64]

    uses_gold: ClassVar[bool] = True

    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """Return 1 for each item whose predicted class is right, else 0."""
        return ValidationScore((logits.argmax(1) == self.gold).astype(np.float64), ())

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of inputs and gold."""
        return fingerprint(self.inputs, self.gold)


@dataclass(frozen=True)
class AgreementValidation(Validation):
    """Validation by agreement: the share of the labels of the validation items that equal the predicted class.

    Parameters
    ----------
    inputs : Inputs
        Inputs of the validation items.
    annotations : Annotations
        Labels of the validation items, in the order of the rows.

    Examples
    --------
    >>> labels = Annotations.from_matrix([[0, 0], [1, 0], [1, -1]])
    >>> validation = AgreementValidation(Inputs(np.zeros((3, 2))), labels)
    >>> validation.score(np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])).mean
    0.8
    """

    annotations: Annotations

    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """Return 1 for each label that equals the predicted class, else 0."""
        predicted = logits.argmax(1)
        return ValidationScore((predicted[self.annotations.item] == self.annotations.label).astype(np.float64), ())

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of inputs and labels."""
        return fingerprint(self.inputs, self.annotations)


@dataclass(frozen=True)
class HeldOutLabelValidation(Validation):
    """Validation by the likelihood of held-out labels, which are labels that were kept out of training.

    Parameters
    ----------
    inputs : Inputs
        Inputs of the items to which the held-out labels belong.
    held_out : HeldOutLabels
        The held-out labels, and the training labels of the same items.
    """

    held_out: HeldOutLabels

    history_key: ClassVar[str] = "held_out_log_likelihood"

    def score(self, logits: NDArray[Any]) -> ValidationScore:
        """Return the log-likelihood of each held-out label, and the sanity checks that failed."""
        return self.held_out.score(logits)

    def evaluate(self, network: NetworkEvaluator) -> ValidationScore:
        """Return the score of the network in its current state.

        If the method has its own model of the annotators, this model determines the log-likelihood of the labels. The
        method also determines the sanity checks.
        """
        score = super().evaluate(network)
        method = network.method
        checks = method.failed_checks(score.failed_checks, network.predict_training)

        def log_likelihood(features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor | None:
            return _label_log_likelihood(method, features, item, annotator, label)

        values = network.score_labels(self.inputs, self.held_out, log_likelihood)
        return ValidationScore(score.values if values is None else values, checks)

    def is_better(self, new: ValidationScore, old: ValidationScore) -> bool:
        """Return whether the new epoch beats the best epoch so far; see `ValidationScore.beats`."""
        return new.beats(old)

    def held_out_scorer(self, network: NetworkEvaluator) -> HeldOutScorer:
        """Return a function that takes a label function, and returns its values for the held-out labels as a score.

        A label function computes a number for each label, such as its log-likelihood. No sanity checks are made.
        """

        def score(label_function: LabelFunction) -> ValidationScore:
            values = network.score_labels(self.inputs, self.held_out, label_function)
            assert values is not None
            return ValidationScore(values, ())

        return score

    def fingerprint(self) -> dict[str, str]:
        """Return a hash of the held-out labels; the inputs are part of the training data."""
        return self.held_out.fingerprint()


def _label_log_likelihood(
    method: Method, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor
) -> Tensor | None:
    """Return the log-likelihood of each label, (n_labels,), by the method's annotator model; None if it has none."""
    evidence = method.label_log_probabilities(features, item, annotator, label)
    if evidence is None:
        return None
    return (method.class_logits(features).log_softmax(1)[item] + evidence).logsumexp(1)
