"""The data of a report, computed in one pass over the inputs, without any array of n_items x n_annotators numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.aggregation import Aggregate
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray

FloatArray = NDArray[np.float64]

PROBABILITY_TOLERANCE = 1e-3  # largest difference between the same probability computed on two machines
WEIGHT_TOLERANCE = 1e-3  # largest distance from an even share at which a relative weight counts as even
N_WEIGHT_CHECK_ITEMS = 20  # items on which weights are compared, to see whether they depend on the item


class FittedModel(NamedTuple):
    """A fitted classifier and the inputs of the items.

    Attributes
    ----------
    classifier : CrowdClassifier
        The fitted classifier.
    inputs : Inputs
        Inputs of those items that have inputs.
    input_rows : ndarray of shape (n_items,)
        For each item, its row in `inputs`; -1 if its input is missing.
    """

    classifier: CrowdClassifier
    inputs: Inputs
    input_rows: IntArray

    def take(self, rows: IntArray) -> Inputs:
        """Return the inputs of the given items; every one of them must have an input."""
        return self.inputs.take(self.input_rows[rows])


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything a report needs to know about each item and label; -1 and NaN stand for unknown.

    Attributes
    ----------
    ann : Annotations
        The labels of each item, with the classes and annotators of the model.
    predicted : ndarray of shape (n_items,)
        Class predicted from the input alone, as its position in `ann.classes`.
    predicted_confidence : ndarray of shape (n_items,)
        Probability of the predicted class.
    fused : ndarray of shape (n_items,)
        Most probable class of the fused label.
    fused_confidence : ndarray of shape (n_items,)
        Probability of that class.
    quality : Consensus
        Consensus, confidence, suspicion of each label, and accuracy of each annotator.
    has_training_gold : ndarray of shape (n_items,)
        Whether a gold label of the item was used in training. If so, the gold label replaces the fused label and the
        consensus.
    weights : ndarray of shape (n_labels,) or None
        Weight of each label in the fused label of its item, NaN if the item has no input. None if there is no model.
    weights_vary : bool, default=False
        Whether the weight of an annotator depends on the item.
    model : FittedModel or None
        The classifier with its inputs; None for labels alone.
    """

    ann: Annotations
    predicted: IntArray
    predicted_confidence: FloatArray
    fused: IntArray
    fused_confidence: FloatArray
    quality: Consensus
    has_training_gold: NDArray[np.bool_]
    weights: NDArray[np.float32] | None
    weights_vary: bool = False
    model: FittedModel | None

    @property
    def labels_per_item(self) -> IntArray:
        """Number of labels of each item, shape (n_items,)."""
        return np.diff(self.ann.indptr)

    def relative_weights(self) -> FloatArray | None:
        """Return the weight of each label relative to equal weighting, or None if all weights are equal.

        Returns
        -------
        ndarray of shape (n_labels,) or None
            1 means the same weight as if all labels of the item weighed the same; 2 means twice as much. NaN where the
            input is missing.
        """
        return None if self.weights is None else relative_weights(self.weights, self.ann)


def relative_weights(weights: NDArray[np.float32], ann: Annotations) -> FloatArray | None:
    """Return weights of labels times the number of labels of the item, shape (n_labels,); None if all are 1."""
    relative: FloatArray = weights.astype(np.float64) * np.diff(ann.indptr)[ann.item]
    return relative if (np.abs(relative - 1) > WEIGHT_TOLERANCE).any() else None


def mean_relative_weights(weights: NDArray[np.float32], ann: Annotations) -> FloatArray | None:
    """Return the mean weight of each annotator relative to an even share, NaN where unknown; None if all are even.

    Parameters
    ----------
    weights : ndarray of shape (n_labels,)
        Weight of each label on its item; NaN where unknown.
    ann : Annotations
        The labels.

    Returns
    -------
    ndarray of shape (n_annotators,) or None
        1 means the same weight as if all labels of an item weighed the same; 2 means twice as much.
    """
    relative = relative_weights(weights, ann)
    if relative is None:
        return None
    known = ~np.isnan(relative)
    n_weighted = np.bincount(ann.annotator[known], minlength=ann.n_annotators)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.bincount(ann.annotator[known], relative[known], ann.n_annotators) / n_weighted
    return mean


def compute_report_data(
    classifier: CrowdClassifier,
    X: Any,
    annotations: Any,
    items: ArrayLike | None = None,
    *,
    training_gold: IntArray | None = None,
) -> ReportData:
    """Compute predictions, fused labels, weights and consensus with a fitted classifier.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    X : array-like, sparse matrix or Inputs of N rows
        Inputs of the items.
    annotations : Annotations or array-like of shape (n_items, n_annotators)
        Labels of the items.
    items : array-like of shape (n_items,), default=None
        Item id of each row of `X`, as in `fit`.
    training_gold : ndarray of shape (n_items,), default=None
        True classes that the classifier was trained on, as positions in `classes_`; -1 for items without.

    Returns
    -------
    ReportData
    """
    inputs = classifier._inputs(X)
    ann, probabilities, soft, weights = classifier.predict_with_labels(inputs, annotations, items=items, warn=False)
    predicted = probabilities.argmax(1)
    soft = np.nan_to_num(soft)
    if training_gold is not None:
        soft[training_gold >= 0] = np.eye(soft.shape[1])[training_gold[training_gold >= 0]]
    known = soft.any(1)
    return ReportData(
        ann=ann,
        predicted=predicted,
        predicted_confidence=probabilities[np.arange(len(predicted)), predicted],
        fused=np.where(known, soft.argmax(1), -1),
        fused_confidence=np.where(known, soft.max(1), np.nan).astype(np.float64),
        quality=consensus(
            ann, probabilities, classes=classifier.classes_, gold=_class_names(training_gold, ann.classes), n_folds=0
        ),
        has_training_gold=_is_known(training_gold, ann),
        weights=weights,
        weights_vary=_differ_between_items(
            classifier.annotator_weights(inputs.take(np.arange(min(N_WEIGHT_CHECK_ITEMS, len(inputs)))))
        ),
        model=FittedModel(classifier, inputs, np.arange(len(inputs))),
    )


