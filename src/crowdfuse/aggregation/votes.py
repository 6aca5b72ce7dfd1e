"""The labels in blocks of items, in the form in which aggregation methods read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_names
from crowdfuse.labels.votes import vote_counts, vote_shares

FloatArray = NDArray[np.float64]

FLOATS_PER_BLOCK = 1 << 22  # numbers that are processed at a time: 32 MB
MAX_DENSE_BYTES = 1 << 31  # a larger dense array raises an error


@dataclass(frozen=True)
class Block:
    """Consecutive items and their labels.

    Attributes
    ----------
    rows : slice
        Positions of the block's items among the items that have labels.
    item : ndarray of int32, shape (n_labels,)
        For each label, the position of its item in the block, from 0 to n_items - 1.
    annotator : ndarray of int, shape (n_labels,)
        Annotator of each label.
    label : ndarray of int, shape (n_labels,)
        Class of each label.
    n_items, n_annotators, n_classes : int
        Number of items in this block, and total numbers of annotators and classes.
    """

    rows: slice
    item: NDArray[np.int32]
    annotator: IntArray
    label: IntArray
    n_items: int
    n_annotators: int
    n_classes: int

    @cached_property
    def annotator_class_cell(self) -> NDArray[np.int64]:
        """For each label, the flat index `annotator * n_classes + class`: ndarray of shape (n_labels,)."""
        return self.annotator.astype(np.int64) * self.n_classes + self.label

    @cached_property
    def item_class_cell(self) -> NDArray[np.int64]:
        """For each label, the flat index `item * n_classes + class`: ndarray of shape (n_labels,)."""
        return self.item.astype(np.int64) * self.n_classes + self.label

    @cached_property
    def incidence(self) -> Any:
        """Sparse matrix of shape (n_items, n_annotators * n_classes) that holds 1 for each label."""
        from scipy.sparse import csr_matrix

        starts = np.searchsorted(self.item, np.arange(self.n_items + 1))
        column = self.annotator.astype(np.int64) * self.n_classes + self.label  # a copy: scipy converts it to int32
        shape = (self.n_items, self.n_annotators * self.n_classes)
        return csr_matrix((np.ones(len(column)), column, starts), shape=shape)

    def vote_counts(self, weight: FloatArray | None = None) -> FloatArray:
        """Return the number of labels, or their total weight, per item and class: (n_items, n_classes)."""
        return vote_counts(self.item_class_cell, self.n_items, self.n_classes, weight)

    def vote_shares(self, weight: FloatArray | None = None) -> FloatArray:
        """Return the vote counts divided by their sum per item: (n_items, n_classes)."""
        return vote_shares(self.item_class_cell, self.n_items, self.n_classes, weight)

    def label_confidence(self, soft: NDArray[Any]) -> NDArray[Any]:
        """Return the probability that each label is right, given class probabilities (n_items, n_classes)."""
        return soft.ravel()[self.item_class_cell]

    def sum_by_annotator(self, values: NDArray[Any]) -> FloatArray:
        """Sum `values`, one per label, over the labels of each annotator: (n_annotators,)."""
        return np.asarray(np.bincount(self.annotator, weights=values, minlength=self.n_annotators), np.float64)


class Votes:
    """All labels, in blocks of items. Items without labels are left out; results have NaN for these items.

    Parameters
    ----------
    ann : Annotations
        The labels.

    Attributes
    ----------
    annotations : Annotations
        The labels.
    labelled : ndarray of bool, shape (n_items of `annotations`,)
        For each item, whether it has labels.
    n_items : int
        Number of items with labels.
    n_annotators, n_classes, n_labels : int
        Numbers of all annotators, classes and labels.
    blocks : list of Block
        The labels, in the order of the items.

    Raises
    ------
    TypeError
        If `ann` is not Annotations.
    ValueError
        If there are no labels or fewer than two classes, or if the class probabilities would take more than 2 GB.

    Examples
    --------
    >>> votes = Votes(Annotations.from_matrix([[0, 1], [-1, -1], [1, -1]]))
    >>> votes.n_items, [block.vote_counts().tolist() for block in votes.blocks]
    (2, [[[1.0, 1.0], [0.0, 1.0]]])
    """

    def __init__(self, ann: Annotations) -> None:
        if not isinstance(ann, Annotations):
            raise TypeError(
                f"labels must be Annotations, got {type(ann).__name__}; create them with Annotations.from_matrix() or "
                "Annotations.from_table()"
            )
        if not ann.n_labels:
            raise ValueError(f"there is no label to aggregate in {ann!r}; pass at least one label")
        if ann.n_classes < 2:
            raise ValueError(
                f"all labels are {format_names(ann.classes)}, so there is nothing to aggregate; if there are other "
                "classes, list all classes with classes= (--classes on the command line)"
            )
        self.annotations = ann
        self.n_annotators, self.n_classes, self.n_labels = ann.n_annotators, ann.n_classes, ann.n_labels
        self.labelled: NDArray[np.bool_] = np.diff(ann.indptr) > 0
        self.n_items = int(self.labelled.sum())
        refuse_dense(
            self.n_items * self.n_classes * 4, f"class probabilities of {self.n_items:,} items", self.n_classes
        )
        self.blocks = list(self._blocks(np.append(ann.indptr[:-1][self.labelled], ann.n_labels)))

    def _blocks(self, indptr: IntArray) -> Iterator[Block]:
        """Yield the blocks. `indptr` belongs to the items with labels. A label counts as four numbers."""
        cost = 4 * indptr + self.n_classes * np.arange(self.n_items + 1)
        ends = np.searchsorted(cost, np.arange(FLOATS_PER_BLOCK, cost[-1] + FLOATS_PER_BLOCK, FLOATS_PER_BLOCK))
        bounds = np.unique(np.concatenate([[0], np.minimum(ends, self.n_items), [self.n_items]]))
        for start, end in pairwise(bounds):
            labels = slice(indptr[start], indptr[end])
            yield Block(
                slice(int(start), int(end)),
                np.repeat(np.arange(end - start, dtype=np.int32), np.diff(indptr[start : end + 1])),
                self.annotations.annotator[labels],
                self.annotations.label[labels],
                int(end - start),
                self.n_annotators,
                self.n_classes,
            )

    def empty(self) -> NDArray[np.float32]:
        """Return an uninitialized float32 array for class probabilities: (n_items, n_classes)."""
        return np.empty((self.n_items, self.n_classes), np.float32)

    def labels_per_annotator(self) -> IntArray:
        """Return the number of labels of each annotator: (n_annotators,)."""
        return np.bincount(self.annotations.annotator, minlength=self.n_annotators)


def normalize_log_joint(scores: FloatArray) -> tuple[FloatArray, float]:
    """Turn log P(class, labels) into P(class | labels), in place.

    Parameters
    ----------
    scores : ndarray of float64, shape (n_items, n_classes)
        log P(class, labels) of each item; overwritten.

    Returns
    -------
    posterior : ndarray of float64, shape (n_items, n_classes)
        P(class | labels): the array `scores`.
    log_likelihood : float
        Sum over the items of log P(labels).

    Examples
    --------
    >>> normalize_log_joint(np.log([[0.3, 0.1]]))[0].round(2).tolist()
    [[0.75, 0.25]]
    """
    top = scores.max(1, keepdims=True)
    scores -= top
    np.exp(scores, out=scores)
    total = scores.sum(1, keepdims=True)
    scores /= total
    return scores, float(top.sum() + np.log(total).sum())


def refuse_dense(size: int, what: str, n_classes: int) -> None:
    """Raise an error, before any work, if an array would take more than 2 GB.

    Parameters
    ----------
    size : int
        Size of the array in bytes.
    what : str
        What the array holds, for the error message.
    n_classes : int
        Number of classes, for the error message.

    Raises
    ------
    ValueError
        If the array is too large.
    """
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"{what} with {n_classes:,} classes would take {size / 2**30:.1f} GB, but the limit is 2 GB; "
            "aggregate only some of the items at a time, or use a method with fewer parameters, such as one-coin"
        )
