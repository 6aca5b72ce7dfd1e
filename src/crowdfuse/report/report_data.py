"""All that a report is made from, computed once: one pass over the inputs, and never all items by all annotators."""

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
from crowdfuse.quality.label_quality import LabelQuality, label_quality

FloatArray = NDArray[np.float64]

PROBABILITY_TOLERANCE = 1e-3  # probabilities that are the same on another machine
N_WEIGHT_CHECK_ITEMS = 20  # items, to see whether weights are the same on all


class Model(NamedTuple):
    """A fitted classifier, and the rows it looks at."""

    classifier: CrowdClassifier
    inputs: Inputs
    position: IntArray  # (N,): where the inputs of each row are, -1 where they have gone

    def take(self, rows: IntArray) -> Inputs:
        """The inputs of rows that have them."""
        return self.inputs.take(self.position[rows])


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """What is known of every item and label. N items, L labels; -1 and NaN where something is not known."""

    ann: Annotations  # row by row, with the classes and annotators of the model
    predicted: IntArray  # (N,)
    predicted_confidence: FloatArray  # (N,): the probability of the predicted class
    fused: IntArray  # (N,)
    fused_confidence: FloatArray  # (N,)
    quality: LabelQuality  # what labels and predictions amount to together
    has_training_gold: NDArray[
        np.bool_
    ]  # (N,): where gold was trained on, and stands for the fused label and the consensus
    weights: NDArray[np.float32] | None  # (L,): what each label counted in its item's fused label, NaN without inputs
    weights_vary: bool = False  # whether an annotator has another weight on one item than on another
    model: Model | None  # None where there are labels alone

    @property
    def labels_per_item(self) -> IntArray:
        return np.diff(self.ann.indptr)

    def relative_weights(self) -> FloatArray | None:
        """(L,): 1 where a label counts as much as the others on its item, NaN where inputs have gone.

        None where all always count as much.
        """
        return None if self.weights is None else relative_weights(self.weights, self.ann)


def relative_weights(weights: NDArray[np.float32], ann: Annotations) -> FloatArray | None:
    """Weights of labels (L,) times the number of labels of the item; None where that is always 1."""
    relative: FloatArray = weights.astype(np.float64) * np.diff(ann.indptr)[ann.item]
    return relative if (np.abs(relative - 1) > 1e-3).any() else None


def compute_report_data(
    classifier: CrowdClassifier,
    X: Any,
    annotations: Any,
    items: ArrayLike | None = None,
    *,
    certain: IntArray | None = None,
) -> ReportData:
    """What a fitted classifier makes of labels and their inputs; rows meet items as in `fit`.

    `certain` (N,) are the true classes that it was trained on, -1 elsewhere.
    """
    inputs = classifier._inputs(X)
    ann, probabilities, soft, weights = classifier.predict_with_labels(inputs, annotations, items=items, warn=False)
    predicted = probabilities.argmax(1)
    soft = np.nan_to_num(soft)
    if certain is not None:
        soft[certain >= 0] = np.eye(soft.shape[1])[certain[certain >= 0]]
    known = soft.any(1)
    return ReportData(
        ann=ann,
        predicted=predicted,
        predicted_confidence=probabilities[np.arange(len(predicted)), predicted],
        fused=np.where(known, soft.argmax(1), -1),
        fused_confidence=np.where(known, soft.max(1), np.nan).astype(np.float64),
        quality=label_quality(
            ann, probabilities, classes=classifier.classes_, gold=_named(certain, ann.classes), out_of_fold=False
        ),
        has_training_gold=_is_certain(certain, ann),
        weights=weights,
        weights_vary=_vary(
            classifier.annotator_weights(inputs.take(np.arange(min(N_WEIGHT_CHECK_ITEMS, len(inputs)))))
        ),
        model=Model(classifier, inputs, np.arange(len(inputs))),
    )


def report_data_from_labels(
    ann: Annotations,
    *,
    certain: IntArray | None = None,
    predicted: IntArray | None = None,
    sure: FloatArray | None = None,
    fused: IntArray | None = None,
    fused_sure: FloatArray | None = None,
) -> ReportData:
    """The same without inputs: from labels alone, and what is on record of predictions and fused labels.

    What is not given is the consensus of the labels.
    """
    K = ann.n_classes
    found = label_quality(ann, np.full((ann.n_items, K), 1 / K), items=ann.items, gold=_named(certain, ann.classes))
    known = np.diff(ann.indptr) > 0
    best, confidence = (
        np.where(known, found.consensus_codes, -1),
        np.where(known, found.confidence, np.nan).astype(np.float64),
    )
    return ReportData(
        ann=found.annotations,
        predicted=best if predicted is None else predicted,
        predicted_confidence=confidence if sure is None else sure,
        fused=best if fused is None else fused,
        fused_confidence=confidence if fused_sure is None else fused_sure,
        quality=found,
        has_training_gold=_is_certain(certain, ann),
        weights=None,
        model=None,
    )


def add_available_inputs(
    look: ReportData, classifier: CrowdClassifier, inputs: Inputs, position: IntArray
) -> ReportData:
    """A look at records, with weights and a model for the rows whose inputs are there: at `position` (N,), else -1.

    Where the model says something else than what is on record, the inputs are not what they were, and do not count.
    """
    rows = np.flatnonzero(position >= 0)
    if not len(rows):
        return look
    part = compute_report_data(classifier, inputs.take(position[rows]), look.ann[rows])
    same = (part.predicted == look.predicted[rows]) & (
        np.abs(part.predicted_confidence - look.predicted_confidence[rows]) < PROBABILITY_TOLERANCE
    )
    position = position.copy()
    position[rows[~same]] = -1
    if not same.any() or part.weights is None:
        return look
    weights = np.full(look.ann.n_labels, np.nan, np.float32)
    weights[np.isin(look.ann.item, rows)] = part.weights
    weights[position[look.ann.item] < 0] = np.nan
    return replace(look, weights=weights, weights_vary=part.weights_vary, model=Model(classifier, inputs, position))


def report_data_from_aggregate(ann: Annotations, fused: Aggregate) -> ReportData:
    """Labels alone, as an aggregation sees them: what it found is fused label and consensus, and nobody predicts."""
    said = fused.class_probabilities.ravel()[ann.item * ann.n_classes + ann.label].astype(np.float64)
    known: dict[str, Any] = {field.name: getattr(fused, field.name) for field in fields(Aggregate)}
    return ReportData(
        ann=ann,
        predicted=np.full(ann.n_items, -1, np.int64),
        predicted_confidence=np.full(ann.n_items, np.nan),
        fused=fused.consensus_codes,
        fused_confidence=fused.confidence.astype(np.float64),
        quality=LabelQuality(**known, annotations=ann, label_confidence=said),
        has_training_gold=np.zeros(ann.n_items, bool),
        weights=None,
        model=None,
    )


def _vary(weights: NDArray[np.float32]) -> bool:
    """Whether weights (N, R) differ from item to item."""
    return bool(np.ptp(weights, axis=0).max() > PROBABILITY_TOLERANCE)


def _named(codes: IntArray | None, classes: NDArray[Any]) -> list[Any] | None:
    return None if codes is None else [classes[k] if k >= 0 else None for k in codes]


def _is_certain(codes: IntArray | None, ann: Annotations) -> NDArray[np.bool_]:
    return np.zeros(ann.n_items, bool) if codes is None else codes >= 0
