"""The consensus of labels and a classifier: a class per item, an accuracy per annotator, a suspicion per label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.aggregation.posterior import (
    MAX_SHARPNESS,
    PosteriorFit,
    fit_posterior,
    fix_certain,
    gates_of_labels,
    log_with_uniform,
)
from crowdfuse.aggregation.result import Aggregate, most_likely
from crowdfuse.aggregation.votes import FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.alignment import align, gold_codes
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_count, format_names, normalize_ids, positions_of
from crowdfuse.quality.annotator_accuracy import accuracy_with_interval
from crowdfuse.quality.confidence_discount import discount_temperature, error_dependence, temper
from crowdfuse.quality.diagnostics import diagnose
from crowdfuse.quality.findings import Finding
from crowdfuse.quality.label_weights import mean_relative_weights

ROW_SUM_TOLERANCE = 1e-3  # accepted distance of the sum of a row of probabilities from 1
NO_CROSS_FITTING = (
    "The classifier was trained on these labels (no cross-fitting), so it repeats mistakes that it has memorized: the "
    "confidence is too high, and some wrong labels are not found. Cross-fitting with 2 or more folds avoids this."
)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Consensus(Aggregate):
    """The consensus of labels, classifier and gold: class probabilities per item and accuracy per annotator.

    Gold means trusted true classes. `crowdfuse.consensus` and the method `consensus()` of a classifier
    return this object. `crowdfuse fit` stores it in the run folder, and the report, the review page and the CSV files
    of the run show its numbers.

    Attributes
    ----------
    method : str
        "consensus".
    items : ndarray of shape (n_items,)
        Ids of the items, in the order of the rows of the inputs.
    classes : ndarray of shape (n_classes,)
        Names of the classes.
    annotators : ndarray of shape (n_annotators,)
        Names of the annotators.
    class_probabilities : ndarray of shape (n_items, n_classes)
        Probability of each class given the labels, the classifier and gold. Items with neither labels nor gold have the
        calibrated probabilities of the classifier.
    consensus_codes : ndarray of shape (n_items,)
        The most probable class, as a position in `classes`.
    annotator_accuracy : ndarray of shape (n_annotators,)
        Estimated share of each annotator's labels that are right. NaN for annotators without labels. If the labels do
        not allow an estimate, all values are NaN, and `limitations` says why.
    annotator_accuracy_interval : ndarray of shape (n_annotators, 2)
        Lower and upper end of the 95 % interval of each accuracy.
    labels_per_item : ndarray of shape (n_items,)
        Number of labels of each item.
    labels_per_annotator : ndarray of shape (n_annotators,)
        Number of labels of each annotator.
    confusion_matrices : ndarray of shape (n_annotators, n_classes, n_classes) or None
        P(annotator's label | true class), with axes (annotator, true class, annotator's label). The fewer labels an
        annotator has, the closer the matrix is to the matrix of the average annotator. None if the matrices would take
        more than 256 MB.
    parameters : mapping of str to ndarray
        Fitted parameters of the model; all but `class_bias` are scalars.

        - `sharpness` and `class_bias` (n_classes,) calibrate the classifier's probabilities. If `sharpness` is 0, the
          classifier is ignored.
        - `gate_weight` is the fitted weight of `right_probability`, an argument of `crowdfuse.consensus`.
        - `same_mistake_share` is the estimated share of items with a common mistake. On such an item, all annotators
          who are wrong give the same wrong label.
        - `error_dependence` measures how strongly the annotators' mistakes depend on the input.
        - `temperature` is the power to which class probabilities are raised before they are normalized. 1 means no
          change. If `error_dependence` is high, `temperature` is below 1, which lowers the confidence.
    log_likelihood : tuple of float
        A tuple with one number: the log-likelihood of the labels under the fitted model.
    converged : bool
        Whether EM converged.
    annotations : Annotations
        The labels, with items in the order of the rows of the inputs.
    label_confidence : ndarray of shape (n_labels,)
        Probability that each label is right, in the order of `annotations`.
    predicted_probabilities : ndarray of shape (n_items, n_classes) or None
        Class probabilities that the classifier predicts from the inputs alone. None if there is no classifier.
    out_of_fold_probabilities : ndarray of shape (n_items, n_classes) or None
        The classifier's probabilities from which the consensus was computed, before calibration. Each item was
        predicted by a copy of the classifier that was not trained on it (unless `n_folds` is 0). None if there is no
        classifier.
    gold_codes : ndarray of shape (n_items,) or None
        Gold class of each item, as a position in `classes`; -1 for items without gold. None if no gold was given.
    n_folds : int or None
        Number of folds with which `out_of_fold_probabilities` were computed. 0 if the classifier was trained on the
        same items that it predicted. None if the number is unknown.
    label_weights : ndarray of shape (n_labels,) or None
        Weight that the classifier gives to each label (see `CrowdClassifier.annotator_weights`), in the order of
        `annotations`. The weights of an item sum to 1. The consensus does not use these weights. None if the weights
        are unknown, for example if `crowdfuse.consensus` computed the consensus.
    limitations : tuple of str
        Sentences about quantities that cannot be estimated or are unreliable, with the reason. Empty if there are none.
    findings : tuple of Finding
        Faults that statistical tests found in the labels, such as annotators who make the same mistakes; see
        `diagnose`.

    See Also
    --------
    consensus : Computes this result from the probabilities of any classifier.
    next_labels : Chooses the labels to collect next.

    """

    annotations: Annotations
    label_confidence: FloatArray
    annotator_accuracy_interval: FloatArray
    predicted_probabilities: NDArray[np.float32] | None = None
    out_of_fold_probabilities: NDArray[np.float32] | None = None
    gold_codes: IntArray | None = None
    n_folds: int | None = None
    label_weights: NDArray[np.float32] | None = None
    limitations: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def suspicion(self) -> FloatArray:
        """Probability that each label is wrong, ndarray of shape (n_labels,), in the order of `annotations`."""
        wrong: FloatArray = 1 - self.label_confidence
        return wrong

    @property
    def differs_from_consensus(self) -> NDArray[np.bool_]:
        """Whether each label differs from the consensus of its item, shape (n_labels,), in the order of `annotations`.

        The report and the review page count these labels as mistakes.
        """
        ann = self.annotations
        differs: NDArray[np.bool_] = ann.label != self.consensus_codes[ann.item]
        return differs

    @property
    def is_disputed(self) -> NDArray[np.bool_]:
        """Whether each item is disputed, ndarray of shape (n_items,).

        An item is disputed if one of its labels or the prediction of the classifier differs from the consensus. Items
        without labels are never disputed.
        """
        disputed = np.zeros(len(self.items), bool)
        disputed[self.annotations.item[self.differs_from_consensus]] = True
        if self.predicted_codes is not None:
            disputed |= (self.predicted_codes != self.consensus_codes) & (self.labels_per_item > 0)
        return disputed

    @property
    def predicted_codes(self) -> IntArray | None:
        """Class that the classifier predicts for each item, as a position in `classes`: ndarray of shape (n_items,).

        None if there is no classifier.
        """
        return None if self.predicted_probabilities is None else self.predicted_probabilities.argmax(1)

    @property
    def share_of_votes(self) -> FloatArray:
        """Share of each item's labels that equal the consensus, shape (n_items,). NaN for items without labels."""
        ann = self.annotations
        equal = np.bincount(ann.item, ann.label == self.consensus_codes[ann.item], minlength=ann.n_items)
        with np.errstate(invalid="ignore"):
            share: FloatArray = equal / self.labels_per_item
        return share

    @property
    def annotator_order(self) -> IntArray:
        """Order of the annotators in tables: positions in `annotators`, ndarray of shape (n_annotators_with_labels,).

        The annotators are sorted by the upper end of their interval in `annotator_accuracy_interval`, lowest first.
        Annotators with the same upper end are sorted by their number of labels, highest first. Annotators without
        labels are left out.
        """
        order = np.lexsort((-self.labels_per_annotator, self.annotator_accuracy_interval[:, 1]))
        has_labels: IntArray = order[self.labels_per_annotator[order] > 0]
        return has_labels

    def to_table(self, *, proba: bool = False) -> Any:
        """Return the consensus as a table with one row per item, as in the file `consensus.csv` of a run folder.

        Parameters
        ----------
        proba : bool, default=False
            Whether to add a column `p_<class>` for each class, with the probability of the class.

        Returns
        -------
        pyarrow.Table
            Table with the columns item, label, confidence, n_labels, share_of_votes, predicted and
            predicted_confidence. The least confident items come first. The last two columns are null if there is no
            classifier; share_of_votes is null for items without labels.

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1]])
        >>> table = consensus(ann, [[0.9, 0.1], [0.2, 0.8]]).to_table()
        >>> table.select(["item", "label", "n_labels", "share_of_votes", "predicted"]).to_pylist()[0]
        {'item': 0, 'label': 0, 'n_labels': 3, 'share_of_votes': 0.6666666666666666, 'predicted': 0}
        """
        import pyarrow as pa

        order = np.argsort(self.confidence, kind="stable")
        chosen = pa.array(order)
        predicted = np.full(len(order), -1) if self.predicted_codes is None else self.predicted_codes
        sure = np.zeros(len(order)) if self.predicted_probabilities is None else self.predicted_probabilities.max(1)
        columns = {
            "item": pa.array(self.items).take(chosen),
            "label": pa.array(self.classes).take(pa.array(self.consensus_codes[order])),
            "confidence": pa.array(self.confidence[order].astype(np.float64)),
            "n_labels": pa.array(self.labels_per_item[order]),
            "share_of_votes": pa.array(self.share_of_votes[order], from_pandas=True),
            "predicted": pa.array(self.classes).take(pa.array(predicted[order], mask=predicted[order] < 0)),
            "predicted_confidence": pa.array(sure[order].astype(np.float64), mask=predicted[order] < 0),
        }
        if proba:
            columns |= {
                f"p_{name}": pa.array(self.class_probabilities[order, k].astype(np.float64))
                for k, name in enumerate(self.classes)
            }
        return pa.table(columns)

    def annotator_table(self) -> Any:
        """Return a table with one row per annotator, as in the file `annotators.csv` of a run folder.

        Annotators without labels are left out. The rows are sorted by `accuracy_high`, lowest first.

        Returns
        -------
        pyarrow.Table
            Table with the columns annotator, n_labels, accuracy, accuracy_low and accuracy_high. `accuracy_low` and
            `accuracy_high` are the ends of the 95 % interval. These two columns and accuracy are null if the accuracy
            cannot be estimated. If the classifier gives some labels of an item more weight than others, there is a
            sixth column, mean_weight: the mean weight of the annotator's labels on items with at least two labels. A
            weight of 1 means an even share of the item's total weight, and 2 means twice an even share.

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1]])
        >>> consensus(ann, [[0.9, 0.1], [0.2, 0.8]]).annotator_table().column_names
        ['annotator', 'n_labels', 'accuracy', 'accuracy_low', 'accuracy_high']
        """
        import pyarrow as pa

        accuracy, order = self.annotator_accuracy, self.annotator_order
        low, high = self.annotator_accuracy_interval[order].T
        columns = {
            "annotator": pa.array(self.annotators).take(pa.array(order)),
            "n_labels": pa.array(self.labels_per_annotator[order]),
            "accuracy": pa.array(accuracy[order], from_pandas=True),
            "accuracy_low": pa.array(low, from_pandas=True),
            "accuracy_high": pa.array(high, from_pandas=True),
        }
        weights = None if self.label_weights is None else mean_relative_weights(self.label_weights, self.annotations)
        if weights is not None:
            columns["mean_weight"] = pa.array(weights[order], from_pandas=True)
        return pa.table(columns)

    def suspicious_labels(self) -> Any:
        """Return a table of all labels, the most suspicious first, as in `suspicious_labels.csv` of a run folder.

        Returns
        -------
        pyarrow.Table
            One row per label, with the columns item, annotator, label, consensus and suspicion (the probability that
            the label is wrong).

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1]])
        >>> table = consensus(ann, [[0.9, 0.1], [0.2, 0.8]]).suspicious_labels()
        >>> table.select(["item", "annotator", "label", "consensus"]).to_pylist()[0]
        {'item': 0, 'annotator': 2, 'label': 1, 'consensus': 0}
        """
        import pyarrow as pa

        ann = self.annotations
        order = np.argsort(self.label_confidence, kind="stable")
        item = ann.item[order]
        return pa.table(
            {
                "item": pa.array(self.items).take(pa.array(item)),
                "annotator": pa.array(self.annotators).take(pa.array(ann.annotator[order])),
                "label": pa.array(self.classes).take(pa.array(ann.label[order])),
                "consensus": pa.array(self.classes).take(pa.array(self.consensus_codes[item])),
                "suspicion": pa.array(self.suspicion[order]),
            }
        )

    def __repr__(self) -> str:
        n_differing = int(self.differs_from_consensus.sum())
        return (
            f"Consensus({len(self.items):,} items, {len(self.annotators):,} annotators, {len(self.classes):,} classes, "
            f"{len(self.label_confidence):,} labels, of which {n_differing:,} differ from the consensus)"
        )


