"""Turn the `validation=` argument of `fit` into training data and the data used to choose the best epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from crowdfuse.checks.choices import check_choice
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.alignment import align, gold_codes, labels_as_given, refuse_items
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import hold_out_labels
from crowdfuse.methods.data import TrainingData
from crowdfuse.training.validation import AgreementValidation, GoldValidation, HeldOutLabelValidation, Validation

InputReader = Callable[[Any], Inputs]
"""Turns validation inputs of the user into numbers, in the same way as the training inputs."""

LabelSelection = Callable[[Annotations], Annotations]
"""Selects the labels that predictions are compared with if validation has no gold."""


def make_validation(
    validation: Any, data: TrainingData, seed: int, select_labels: LabelSelection, read_inputs: InputReader
) -> tuple[TrainingData, Validation | None]:
    """Return the data to train on and the validation that chooses the epoch; see `CrowdClassifier.fit`."""
    if validation is None:
        return data, None
    if isinstance(validation, str):
        check_choice("validation", validation, ("annotations",))
        return _hold_out_labels(data, seed, select_labels)
    if isinstance(validation, float):
        return _hold_out_items(validation, data, seed, select_labels)
    if not isinstance(validation, tuple) or len(validation) not in (2, 3):
        raise ValueError(
            "validation must be (X, gold), (X, Annotations), (X, Annotations, items), a fraction of the items such as "
            f"0.1, or 'annotations', got {type(validation).__name__}"
        )
    return data, _from_other_items(validation, data, select_labels, read_inputs)


def _from_other_items(
    validation: tuple[Any, ...], data: TrainingData, select_labels: LabelSelection, read_inputs: InputReader
) -> Validation:
    """Return a validation on separate items, with gold or with labels."""
    inputs = read_inputs(validation[0])
    if inputs.item_shape != data.inputs.item_shape:
        raise ValueError(
            f"each validation input has shape {inputs.item_shape}, but each row of X has shape "
            f"{data.inputs.item_shape}; the shapes must be the same"
        )
    items = validation[2] if len(validation) == 3 else None
    reference = labels_as_given(validation[1])
    classes = data.annotations.classes
    if isinstance(reference, np.ndarray) and reference.ndim == 2 and reference.shape[1] == 1:
        raise ValueError(
            "validation labels with a single column may be gold or the labels of one annotator; pass gold as a 1-D "
            "array, and the labels of one annotator as Annotations"
        )
    if reference.ndim == 2:
        labels = select_labels(align(reference, len(inputs), items)).with_classes(classes)
        if not labels.n_labels:
            raise ValueError(
                "the validation items have no labels to compare predictions with; "
                "leave out validation, or pass labelled items"
            )
        return AgreementValidation(inputs, labels)
    refuse_items(items)
    gold = gold_codes(validation[1], classes, len(inputs), "validation gold")
    if (gold < 0).any():
        raise ValueError(
            f"{int((gold < 0).sum()):,} validation items have no gold label; remove these items from the "
            "validation data"
        )
    return GoldValidation(inputs, gold)


def _hold_out_items(
    share: float, data: TrainingData, seed: int, select_labels: LabelSelection
) -> tuple[TrainingData, Validation]:
    """Keep a fraction of the labelled items out of training; their labels choose the epoch."""
    reference = select_labels(data.annotations)
    labelled = np.flatnonzero(np.diff(reference.indptr) > 0)
    count = round(share * len(labelled))
    if not 0 < share < 1 or not 0 < count < len(labelled):
        raise ValueError(
            f"validation={share} must leave items for training and for validation, but would hold out {count:,} of the "
            f"{len(labelled):,} labelled items; choose another fraction between 0 and 1"
        )
    rows = np.sort(np.random.default_rng([seed, 2]).permutation(labelled)[:count])
    weight = data.weight.copy()
    weight[rows] = 0
    return replace(data, weight=weight), AgreementValidation(data.inputs.take(rows), reference[rows])


def _hold_out_labels(
    data: TrainingData, seed: int, select_labels: LabelSelection
) -> tuple[TrainingData, Validation | None]:
    """Keep some labels of items with several labels out of training; their likelihood chooses the epoch."""
    has_several = np.diff(select_labels(data.annotations).indptr) > 1
    kept, held_out = hold_out_labels(data.annotations, has_several & (data.weight > 0), seed)
    if held_out is None:
        raise ValueError(
            "validation='annotations' holds out labels of items that have several labels, but no item has two labels. "
            "Instead, hold out a fraction of the items, such as validation=0.1, or pass validation=(X, gold)"
        )
    return replace(data, annotations=kept), HeldOutLabelValidation(data.inputs.take(held_out.rows), held_out)
