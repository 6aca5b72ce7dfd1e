"""Combine labels with any classifier's probabilities: consensus, confidence, and labels that are likely wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.aggregation.result import Aggregate, most_likely
from crowdfuse.aggregation.votes import Block, FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.alignment import align, gold_codes
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of

MAX_EM_ITERATIONS = 100
CONVERGENCE_TOLERANCE = 1e-4  # EM stops when class probabilities change by less than this per item
ANNOTATOR_PRIOR_LABELS = 10.0  # weight, in labels, of the average annotator in each annotator's estimates
PRIOR_ACCURACY = 0.9  # prior of the accuracy of all annotators together
PRIOR_ACCURACY_WEIGHT = 0.5  # weight of this prior, as a multiple of the number of labels
UNIFORM_MIXTURE_WEIGHT = 1e-3  # share of the uniform distribution in the classifier's probabilities: none stays 0
MIN_SHARPNESS, MAX_SHARPNESS = 0.05, 20.0  # limits of the classifier's sharpness
SHARPNESS_PRIOR_PRECISION = 0.1  # precision of the prior of the sharpness, which has mean 1
MAX_CONFUSION_BYTES = 1 << 28  # larger confusion matrices are replaced by one for all annotators
ROW_SUM_TOLERANCE = 1e-3  # accepted distance of the sum of a row of probabilities from 1


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class LabelQuality(Aggregate):
    """Consensus, confidence and label quality, estimated from the labels and a classifier together.

    Returned by `label_quality`. It has all attributes of an `Aggregate`. Items without labels have class probabilities
    too: those of the calibrated classifier.

    Attributes
    ----------
    method : str
        Always "quality".
    items : ndarray of shape (n_items,)
        Ids of the items, in the order of the rows of `pred_probs`.
    classes : ndarray of shape (n_classes,)
        Names of the classes.
    annotators : ndarray of shape (n_annotators,)
        Names of the annotators.
    class_probabilities : ndarray of shape (n_items, n_classes)
        Probability of each class given the labels, the classifier and gold.
    consensus_codes : ndarray of shape (n_items,)
        The most likely class, as a position in `classes`.
    annotator_accuracy : ndarray of shape (n_annotators,)
        Mean probability that a label of the annotator is right; NaN for annotators without labels.
    labels_per_item : ndarray of shape (n_items,)
        Number of labels of each item.
    labels_per_annotator : ndarray of shape (n_annotators,)
        Number of labels of each annotator.
    confusion_matrices : ndarray of shape (n_annotators, n_classes, n_classes) or None
        Probability of each label given the true class, P(said | true), with axes (annotator, true, said). The matrices
        are shrunk towards the average annotator. None if they would take more than 256 MB.
    parameters : mapping of str to ndarray
        `sharpness` (a scalar) and `class_bias`, of shape (n_classes,), calibrate the classifier; see the notes of
        `label_quality`. `accuracy`, of shape (n_annotators,), is the accuracy of each annotator, shrunk towards the
        average annotator.
    log_likelihood : tuple of float
        Empty; the likelihood is not recorded.
    converged : bool
        Whether EM converged within 100 iterations.
    annotations : Annotations
        The labels that were judged, in the order of the rows of `pred_probs`.
    label_confidence : ndarray of shape (n_labels,)
        Probability that each label is right, in the order of `annotations`.

    See Also
    --------
    label_quality : Computes this result.
    next_labels : Chooses the labels to ask for next.
    """

    annotations: Annotations
    label_confidence: FloatArray

    @property
    def suspicion(self) -> FloatArray:
        """Probability that each label is wrong, ndarray of shape (n_labels,), in the order of `annotations`."""
        wrong: FloatArray = 1 - self.label_confidence
        return wrong

    def review_labels(self) -> Any:
        """Return all labels, the most suspicious first.

        Returns
        -------
        table : pyarrow.Table
            One row per label, with the columns item, annotator, label, consensus and suspicion.

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1]])
        >>> table = label_quality(ann, [[0.9, 0.1], [0.2, 0.8]]).review_labels()
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

    def review_items(self) -> Any:
        """Return the labelled items, the least confident first.

        Returns
        -------
        table : pyarrow.Table
            One row per labelled item, with the columns item, consensus, confidence, n_labels, labels (such as
            "cat x2; dog x1") and disagreeing (the annotators who gave another label than the consensus, such as
            "ada; bob").

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1]])
        >>> table = label_quality(ann, [[0.9, 0.1], [0.2, 0.8]]).review_items()
        >>> table.select(["item", "labels", "disagreeing"]).to_pylist()[0]
        {'item': 0, 'labels': '0 x2; 1 x1', 'disagreeing': '2'}
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        ann, K = self.annotations, len(self.classes)
        labelled = np.flatnonzero(self.labels_per_item)
        order = labelled[np.argsort(self.confidence[labelled], kind="stable")]

        votes, counts = np.unique(ann.item * K + ann.label, return_counts=True)
        by_count = np.lexsort((-counts, votes // K))
        votes, counts = votes[by_count], counts[by_count]
        vote_texts = pc.binary_join_element_wise(
            _as_text(self.classes).take(pa.array(votes % K)), pa.array(counts).cast(pa.string()), " x"
        )
        differs = ann.label != self.consensus_codes[ann.item]
        names = _as_text(self.annotators).take(pa.array(ann.annotator[differs]))
        chosen = pa.array(order)
        return pa.table(
            {
                "item": pa.array(self.items).take(chosen),
                "consensus": pa.array(self.classes).take(pa.array(self.consensus_codes[order])),
                "confidence": pa.array(self.confidence[order]),
                "n_labels": pa.array(self.labels_per_item[order]),
                "labels": _join_by_group(vote_texts, votes // K, ann.n_items).take(chosen),
                "disagreeing": _join_by_group(names, ann.item[differs], ann.n_items).take(chosen),
            }
        )

    def __repr__(self) -> str:
        doubtful = int((self.label_confidence < 0.5).sum())
        return (
            f"LabelQuality({len(self.items):,} items, {len(self.annotators):,} annotators, {len(self.classes):,} "
            "classes, "
            f"{len(self.label_confidence):,} labels, {doubtful:,} of them more likely wrong than right)"
        )


def label_quality(
    ann: Annotations,
    pred_probs: ArrayLike,
    *,
    items: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    gold: ArrayLike | Sequence[Any] | None = None,
    out_of_fold: bool = True,
) -> LabelQuality:
    """Estimate consensus, confidence, label quality and annotator accuracy from labels and any classifier.

    Parameters
    ----------
    ann : Annotations
        The labels to judge.
    pred_probs : array-like of shape (n_items, n_classes)
        Class probabilities predicted by a classifier. They should be out of fold, as returned by
        `cross_val_predict(..., method="predict_proba")`, because a classifier agrees too easily with labels that it was
        trained on.
    items : array-like of shape (n_items,) or None, default=None
        Item id of each row of `pred_probs`. None: the rows are in the order of the items of `ann`.
    classes : array-like of shape (n_classes,) or None, default=None
        Class name of each column of `pred_probs`, for example `clf.classes_`. A class that occurs in the labels but has
        no column gets probability 0. None: `ann.classes`.
    gold : array-like of shape (n_items,) or None, default=None
        True class of each row, by name; None or NaN where unknown. A known class gets probability 1. Items with gold
        thereby help to estimate how accurate the annotators and the classifier are.
    out_of_fold : bool, default=True
        Whether `pred_probs` are out of fold. Set it to False if the classifier was trained on these labels. Calibration
        may then lower the confidence of the classifier, but never raise it.

    Returns
    -------
    quality : LabelQuality

    Raises
    ------
    TypeError
        If `ann` is not an Annotations.
    ValueError
        If `pred_probs` are not probabilities, or if their rows, their columns or `gold` do not match the annotations.

    See Also
    --------
    next_labels : Chooses the labels to ask for next.
    crowdfuse.aggregation.dawid_skene : Consensus without a classifier.

    Notes
    -----
    For item n, annotator r, true class k and label y, the model is (~ means proportional to)::

        P(true = k | item n)  ~  exp(sharpness * log pred_probs[n, k] + bias[k])
                                 * product over the labels (r, y) of item n:  confusion[r, k, y]

    Here `confusion[r, k, y]` is the probability that annotator r gives label y to an item of class k. The model is
    fitted by EM.

    Sharpness and bias calibrate the classifier. The bias sets how often the classifier predicts each class: halfway
    between the frequency of the class in the estimated class probabilities and its frequency in the labels.

    Estimates for annotators with few labels are shrunk, that is, moved towards the average of all annotators:

    - The accuracy of an annotator is shrunk towards the accuracy of all annotators together. The latter has the weight
      of 10 labels.
    - Each row of a confusion matrix is shrunk towards a typical row, which has the weight of another 10 labels. The
      typical row has the annotator's accuracy at the true class. It spreads the rest over the wrong classes as all
      annotators together do.
    - The accuracy of all annotators together is shrunk towards 0.9, which has half the weight of all labels.

    The prior of 0.9 matters if few items have two labels and the classifier is weak, because the labels alone then do
    not show that annotators are mostly right. Even with this prior, the consensus can be worse than the labels in this
    case.

    The suspicion of a label is 1 - P(true = label | item). It is computed from all labels of the item, including the
    label itself.

    Examples
    --------
    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, -1, 0], [1, 1, 0]])
    >>> quality = label_quality(ann, [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])
    >>> quality.consensus.tolist(), quality.suspicion.argsort()[-2:].tolist()
    ([0, 1, 0, 1], [10, 2])
    >>> quality.review_labels().slice(0, 1).to_pylist()[0]["annotator"]
    2
    """
    if not isinstance(ann, Annotations):
        raise TypeError(f"ann must be Annotations, got {type(ann).__name__}; Annotations.from_matrix() makes them")
    probabilities, names = _check_probabilities(pred_probs, ann, classes)
    ann = align(ann, len(probabilities), items).with_classes(names)
    log_p = np.log(probabilities * (1 - UNIFORM_MIXTURE_WEIGHT) + UNIFORM_MIXTURE_WEIGHT / len(names))
    certain = np.full(len(ann), -1) if gold is None else gold_codes(gold, ann.classes, len(ann))
    return _Fit(Votes(ann), log_p, certain, MAX_SHARPNESS if out_of_fold else 1.0).result()


class _Fit:
    """EM over the labelled items, block by block, so that memory holds little more than the class probabilities."""

    def __init__(self, votes: Votes, log_p: FloatArray, certain: IntArray, max_sharpness: float) -> None:
        self.votes, self.log_p, self.certain, self.max_sharpness = votes, log_p, certain, max_sharpness
        self.of_labelled = log_p if votes.labelled.all() else log_p[votes.labelled]
        self.certain_of_labelled = certain[votes.labelled]
        R, K = votes.n_annotators, votes.n_classes
        self.has_own_confusions = R * K * K * 8 <= MAX_CONFUSION_BYTES
        self.n_labels = votes.labels_per_annotator()
        self.sharpness, self.bias = 1.0, np.zeros(K)
        self.soft = votes.empty()
        self._reset_counts()
        for block in votes.blocks:  # start: the classifier counts as one more vote
            posterior = block.vote_counts() + np.exp(self.of_labelled[block.rows])
            posterior /= posterior.sum(1, keepdims=True)
            _anchor(posterior, self.certain_of_labelled[block.rows])
            self._add_counts(block, posterior)
        self.converged = False
        for _ in range(MAX_EM_ITERATIONS):
            if self._step() < CONVERGENCE_TOLERANCE:
                self.converged = True
                break

    def _reset_counts(self) -> None:
        """Set the counts of an M step to 0."""
        R, K = self.votes.n_annotators, self.votes.n_classes
        self.counts = np.zeros((R * K, K) if self.has_own_confusions else (0, K))  # axes (annotator and said, true)
        self.pooled = np.zeros((K, K))  # the same, all annotators together
        self.right = np.zeros(R)

    def _add_counts(self, block: Block, posterior: FloatArray) -> None:
        """Add a block to the counts of the M step, and store its class probabilities."""
        if self.has_own_confusions:
            self.counts += block.incidence.T @ posterior
        self.pooled += block.vote_counts().T @ posterior
        self.right += block.sum_by_annotator(block.label_confidence(posterior))
        self.soft[block.rows] = posterior

    def _step(self) -> float:
        """One M step and one E step; returns the mean change of the class probabilities per item."""
        accuracy, wrong = self._accuracy(), self._wrong()
        log_confusion = None
        if self.has_own_confusions:
            log_confusion = np.log(self._confusions(accuracy, wrong)).reshape(self.counts.shape)
        log_wrong = np.log(wrong + np.eye(len(wrong)))
        log_odds = np.log(accuracy) - np.log1p(-accuracy)
        self._reset_counts()
        slope, curve, change = SHARPNESS_PRIOR_PRECISION * (1 - self.sharpness), SHARPNESS_PRIOR_PRECISION, 0.0
        expected = np.zeros(len(wrong))
        for block in self.votes.blocks:
            log_p = self.of_labelled[block.rows]
            believed, _ = normalize_log_joint(self.sharpness * log_p + self.bias)
            scores = self.sharpness * log_p + self.bias
            if log_confusion is not None:
                scores += block.incidence @ log_confusion
            else:  # each label (r, y): wrong[y, k], times the odds that r is right where k = y
                scores += block.vote_counts() @ log_wrong + block.vote_counts(log_odds[block.annotator])
            posterior, _ = normalize_log_joint(scores)
            _anchor(posterior, self.certain_of_labelled[block.rows])
            change += float(np.abs(posterior - self.soft[block.rows]).sum())
            self._add_counts(block, posterior)
            mean = (believed * log_p).sum(1)
            slope += float((posterior * log_p).sum() - mean.sum())
            curve += float((believed * log_p**2).sum() - (mean**2).sum())
            expected += believed.sum(0)
        # one Newton step and one step of iterative scaling: the calibration converges along with EM
        newton = np.clip(self.sharpness + slope / curve, self.sharpness / 2, self.sharpness * 2)
        self.sharpness = float(np.clip(newton, MIN_SHARPNESS, self.max_sharpness))
        voted = self.pooled.sum(1) * (self.votes.n_items / self.votes.n_labels)
        seen = (self.soft.sum(0, dtype=np.float64) + voted) / 2
        self.bias = self.bias + np.log(seen + 1) - np.log(expected + 1)
        return change / self.votes.n_items

    def _accuracy(self) -> FloatArray:
        """Accuracy of each annotator, (R,), shrunk towards that of all annotators."""
        overall = (self.right.sum() / self.votes.n_labels + PRIOR_ACCURACY_WEIGHT * PRIOR_ACCURACY) / (
            1 + PRIOR_ACCURACY_WEIGHT
        )
        accuracy: FloatArray = (self.right + ANNOTATOR_PRIOR_LABELS * overall) / (
            self.n_labels + ANNOTATOR_PRIOR_LABELS
        )
        return np.clip(accuracy, 1e-9, 1 - 1e-9)

    def _wrong(self) -> FloatArray:
        """Distribution of the wrong labels of each class, (K said, K true); 0 on the diagonal, columns sum to 1."""
        off = 1 - np.eye(len(self.pooled))
        wrong: FloatArray = (self.pooled + 1) * off
        wrong /= wrong.sum(0)
        return wrong

    def _confusions(self, accuracy: FloatArray, wrong: FloatArray) -> FloatArray:
        """Confusion matrices, (R, K said, K true)."""
        K = len(wrong)
        a = accuracy[:, None, None]
        counts = self.counts.reshape(-1, K, K)
        confusions: FloatArray = ANNOTATOR_PRIOR_LABELS * (a * np.eye(K) + (1 - a) * wrong) + counts
        confusions /= counts.sum(1, keepdims=True) + ANNOTATOR_PRIOR_LABELS
        return confusions

    def result(self) -> LabelQuality:
        """The fitted model as a `LabelQuality`."""
        votes, ann = self.votes, self.votes.annotations
        probabilities = np.empty((ann.n_items, votes.n_classes), np.float32)
        probabilities[votes.labelled] = self.soft
        unlabelled = ~votes.labelled
        if unlabelled.any():
            log_joint = self.sharpness * self.log_p[unlabelled] + self.bias
            probabilities[unlabelled] = normalize_log_joint(log_joint)[0]
        _anchor(probabilities, self.certain)
        accuracy = self._accuracy()
        confusions = None
        if self.has_own_confusions:
            confusions = np.ascontiguousarray(self._confusions(accuracy, self._wrong()).transpose(0, 2, 1))
        with np.errstate(invalid="ignore"):
            mean_right = self.right / self.n_labels
        return LabelQuality(
            method="quality",
            items=ann.items,
            classes=ann.classes,
            annotators=ann.annotators,
            class_probabilities=probabilities,
            consensus_codes=most_likely(probabilities, seed=0),
            annotator_accuracy=mean_right,
            labels_per_item=np.diff(ann.indptr),
            labels_per_annotator=self.n_labels,
            confusion_matrices=confusions,
            parameters={"sharpness": np.array(self.sharpness), "class_bias": self.bias, "accuracy": accuracy},
            converged=self.converged,
            annotations=ann,
            label_confidence=probabilities.ravel()[ann.item * votes.n_classes + ann.label].astype(np.float64),
        )


def _check_probabilities(
    pred_probs: ArrayLike, ann: Annotations, classes: ArrayLike | None
) -> tuple[FloatArray, NDArray[Any]]:
    """Probabilities (N, K) whose rows sum to 1, and the names of their columns, which include all classes of labels."""
    try:
        given = np.asarray(pred_probs, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"pred_probs must be an (items, classes) array of probabilities: {error}") from None
    names = ann.classes if classes is None else normalize_ids(classes, "classes")
    if given.ndim != 2 or given.shape[1] != len(names):
        hint = "; for two classes, np.column_stack([1 - p, p]) makes two columns from one" if given.ndim == 1 else ""
        raise ValueError(
            f"pred_probs must have one row per item and one column for each of the {len(names):,} classes "
            f"({format_names(names)}), got shape {given.shape}. If the columns are other classes, name them with "
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
            f"pred_probs[{row}] sums to {total[row]:g}, but every row must sum to 1 (rows that do not: "
            f"{int(off.sum()):,}); divide each row by its sum"
        )
    is_used = np.zeros(ann.n_classes, bool)
    is_used[ann.label] = True
    missing = ann.classes[is_used & (positions_of(ann.classes, names) < 0)]
    given = given / total[:, None]
    if not len(missing):
        return given, names
    kind = np.int64 if {names.dtype.kind, missing.dtype.kind} == {"i"} else object
    return np.pad(given, ((0, 0), (0, len(missing)))), np.concatenate([names.astype(kind), missing.astype(kind)])


def _anchor(soft: NDArray[Any], certain: IntArray) -> None:
    """Set the class probabilities (n, K) of items with gold to 0 and 1, in place; `certain` is -1 without gold."""
    known = np.flatnonzero(certain >= 0)
    soft[known] = 0
    soft[known, certain[known]] = 1


def _as_text(names: NDArray[Any]) -> Any:
    """Names as a pyarrow array of strings."""
    import pyarrow as pa

    return pa.array(names).cast(pa.string())


def _join_by_group(strings: Any, group: NDArray[Any], n_groups: int) -> Any:
    """The strings of each group joined by "; ", (n_groups,); `group` is sorted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = np.searchsorted(group, np.arange(n_groups + 1))
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets), strings), "; ")