def consensus(
    ann: Annotations,
    pred_probs: ArrayLike | None = None,
    *,
    items: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    gold: ArrayLike | Sequence[Any] | None = None,
    n_folds: int | None = None,
    predicted: ArrayLike | None = None,
    right_probability: ArrayLike | None = None,
    seed: int = 0,
) -> Consensus:
    """Estimate the class of each item and the accuracy of each annotator.

    The estimates are computed from the labels, the predictions of a classifier and gold (trusted true classes).
    Predictions and gold are optional.

    Parameters
    ----------
    ann : Annotations
        The labels.
    pred_probs : array-like of shape (n_items, n_classes) or None, default=None
        Class probabilities predicted by any classifier. They should be out of fold (each item is predicted by a
        classifier that was not trained on it), for example from `cross_val_predict(..., method="predict_proba")`.
        Otherwise the classifier agrees too much with the labels that it was trained on. None: there is no classifier.
    items : array-like of shape (n_items,) or None, default=None
        Item id of each row of `pred_probs`, `predicted` and `gold`. Needed if `pred_probs` is given and the item ids in
        `ann` are names. None: row i belongs to item i of `ann`, or, if the item ids are row numbers, to item number i.
    classes : array-like of shape (n_classes,) or None, default=None
        Class name of each column of `pred_probs`, for example `clf.classes_`. If a class that occurs in the labels
        has no column, its predicted probability is taken as 0. None: `ann.classes`.
    gold : array-like of shape (n_items,) or None, default=None
        Name of the true class of each item, one per row; None or NaN if unknown. A known class gets probability 1. Gold
        also helps to estimate the accuracy of the annotators and to calibrate the classifier. None: no gold.
    n_folds : int or None, default=None
        Number of cross-validation folds with which `pred_probs` were computed. 0: `pred_probs` are not out of fold,
        because the classifier was trained on the labels in `ann`. Calibration then never raises the classifier's
        confidence, and `limitations` contains a warning. None: `pred_probs` are out of fold, but the number of folds is
        unknown.
    predicted : array-like of shape (n_items, n_classes) or None, default=None
        Class probabilities predicted by the final classifier, which was trained on all items. They are stored as
        `predicted_probabilities` and do not affect the consensus. None: `pred_probs` are stored.
    right_probability : array-like of shape (n_labels,) or None, default=None
        For each label, in the order of `ann`, the probability that the annotator is right on this item. Estimate it
        with a method that was not trained on the item. The better these probabilities explain the labels, the more
        weight they get. None: an annotator is assumed to be equally accurate on all items of a class. Cannot be
        combined with `items`, because `items` changes the order of the labels.
    seed : int, default=0
        Seed of the random draws from which the intervals are computed, and of the random choice between tied classes.

    Returns
    -------
    result : Consensus

    Raises
    ------
    TypeError
        If `ann` is not an Annotations.
    ValueError
        If `pred_probs` are not probabilities, if rows, columns or gold do not match the annotations, or if both `items`
        and `right_probability` are given.

    See Also
    --------
    CrowdClassifier.consensus : Computes the consensus with a classifier of this library, and cross-fits the classifier.
    next_labels : Chooses the labels to collect next.
    crowdfuse.aggregation.dawid_skene : Computes a consensus without a classifier.

    Notes
    -----
    The model is described in `crowdfuse.aggregation.posterior` and fitted by EM. Each annotator's accuracy is shrunk
    towards the accuracy of all annotators together, as if the annotator had 10 more labels with that accuracy. Each row
    of the annotator's confusion matrix is shrunk towards a row with the annotator's accuracy on the diagonal, as if the
    row had 30 more labels.

    The model is fitted with and without the classifier. If the classifier hardly raises the likelihood of the labels,
    it is ignored, and the result is the consensus of the labels alone. If the mistakes of annotators depend on the
    input, several annotators tend to make the same mistake on the same item. The confidence is then lowered; see
    `crowdfuse.quality.confidence_discount`. The accuracy of an annotator is averaged over random draws of the true
    classes; see `crowdfuse.quality.annotator_accuracy`.

    Examples
    --------
    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, -1, 0], [1, 1, 0]])
    >>> result = consensus(ann, [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])
    >>> result.consensus.tolist(), result.suspicion.argsort()[-2:].tolist()
    ([0, 1, 0, 1], [2, 10])
    >>> result.suspicious_labels().slice(0, 1).to_pylist()[0]["annotator"]
    2
    """
    if not isinstance(ann, Annotations):
        raise TypeError(
            f"ann must be Annotations, got {type(ann).__name__}; create them with Annotations.from_matrix()"
        )
    if items is not None and right_probability is not None:
        raise ValueError(
            "right_probability= cannot be combined with items=, because items= changes the order of the labels; pass "
            "ann.align(items) instead of ann, right_probability= in the order of its labels, and no items="
        )
    if pred_probs is None:
        pred_probs = np.full((ann.n_items, ann.n_classes), 1 / max(ann.n_classes, 1))
        ann = align(ann, ann.n_items, ann.items) if items is None else align(ann, ann.n_items, items)
        shown, names = None, ann.classes
        probabilities = np.asarray(pred_probs)
    else:
        probabilities, names = _check_probabilities(pred_probs, ann, classes)
        if ann.by_row and items is None and len(probabilities) != len(ann):
            raise ValueError(
                f"pred_probs has {len(probabilities):,} rows, but the labels are of {len(ann):,} items. Pass one row "
                "per item, in the order of the labels"
            )
        ann = align(ann, len(probabilities), items).with_classes(names)
        shown = probabilities if predicted is None else _check_probabilities(predicted, ann, classes)[0]
    log_p = log_with_uniform(probabilities)
    certain = np.full(len(ann), -1) if gold is None else gold_codes(gold, ann.classes, len(ann))
    votes = Votes(ann)
    labelled = votes.labelled
    max_sharpness = 1.0 if n_folds == 0 else MAX_SHARPNESS
    gate = None if right_probability is None else _gates(np.asarray(right_probability, np.float64), ann)
    labelled_log_p = log_p if labelled.all() else log_p[labelled]
    fit = fit_posterior(votes, labelled_log_p, certain[labelled], max_sharpness, gate)
    fit_without_gold = fit
    if (certain >= 0).any():  # the diagnostics compare gold with a consensus that does not use gold
        unknown = np.full_like(certain[labelled], -1)
        fit_without_gold = fit_posterior(votes, labelled_log_p, unknown, max_sharpness, gate)
    predicted_codes = None
    if shown is not None:  # equal probabilities of all classes are no prediction
        predicted_codes = np.where(np.ptp(log_p, axis=1) > 0, log_p.argmax(1), -1)
    judged = _class_probabilities(fit_without_gold, log_p, _temperature(fit_without_gold)[1])
    findings = diagnose(ann, judged, predicted=predicted_codes, out_of_fold=n_folds != 0, gold=certain)
    return _result(fit, log_p, certain, None if shown is None else probabilities, shown, n_folds, findings, seed)


