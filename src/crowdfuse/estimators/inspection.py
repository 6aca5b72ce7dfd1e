"""Public methods that show what a fitted classifier has learned: probabilities, annotators, labels, consensus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse as scipy_sparse
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from crowdfuse.estimators.cross_fitting import OutOfFold, combine, cross_fit
from crowdfuse.estimators.fitted_network import FittedNetwork
from crowdfuse.functional import segment_softmax
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.alignment import align, gold_codes
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.folds import check_folds
from crowdfuse.labels.ids import IntArray
from crowdfuse.quality.consensus import Consensus
from crowdfuse.training.joined_blocks import JoinedBlocks

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier
    from crowdfuse.report import Report

NO_GOLD = (
    "The classifier was trained with gold labels, but this consensus does not use them. To use them, pass the argument "
    "gold."
)


class LabelLogProbabilities(NamedTuple):
    """Log-probabilities of classes and labels; see `CrowdClassifier.label_log_probabilities`.

    Attributes
    ----------
    class_log_probabilities : ndarray of shape (n_items, n_classes)
        Logarithm of the classifier's probability of each class.
    label_log_probabilities : ndarray of shape (n_labels, n_classes) or None
        For each label and class, `log P(label | class)`. None if the learning method does not model this probability.
    annotations : Annotations
        The labels, with items in the order of the rows of X. Annotators that were not in the training data come last.
    """

    class_log_probabilities: NDArray[np.float64]
    label_log_probabilities: NDArray[np.float64] | None
    annotations: Annotations


class LabelledPredictions(NamedTuple):
    """Predictions for items together with their labels; see `CrowdClassifier.predict_with_labels`.

    Attributes
    ----------
    annotations : Annotations
        The labels, with items in the order of the rows of X. Annotators that were not in the training data come last.
    class_probabilities : ndarray of shape (n_items, n_classes)
        Class probabilities from the inputs alone; the same as `predict_proba()` returns.
    fused_labels : ndarray of shape (n_items, n_classes)
        Class probabilities from the labels; the same as `fused_labels()` returns. NaN for items without labels.
    annotator_weights : ndarray of shape (n_labels,)
        For each label, the weight of its annotator on its item; see `annotator_weights`.
    """

    annotations: Annotations
    class_probabilities: NDArray[np.float64]
    fused_labels: NDArray[np.float32]
    annotator_weights: NDArray[np.float32]


class Inspection(FittedNetwork):
    """Methods of a fitted classifier: predictions, annotator weights, confusion matrices, consensus and report."""

    estimates_item_accuracy: ClassVar[bool] = False
    """Whether `annotator_accuracy_per_item()` is available."""
    cross_fits_itself: ClassVar[bool] = False
    """Whether `fit` itself trains networks on folds of the items. If True, `consensus()` needs no further training."""

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities from the inputs alone.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...), or list of str
            Inputs of the kind and shape seen in `fit`.

        Returns
        -------
        probabilities : ndarray of shape (n_items, n_classes)
            Probability of each class. Columns are in the order of `classes_`; rows sum to 1.

        See Also
        --------
        predict : The most probable class.
        fused_labels : Class probabilities that use the labels of the items.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(2, 1)
        >>> crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y).predict_proba(X).shape
        (20, 2)
        """
        check_is_fitted(self)
        probabilities: NDArray[np.float64] = softmax(self._logits(X).astype(np.float64), axis=1)
        return probabilities

    def annotator_weights(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None, sparse: bool = False
    ) -> Any:
        """Return the weight of each annotator on each item.

        The documentation of a classifier says what its weights mean. If it does not mention weights, the classifier
        estimates no weights and gives all annotators the same weight.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators), default=None
            Labels of the items. If given, the weights of an item sum to 1 over the annotators who labelled this item,
            and all other annotators have weight 0. If None, the weights of an item sum to 1 over all annotators in
            `annotators_`.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.
        sparse : bool, default=False
            Whether to return a SciPy CSR array. It stores only the pairs (item, annotator) that have a label. Requires
            `annotations`.

        Returns
        -------
        weights : ndarray or csr_array of shape (n_items, n_annotators)
            Rows sum to 1. If `annotations` are given, rows are all 0 for items without labels, and, for
            `SingleAnnotatorClassifier`, for items without a label of its annotator. Columns are in the order of
            `annotators_`. Annotators that were not in the training data come last.

        Raises
        ------
        ValueError
            If `sparse` is True but `annotations` is None, or if the dense result would take more than 2 GB.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(2, 1)
        >>> crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y).annotator_weights(X)[0]
        array([0.5, 0.5], dtype=float32)
        """
        inputs = self._inputs(X)
        if annotations is None:
            if sparse:
                raise ValueError(
                    "sparse=True needs the argument annotations, because a sparse result stores only the pairs (item, "
                    "annotator) that have a label"
                )
            self._refuse_huge(len(inputs) * len(self.annotators_) * 4, "annotator_weights(X, annotations, sparse=True)")
            scores = JoinedBlocks(len(inputs) * len(self.annotators_))
            for h in self._features(inputs):
                scores.append(self.method_.weight_logits(h, *self._every_pair(len(h))))
            return torch.from_numpy(scores.rows).view(-1, len(self.annotators_)).softmax(1).numpy()
        ann = self._known(align(annotations, len(inputs), items))
        shape = (len(inputs), ann.n_annotators)
        if not sparse:
            self._refuse_huge(shape[0] * shape[1] * 4, "annotator_weights(X, annotations, sparse=True)")
        method = self._method_for(ann)
        weights = JoinedBlocks(ann.n_labels)
        for batch, h in self._batches(inputs, ann):
            weights.append(segment_softmax(method.weight_logits(h, batch.item, batch.annotator), batch.item, len(h)))
        result = scipy_sparse.csr_array((weights.rows, ann.annotator, ann.indptr), shape=shape)
        return result if sparse else result.toarray()

    def confusion_matrices(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return the confusion matrix of each annotator on each item.

        Rows are true classes, and columns are labels of the annotator. The attribute `confusion_given_` says which of
        them sum to 1: rows if it is "true", columns if it is "said".

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators), default=None
            If given, matrices are computed only for pairs (item, annotator) that have a label.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        matrices : ndarray of shape (n_items, n_annotators, n_classes, n_classes) or (n_labels, n_classes, n_classes)
            The last two axes are (true class, annotator's label). If `annotations` is None, one matrix per item and
            annotator. Otherwise, one matrix per label: first the labels of the first row of X, then those of the second
            row, and so on.

        Raises
        ------
        TypeError
            If the learning method has no confusion matrices.
        ValueError
            If the result would take more than 2 GB.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(3, 1)
        >>> clf = crowdfuse.FusionClassifier(epochs=2).fit(X, Y)
        >>> clf.confusion_matrices(X).shape, clf.confusion_matrices(X, Y).shape
        ((20, 3, 2, 2), (60, 2, 2))
        """
        return self._values_of_pairs(
            lambda method: method.confusions,
            X,
            annotations,
            items,
            caller="confusion_matrices",
            values_per_pair=len(self.classes_) ** 2,
        )

    def annotator_accuracy_per_item(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return the probability that each annotator is right on each item.

        Only some classifiers estimate this probability; their class attribute `estimates_item_accuracy` is True.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators), default=None
            If given, accuracies are computed only for pairs (item, annotator) that have a label.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        accuracy : ndarray of shape (n_items, n_annotators) or (n_labels,)
            If `annotations` is None, one probability per item and annotator. Otherwise, one probability per label:
            first the labels of the first row of X, then those of the second row, and so on.

        Raises
        ------
        TypeError
            If the classifier does not estimate accuracies per item.

        See Also
        --------
        consensus : Estimates one accuracy per annotator, with an interval; available for every classifier.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> crowdfuse.GatedClassifier.estimates_item_accuracy, crowdfuse.MBEMClassifier.estimates_item_accuracy
        (True, False)
        """
        raise TypeError(
            f"{type(self).__name__} does not estimate the accuracy of annotators on each item; use GatedClassifier. "
            "For one accuracy per annotator, use consensus(X, annotations).annotator_accuracy"
        )

    @property
    def confusion_given_(self) -> str | None:
        """What the probabilities in the confusion matrices are conditioned on: true class or annotator's label.

        Returns
        -------
        given : {"said", "true"} or None
            "said": the entries are P(true class | annotator's label), and columns sum to 1. "true": the entries are
            P(annotator's label | true class), and rows sum to 1. None if the learning method has no confusion matrices.
        """
        check_is_fitted(self)
        return self.method_.confusion_given

    def fused_labels(self, X: Any, annotations: Any, *, items: ArrayLike | None = None) -> NDArray[np.float32]:
        """Combine the labels of each item into class probabilities, the fused label of the item.

        The documentation of a classifier says how it computes fused labels. If it does not mention them, the fused
        label is the mean of the item's labels, weighted as in `annotator_weights()`.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators)
            Labels to combine. Annotators that were not in the training data are treated like the average annotator, and
            a warning lists them.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        fused : ndarray of shape (n_items, n_classes)
            Class probabilities. NaN for items without labels, and for items whose labels the learning method ignores.

        See Also
        --------
        consensus : The recommended class of each item, computed from the labels and the classifier.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(2, 1)
        >>> crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y).fused_labels(X, Y)[0]
        array([1., 0.], dtype=float32)
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items))
        method = self._method_for(ann)
        fused = JoinedBlocks(len(inputs))
        for batch, h in self._batches(inputs, ann):
            fused.append(method.fused(h, batch.item, batch.annotator, batch.label))
        fused.rows[~fused.rows.any(1)] = np.nan
        return fused.rows

    def predict_with_labels(
        self, X: Any, annotations: Any, *, items: ArrayLike | None = None, warn: bool = True
    ) -> LabelledPredictions:
        """Compute predictions, fused labels and annotator weights in one pass over the inputs.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators)
            The labels of the items.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.
        warn : bool, default=True
            Whether to warn if annotators were not in the training data.

        Returns
        -------
        predictions : LabelledPredictions
            Named tuple (annotations, class_probabilities, fused_labels, annotator_weights). `annotations` holds the
            labels in the order of the rows of X. `class_probabilities` and `fused_labels` have the shape (n_items,
            n_classes). `annotator_weights` has the shape (n_labels,).

        See Also
        --------
        predict_proba, fused_labels, annotator_weights : Each of these results alone.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(2, 1)
        >>> result = crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y).predict_with_labels(X, Y)
        >>> result.class_probabilities.shape, result.fused_labels.shape, result.annotator_weights.shape
        ((20, 2), (20, 2), (40,))
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items), warn=warn)
        method = self._method_for(ann)
        logits, fused, weights = JoinedBlocks(len(inputs)), JoinedBlocks(len(inputs)), JoinedBlocks(ann.n_labels)
        for batch, h in self._batches(inputs, ann):
            logits.append(self.method_.class_logits(h))
            fused.append(method.fused(h, batch.item, batch.annotator, batch.label))
            weights.append(segment_softmax(method.weight_logits(h, batch.item, batch.annotator), batch.item, len(h)))
        fused.rows[~fused.rows.any(1)] = np.nan
        probabilities: NDArray[np.float64] = softmax(logits.rows.astype(np.float64), axis=1)
        return LabelledPredictions(ann, probabilities, fused.rows, weights.rows)

    def label_log_probabilities(
        self, X: Any, annotations: Any, *, items: ArrayLike | None = None
    ) -> LabelLogProbabilities:
        """Return log-probabilities of classes and labels, from which the likelihood of the labels can be computed.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators)
            The labels.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        log_probabilities : LabelLogProbabilities
            Named tuple (class_log_probabilities, label_log_probabilities, annotations). `class_log_probabilities` holds
            log P(class | input) and has the shape (n_items, n_classes). `label_log_probabilities` holds log P(label |
            class) and has the shape (n_labels, n_classes); it is None if the learning method does not model P(label |
            class). `annotations` holds the labels in the order of the rows of X.

        See Also
        --------
        crowdfuse.label_likelihood : Mean log-likelihood of labels, used to choose between classifiers without gold.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(2, 1)
        >>> found = crowdfuse.GatedClassifier(epochs=4).fit(X, Y).label_log_probabilities(X, Y)
        >>> found.class_log_probabilities.shape, found.label_log_probabilities.shape
        ((20, 2), (40, 2))
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items))
        method = self._method_for(ann)
        of_classes, of_labels, has_model = JoinedBlocks(len(inputs)), JoinedBlocks(ann.n_labels), True
        for batch, h in self._batches(inputs, ann):
            of_classes.append(method.class_logits(h).log_softmax(1))
            values = method.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
            has_model = values is not None
            if values is not None:
                of_labels.append(values)
        return LabelLogProbabilities(
            of_classes.rows.astype(np.float64), of_labels.rows.astype(np.float64) if has_model else None, ann
        )

    def consensus(
        self,
        X: Any,
        annotations: Any,
        *,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        folds: int = 5,
    ) -> Consensus:
        """Estimate the class of each item and the accuracy of each annotator from labels, this classifier and gold.

        The labels are combined with predictions for the same items. A classifier that predicts its own training items
        repeats wrong labels that it has memorized. Therefore, the predictions are out-of-fold: the items are split into
        folds, and the items of each fold are predicted by a fresh copy of this classifier that was trained on the other
        folds. `crowdfuse.consensus` describes how labels and predictions are combined.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators)
            The labels to combine.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.
        gold : array-like of shape (n_items,), default=None
            Name of the true class of each item; None or NaN if unknown. Known classes are treated as certain. The
            copies of the classifier also use these classes in training, as if they were passed to `fit`. None: if X is
            the same as in `fit`, the gold labels that were passed to `fit`; otherwise no gold labels. These gold labels
            are not saved with a model, so they are not available after `crowdfuse.load`.
        folds : int, default=5
            Number of folds; one copy of the classifier is trained per fold. If 0, no copy is trained. This fitted
            classifier then predicts all items, and the attribute `limitations` of the result warns that the confidence
            is too high.

        Returns
        -------
        result : Consensus
            Per item: class probabilities, the consensus (the most probable class) and the confidence (the probability
            of this class). Per label: the suspicion, which is the probability that the label is wrong. Per annotator:
            accuracy with a 95 % interval, and a confusion matrix.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C interrupts the training of a copy.
        ValueError
            If `folds` is negative, 1 or not an integer.

        See Also
        --------
        crowdfuse.consensus : Computes the consensus from labels and the probabilities of any classifier.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, y = np.eye(2).repeat(50, 0), np.arange(2).repeat(50)
        >>> Y = y[:, None].repeat(3, 1)
        >>> Y[7, 1] = 1  # one mistake
        >>> result = crowdfuse.MajorityVoteClassifier(epochs=20).fit(X, Y).consensus(X, Y, folds=2)
        >>> result.suspicion.argmax()  # the label of item 7 by annotator 1: 7 * 3 + 1
        np.int64(22)
        """
        folds = check_folds(folds)
        inputs = self._inputs(X)
        ann = align(annotations, len(inputs), items)
        if gold is None:
            gold = self._gold_from_fit(inputs)
        codes = None if gold is None else gold_codes(gold, self.classes_, len(inputs))
        found = self._out_of_fold(inputs, ann, codes, folds)
        if found is None:
            raise KeyboardInterrupt
        if gold is None and "training" in self.gold_used_for_:
            found = found._replace(limitations=(*found.limitations, NO_GOLD))
        return combine(cast("CrowdClassifier", self), inputs, ann, found, gold)

    def _gold_from_fit(self, inputs: Inputs) -> list[Any] | None:
        """Return the gold labels that `fit` was called with for these inputs, by name; None if there are none."""
        fingerprint, codes = getattr(self, "_gold_of_fit", None) or (None, None)
        if codes is None or fingerprint != inputs.fingerprint:
            return None
        return [self.classes_[code] if code >= 0 else None for code in codes]

    def _out_of_fold(
        self,
        inputs: Inputs,
        ann: Annotations,
        gold: IntArray | None,
        folds: int,
        *,
        validation: Any = None,
        folder: Path | None = None,
        labels: Annotations | None = None,
    ) -> OutOfFold | None:
        """Return out-of-fold predictions, or predictions of this classifier if `folds` is 0; None if interrupted.

        A classifier that cross-fits in its own training overrides `_out_of_fold()` and returns the predictions of its
        own folds, so that folds are never nested. The parameters are the same as in `cross_fit`.
        """
        return cross_fit(
            cast("CrowdClassifier", self),
            inputs,
            ann,
            gold=gold,
            validation=validation,
            folds=folds,
            folder=folder,
            labels=labels,
        )

    def report(
        self,
        X: Any,
        annotations: Any,
        *,
        items: ArrayLike | None = None,
        gold: Any = None,
        consensus: Consensus | None = None,
        folds: int = 5,
        n_items: int = 30,
        sensitivity: float = 0.95,
        positive: Any = None,
        title: str | None = None,
    ) -> Report:
        """Make a report on this model and these labels: an HTML page, which notebooks display.

        The report shows the accuracy and the weaknesses of each annotator, confused classes, disputed items, and labels
        that are probably wrong. These results come from `consensus()`. If gold is given, the report also evaluates the
        model and the consensus. `report.save("report.html")` writes a page that needs no network access, and the same
        content as Markdown and JSON.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators)
            The labels to report on.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.
        gold : array-like of shape (n_items,), or data frame, default=None
            Name of the true class of each item; None or NaN if unknown. A data frame must have the columns item and
            label; it need not contain all items. Gold is used only to evaluate the model and the consensus. The report
            assumes that the model was trained on all items that have labels. For these items, it evaluates the
            out-of-fold predictions from `consensus()` instead of the predictions of the model itself. To evaluate the
            model itself on new items that have labels, use `score`.
        consensus : Consensus, default=None
            Result of `consensus(X, annotations, items=items)`, if you have already computed it. None: `report` computes
            it.
        folds : int, default=5
            Number of folds used to compute the consensus; one copy of this classifier is trained per fold. Not used if
            `consensus` is given.
        n_items : int, default=30
            Number of disputed items to show, at most 200.
        sensitivity : float, default=0.95
            Fraction of the items of the positive class that should be found (recall). The report suggests a threshold
            on the probability of the positive class that reaches this fraction. Used only if there are two classes and
            gold is given.
        positive : object, default=None
            Name of the positive class. None: the second of `classes_`. Used only if there are two classes.
        title : str, default=None
            Title of the page. None: a title with the name of the learning method.

        Returns
        -------
        report : Report
            Object with `save`, `to_html`, `to_markdown` and `to_json`.

        Raises
        ------
        ValueError
            If `consensus` was computed from other items, classes or labels than `annotations`, or if a setting is out
            of range.

        See Also
        --------
        consensus : Computes the numbers of the report.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(4).repeat(5, 0), np.arange(4).repeat(5)[:, None].repeat(2, 1)
        >>> crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y).report(X, Y, folds=2)
        Report(20 items, 2 annotators, 40 labels; .save('report.html') writes it)
        """
        from crowdfuse.report import report_classifier

        return report_classifier(
            cast("CrowdClassifier", self),
            X,
            annotations,
            items=items,
            gold=gold,
            consensus=consensus,
            folds=folds,
            n_items=n_items,
            sensitivity=sensitivity,
            positive=positive,
            title=title,
        )
