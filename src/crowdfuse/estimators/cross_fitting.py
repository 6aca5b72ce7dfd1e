"""Cross-fitting: each item is predicted by a copy of the classifier that was trained without this item."""

from __future__ import annotations

import warnings
from dataclasses import replace
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
from crowdfuse.quality.consensus import Consensus, consensus
from crowdfuse.training.distributed import all_gather, is_rank_zero
from crowdfuse.training.loop import UnfitDataError
from crowdfuse.training.progress import next_training, training_series

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier


CUT_SHORT_FOLD = "The time limit (max_time) also cut the training of the folds short."


def trained_rows(classifier: CrowdClassifier, ann: Annotations, gold: IntArray | None) -> IntArray:
    """Return the rows that the classifier learns from: rows with labels that it uses, and rows with gold."""
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
        For each label, the probability that its annotator is right on the item; None if the method does not estimate
        it.
    n_folds : int or None
        Number of folds. 0 if the classifier was trained on these items. None if no folds are needed, because the
        classifier did not learn from these labels.
    limitations : tuple of str, default=()
        What the user should know about the folds, in one sentence per limitation.
    """

    class_probabilities: NDArray[np.float64]
    right_probability: NDArray[np.float64] | None
    n_folds: int | None
    limitations: tuple[str, ...] = ()


def predict_items(classifier: CrowdClassifier, inputs: Inputs, ann: Annotations, n_folds: int) -> OutOfFold:
    """Return the predictions of a fitted classifier for items and for the annotators who labelled them."""
    right = None
    if classifier.estimates_item_accuracy:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*never seen in training")  # the consensus estimates them
            right = classifier.annotator_accuracy_per_item(inputs, ann)
    return OutOfFold(
        classifier.predict_proba(inputs), None if right is None else np.asarray(right, np.float64), n_folds
    )


def predict_fold(
    classifier: CrowdClassifier,
    inputs: Inputs,
    ann: Annotations,
    gold: IntArray | None,
    validation: Any,
    fold: IntArray,
    rows: IntArray,
    *,
    title: str,
    checkpoint: Path | None = None,
) -> OutOfFold | None:
    """Train a fresh copy of a classifier without the rows of a fold, and predict these rows.

    Parameters
    ----------
    classifier : CrowdClassifier
        The classifier. Only its settings and `classes_` are used.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels of all rows.
    gold : ndarray of shape (n_items,) or None
        True class of each row as a position in `classes_`, -1 if unknown. The copy is trained on them as in `fit`.
    validation : object
        Data used to choose the best epoch, as in `fit`.
    fold : ndarray
        Rows to predict.
    rows : ndarray
        All rows that the classifier learns from.
    title : str
        Text to show with the progress.
    checkpoint : Path or None, default=None
        Folder for checkpoints of this training run.

    Returns
    -------
    predictions : OutOfFold or None
        Predictions for the rows of the fold. If the method cannot learn from the other rows, all probabilities are
        equal, and `limitations` says why. None if training was interrupted.
    """
    train, names = np.setdiff1d(rows, fold), classifier.classes_
    ann = ann.with_classes(names)
    copy = clone(classifier).set_params(checkpoint=checkpoint, classes=list(names))
    train_gold = None if gold is None else [names[k] if k >= 0 else None for k in gold[train]]
    try:
        prepared = copy.prepare(inputs.take(train), ann[train], gold=train_gold, validation=validation)
    except UnfitDataError as error:
        next_training()
        no_say = (
            f"The consensus of {format_count(len(fold), 'item')} ignores the model, because the model cannot be "
            "trained without them"
        )
        uniform = np.full((len(fold), len(names)), 1 / len(names))
        return OutOfFold(uniform, None, 0, (f"{no_say}: {error}.",))
    copy.fit_prepared(prepared, title=title)
    if copy.interrupted_:
        return None
    predicted = predict_items(copy, inputs.take(fold), ann[fold], 0)
    return predicted._replace(limitations=(CUT_SHORT_FOLD,)) if copy.cut_short_ else predicted


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
        A fitted classifier. It predicts the rows that it did not learn from. Fresh copies of it predict all other rows.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels that the classifier was trained on.
    gold : ndarray of shape (n_items,) or None, default=None
        True class of each row as a position in `classes_`, -1 if unknown. The copies are trained on them as in `fit`.
    validation : object, default=None
        Data used to choose the best epoch, as in `fit`.
    folds : int, default=5
        Number of folds.
    folder : Path or None, default=None
        Folder for the predictions of finished folds and the checkpoints of unfinished folds, so that an interrupted
        cross-fitting can be resumed. None: nothing is stored.
    labels : Annotations or None, default=None
        All labels of the rows, including labels that were not used in training. None: `ann`.

    Returns
    -------
    predictions : OutOfFold or None
        Predictions for all rows and for `labels`. Its `n_folds` is 0 if there are too few rows to split, and None if
        the classifier did not learn from any of these rows. The return value is None if training was interrupted.
    """
    labels = (ann if labels is None else labels).with_classes(classifier.classes_)
    predicted = predict_items(classifier, inputs, labels, 0)
    rows = trained_rows(classifier, ann, gold)
    if not len(rows):
        return predicted._replace(n_folds=None)
    probabilities, right = predicted.class_probabilities, predicted.right_probability
    parts = assign_folds(rows, folds)
    limitations: list[str] = []
    if folds and not parts:
        limitations.append("Cross-fitting is not possible, because there is only one item to learn from.")
    with training_series(len(parts)):
        for number, fold in enumerate(parts):
            file = None if folder is None else fold_file(folder, number)
            found = None if file is None else all_gather(read_fold(file))[0]  # all processes do the same
            if found is not None:
                next_training()
            else:
                found = predict_fold(
                    classifier,
                    inputs,
                    ann,
                    gold,
                    validation,
                    fold,
                    rows,
                    title=f"{classifier.method_name}, fold {number + 1} of {len(parts)}",
                    checkpoint=None if folder is None else folder / f"fold-{number + 1}",
                )
                if found is None:
                    return None
                if file is not None and is_rank_zero():
                    write_fold(file, found)
            probabilities[fold] = found.class_probabilities
            if right is not None and found.right_probability is not None:
                right[np.isin(labels.item, fold)] = found.right_probability
            limitations += found.limitations
    return OutOfFold(probabilities, right, len(parts), tuple(dict.fromkeys(limitations)))