def _result(
    fit: PosteriorFit,
    log_p: FloatArray,
    certain: IntArray,
    given: FloatArray | None,
    shown: FloatArray | None,
    n_folds: int | None,
    findings: tuple[Finding, ...],
    seed: int,
) -> Consensus:
    """Return the fitted model as a `Consensus`.

    `given` are the classifier's probabilities that the model used; `shown` are the final classifier's probabilities.
    """
    votes, ann = fit.votes, fit.votes.annotations
    dependence, temperature = _temperature(fit)
    confusions = fit.annotators().confusions
    probabilities = _class_probabilities(fit, log_p, temperature)
    fix_certain(probabilities, certain)
    can_estimate = fit.sharpness > 0 or bool((np.diff(ann.indptr) > 1).any()) or bool((certain >= 0).any())
    accuracy = np.full(votes.n_annotators, np.nan)
    interval = np.full((votes.n_annotators, 2), np.nan)
    if can_estimate:
        accuracy, interval = accuracy_with_interval(fit, temperature, seed)
    return Consensus(
        method="consensus",
        items=ann.items,
        classes=ann.classes,
        annotators=ann.annotators,
        class_probabilities=probabilities,
        consensus_codes=most_likely(probabilities, seed=seed),
        annotator_accuracy=accuracy,
        annotator_accuracy_interval=interval,
        labels_per_item=np.diff(ann.indptr),
        labels_per_annotator=fit.n_labels,
        confusion_matrices=None if confusions is None else np.ascontiguousarray(confusions.transpose(0, 2, 1)),
        parameters={
            "sharpness": np.array(fit.sharpness),
            "class_bias": fit.bias,
            "gate_weight": np.array(fit.gate_weight),
            "same_mistake_share": np.array(fit.same_mistake_share),
            "error_dependence": np.array(dependence),
            "temperature": np.array(temperature),
        },
        log_likelihood=(fit.log_likelihood,),
        converged=fit.converged,
        annotations=ann,
        label_confidence=probabilities.ravel()[ann.item * votes.n_classes + ann.label].astype(np.float64),
        predicted_probabilities=None if shown is None else shown.astype(np.float32),
        out_of_fold_probabilities=None if given is None else given.astype(np.float32),
        gold_codes=certain if (certain >= 0).any() else None,
        n_folds=n_folds,
        limitations=_limitations(fit, probabilities.argmax(1), shown is not None, can_estimate, n_folds),
        findings=findings,
    )


