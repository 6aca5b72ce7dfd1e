"""The labels as the methods of this room read them: items that have any, in blocks, and never all by all."""

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

FLOATS_PER_BLOCK = 1 << 22  # numbers that are worked on at a time: 32 MB, whatever the size of the crowd
MAX_DENSE_BYTES = 1 << 31  # bytes of a dense array that are too many


@dataclass(frozen=True)
class Block:
    """Neighbouring items, n of them, and their L labels."""

    rows: slice
    """Which of the items that have labels."""
    item: NDArray[np.int32]
    """(L,): the item of each label, from 0 to n - 1."""
    annotator: IntArray
    label: IntArray
    n_items: int
    n_annotators: int
    n_classes: int

    @cached_property
    def annotator_class_cell(self) -> NDArray[np.int64]:
        """(L,): each label as a cell of a table (annotator, class said)."""
        return self.annotator.astype(np.int64) * self.n_classes + self.label

    @cached_property
    def item_class_cell(self) -> NDArray[np.int64]:
        """(L,): each label as a cell of a table (item, class said)."""
        return self.item.astype(np.int64) * self.n_classes + self.label

    @cached_property
    def incidence(self) -> Any:
        """A sparse matrix (n, R * K): 1 where an annotator said a class of an item."""
        from scipy.sparse import csr_matrix

        starts = np.searchsorted(self.item, np.arange(self.n_items + 1))
        said = self.annotator.astype(np.int64) * self.n_classes + self.label  # not kept: scipy makes it int32
        shape = (self.n_items, self.n_annotators * self.n_classes)
        return csr_matrix((np.ones(len(said)), said, starts), shape=shape)

    def tally(self, weight: FloatArray | None = None) -> FloatArray:
        """The weight of the labels for each class, (n, K): how often it was said where every weight is 1."""
        return vote_counts(self.item_class_cell, self.n_items, self.n_classes, weight)

    def shares(self, weight: FloatArray | None = None) -> FloatArray:
        """The same, so that each item's sum is 1."""
        return vote_shares(self.item_class_cell, self.n_items, self.n_classes, weight)

    def label_confidence(self, soft: NDArray[Any]) -> NDArray[Any]:
        """How likely each label is right, (L,), where the classes are as likely as `soft` (n, K) says."""
        return soft.ravel()[self.item_class_cell]

    def by_annotator(self, values: NDArray[Any]) -> FloatArray:
        """Sums over each annotator's labels, (R,)."""
        return np.asarray(np.bincount(self.annotator, weights=values, minlength=self.n_annotators), np.float64)


class Votes:
    """All labels in blocks. Items without labels are left out here, and come back as NaN in the result.

    >>> votes = Votes(Annotations.from_matrix([[0, 1], [-1, -1], [1, -1]]))
    >>> votes.n_items, [block.tally().tolist() for block in votes.blocks]
    (2, [[[1.0, 1.0], [0.0, 1.0]]])
    """

    def __init__(self, ann: Annotations) -> None:
        if not isinstance(ann, Annotations):
            raise TypeError(
                f"labels must be Annotations, got {type(ann).__name__}; Annotations.from_matrix() and "
                "from_table() make them"
            )
        if not ann.n_labels:
            raise ValueError(f"{ann!r}: there is no label to aggregate")
        if ann.n_classes < 2:
            raise ValueError(
                f"all labels say {format_names(ann.classes)}: with one class there is nothing to decide; name all "
                "classes "
                "with classes= (--classes on the command line)"
            )
        self.annotations = ann
        self.n_annotators, self.n_classes, self.n_labels = ann.n_annotators, ann.n_classes, ann.n_labels
        self.labelled: NDArray[np.bool_] = np.diff(ann.indptr) > 0
        self.n_items = int(self.labelled.sum())
        refuse_dense(self.n_items * self.n_classes * 4, f"soft labels of {self.n_items:,} items", self.n_classes)
        self.blocks = list(self._blocks(np.append(ann.indptr[:-1][self.labelled], ann.n_labels)))

    def _blocks(self, indptr: IntArray) -> Iterator[Block]:
        """`indptr` is that of the items with labels. Labels count for more than one number each: they take indices."""
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
        """Room for the soft labels. Single precision, since this is what is large: (items, K)."""
        return np.empty((self.n_items, self.n_classes), np.float32)

    def labels_per_annotator(self) -> IntArray:
        return np.bincount(self.annotations.annotator, minlength=self.n_annotators)


def normalize_log_joint(scores: FloatArray) -> tuple[FloatArray, float]:
    """From the logarithms of P(class, labels), (n, K), P(class | labels), and the sum of log P(labels).

    The scores are overwritten.

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
    """An array of over 2 GB is refused before any work."""
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"{what} with {n_classes:,} classes take {size / 2**30:.1f} GB, over the 2 GB that are allowed; "
            "aggregate a part of the items at a time, or take a method with less to learn, such as one-coin"
        )
