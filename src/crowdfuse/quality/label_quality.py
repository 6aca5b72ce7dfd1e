"""Any classifier's opinion and what people said, weighed together: consensus, and which labels are likely wrong."""

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

MAX_EM_ITERATIONS, CONVERGENCE_TOLERANCE = (
    100,
    1e-4,
)  # rounds at most; fewer once soft labels change by less than this in the mean
ANNOTATOR_PRIOR_LABELS = 10.0  # labels that the average annotator's record counts for, beside an annotator's own
PRIOR_ACCURACY, PRIOR_ACCURACY_WEIGHT = (
    0.9,
    0.5,
)  # people are believed to be right so often, by half as many labels as there are
UNIFORM_MIXTURE_WEIGHT = (
    1e-3  # no class is ruled out by the classifier alone, however sure it is: networks and forests say 0 and 1
)
MIN_SHARPNESS, MAX_SHARPNESS = 0.05, 20.0  # between them the classifier's sharpness is looked for
SHARPNESS_PRIOR_PRECISION = 0.1  # how strongly it is held at 1: it stays there where the classifier has no opinion
MAX_CONFUSION_BYTES = 1 << 28  # bytes of confusion matrices, from which on annotators share what they take for what
ROW_SUM_TOLERANCE = 1e-3  # how far a row of probabilities may be from 1 in sum


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class LabelQuality(Aggregate):
    """What the labels and a classifier amount to together. N items, K classes, R annotators, L labels.

    As in `Aggregate`, but items without labels have a soft label too, the classifier's; `confusions` are drawn towards
    the average annotator's; `parameters` has `sharpness` (), `class_bias` (K,) and `accuracy` (R,).
    """

    annotations: Annotations
    """The labels that were judged, in the order of the rows of `pred_probs`."""
    label_confidence: FloatArray
    """(L,): how likely each label is right, in the order of `annotations`."""

    @property
    def suspicion(self) -> FloatArray:
        """(L,): how likely each label is wrong, in the order of `annotations`."""
        wrong: FloatArray = 1 - self.label_confidence
        return wrong

    def review_labels(self) -> Any:
        """A pyarrow table, the most suspicious label first: item, annotator, label, consensus, suspicion."""
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
        """A pyarrow table of the labelled items, the least sure first.

        item, consensus, confidence, n_labels, labels ("cat x2; dog x1"), disagreeing (the annotators who said something
        else, "ada; bob").
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        ann, K = self.annotations, len(self.classes)
        labelled = np.flatnonzero(self.labels_per_item)
        order = labelled[np.argsort(self.confidence[labelled], kind="stable")]

        said, times = np.unique(ann.item * K + ann.label, return_counts=True)
        by_count = np.lexsort((-times, said // K))
        said, times = said[by_count], times[by_count]
        spelt = pc.binary_join_element_wise(
            _text(self.classes).take(pa.array(said % K)), pa.array(times).cast(pa.string()), " x"
        )
        differs = ann.label != self.consensus_codes[ann.item]
        names = _text(self.annotators).take(pa.array(ann.annotator[differs]))
        chosen = pa.array(order)
        return pa.table(
            {
                "item": pa.array(self.items).take(chosen),
                "consensus": pa.array(self.classes).take(pa.array(self.consensus_codes[order])),
                "confidence": pa.array(self.confidence[order]),
                "n_labels": pa.array(self.labels_per_item[order]),
                "labels": _joined(spelt, said // K, ann.n_items).take(chosen),
                "disagreeing": _joined(names, ann.item[differs], ann.n_items).take(chosen),
            }
        )

    def __repr__(self) -> str:
        doubtful = int((self.label_confidence < 0.5).sum())
        return (
            f"Quality({len(self.items):,} items, {len(self.annotators):,} annotators, {len(self.classes):,} classes, "
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
    """Consensus, confidence, suspicion of each label and skill of each annotator, by any classifier's probabilities.

    `pred_probs` (N, K) should be out of fold, as `cross_val_predict(..., method="predict_proba")` gives them: a
    classifier that was trained on a label agrees with it too easily. Say `out_of_fold=False` where it was: its
    agreement is then no reason to believe it more than it believes itself.

    Rows meet items as in `fit`: by `items`, the ids of the rows, or without it row by row, where the annotations are in
    that order. Columns are `ann.classes`, or `classes` where given, such as `clf.classes_`; a class that has no column
    there is taken to have probability 0. `gold` are true classes by name, one a row, None or NaN where unknown: these
    are certain, and show how far annotators and classifier can be believed.

        P(true = k | item n)  ~  exp(sharpness * log pred_probs[n, k] + bias[k])
                                 * product over the labels (r, y) of n of  confusion[r, k, y]

    Found by EM. Sharpness calibrates the classifier, and so does the bias: classes become as frequent as
    halfway between soft labels and votes. An annotator's accuracy is drawn towards that of all annotators by a record
    of 10 labels, and each row of his confusion matrix, by another 10, towards his accuracy and what people in general
    take the class for. The accuracy of all is drawn towards 0.9, by half the weight of the labels: where hardly an item
    has two labels and the classifier knows little, labels cannot tell by themselves that people are right at all.
    Even so it may do worse there than the labels themselves.
    Suspicion is 1 - P(true = label), the label itself counted as one opinion among others.

    >>> ann = Annotations.from_matrix([[0, 0, 1], [1, 1, 1], [0, -1, 0], [1, 1, 0]])
    >>> found = label_quality(ann, [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])
    >>> found.consensus.tolist(), found.suspicion.argsort()[-2:].tolist()
    ([0, 1, 0, 1], [10, 2])
    >>> found.review_labels().slice(0, 1).to_pylist()[0]["annotator"]
    2
    """
    if not isinstance(ann, Annotations):
        raise TypeError(f"labels must be Annotations, got {type(ann).__name__}; Annotations.from_matrix() makes them")
    probabilities, names = _checked(pred_probs, ann, classes)
    ann = align(ann, len(probabilities), items).with_classes(names)
    log_p = np.log(probabilities * (1 - UNIFORM_MIXTURE_WEIGHT) + UNIFORM_MIXTURE_WEIGHT / len(names))
    certain = np.full(len(ann), -1) if gold is None else gold_codes(gold, ann.classes, len(ann))
    return _Fit(Votes(ann), log_p, certain, MAX_SHARPNESS if out_of_fold else 1.0).result()


class _Fit:
    """EM over the items that have labels; block by block, so that little more than the soft labels is in memory."""

    def __init__(self, votes: Votes, log_p: FloatArray, certain: IntArray, sharpest: float) -> None:
        self.votes, self.log_p, self.certain, self.sharpest = votes, log_p, certain, sharpest
        self.of_labelled = log_p if votes.labelled.all() else log_p[votes.labelled]
        self.certain_of_labelled = certain[votes.labelled]
        R, K = votes.n_annotators, votes.n_classes
        self.own = R * K * K * 8 <= MAX_CONFUSION_BYTES
        self.n_labels = votes.labels_per_annotator()
        self.sharpness, self.bias = 1.0, np.zeros(K)
        self.soft = votes.empty()
        self._forget()
        for block in votes.blocks:  # start: the classifier is one more vote
            posterior = block.tally() + np.exp(self.of_labelled[block.rows])
            posterior /= posterior.sum(1, keepdims=True)
            _anchor(posterior, self.certain_of_labelled[block.rows])
            self._remember(block, posterior)
        self.converged = False
        for _ in range(MAX_EM_ITERATIONS):
            if self._step() < CONVERGENCE_TOLERANCE:
                self.converged = True
                break

    def _forget(self) -> None:
        R, K = self.votes.n_annotators, self.votes.n_classes
        self.counts = np.zeros((R * K, K) if self.own else (0, K))  # axes (annotator and said, true)
        self.pooled = np.zeros((K, K))  # the same, all annotators together
        self.right = np.zeros(R)

    def _remember(self, block: Block, posterior: FloatArray) -> None:
        if self.own:
            self.counts += block.incidence.T @ posterior
        self.pooled += block.tally().T @ posterior
        self.right += block.by_annotator(block.label_confidence(posterior))
        self.soft[block.rows] = posterior

    def _step(self) -> float:
        """What was counted becomes accuracies and confusions, and these new soft labels; how far they moved."""
        accuracy, wrong = self._accuracy(), self._wrong()
        log_confusion = np.log(self._confusions(accuracy, wrong)).reshape(self.counts.shape) if self.own else None
        log_wrong = np.log(wrong + np.eye(len(wrong)))
        log_odds = np.log(accuracy) - np.log1p(-accuracy)
        self._forget()
        slope, curve, moved = SHARPNESS_PRIOR_PRECISION * (1 - self.sharpness), SHARPNESS_PRIOR_PRECISION, 0.0
        expected = np.zeros(len(wrong))
        for block in self.votes.blocks:
            log_p = self.of_labelled[block.rows]
            believed, _ = normalize_log_joint(self.sharpness * log_p + self.bias)
            scores = self.sharpness * log_p + self.bias
            if log_confusion is not None:
                scores += block.incidence @ log_confusion
            else:  # each label (r, y): wrong[y, k], times the odds that r is right where k = y
                scores += block.tally() @ log_wrong + block.tally(log_odds[block.annotator])
            posterior, _ = normalize_log_joint(scores)
            _anchor(posterior, self.certain_of_labelled[block.rows])
            moved += float(np.abs(posterior - self.soft[block.rows]).sum())
            self._remember(block, posterior)
            mean = (believed * log_p).sum(1)
            slope += float((posterior * log_p).sum() - mean.sum())
            curve += float((believed * log_p**2).sum() - (mean**2).sum())
            expected += believed.sum(0)
        # one Newton step, and one of iterative scaling: the calibration follows the soft labels as they settle
        newton = np.clip(self.sharpness + slope / curve, self.sharpness / 2, self.sharpness * 2)
        self.sharpness = float(np.clip(newton, MIN_SHARPNESS, self.sharpest))
        voted = self.pooled.sum(1) * (self.votes.n_items / self.votes.n_labels)
        seen = (self.soft.sum(0, dtype=np.float64) + voted) / 2
        self.bias = self.bias + np.log(seen + 1) - np.log(expected + 1)
        return moved / self.votes.n_items

    def _accuracy(self) -> FloatArray:
        """(R,): P(right), drawn towards that of all; theirs, where an annotator has no labels."""
        everyone = (self.right.sum() / self.votes.n_labels + PRIOR_ACCURACY_WEIGHT * PRIOR_ACCURACY) / (
            1 + PRIOR_ACCURACY_WEIGHT
        )
        accuracy: FloatArray = (self.right + ANNOTATOR_PRIOR_LABELS * everyone) / (
            self.n_labels + ANNOTATOR_PRIOR_LABELS
        )
        return np.clip(accuracy, 1e-9, 1 - 1e-9)

    def _wrong(self) -> FloatArray:
        """(K said, K true): what is said where it is wrong; 0 on the diagonal, columns sum to 1."""
        off = 1 - np.eye(len(self.pooled))
        wrong: FloatArray = (self.pooled + 1) * off
        wrong /= wrong.sum(0)
        return wrong

    def _confusions(self, accuracy: FloatArray, wrong: FloatArray) -> FloatArray:
        """(R, K said, K true)."""
        K = len(wrong)
        a = accuracy[:, None, None]
        counts = self.counts.reshape(-1, K, K)
        confusions: FloatArray = ANNOTATOR_PRIOR_LABELS * (a * np.eye(K) + (1 - a) * wrong) + counts
        confusions /= counts.sum(1, keepdims=True) + ANNOTATOR_PRIOR_LABELS
        return confusions

    def result(self) -> LabelQuality:
        votes, ann = self.votes, self.votes.annotations
        everyone = np.empty((ann.n_items, votes.n_classes), np.float32)
        everyone[votes.labelled] = self.soft
        alone = ~votes.labelled
        if alone.any():
            everyone[alone] = normalize_log_joint(self.sharpness * self.log_p[alone] + self.bias)[0]
        _anchor(everyone, self.certain)
        accuracy = self._accuracy()
        confusions = None
        if self.own:
            confusions = np.ascontiguousarray(self._confusions(accuracy, self._wrong()).transpose(0, 2, 1))
        with np.errstate(invalid="ignore"):
            skill = self.right / self.n_labels
        return LabelQuality(
            method="quality",
            items=ann.items,
            classes=ann.classes,
            annotators=ann.annotators,
            class_probabilities=everyone,
            consensus_codes=most_likely(everyone, seed=0),
            annotator_accuracy=skill,
            labels_per_item=np.diff(ann.indptr),
            labels_per_annotator=self.n_labels,
            confusion_matrices=confusions,
            parameters={"sharpness": np.array(self.sharpness), "class_bias": self.bias, "accuracy": accuracy},
            converged=self.converged,
            annotations=ann,
            label_confidence=everyone.ravel()[ann.item * votes.n_classes + ann.label].astype(np.float64),
        )


def _checked(pred_probs: ArrayLike, ann: Annotations, classes: ArrayLike | None) -> tuple[FloatArray, NDArray[Any]]:
    """Probabilities (N, K) whose rows sum to 1, and the names of their columns: at least all that were said."""
    try:
        given = np.asarray(pred_probs, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"pred_probs must be an (items, classes) array of probabilities: {error}") from None
    names = ann.classes if classes is None else normalize_ids(classes, "classes")
    if given.ndim != 2 or given.shape[1] != len(names):
        one = "; for two classes np.column_stack([1 - p, p]) makes two columns of one" if given.ndim == 1 else ""
        raise ValueError(
            f"pred_probs must have a row an item and a column for each of the {len(names):,} classes "
            f"({format_names(names)}), "
            f"got shape {given.shape}; classes= names the columns, such as clf.classes_{one}"
        )
    impossible = ~((given >= 0) & (given <= 1 + ROW_SUM_TOLERANCE))
    if impossible.any():
        row, column = np.argwhere(impossible)[0]
        raise ValueError(
            f"pred_probs[{row}, {column}] is {given[row, column]:g}, and a probability is from 0 to 1; scores must go "
            "through a softmax first"
        )
    total = given.sum(1)
    off = np.abs(total - 1) > ROW_SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(f"pred_probs[{row}] sums to {total[row]:g}, not 1 ({int(off.sum()):,} such rows)")
    said = np.zeros(ann.n_classes, bool)
    said[ann.label] = True
    missing = ann.classes[said & (positions_of(ann.classes, names) < 0)]
    given = given / total[:, None]
    if not len(missing):
        return given, names
    kind = np.int64 if {names.dtype.kind, missing.dtype.kind} == {"i"} else object
    return np.pad(given, ((0, 0), (0, len(missing)))), np.concatenate([names.astype(kind), missing.astype(kind)])


def _anchor(soft: NDArray[Any], certain: IntArray) -> None:
    """Put the classes that gold knows, -1 where it does not, into soft labels (n, K)."""
    known = np.flatnonzero(certain >= 0)
    soft[known] = 0
    soft[known, certain[known]] = 1


def _text(names: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(names).cast(pa.string())


def _joined(strings: Any, group: NDArray[Any], n_groups: int) -> Any:
    """The strings of each group in one, (n_groups,); `group` is sorted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = np.searchsorted(group, np.arange(n_groups + 1))
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets), strings), "; ")
