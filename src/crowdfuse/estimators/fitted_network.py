"""Query a fitted network: from raw X and labels to features, batches and values of (item, annotator) pairs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_feature_names, check_is_fitted
from torch import Tensor

from crowdfuse.encoders import Encoder, apply_encoder, check_raw_inputs
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.alignment import align
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_names, positions_of
from crowdfuse.methods.base import Method
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.training.joined_blocks import JoinedBlocks
from crowdfuse.training.prediction import evaluation_blocks, predict_logits

MAX_DENSE_BYTES = 2 * 10**9

PairFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes features (B, D), and for L pairs the items (L,) and the annotators (L,). Returns values (L, ...)."""


class FittedNetwork:
    """Fitted attributes of a classifier, and the private methods that its public methods share."""

    method_: Method
    encoder_: Encoder | None
    classes_: NDArray[Any]
    gold_used_for_: str
    annotators_: NDArray[Any]
    input_shape_: tuple[int, ...]
    n_features_in_: int
    batch_size: int

    def _inputs(self, X: Any) -> Inputs:
        """Return X as inputs, checked against the shape seen in training."""
        check_is_fitted(self)
        _check_feature_names(self, X, reset=False)
        inputs = apply_encoder(self.encoder_, check_raw_inputs(X))
        if inputs.item_shape != self.input_shape_:
            raise ValueError(
                f"X has {int(np.prod(inputs.item_shape))} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input (rows of shape {inputs.item_shape} instead of "
                f"{self.input_shape_})"
            )
        return inputs

    def _logits(self, X: Any) -> NDArray[np.float32]:
        """Return class logits of shape (n_items, n_classes)."""
        return predict_logits(self.method_, self._inputs(X), "cpu", self.batch_size)

    def _features(self, inputs: Inputs) -> Iterator[Tensor]:
        """Yield the features of all rows, in blocks."""
        with torch.inference_mode(), closing(inputs.stream(evaluation_blocks(len(inputs), self.batch_size))) as blocks:
            for x in blocks:
                yield self.method_.features(torch.from_numpy(x))

    def _batches(self, inputs: Inputs, ann: Annotations) -> Iterator[tuple[Batch, Tensor]]:
        """Yield all rows in order, with their labels and features.

        All annotators that the network does not know get the same position, the one after the known annotators. It
        stands for the average annotator.
        """
        n_rows = len(inputs)
        data = TrainingData(inputs, ann, np.full(n_rows, -1, np.int64), np.ones(n_rows, np.float32))
        with torch.inference_mode(), closing(data.stream(evaluation_blocks(n_rows, self.batch_size))) as stream:
            for batch in stream:
                batch = batch._replace(annotator=batch.annotator.clamp(max=len(self.annotators_)))
                yield batch, self.method_.features(batch.x)

    def _every_pair(self, n_items: int) -> tuple[Tensor, Tensor]:
        """Return item and annotator of all n_items x n_annotators pairs."""
        n_annotators = len(self.annotators_)
        pairs = torch.arange(n_items * n_annotators)
        return pairs // n_annotators, pairs % n_annotators

    def _values_of_pairs(
        self,
        pair_function: Callable[[Method], PairFunction],
        X: Any,
        annotations: Any,
        items: ArrayLike | None,
        *,
        caller: str,
        values_per_pair: int = 1,
    ) -> NDArray[np.float32]:
        """Return values of all pairs, (n_items, n_annotators, ...), or of the labelled pairs, (n_labels, ...).

        `pair_function` takes the network (or a copy with an average annotator) and returns the function that computes
        the values. `caller` is the name of the public method; the error message shows it if the result would be too
        large.
        """
        inputs = self._inputs(X)
        n_annotators = len(self.annotators_)
        if annotations is None:
            self._refuse_huge(len(inputs) * n_annotators * values_per_pair * 4, f"{caller}(X, annotations)")
            values_of = pair_function(self.method_)
            every = JoinedBlocks(len(inputs) * n_annotators)
            for h in self._features(inputs):
                every.append(values_of(h, *self._every_pair(len(h))))
            return every.rows.reshape(-1, n_annotators, *every.rows.shape[1:])
        ann = self._known(align(annotations, len(inputs), items))
        self._refuse_huge(ann.n_labels * values_per_pair * 4, "fewer items at a time")
        values_of = pair_function(self._method_for(ann))
        values = JoinedBlocks(ann.n_labels)
        for batch, h in self._batches(inputs, ann):
            values.append(values_of(h, batch.item, batch.annotator))
        return values.rows

    def _method_for(self, ann: Annotations) -> Method:
        """Return the network, with an average annotator added if the labels need one."""
        if ann.n_annotators == len(self.annotators_):
            return self.method_
        method = copy.deepcopy(self.method_)
        method.add_annotators(1)
        return method

    def _known(self, ann: Annotations, *, warn: bool = True) -> Annotations:
        """Return the labels with the positions of classes and annotators in this model; new annotators come last."""
        ann = ann.with_classes(self.classes_)
        position = positions_of(ann.annotators, self.annotators_)
        count = np.bincount(ann.annotator, minlength=ann.n_annotators)
        unknown = np.flatnonzero((position < 0) & (count > 0))
        position[unknown] = len(self.annotators_) + np.arange(len(unknown))
        annotators = self.annotators_
        if len(unknown) and warn:
            labels = format_count(int(count[unknown].sum()), "label")
            warnings.warn(
                f"the labels include {labels} by {format_count(len(unknown), 'annotator')} never seen in training: "
                f"{format_names(ann.annotators[unknown])}. New annotators are treated like the average annotator",
                stacklevel=4,
            )
        if len(unknown):
            annotators = np.concatenate([annotators, ann.annotators[unknown]], dtype=object)
        return Annotations(
            indptr=ann.indptr,
            annotator=position[ann.annotator].astype(np.int32),
            label=ann.label,
            items=ann.items,
            annotators=annotators,
            classes=ann.classes,
            by_row=ann.by_row,
        )

    def _refuse_huge(self, n_bytes: int, alternative: str) -> None:
        """Raise an error if a dense result would take more than MAX_DENSE_BYTES; the message gives an alternative."""
        if n_bytes > MAX_DENSE_BYTES:
            raise ValueError(
                f"the result would take {n_bytes / 1e9:.1f} GB, and the limit is {MAX_DENSE_BYTES / 1e9:.1f} GB; "
                f"use {alternative}"
            )
