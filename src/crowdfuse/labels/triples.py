"""Sort labels by item and annotator, drop repeated labels and resolve conflicts.

A label is a triple of codes (item, annotator, class). A code is a position in the list of ids or class names.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.ids import IntArray

TRIPLES_PER_CHUNK = 1 << 17  # number of triples that are distributed to buckets at a time


class SortedTriples(NamedTuple):
    """Labels sorted by item and annotator, and how many were dropped.

    Attributes
    ----------
    indptr : ndarray of int64, shape (n_items + 1,)
        The labels of item n are the slice `indptr[n]:indptr[n + 1]` of the other two arrays.
    annotator, label : ndarray of int32, shape (n_labels,)
        Codes of the annotator and of the class of each label.
    n_duplicates : int
        Number of repeated labels that were dropped.
    n_conflicts : int
        Number of labels that were dropped because the annotator gave the item a different label.
    """

    indptr: NDArray[np.int64]
    annotator: NDArray[np.int32]
    label: NDArray[np.int32]
    n_duplicates: int
    n_conflicts: int


class ConflictError(ValueError):
    """Error: an annotator gave one item two different labels.

    Parameters
    ----------
    count : int
        Number of (item, annotator) pairs with different labels.
    rows : list of tuple of int
        For each of up to five of these pairs, the row numbers of two different labels.
    """

    def __init__(self, count: int, rows: list[tuple[int, int]]) -> None:
        super().__init__(f"{count} (item, annotator) pairs have two different labels")
        self.count = count
        self.rows = rows


def sort_triples(
    item: IntArray,
    annotator: IntArray,
    label: IntArray,
    n_items: int,
    on_conflict: Literal["error", "first", "last", "drop"] = "error",
) -> SortedTriples:
    """Sort labels by item, then by annotator; drop repeated labels and resolve conflicts.

    Parameters
    ----------
    item, annotator, label : ndarray of int, shape (n_triples,)
        Codes of the item, annotator and class of each label; none is negative.
    n_items : int
        Number of items; items without labels are allowed.
    on_conflict : {"error", "first", "last", "drop"}, default="error"
        What to do if an annotator gave an item two different labels: raise an error, keep the first or the last, or
        drop all labels of this annotator on this item.

    Returns
    -------
    SortedTriples

    Raises
    ------
    ConflictError
        If there are conflicts and `on_conflict` is "error".

    Examples
    --------
    >>> sort_triples(np.array([1, 0, 1]), np.array([0, 0, 0]), np.array([2, 1, 2]), 2).label.tolist()
    [1, 2]
    """
    result = _sort_packed(item, annotator, label, n_items)
    return _sort_by_row(item, annotator, label, n_items, on_conflict) if result is None else result


def _sort_packed(item: IntArray, annotator: IntArray, label: IntArray, n_items: int) -> SortedTriples | None:
    """Sort triples as single integers; None if they do not fit into 63 bits, or if labels conflict.

    The integers are distributed by their highest bits, which belong to the item, into buckets that fit the cache. The
    buckets are then sorted and unpacked in parallel.
    """
    item_bits, annotator_bits, label_bits = _bits(item), _bits(annotator), _bits(label)
    bits = item_bits + annotator_bits + label_bits
    if bits > 63 or max(item_bits, annotator_bits, label_bits) > 31:
        return None
    bucket_bits = min(8, item_bits) if len(item) > TRIPLES_PER_CHUNK else 0
    own_bits, low_bits = item_bits - bucket_bits, bits - bucket_bits
    # the integers of a bucket agree in their highest bits; if the rest fits into 32 bits, sorting is faster
    low = np.uint32 if low_bits <= 32 else np.uint64
    # a few large arrays that the threads fill, because allocating many small arrays is slower
    keys = np.empty(len(item), low)
    annotators, labels = np.empty(len(item), np.int32), np.empty(len(item), np.int32)
    counts = np.empty(1 << item_bits, np.int64)

    def distribute(start: int) -> NDArray[np.int64]:
        """Put one chunk in the order of its buckets; return where each bucket begins."""
        rows = slice(start, start + TRIPLES_PER_CHUNK)
        key = item[rows].astype(np.int64)
        for codes, width in ((annotator, annotator_bits), (label, label_bits)):
            key <<= width
            key |= codes[rows]
        bucket = (key >> low_bits).astype(np.uint8)
        keys[rows] = key if (bucket[1:] >= bucket[:-1]).all() else key[np.argsort(bucket, kind="stable")]
        return start + np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=1 << bucket_bits))])

    def sort(bucket: int) -> tuple[int, bool]:
        """Sort and unpack one bucket; return how many triples are left, and whether labels conflict."""
        key = np.concatenate([keys[begin[bucket] : begin[bucket + 1]] for begin in chunk_begins])
        key.sort()
        key = key[_is_new(key)]
        pair = key >> low(label_bits)
        own = _lowest(pair >> low(annotator_bits), own_bits)
        counts[bucket << own_bits : bucket + 1 << own_bits] = np.bincount(own, minlength=1 << own_bits)
        place = slice(begins[bucket], begins[bucket] + len(key))
        annotators[place], labels[place] = _lowest(pair, annotator_bits), _lowest(key, label_bits)
        return len(key), not _is_new(pair).all()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        starts = range(0, max(len(item), 1), TRIPLES_PER_CHUNK)
        chunk_begins = list(pool.map(distribute, starts))
        begins = np.sum(chunk_begins, axis=0) - sum(starts)
        n_left, has_conflict = zip(*pool.map(sort, range(1 << bucket_bits)), strict=True)
    if any(has_conflict):
        return None
    n_duplicates = len(item) - sum(n_left)
    if n_duplicates:  # close the gaps that dropped triples leave
        parts = [slice(begin, begin + count) for begin, count in zip(begins[:-1], n_left, strict=True)]
        annotators, labels = (np.concatenate([codes[part] for part in parts]) for codes in (annotators, labels))
    counts.resize(n_items, refcheck=False)  # its length was a power of two
    return SortedTriples(_indptr(counts), annotators, labels, n_duplicates, 0)


def _sort_by_row(item: IntArray, annotator: IntArray, label: IntArray, n_items: int, on_conflict: str) -> SortedTriples:
    """Sort triples of any size with a stable sort that keeps track of the rows, and resolve conflicts."""
    order = np.lexsort((annotator, item))
    item, annotator, label = item[order], annotator[order], label[order]
    new_pair = np.ones(len(order), bool)
    new_pair[1:] = (item[1:] != item[:-1]) | (annotator[1:] != annotator[:-1])
    first = np.flatnonzero(new_pair)
    pair = np.cumsum(new_pair) - 1
    differs = label != label[first][pair]
    conflicting = np.zeros(len(first), bool)
    conflicting[pair[differs]] = True
    n_conflicting = int(conflicting.sum())
    if n_conflicting and on_conflict == "error":
        at = np.flatnonzero(differs)
        _, once = np.unique(pair[at], return_index=True)
        raise ConflictError(n_conflicting, [(int(order[first[pair[i]]]), int(order[i])) for i in at[once][:5]])
    last = np.append(first[1:], len(order)) - 1
    chosen = last if on_conflict == "last" else first
    if on_conflict == "drop":
        chosen = chosen[~conflicting]
    # every row that was not chosen either repeats the chosen label or conflicts with it
    n_dropped = len(order) - len(chosen)
    in_conflict = conflicting[pair]
    if on_conflict == "drop":
        n_conflicts = int(in_conflict.sum())
    else:
        n_conflicts = int((in_conflict & (label != label[chosen][pair])).sum())
    return SortedTriples(
        _indptr(np.bincount(item[chosen], minlength=n_items)),
        annotator[chosen].astype(np.int32),
        label[chosen].astype(np.int32),
        n_dropped - n_conflicts,
        n_conflicts,
    )


def _indptr(counts: IntArray) -> NDArray[np.int64]:
    """Where each item's labels begin, from the number of labels per item."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False)


def _is_new(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the sorted values differ from the previous one."""
    new = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _lowest(values: NDArray[Any], bits: int) -> NDArray[np.int32]:
    """The lowest bits of each value."""
    lowest: NDArray[np.int32] = (values & values.dtype.type((1 << bits) - 1)).astype(np.int32)
    return lowest


def _bits(codes: IntArray) -> int:
    """Number of bits of the largest code."""
    return int(codes.max()).bit_length() if len(codes) else 0
