"""`Aggregate`: the result of every aggregation method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation.votes import FloatArray, Votes
from crowdfuse.labels.encoding import names_with_missing
from crowdfuse.labels.ids import IntArray, format_count
from crowdfuse.labels.votes import argmax_breaking_ties


@dataclass(frozen=True, repr=False, eq=False)
class Aggregate:
    """Consensus labels, class probabilities and annotator accuracies.

    Attributes
    ----------
    method : str
        Name of the aggregation method: a key of `crowdfuse.aggregation.AGGREGATORS`.
    items : ndarray of shape (n_items,)
        Item ids.
    classes : ndarray of shape (n_classes,)
        Class names.
    annotators : ndarray of shape (n_annotators,)
        Annotator ids.
    class_probabilities : ndarray of float32, shape (n_items, n_classes)
        Probability of each class; NaN for items without labels.
    consensus_codes : ndarray of int64, shape (n_items,)
        Most probable class, as a position in `classes`; -1 for items without labels. Ties are broken at random.
    annotator_accuracy : ndarray of float64, shape (n_annotators,)
        Estimated fraction of the annotator's labels that are right; NaN for annotators without labels. All methods
        compute it in the same way. Each label has the probability that `class_probabilities` gives to the labelled
        class of the item. The accuracy is the mean of these probabilities over all labels of the annotator.
    labels_per_item : ndarray of int, shape (n_items,)
        Number of labels of each item.
    labels_per_annotator : ndarray of int, shape (n_annotators,)
        Number of labels of each annotator.
    confusion_matrices : ndarray of float64, shape (n_annotators, n_classes, n_classes), or None
        P(annotator's label | true class), axes (annotator, true class, annotator's label). None if the method does not
        estimate them.
    parameters : mapping of str to ndarray
        Other estimates of the method, by name; the docstring of the method lists them.
    log_likelihood : tuple of float
        log P(labels) at each iteration. If the method has a prior on its parameters, the logarithm of this prior is
        added. The values never decrease. Empty if the method is not iterative.
    converged : bool, default=True
        True if EM stopped because the log-likelihood hardly increased any more (parameter `tol` of the method). False
        if EM stopped after `max_iter` iterations instead. Always True if the method is not iterative.

    See Also
    --------
    crowdfuse.aggregation.dawid_skene : One of the methods that return an `Aggregate`.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> from crowdfuse.aggregation import majority_vote
    >>> result = majority_vote(Annotations.from_matrix([["cat", "cat"], ["dog", None]]))
    >>> result
    Aggregate(majority-vote: 2 items, 2 annotators, 2 classes)
    >>> result.consensus.tolist(), result.annotator_accuracy.tolist()
    (['cat', 'dog'], [1.0, 1.0])
    """

    method: str
    items: NDArray[Any]
    classes: NDArray[Any]
    annotators: NDArray[Any]
    class_probabilities: NDArray[np.float32]
    consensus_codes: IntArray
    annotator_accuracy: FloatArray
    labels_per_item: IntArray
    labels_per_annotator: IntArray
    confusion_matrices: FloatArray | None = None
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    log_likelihood: tuple[float, ...] = ()
    converged: bool = True

    @property
    def n_iter(self) -> int:
        """Number of iterations: the length of `log_likelihood`. 0 if the method is not iterative.

        The function `crowdfuse.consensus` stores only the log-likelihood of its last iteration, so `n_iter` of its
        result is 1.
        """
        return len(self.log_likelihood)

    @property
    def confidence(self) -> NDArray[np.float32]:
        """Probability of the most probable class: ndarray of float32, shape (n_items,)."""
        highest: NDArray[np.float32] = self.class_probabilities.max(1)
        return highest

    @property
    def consensus(self) -> NDArray[Any]:
        """Name of the most probable class: ndarray of shape (n_items,).

        Items without a consensus are those with -1 in `consensus_codes`. Their value is -1 if all class names are
        integers and none of them is -1. Otherwise, their value is None.
        """
        names: NDArray[Any] = names_with_missing(self.classes)[self.consensus_codes]
        return names

    def to_table(self, *, proba: bool = False) -> Any:
        """Return the consensus as a pyarrow table with one row per item.

        Parameters
        ----------
        proba : bool, default=False
            Whether to add the probability of each class, in one column `p_<class>` per class.

        Returns
        -------
        pyarrow.Table
            Table with the columns item, label, confidence and n_labels. For items without labels, label and confidence
            are null.

        Examples
        --------
        >>> from crowdfuse import Annotations
        >>> from crowdfuse.aggregation import majority_vote
        >>> result = majority_vote(Annotations.from_matrix([["cat", "cat"], ["dog", None]]))
        >>> result.to_table().to_pylist()[1]
        {'item': 1, 'label': 'dog', 'confidence': 1.0, 'n_labels': 1}
        """
        import pyarrow as pa

        known = self.consensus_codes >= 0
        columns = {
            "item": pa.array(self.items),
            "label": pa.array(self.classes).take(pa.array(self.consensus_codes, mask=~known)),
            "confidence": pa.array(self.confidence, mask=~known),
            "n_labels": pa.array(self.labels_per_item),
        }
        if proba:
            columns |= {
                f"p_{name}": pa.array(self.class_probabilities[:, k], mask=~known)
                for k, name in enumerate(self.classes)
            }
        return pa.table(columns)

    def __repr__(self) -> str:
        ran = f", {format_count(self.n_iter, 'iteration')}, {'' if self.converged else 'not '}converged"
        return (
            f"Aggregate({self.method}: {len(self.items):,} items, {len(self.annotators):,} annotators, "
            f"{len(self.classes):,} classes{ran if self.n_iter else ''})"
        )


def make_result(
    method: str,
    votes: Votes,
    soft: NDArray[np.float32],
    *,
    seed: int,
    confusions: FloatArray | None = None,
    parameters: Mapping[str, FloatArray] | None = None,
    em_trace: tuple[tuple[float, ...], bool] = ((), True),
) -> Aggregate:
    """Build the result of a method from the class probabilities of the items with labels.

    Parameters
    ----------
    method : str
        Name of the method.
    votes : Votes
        The labels.
    soft : ndarray of float32, shape (n_labelled_items, n_classes)
        Class probabilities of the items with labels.
    seed : int
        Seed for breaking ties.
    confusions : ndarray of shape (n_annotators, n_classes, n_classes), default=None
        Confusion matrices. The matrices of annotators without labels are overwritten with NaN.
    parameters : mapping of str to ndarray, default=None
        Other estimates, by name.
    em_trace : tuple of (tuple of float, bool), default=((), True)
        Log-likelihood of each iteration, and whether EM converged.

    Returns
    -------
    Aggregate
    """
    ann = votes.annotations
    counts = votes.labels_per_annotator()
    n_right = np.zeros(votes.n_annotators)
    for block in votes.blocks:
        n_right += block.sum_by_annotator(block.label_confidence(soft[block.rows]))
    with np.errstate(invalid="ignore"):
        accuracy = n_right / counts
    consensus = np.full(ann.n_items, -1, np.int64)
    consensus[votes.labelled] = most_likely(soft, seed)
    if confusions is not None:
        confusions[counts == 0] = np.nan
    return Aggregate(
        method=method,
        items=ann.items,
        classes=ann.classes,
        annotators=ann.annotators,
        class_probabilities=_with_unlabelled(soft, votes),
        consensus_codes=consensus,
        annotator_accuracy=accuracy,
        labels_per_item=np.diff(ann.indptr),
        labels_per_annotator=counts,
        confusion_matrices=confusions,
        parameters={} if parameters is None else parameters,
        log_likelihood=em_trace[0],
        converged=em_trace[1],
    )


def _with_unlabelled(soft: NDArray[np.float32], votes: Votes) -> NDArray[np.float32]:
    """Class probabilities of all items, NaN for items without labels."""
    if votes.labelled.all():
        return soft
    all_items = np.full((len(votes.labelled), votes.n_classes), np.nan, np.float32)
    all_items[votes.labelled] = soft
    return all_items


def most_likely(soft: NDArray[np.float32], seed: int) -> IntArray:
    """Return the most probable class of each row, with ties broken at random.

    Parameters
    ----------
    soft : ndarray of shape (n_items, n_classes)
        Class probabilities.
    seed : int
        Seed for breaking ties.

    Returns
    -------
    ndarray of int64, shape (n_items,)

    Examples
    --------
    >>> most_likely(np.array([[0.2, 0.8], [0.9, 0.1]]), seed=0).tolist()
    [1, 0]
    """
    return argmax_breaking_ties(soft, np.random.default_rng(seed).random(len(soft)))
