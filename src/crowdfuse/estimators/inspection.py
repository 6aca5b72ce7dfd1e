"""Looking inside a fitted classifier: whom it believes, on which item, and why."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse as scipy_sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils.validation import _check_feature_names, check_is_fitted
from torch import Tensor

from crowdfuse.functional import segment_softmax
from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.labels.alignment import align, gold_codes
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_names, positions_of
from crowdfuse.methods.base import Method
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.quality.label_quality import LabelQuality, label_quality
from crowdfuse.training.prediction import evaluation_blocks, predict_logits

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier
    from crowdfuse.report.run_report import Report

MAX_DENSE_BYTES = 2 * 10**9  # bytes


class Inspection:
    """What a fitted classifier tells, from its network and the names of classes and annotators."""

    method_: Method
    classes_: NDArray[Any]
    annotators_: NDArray[Any]
    input_shape_: tuple[int, ...]
    n_features_in_: int
    batch_size: int

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities (N, K), columns as in `classes_`."""
        check_is_fitted(self)
        probabilities: NDArray[np.float64] = softmax(self._logits(X).astype(np.float64), axis=1)
        return probabilities

    def annotator_weights(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None, sparse: bool = False
    ) -> Any:
        """How much each annotator counts on each item, (N, R), rows summing to 1.

        Over all annotators; or, given annotations, over those who labelled the item, 0 for the others
        (with `sparse`, a SciPy CSR array of just these). Annotators never seen in training have columns after those
        of `annotators_`, in the order in which the annotations name them.
        """
        inputs = self._inputs(X)
        if annotations is None:
            if sparse:
                raise ValueError("sparse=True needs annotations: the pairs to compute")
            self._refuse_huge(len(inputs) * len(self.annotators_) * 4, "annotator_weights(X, annotations, sparse=True)")
            scores = [self.method_.weight_logits(h, *self._every_pair(len(h))) for h in self._features(inputs)]
            return torch.cat(scores).view(-1, len(self.annotators_)).softmax(1).numpy()
        ann = self._known(align(annotations, len(inputs), items))
        shape = (len(inputs), ann.n_annotators)
        if not sparse:
            self._refuse_huge(shape[0] * shape[1] * 4, "annotator_weights(X, annotations, sparse=True)")
        method = self._method_for(ann)
        weights = [
            segment_softmax(method.weight_logits(h, batch.item, batch.annotator), batch.item, len(h))
            for batch, h in self._batches(inputs, ann)
        ]
        result = scipy_sparse.csr_array((torch.cat(weights).numpy(), ann.annotator, ann.indptr), shape=shape)
        return result if sparse else result.toarray()

    def confusion_matrices(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Confusion matrices (N, R, K, K), axes (..., true, said); `confusion_given_` says what is given.

        With annotations, those of the labelled pairs alone, (labels, K, K), in the order of the annotations.
        """
        n_classes = len(self.classes_)
        return self._of_pairs("confusion_matrices", "confusions", X, annotations, items, n_classes**2)

    def _of_pairs(
        self,
        name: str,
        question: str,
        X: Any,
        annotations: Any,
        items: ArrayLike | None,
        size: int = 1,
    ) -> NDArray[np.float32]:
        """What a method says of every pair, (N, R, ...), or of the labelled pairs, (labels, ...): `size` numbers each.

        `name` is what people call, `question` what the method calls it.
        """
        inputs = self._inputs(X)
        n_annotators = len(self.annotators_)
        if annotations is None:
            self._refuse_huge(len(inputs) * n_annotators * size * 4, f"{name}(X, annotations)")
            blocks = [getattr(self.method_, question)(h, *self._every_pair(len(h))) for h in self._features(inputs)]
            every = torch.cat(blocks)
            return every.view(-1, n_annotators, *every.shape[1:]).numpy()
        ann = self._known(align(annotations, len(inputs), items))
        self._refuse_huge(ann.n_labels * size * 4, "fewer items at a time")
        ask = getattr(self._method_for(ann), question)
        blocks = [ask(h, b.item, b.annotator) for b, h in self._batches(inputs, ann)]
        return torch.cat(blocks).numpy()

    @property
    def confusion_given_(self) -> str | None:
        """ "said": columns sum to 1, P(true | said). "true": rows sum to 1, P(said | true). None: no matrices."""
        check_is_fitted(self)
        return self.method_.confusion_given

    def fused_labels(self, X: Any, annotations: Any, *, items: ArrayLike | None = None) -> NDArray[np.float32]:
        """What the labels of each item amount to: class probabilities (N, K); NaN where no label counts.

        An annotator never seen in training is taken to be like the average one.
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items))
        method = self._method_for(ann)
        blocks = [method.fused(h, b.item, b.annotator, b.label) for b, h in self._batches(inputs, ann)]
        fused = torch.cat(blocks).numpy()
        fused[~fused.any(1)] = np.nan
        return fused

    def label_log_probabilities(
        self, X: Any, annotations: Any, *, items: ArrayLike | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, Annotations]:
        """What labels are judged by: class probabilities in logs (N, K); `log p(label | class)` of each label,
        (labels, K), where the method has a model of that, else None; and the labels as they were understood.
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items))
        method = self._method_for(ann)
        log_f, evidence = [], []
        for batch, h in self._batches(inputs, ann):
            log_f.append(method.class_logits(h).log_softmax(1))
            evidence.append(method.label_log_probabilities(h, batch.item, batch.annotator, batch.label))
        has_model = all(part is not None for part in evidence)
        told = torch.cat([part for part in evidence if part is not None]).double().numpy() if has_model else None
        return torch.cat(log_f).double().numpy(), told, ann

    def annotator_reliability(self, X: Any, annotations: Any, *, items: ArrayLike | None = None) -> NDArray[np.float64]:
        """The share of each annotator's labels that the classifier takes to be right, (R,); NaN without labels.

        A label is taken to be right where the classifier would have said the same. Annotators never seen in training
        come after those of `annotators_`.
        """
        predicted = self._logits(X).argmax(1)
        ann = self._known(align(annotations, len(predicted), items))
        count = np.bincount(ann.annotator, minlength=ann.n_annotators)
        believed = np.bincount(ann.annotator, weights=predicted[ann.item] == ann.label, minlength=ann.n_annotators)
        with np.errstate(invalid="ignore"):
            reliability: NDArray[np.float64] = believed / count
        return reliability

    def label_quality(
        self,
        X: Any,
        annotations: Any,
        *,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        folds: int | None = None,
    ) -> LabelQuality:
        """Consensus and confidence of each item, suspicion that each label is wrong, skill of each annotator.

        What `quality` makes of the labels and this classifier's probabilities. A model that was trained on these
        labels has learned some mistakes by heart, and suspects them less than it should. With `folds`, such as 5, the
        probabilities are out of fold: as many fresh copies of this classifier are trained on the labels, each without
        the items that it then judges. That takes `folds` trainings, and finds more. `gold`, as in `fit`, is certain.
        """
        inputs = self._inputs(X)
        ann = align(annotations, len(inputs), items)
        if folds is None:
            return label_quality(ann, self.predict_proba(X), classes=self.classes_, gold=gold, out_of_fold=False)
        return label_quality(ann, self._out_of_fold(inputs, ann, gold, folds), classes=self.classes_, gold=gold)

    def _out_of_fold(self, inputs: Inputs, ann: Annotations, gold: ArrayLike | None, folds: int) -> NDArray[np.float64]:
        if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= len(inputs):
            raise ValueError(f"folds must be a whole number from 2 to the {len(inputs):,} rows of X, got {folds!r}")
        ann = ann.with_classes(self.classes_)
        certain = None if gold is None else gold_codes(gold, self.classes_, len(inputs))
        probabilities = np.empty((len(inputs), len(self.classes_)))
        for kept, left_out in KFold(folds, shuffle=True, random_state=0).split(probabilities):
            copy = clone(self).set_params(checkpoint=None, verbose=0, classes=list(self.classes_))
            known = None if certain is None else [self.classes_[k] if k >= 0 else None for k in certain[kept]]
            copy.fit(inputs.take(kept), ann[kept], gold=known)
            probabilities[left_out] = copy.predict_proba(inputs.take(left_out))
        return probabilities

    def report(
        self,
        X: Any,
        annotations: Any,
        *,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        n_items: int = 30,
        sensitivity: float = 0.95,
        positive: Any = None,
        title: str | None = None,
    ) -> Report:
        """What the model makes of these labels, for people to look at; a notebook shows it by itself.

        Who the annotators are and where they fail, what is mixed up, what is in dispute, which labels are likely
        wrong; with `gold` (N,), None where unknown, how good the model is. `report.save("report.html")` writes one
        page that needs no network, and the same as Markdown and JSON.

        Parameters
        ----------
        n_items : disputed items that are shown, at most 200
        sensitivity, positive : of two classes, the share of the positive one, by itself the second, to be found

        >>> import crowdfuse
        >>> X, Y = np.eye(4).repeat(5, 0), np.arange(4).repeat(5)[:, None].repeat(2, 1)
        >>> crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y).report(X, Y)
        Report(20 items, 2 annotators, 40 labels; .save('report.html') writes it)
        """
        from crowdfuse.report.run_report import report_classifier

        return report_classifier(
            cast("CrowdClassifier", self),
            X,
            annotations,
            items=items,
            gold=gold,
            n_items=n_items,
            sensitivity=sensitivity,
            positive=positive,
            title=title,
        )

    # ---- from X to features and pairs ----------------------------------------------------------

    def _inputs(self, X: Any) -> Inputs:
        check_is_fitted(self)
        _check_feature_names(self, X, reset=False)
        inputs = check_inputs(X)
        if inputs.item_shape != self.input_shape_:
            raise ValueError(
                f"X has {int(np.prod(inputs.item_shape))} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input (rows of shape {inputs.item_shape} and {self.input_shape_})"
            )
        return inputs

    def _logits(self, X: Any) -> NDArray[np.float32]:
        return predict_logits(self.method_, self._inputs(X), "cpu", self.batch_size)

    def _features(self, inputs: Inputs) -> Iterator[Tensor]:
        with torch.inference_mode(), closing(inputs.stream(evaluation_blocks(len(inputs), self.batch_size))) as blocks:
            for x in blocks:
                yield self.method_.features(torch.from_numpy(x))

    def _batches(self, inputs: Inputs, ann: Annotations) -> Iterator[tuple[Batch, Tensor]]:
        """All rows with their labels, in order, and their features; all strangers are one annotator, the average."""
        n_rows = len(inputs)
        data = TrainingData(inputs, ann, np.full(n_rows, -1, np.int64), np.ones(n_rows, np.float32))
        with torch.inference_mode(), closing(data.stream(evaluation_blocks(n_rows, self.batch_size))) as stream:
            for batch in stream:
                batch = batch._replace(annotator=batch.annotator.clamp(max=len(self.annotators_)))
                yield batch, self.method_.features(batch.x)

    def _every_pair(self, n_items: int) -> tuple[Tensor, Tensor]:
        n_annotators = len(self.annotators_)
        pairs = torch.arange(n_items * n_annotators)
        return pairs // n_annotators, pairs % n_annotators

    def _method_for(self, ann: Annotations) -> Method:
        """The network, with an average annotator in it where the labels need one."""
        if ann.n_annotators == len(self.annotators_):
            return self.method_
        method = copy.deepcopy(self.method_)
        method.add_annotators(1)
        return method

    def _known(self, ann: Annotations, *, warn: bool = True) -> Annotations:
        """Labels in the positions of this model's classes and annotators; strangers come after these."""
        ann = ann.with_classes(self.classes_)
        position = positions_of(ann.annotators, self.annotators_)
        count = np.bincount(ann.annotator, minlength=ann.n_annotators)
        strange = np.flatnonzero((position < 0) & (count > 0))
        position[strange] = len(self.annotators_) + np.arange(len(strange))
        annotators = self.annotators_
        if len(strange) and warn:
            labels = format_count(int(count[strange].sum()), "label")
            warnings.warn(
                f"{format_count(len(strange), 'annotator')} with {labels} never seen in training, taken to be like the "
                f"average annotator: {format_names(ann.annotators[strange])}",
                stacklevel=4,
            )
        if len(strange):
            annotators = np.concatenate([annotators, ann.annotators[strange]], dtype=object)
        return Annotations(
            indptr=ann.indptr,
            annotator=position[ann.annotator].astype(np.int32),
            label=ann.label,
            items=ann.items,
            annotators=annotators,
            classes=ann.classes,
            by_row=ann.by_row,
        )

    def _refuse_huge(self, size: int, instead: str) -> None:
        if size > MAX_DENSE_BYTES:
            raise ValueError(f"the result would take {size / 1e9:.1f} GB; ask for {instead}")