def _temperature(fit: PosteriorFit) -> tuple[float, float]:
    """Return how strongly mistakes depend on the input, and the exponent that lowers the confidence for it."""
    dependence, standard_error = error_dependence(fit)
    return dependence, discount_temperature(dependence, standard_error)


def _class_probabilities(fit: PosteriorFit, log_p: FloatArray, temperature: float) -> NDArray[np.float32]:
    """Return the class probabilities of all items by the fitted model, without the items' own gold, (N, K)."""
    votes = fit.votes
    probabilities = np.empty((len(log_p), votes.n_classes), np.float32)
    probabilities[votes.labelled] = temper(fit.without_gold().astype(np.float64), temperature)
    if not votes.labelled.all():
        unlabelled = ~votes.labelled
        log_joint = min(fit.sharpness, 1.0) * log_p[unlabelled] + fit.bias
        probabilities[unlabelled] = normalize_log_joint(log_joint)[0]
    return probabilities


def _limitations(
    fit: PosteriorFit, codes: IntArray, has_classifier: bool, can_estimate: bool, n_folds: int | None
) -> tuple[str, ...]:
    """Return sentences about what cannot be estimated from these labels; `codes` is the consensus of each item."""
    ann = fit.votes.annotations
    found = []
    if has_classifier and n_folds == 0 and fit.sharpness > 0:
        found.append(NO_CROSS_FITTING)
    elif has_classifier and n_folds == 0:
        found.append("There was no cross-fitting, so the consensus rests on the labels alone, without the classifier.")
    elif has_classifier and fit.sharpness == 0:
        found.append("The classifier does not help to explain the labels, so the consensus rests on the labels alone.")
    if has_classifier and n_folds:
        found += _classes_with_few_items(ann, codes, n_folds)
    if not can_estimate:
        found.append(
            "The accuracy of the annotators cannot be estimated: no item has more than one label, there are no gold "
            "labels, and no classifier helps to explain the labels. Collect a second label for some items, or give "
            "some gold labels."
        )
    elif np.count_nonzero(fit.n_labels) == 1:
        found.append(
            "All labels come from one annotator, so the accuracy of this annotator is estimated from the classifier or "
            "gold labels alone."
        )
    elif not (np.diff(ann.indptr) > 1).any():
        found.append(
            "No item has more than one label, so the accuracy of the annotators is estimated from the classifier or "
            "gold labels alone. Mistakes that the classifier has learned from the labels remain unseen, so the "
            "confidence may be too high. Collect a second label for some items, or give some gold labels."
        )
    if not fit.converged:
        found.append("The estimation stopped before it converged, so the confidences may be inaccurate.")
    return tuple(found)