def combine(
    classifier: CrowdClassifier, inputs: Inputs, ann: Annotations, predictions: OutOfFold, gold: ArrayLike | None
) -> Consensus:
    """Compute the consensus from labels and out-of-fold predictions.

    Parameters
    ----------
    classifier : CrowdClassifier
        The fitted classifier. Its predictions are stored in the result.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels of all rows.
    predictions : OutOfFold
        Predictions for these rows and labels.
    gold : array-like of shape (n_items,) or None
        Name of the true class of each row; None if unknown.

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
    more = (*classifier.training_limitations(), *predictions.limitations)
    return replace(result, limitations=(*result.limitations, *more))


def fold_file(folder: Path, number: int) -> Path:
    """Return the file with the predictions of a fold; the first fold has number 0."""
    return folder / f"fold-{number + 1}.npz"


def write_fold(file: Path, predictions: OutOfFold) -> None:
    """Write the predictions of a fold. If writing is interrupted, there is no file instead of an incomplete one."""
    arrays: dict[str, NDArray[Any]] = {
        "class_probabilities": predictions.class_probabilities,
        "limitations": np.array(predictions.limitations, dtype=np.str_),
    }
    if predictions.right_probability is not None:
        arrays["right_probability"] = predictions.right_probability
    with atomic_file(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # NumPy's stubs take the names for an option


def read_fold(file: Path) -> OutOfFold | None:
    """Return the predictions of a fold; None if they are not stored."""
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        limitations = tuple(arrays["limitations"].tolist())
        return OutOfFold(arrays["class_probabilities"], arrays.get("right_probability"), 0, limitations)
