"""The data of a report: the consensus, and the fused labels and weights that the method itself computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray
from crowdfuse.quality.consensus import Consensus
from crowdfuse.quality.label_weights import relative_weights

FloatArray = NDArray[np.float64]

PROBABILITY_TOLERANCE = (
    1e-3  # probabilities with a smaller difference count as equal: two machines may round differently
)
N_WEIGHT_CHECK_ITEMS = 20  # weights are compared on this many items, to find out whether they depend on the item


class FittedModel(NamedTuple):
    """A fitted classifier and the inputs of the items.

    Attributes
    ----------
    classifier : CrowdClassifier
        The fitted classifier.
    inputs : Inputs
        Inputs of the items that have inputs.
    input_rows : ndarray of shape (n_items,)
        For each item, its row in `inputs`; -1 if its input is missing.
    """

    classifier: CrowdClassifier
    inputs: Inputs
    input_rows: IntArray

    def take(self, rows: IntArray) -> Inputs:
        """Return the inputs of the given items. Each of these items must have an input."""
        return self.inputs.take(self.input_rows[rows])


class Answers(NamedTuple):
    """One class per item, with its probability. -1 and NaN stand for unknown.

    Attributes
    ----------
    codes : ndarray of shape (n_items,)
        The class, as a position in the list of classes.
    confidence : ndarray of shape (n_items,)
        The probability of this class.
    """

    codes: IntArray
    confidence: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything a report needs to know about each item and label.

    Answers, confidences, accuracies and confusion matrices come from `consensus`. The fused labels and weights come
    from the method itself. They require the model and the inputs.

    Attributes
    ----------
    consensus : Consensus
        The consensus with its labels, one row per item.
    has_training_gold : ndarray of shape (n_items,)
        Whether a gold label of the item was used in training. If so, the gold label is the consensus.
    fused : Answers or None, default=None
        Most probable class of the fused label, the soft label on which the method itself is trained. None if there is
        no model.
    weights : ndarray of shape (n_labels,) or None, default=None
        Share of each label in the fused label of its item, NaN if the item has no input. None if there is no model. The
        report shows the weights relative to an even share; see `relative_weights`.
    weights_vary : bool, default=False
        Whether the weight of an annotator depends on the item.
    model : FittedModel or None, default=None
        The classifier with its inputs; None if the classifier or the inputs are missing.
    """

    consensus: Consensus
    has_training_gold: NDArray[np.bool_]
    fused: Answers | None = None
    weights: NDArray[np.float32] | None = None
    weights_vary: bool = False
    model: FittedModel | None = None

    @property
    def ann(self) -> Annotations:
        """The labels of each item."""
        return self.consensus.annotations

    @property
    def consensus_answers(self) -> Answers:
        """Consensus and confidence of each item."""
        return Answers(self.consensus.consensus_codes, self.consensus.confidence)

    @property
    def predictions(self) -> Answers:
        """Class that the classifier predicts from the input alone, with its probability; -1 and NaN without model."""
        probabilities = self.consensus.predicted_probabilities
        if probabilities is None:
            n_items = len(self.consensus.items)
            return Answers(np.full(n_items, -1, np.int64), np.full(n_items, np.nan))
        return Answers(probabilities.argmax(1), probabilities.max(1))

    @property
    def out_of_fold_predictions(self) -> Answers | None:
        """Class that a classifier trained without the item predicts, with its probability; None if unknown."""
        probabilities = self.consensus.out_of_fold_probabilities
        if probabilities is None or self.consensus.n_folds == 0:
            return None
        return Answers(probabilities.argmax(1), probabilities.max(1))

    @property
    def labels_per_item(self) -> IntArray:
        """Number of labels of each item, shape (n_items,)."""
        return self.consensus.labels_per_item

    def relative_weights(self) -> FloatArray | None:
        """Return the weight of each label relative to equal weighting, or None if all weights are equal.

        Returns
        -------
        ndarray of shape (n_labels,) or None
            1 means the same weight as if all labels of the item had equal weights; 2 means twice this weight. NaN where
            the input is missing.
        """
        return None if self.weights is None else relative_weights(self.weights, self.ann)


def report_data_of(consensus: Consensus) -> ReportData:
    """Return the data of a report without a model.

    Parameters
    ----------
    consensus : Consensus
        The consensus.

    Returns
    -------
    ReportData
    """
    known = np.zeros(len(consensus.items), bool) if consensus.gold_codes is None else consensus.gold_codes >= 0
    return ReportData(consensus=consensus, has_training_gold=known)


def add_model(
    data: ReportData, classifier: CrowdClassifier, inputs: Inputs, input_rows: IntArray | None = None
) -> ReportData:
    """Add a fitted classifier, with its fused labels and weights on the items that have inputs.

    Parameters
    ----------
    data : ReportData
        Data with the consensus.
    classifier : CrowdClassifier
        The fitted classifier.
    inputs : Inputs
        The inputs.
    input_rows : ndarray of shape (n_items,), default=None
        For each item, its row in `inputs`; -1 if its input is missing. None means that row i of `inputs` is item i.

    Returns
    -------
    ReportData
        The extended data. If no item has an input, `data` itself.
    """
    consensus, ann = data.consensus, data.ann
    input_rows = np.arange(len(consensus.items)) if input_rows is None else input_rows
    rows = np.flatnonzero(input_rows >= 0)
    if not len(rows):
        return data
    model = FittedModel(classifier, inputs, input_rows)
    found = classifier.predict_with_labels(model.take(rows), ann[rows], warn=False)
    probabilities = np.zeros((ann.n_items, ann.n_classes), np.float32)
    probabilities[rows] = np.nan_to_num(found.fused_labels)
    is_gold = data.has_training_gold & (input_rows >= 0)
    probabilities[is_gold] = consensus.class_probabilities[
        is_gold
    ]  # for these items, the method is trained on gold instead of the fused label
    known = probabilities.any(1)
    weights = np.full(ann.n_labels, np.nan, np.float32)
    weights[input_rows[ann.item] >= 0] = found.annotator_weights
    weights_of_few = classifier.annotator_weights(model.take(rows[:N_WEIGHT_CHECK_ITEMS]))
    return replace(
        data,
        fused=Answers(np.where(known, probabilities.argmax(1), -1), np.where(known, probabilities.max(1), np.nan)),
        weights=weights,
        weights_vary=bool(np.ptp(weights_of_few, axis=0).max() > PROBABILITY_TOLERANCE),
        model=model,
    )


def rows_with_unchanged_inputs(
    data: ReportData, classifier: CrowdClassifier, inputs: Inputs, input_rows: IntArray
) -> IntArray:
    """Return `input_rows` with -1 for items whose prediction differs from the recorded one: their input has changed.

    Parameters
    ----------
    data : ReportData
        Data with the recorded predictions.
    classifier : CrowdClassifier
        The fitted classifier.
    inputs : Inputs
        The inputs that exist.
    input_rows : ndarray of shape (n_items,)
        For each item, its row in `inputs`; -1 if its input is missing.

    Returns
    -------
    ndarray of shape (n_items,)
    """
    recorded, rows = data.consensus.predicted_probabilities, np.flatnonzero(input_rows >= 0)
    unchanged = np.full(len(input_rows), -1, np.int64)
    if recorded is not None and len(rows):
        difference = np.abs(classifier.predict_proba(inputs.take(input_rows[rows])) - recorded[rows]).max(1)
        same = rows[difference < PROBABILITY_TOLERANCE]
        unchanged[same] = input_rows[same]
    return unchanged