def report_data_from_labels(
    ann: Annotations,
    *,
    training_gold: IntArray | None = None,
    predicted: IntArray | None = None,
    predicted_confidence: FloatArray | None = None,
    fused: IntArray | None = None,
    fused_confidence: FloatArray | None = None,
) -> ReportData:
    """Compute the data of a report without inputs, from labels and from stored predictions and fused labels.

    Parameters
    ----------
    ann : Annotations
        The labels.
    training_gold : ndarray of shape (n_items,), default=None
        True classes that the model was trained on, as positions in `ann.classes`; -1 for items without.
    predicted, fused : ndarray of shape (n_items,), default=None
        Stored classes, as positions in `ann.classes`; -1 where unknown. None uses the consensus of the labels.
    predicted_confidence, fused_confidence : ndarray of shape (n_items,), default=None
        Stored confidences. None uses the confidence of the consensus.

    Returns
    -------
    ReportData
    """
    K = ann.n_classes
    uniform = np.full((ann.n_items, K), 1 / K)
    quality = consensus(ann, uniform, items=ann.items, gold=_class_names(training_gold, ann.classes))
    known = np.diff(ann.indptr) > 0
    consensus = np.where(known, quality.consensus_codes, -1)
    confidence = np.where(known, quality.confidence, np.nan).astype(np.float64)
    return ReportData(
        ann=quality.annotations,
        predicted=consensus if predicted is None else predicted,
        predicted_confidence=confidence if predicted_confidence is None else predicted_confidence,
        fused=consensus if fused is None else fused,
        fused_confidence=confidence if fused_confidence is None else fused_confidence,
        quality=quality,
        has_training_gold=_is_known(training_gold, ann),
        weights=None,
        model=None,
    )


def add_available_inputs(
    data: ReportData, classifier: CrowdClassifier, inputs: Inputs, input_rows: IntArray
) -> ReportData:
    """Add weights and the model for the items whose inputs still exist and are unchanged.

    An input counts as changed if the model's prediction for it differs from the stored prediction.

    Parameters
    ----------
    data : ReportData
        Recorded predictions and fused labels.
    classifier : CrowdClassifier
        The fitted classifier.
    inputs : Inputs
        The inputs that exist.
    input_rows : ndarray of shape (n_items,)
        For each item, its row in `inputs`; -1 if its input is missing.

    Returns
    -------
    ReportData
        The extended data; `data` itself if no unchanged input exists.
    """
    rows = np.flatnonzero(input_rows >= 0)
    if not len(rows):
        return data
    part = compute_report_data(classifier, inputs.take(input_rows[rows]), data.ann[rows])
    is_same = (part.predicted == data.predicted[rows]) & (
        np.abs(part.predicted_confidence - data.predicted_confidence[rows]) < PROBABILITY_TOLERANCE
    )
    input_rows = input_rows.copy()
    input_rows[rows[~is_same]] = -1
    if not is_same.any() or part.weights is None:
        return data
    weights = np.full(data.ann.n_labels, np.nan, np.float32)
    weights[np.isin(data.ann.item, rows)] = part.weights
    weights[input_rows[data.ann.item] < 0] = np.nan
    model = FittedModel(classifier, inputs, input_rows)
    return replace(data, weights=weights, weights_vary=part.weights_vary, model=model)


def report_data_from_aggregate(ann: Annotations, aggregate: Aggregate) -> ReportData:
    """Return the data of a report on labels alone, with the aggregate as both fused label and consensus.

    Parameters
    ----------
    ann : Annotations
        The labels.
    aggregate : Aggregate
        Result of an aggregation method on these labels.

    Returns
    -------
    ReportData
    """
    label_confidence = aggregate.class_probabilities.ravel()[ann.item * ann.n_classes + ann.label].astype(np.float64)
    aggregate_fields: dict[str, Any] = {field.name: getattr(aggregate, field.name) for field in fields(Aggregate)}
    return ReportData(
        ann=ann,
        predicted=np.full(ann.n_items, -1, np.int64),
        predicted_confidence=np.full(ann.n_items, np.nan),
        fused=aggregate.consensus_codes,
        fused_confidence=aggregate.confidence.astype(np.float64),
        quality=Consensus(**aggregate_fields, annotations=ann, label_confidence=label_confidence),
        has_training_gold=np.zeros(ann.n_items, bool),
        weights=None,
        model=None,
    )


def _differ_between_items(weights: NDArray[np.float32]) -> bool:
    """Return whether the weights of an annotator, a column of (n_items, n_annotators), differ between items."""
    return bool(np.ptp(weights, axis=0).max() > PROBABILITY_TOLERANCE)


def _class_names(codes: IntArray | None, classes: NDArray[Any]) -> list[Any] | None:
    """Return the class of each code, None for -1."""
    return None if codes is None else [classes[k] if k >= 0 else None for k in codes]


def _is_known(codes: IntArray | None, ann: Annotations) -> NDArray[np.bool_]:
    """Return which items have a code, shape (n_items,)."""
    return np.zeros(ann.n_items, bool) if codes is None else codes >= 0
