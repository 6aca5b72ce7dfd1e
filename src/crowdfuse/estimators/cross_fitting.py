"""Cross-fitting: class probabilities of each item by a copy of a classifier that was trained without the item."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crowdfuse.io.files import atomic_file
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier


def check_folds(folds: Any) -> int:
    """Return the number of folds.

    Raises
    ------
    ValueError
        If it is not 0 or an integer of at least 2.

    Examples
    --------
    >>> check_folds(5)
    5
    """
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 0 or folds == 1:
        raise ValueError(
            f"folds must be an integer of at least 2, or 0 for no cross-fitting, got {folds!r}; 5 is the usual number"
        )
    return int(folds)


def assign_folds(rows: IntArray, folds: int) -> list[IntArray]:
    """Split rows into folds of nearly equal size at random; the same rows always give the same folds.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,)
        Row numbers.
    folds : int
        Number of folds. With fewer rows than folds, every row is a fold; fewer than two rows give none.

    Returns
    -------
    list of ndarray
        The rows of each fold, sorted.

    Examples
    --------
    >>> [len(fold) for fold in assign_folds(np.arange(7), 3)]
    [3, 2, 2]
    """
    count = min(folds, len(rows))
    if count < 2:
        return []
    return [np.sort(part) for part in np.array_split(np.random.default_rng(0).permutation(rows), count)]


def trained_rows(classifier: CrowdClassifier, ann: Annotations, gold: IntArray | None) -> IntArray:
    """Return the rows that the classifier learns from: those with labels or, if it learns from gold, with gold."""
    is_used = np.diff(ann.indptr) > 0
    if gold is not None:
        is_used = (gold >= 0) | (is_used & type(classifier).trains_on_labels)
    rows: IntArray = np.flatnonzero(is_used)
    return rows


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
) -> NDArray[np.float64] | None:
    """Train a fresh copy of a classifier without the rows of a fold, and predict these rows.

    Parameters
    ----------
    classifier : CrowdClassifier
        The fitted classifier; only its settings and classes are used.
    inputs : Inputs
        The inputs of all rows.
    ann : Annotations
        The labels of all rows.
    gold : ndarray of shape (n_items,) or None
        True class of each row as a position in `classes_`, -1 where unknown; used as in `fit`.
    validation : object
        As in `fit`.
    fold : ndarray
        Rows to predict.
    rows : ndarray
        All rows that the classifier learns from.
    title : str
        Shown with the progress.
    checkpoint : Path or None, default=None
        Folder for checkpoints of the training.

    Returns
    -------
    probabilities : ndarray of shape (n_fold, n_classes) or None
        None if the training was interrupted.
    """
    train = np.setdiff1d(rows, fold)
    copy = clone(classifier).set_params(checkpoint=checkpoint, classes=list(classifier.classes_))
    names = classifier.classes_
    train_gold = None if gold is None else [names[k] if k >= 0 else None for k in gold[train]]
    prepared = copy.prepare(inputs.take(train), ann.with_classes(names)[train], gold=train_gold, validation=validation)
    copy.fit_prepared(prepared, title=title)
    return None if copy.interrupted_ else copy.predict_proba(inputs.take(fold))


def cross_fit(
    classifier: CrowdClassifier,
    inputs: Inputs,
    ann: Annotations,
    *,
    gold: IntArray | None = None,
    validation: Any = None,
    folds: int = 5,
    folder: Path | None = None,
) -> tuple[NDArray[np.float64], int] | None:
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
        Folder that holds the predictions of finished folds and the checkpoints of the others, so that cross-fitting
        can be resumed.

    Returns
    -------
    probabilities : ndarray of shape (n_items, n_classes)
    n_folds : int
        Number of folds that were used: 0 if there are too few rows.

    Notes
    -----
    Returns None if a training was interrupted.
    """
    probabilities = classifier.predict_proba(inputs)
    rows = trained_rows(classifier, ann, gold)
    parts = assign_folds(rows, folds)
    for number, fold in enumerate(parts):
        file = None if folder is None else folder / f"fold-{number + 1}.npy"
        if file is not None and file.exists():
            probabilities[fold] = np.load(file, allow_pickle=False)
            continue
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
        if file is not None:
            write_fold(file, found)
        probabilities[fold] = found
    return probabilities, len(parts)


def write_fold(file: Path, probabilities: NDArray[np.float64]) -> None:
    """Write the predictions of a fold; the file is complete or absent."""
    with atomic_file(file) as temporary, temporary.open("wb") as stream:
        np.save(stream, probabilities, allow_pickle=False)
