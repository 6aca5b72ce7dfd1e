"""Cross-fitting: class probabilities of each item by a copy of a classifier that was trained without the item."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from crowdfuse.io.files import atomic_file
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.folds import assign_folds
from crowdfuse.labels.ids import IntArray, format_count
from crowdfuse.methods.data import fingerprint
from crowdfuse.quality.consensus import Consensus, consensus
from crowdfuse.training.distributed import all_gather, is_rank_zero
from crowdfuse.training.loop import UnfitDataError
from crowdfuse.training.progress import next_training, training_series

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier


CUT_SHORT_FOLD = "The time limit also shortened the training runs on the folds of the items."
FOLDS_FOLDER = "folds"
"""Folder below that of the checkpoint, with the predictions and the checkpoints of the folds."""
ONE_ITEM = "Cross-fitting is not possible, because there is only one item to learn from."


def trained_rows(classifier: CrowdClassifier, ann: Annotations, gold: IntArray | None) -> IntArray:
    """Return the rows that the classifier learns from: those with labels or, if it learns from gold, with gold."""
    own = classifier._validation_annotations(ann)  # single-annotator learns from the labels of one annotator
    is_used = (np.diff(own.indptr) > 0) & type(classifier).trains_on_labels
    if gold is not None:
        is_used |= gold >= 0
    rows: IntArray = np.flatnonzero(is_used)
    return rows


class OutOfFold(NamedTuple):
    """Predictions for items by classifiers that were trained without them.

    Attributes
    ----------
    class_probabilities : ndarray of shape (n_items, n_classes)
        Probability of each class.
    right_probability : ndarray of shape (n_labels,) or None
        For each label, the probability that its annotator is right on the item; None if the learning method does not
        estimate it.
    n_folds : int or None
        Number of folds; 0 if the classifier was trained on these items; None if it did not learn from these labels,
        so that no folds are needed.
    limitations : tuple of str, default=()
        What the user should know about the folds, one sentence each.
    """

    class_probabilities: NDArray[np.float64]
    right_probability: NDArray[np.float64] | None
    n_folds: int | None
    limitations: tuple[str, ...] = ()


def predict_items(classifier: CrowdClassifier, inputs: Inputs, ann: Annotations, n_folds: int) -> OutOfFold:
    """Return what a fitted classifier says about items and about the annotators who labelled them."""
    right = None
    if classifier.estimates_item_accuracy:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*never seen in training")  # the consensus estimates them
            right = classifier.annotator_accuracy_per_item(inputs, ann)
    return OutOfFold(
        classifier.predict_proba(inputs), None if right is None else np.asarray(right, np.float64), n_folds
    )


@dataclass(frozen=True)
class FoldTraining:
    """A training without the rows of one fold.

    Parameters
    ----------
    classifier : CrowdClassifier
        The classifier to copy; only its settings and `classes_` are used.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels of all rows.
    gold : ndarray of shape (n_items,) or None
        True class of each row as a position in `classes_`, -1 where unknown; used as in `fit`.
    validation : object
        As in `fit`.
    weight : ndarray of shape (n_items,) or None
        Weight of each row in the loss; None: all 1.
    rows : ndarray
        All rows that the classifier learns from.
    fold : ndarray
        The rows of the fold.
    number : int
        Number of the fold, from 1.
    n_folds : int
        Number of folds.
    name : str
        Name of the classifier in titles and file names.
    """

    classifier: CrowdClassifier
    inputs: Inputs
    ann: Annotations
    gold: IntArray | None
    validation: Any
    weight: NDArray[np.float32] | None
    rows: IntArray
    fold: IntArray
    number: int
    n_folds: int
    name: str

    @property
    def title(self) -> str:
        """Name of the training, shown with the progress."""
        return f"{self.name}, fold {self.number} of {self.n_folds}"

    def file(self, folder: Path) -> Path:
        """Return the file that holds the predictions after the training."""
        return folder / f"{self.name}-{self.number}.npz"

    def run(self, folder: Path | None = None) -> OutOfFold | None:
        """Train a fresh copy of the classifier on the other folds, and predict the rows of this fold.

        Parameters
        ----------
        folder : Path or None, default=None
            Folder for the predictions and, until the training has finished, for its checkpoints. Stored predictions are
            returned without training.

        Returns
        -------
        predictions : OutOfFold or None
            Uniform probabilities if the learning method cannot learn from the other rows; `limitations` then says why.
            None if the training was interrupted.
        """
        identity = "" if folder is None else self._identity()
        # all processes do the same
        found = None if folder is None else all_gather(read_fold(self.file(folder), identity))[0]
        if found is not None:
            next_training()
            return found
        found = self._train(None if folder is None else self.file(folder).with_suffix(""))
        if found is not None and folder is not None and is_rank_zero():
            write_fold(self.file(folder), found, identity)
        return found

    def _identity(self) -> str:
        """Return a hash of settings, data and fold: stored predictions are only used for the same training."""
        arrays = [array for array in (self.gold, self.weight, self.rows, self.fold) if array is not None]
        described = [
            self.classifier.method_name,
            repr(sorted(self.classifier.json_settings().items())),
            repr(self.classifier.random_state),
            repr(sorted(fingerprint(self.inputs, self.ann, *arrays).items())),
        ]
        return hashlib.sha256("\n".join(described).encode()).hexdigest()

    def _train(self, checkpoint: Path | None) -> OutOfFold | None:
        """Return the predictions of a copy that is trained without the fold; None if interrupted."""
        train, names, fold = np.setdiff1d(self.rows, self.fold), self.classifier.classes_, self.fold
        ann = self.ann.with_classes(names)
        copy = clone(self.classifier).set_params(checkpoint=checkpoint, classes=list(names))
        gold = None if self.gold is None else [names[k] if k >= 0 else None for k in self.gold[train]]
        try:
            prepared = copy.prepare(
                self.inputs.take(train),
                ann[train],
                gold=gold,
                validation=self.validation,
                sample_weight=None if self.weight is None else self.weight[train],
            )
        except UnfitDataError as error:
            next_training()
            reason = (
                f"The consensus of {format_count(len(fold), 'item')} ignores the model, because the model cannot be "
                f"trained without these items: {error}."
            )
            return OutOfFold(np.full((len(fold), len(names)), 1 / len(names)), None, 0, (reason,))
        copy.fit_prepared(prepared, title=self.title)
        if copy.interrupted_:
            return None
        cut_short = (CUT_SHORT_FOLD,) if copy.cut_short_ else ()
        limitations = (*copy.method_.limitations(), *copy.skipped_phases(), *cut_short)
        return predict_items(copy, self.inputs.take(fold), ann[fold], 0)._replace(limitations=limitations)


def fold_trainings(
    classifier: CrowdClassifier,
    inputs: Inputs,
    ann: Annotations,
    gold: IntArray | None,
    validation: Any,
    folds: int,
    weight: NDArray[np.float32] | None = None,
    name: str | None = None,
) -> list[FoldTraining]:
    """Return one training per fold, which leaves out the rows of the fold.

    Parameters
    ----------
    classifier : CrowdClassifier
        The classifier; only its settings and `classes_` are used.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels of all rows.
    gold : ndarray of shape (n_items,) or None
        True class of each row as a position in `classes_`, -1 where unknown; used as in `fit`.
    validation : object
        As in `fit`.
    folds : int
        Number of folds.
    weight : ndarray of shape (n_items,) or None, default=None
        Weight of each row in the loss; None: all 1. Rows of weight 0 belong to no fold.
    name : str or None, default=None
        Name of the classifier in titles and file names. None: the name of its learning method.

    Returns
    -------
    trainings : list of FoldTraining
        Empty if there are fewer than two rows to learn from.
    """
    rows = trained_rows(classifier, ann, gold)
    if weight is not None:
        rows = rows[weight[rows] > 0]
    parts = assign_folds(rows, folds)
    return [
        FoldTraining(
            classifier,
            inputs,
            ann,
            gold,
            validation,
            weight,
            rows,
            fold,
            number,
            len(parts),
            name or classifier.method_name,
        )
        for number, fold in enumerate(parts, 1)
    ]


def run_folds(trainings: Sequence[FoldTraining], folder: Path | None = None) -> list[OutOfFold] | None:
    """Run trainings one after the other, and return their predictions; None if one of them was interrupted."""
    predictions = []
    for training in trainings:
        found = training.run(folder)
        if found is None:
            return None
        predictions.append(found)
    return predictions


def insert_folds(
    predicted: OutOfFold, trainings: Sequence[FoldTraining], predictions: Sequence[OutOfFold], labels: Annotations
) -> OutOfFold:
    """Return predictions of all rows, in which the predictions of the folds replace those of `predicted`.

    Parameters
    ----------
    predicted : OutOfFold
        Predictions of all rows, for rows that belong to no fold. Its arrays are overwritten.
    trainings : sequence of FoldTraining
        The trainings of the folds.
    predictions : sequence of OutOfFold
        What they predict.
    labels : Annotations
        The labels that `predicted` belongs to.

    Returns
    -------
    predictions : OutOfFold
    """
    probabilities, right = predicted.class_probabilities, predicted.right_probability
    limitations = list(predicted.limitations)
    for training, found in zip(trainings, predictions, strict=True):
        probabilities[training.fold] = found.class_probabilities
        if right is not None and found.right_probability is not None:
            right[np.isin(labels.item, training.fold)] = found.right_probability
        limitations += found.limitations
    return OutOfFold(probabilities, right, len(trainings), tuple(dict.fromkeys(limitations)))


def cross_fit(
    classifier: CrowdClassifier,
    inputs: Inputs,
    ann: Annotations,
    *,
    gold: IntArray | None = None,
    validation: Any = None,
    folds: int = 5,
    folder: Path | None = None,
    labels: Annotations | None = None,
) -> OutOfFold | None:
    """Predict every row by a classifier that was not trained on it.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier. It predicts the rows that it did not learn from; fresh copies predict the others.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels that the classifier was trained on.
    gold : ndarray of shape (n_items,) or None, default=None
        True class of each row as a position in `classes_`, -1 where unknown; used as in `fit`.
    validation : object, default=None
        As in `fit`.
    folds : int, default=5
        Number of folds.
    folder : Path or None, default=None
        Folder for the predictions of finished folds and for checkpoints, so that cross-fitting can be resumed.
    labels : Annotations or None, default=None
        All labels of the rows, also those that were kept out of training. None: `ann`.

    Returns
    -------
    predictions : OutOfFold or None
        For `labels`, with 0 folds if there are too few rows, and None if the classifier learns from gold alone and
        there is none. None instead of predictions if a training was interrupted.
    """
    labels = (ann if labels is None else labels).with_classes(classifier.classes_)
    predicted = predict_items(classifier, inputs, labels, 0)
    if not len(trained_rows(classifier, ann, gold)):
        return predicted._replace(n_folds=None)
    trainings = fold_trainings(classifier, inputs, ann, gold, validation, folds)
    if folds and not trainings:
        predicted = predicted._replace(limitations=(ONE_ITEM,))
    with training_series((1.0,) * len(trainings)):
        predictions = run_folds(trainings, folder)
    return None if predictions is None else insert_folds(predicted, trainings, predictions, labels)


def combine(
    classifier: CrowdClassifier, inputs: Inputs, ann: Annotations, predictions: OutOfFold, gold: ArrayLike | None
) -> Consensus:
    """Return the consensus of labels and out-of-fold predictions.

    Parameters
    ----------
    classifier : CrowdClassifier
        The fitted classifier, whose prediction the result shows.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels of all rows.
    predictions : OutOfFold
        Predictions for these rows and labels.
    gold : array-like of shape (n_items,) or None
        True class of each row, by name; None where unknown.

    Returns
    -------
    result : Consensus
    """
    result = consensus(
        ann,
        predictions.class_probabilities,
        classes=classifier.classes_,
        gold=gold,
        n_folds=predictions.n_folds,
        predicted=classifier.predict_proba(inputs),
        right_probability=predictions.right_probability,
    )
    sentences = (*result.limitations, *classifier.training_limitations(), *predictions.limitations)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*never seen in training")
        weights = classifier.annotator_weights(inputs, ann, sparse=True).data.astype(np.float32)
    return replace(result, label_weights=weights, limitations=tuple(dict.fromkeys(sentences)))


def write_fold(file: Path, predictions: OutOfFold, identity: str) -> None:
    """Write the predictions of a fold and the identity of its training; the file is complete or absent."""
    arrays: dict[str, NDArray[Any]] = {
        "class_probabilities": predictions.class_probabilities,
        "limitations": np.array(predictions.limitations, dtype=np.str_),
        "identity": np.array(identity),
    }
    if predictions.right_probability is not None:
        arrays["right_probability"] = predictions.right_probability
    with atomic_file(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # NumPy's stubs take the names for an option


def read_fold(file: Path, identity: str) -> OutOfFold | None:
    """Return the predictions of a fold; None if they are not stored, or belong to another training."""
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        if str(arrays["identity"]) != identity:
            return None
        limitations = tuple(arrays["limitations"].tolist())
        return OutOfFold(arrays["class_probabilities"], arrays.get("right_probability"), 0, limitations)