def _classes_with_few_items(ann: Annotations, codes: IntArray, n_folds: int) -> list[str]:
    """Return a sentence about classes in the labels that are the consensus of fewer items than there are folds."""
    is_used = np.zeros(ann.n_classes, bool)
    is_used[ann.label] = True
    n_items = np.bincount(codes[np.diff(ann.indptr) > 0], minlength=ann.n_classes)
    rare = np.flatnonzero(is_used & (n_items < n_folds))
    if not len(rare):
        return []
    names = format_names(ann.classes[rare])
    many = f"classes {names}: each of them is the consensus of fewer than {n_folds} items"
    one = f"class {names}: it is the consensus of {format_count(n_items[rare[0]], 'item')}"
    return [
        "There are too few items to estimate how well the classifier and the annotators recognize "
        f"{one if len(rare) == 1 else many}, but at least {n_folds} are needed, one per fold."
    ]


def _gates(right_probability: FloatArray, ann: Annotations) -> FloatArray:
    """Return, for each label, how much better its annotator is on the item than on average, as a logit difference."""
    if right_probability.shape != (ann.n_labels,):
        raise ValueError(
            f"right_probability must have one number for each of the {ann.n_labels:,} labels, got shape "
            f"{right_probability.shape}"
        )
    return gates_of_labels(right_probability, ann)


def _check_probabilities(
    pred_probs: ArrayLike, ann: Annotations, classes: ArrayLike | None
) -> tuple[FloatArray, NDArray[Any]]:
    """Return the probabilities (N, K), normalized, and the names of their columns, which include all used classes."""
    try:
        given = np.asarray(pred_probs, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"pred_probs must be an (items, classes) array of probabilities: {error}") from None
    names = ann.classes if classes is None else normalize_ids(classes, "classes")
    if given.ndim != 2 or given.shape[1] != len(names):
        one_column = "; if these are probabilities p of the second of two classes, pass np.column_stack([1 - p, p])"
        hint = one_column if given.ndim == 1 else ""
        raise ValueError(
            f"pred_probs must have one row per item and one column for each of the {len(names):,} classes "
            f"({format_names(names)}), got shape {given.shape}. If the columns are other classes, pass their names as "
            f"classes=, for example classes=clf.classes_{hint}"
        )
    impossible = ~((given >= 0) & (given <= 1 + ROW_SUM_TOLERANCE))
    if impossible.any():
        row, column = np.argwhere(impossible)[0]
        raise ValueError(
            f"pred_probs[{row}, {column}] is {given[row, column]:g}, but probabilities are between 0 and 1. If "
            "these are scores, apply a softmax first"
        )
    total = given.sum(1)
    off = np.abs(total - 1) > ROW_SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"pred_probs[{row}] sums to {total[row]:g}, but every row must sum to 1 ({int(off.sum()):,} of "
            f"{len(total):,} rows do not); divide each row by its sum"
        )
    is_used = np.zeros(ann.n_classes, bool)
    is_used[ann.label] = True
    missing = ann.classes[is_used & (positions_of(ann.classes, names) < 0)]
    given = given / total[:, None]
    if not len(missing):
        return given, names
    kind = np.int64 if {names.dtype.kind, missing.dtype.kind} == {"i"} else object
    return np.pad(given, ((0, 0), (0, len(missing)))), np.concatenate([names.astype(kind), missing.astype(kind)])
