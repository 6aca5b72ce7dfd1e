"""Triples of codes (item, annotator, label) sorted into CSR arrays by item; repeats and contradictions settled."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.ids import IntArray

TRIPLES_PER_CHUNK = 1 << 17  # integers that are dealt at a time


class SortedTriples(NamedTuple):
    indptr: NDArray[np.int64]
    annotator: NDArray[np.int32]
    label: NDArray[np.int32]
    n_duplicates: int
    n_conflicts: int


class ConflictError(ValueError):
    """One annotator gave one item two different labels. `rows` holds pairs of row numbers of a few of them."""

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
    """Sort by item, then annotator; drop repeated triples; settle contradictions as `on_conflict` says.

    >>> sort_triples(np.array([1, 0, 1]), np.array([0, 0, 0]), np.array([2, 1, 2]), 2).label.tolist()
    [1, 2]
    """
    fast = _sort_packed(item, annotator, label, n_items)
    return _sort_by_row(item, annotator, label, n_items, on_conflict) if fast is None else fast


def _sort_packed(item: IntArray, annotator: IntArray, label: IntArray, n_items: int) -> SortedTriples | None:
    """Each triple as one integer; None where that does not fit into 63 bits, or where labels conflict.

    The integers are dealt by their highest bits, which are the item's, into buckets that fit the cache, and the
    buckets are sorted and taken apart side by side.
    """
    item_bits, annotator_bits, label_bits = _bits(item), _bits(annotator), _bits(label)
    bits = item_bits + annotator_bits + label_bits
    if bits > 63 or max(item_bits, annotator_bits, label_bits) > 31:
        return None
    bucket_bits = min(8, item_bits) if len(item) > TRIPLES_PER_CHUNK else 0
    own_bits, low_bits = item_bits - bucket_bits, bits - bucket_bits
    # the integers of a bucket agree in their highest bits, so that 32 may be enough to sort them, and faster
    low = np.uint32 if low_bits <= 32 else np.uint64
    # large arrays that threads fill part by part: the system hands out memory in small pieces more slowly
    keys = np.empty(len(item), low)
    annotators, labels = np.empty(len(item), np.int32), np.empty(len(item), np.int32)
    counts = np.empty(1 << item_bits, np.int64)

    def deal(start: int) -> NDArray[np.int64]:
        """Put some of the integers in the order of their buckets; where each bucket begins among them."""
        rows = slice(start, start + TRIPLES_PER_CHUNK)
        key = item[rows].astype(np.int64)
        for codes, width in ((annotator, annotator_bits), (label, label_bits)):
            key <<= width
            key |= codes[rows]
        bucket = (key >> low_bits).astype(np.uint8)
        keys[rows] = key if (bucket[1:] >= bucket[:-1]).all() else key[np.argsort(bucket, kind="stable")]
        return start + np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=1 << bucket_bits))])

    def sort(bucket: int) -> tuple[int, bool]:
        """Sort and take apart one bucket; how many triples are left, and whether labels conflict."""
        key = np.concatenate([keys[begin[bucket] : begin[bucket + 1]] for begin in dealt])
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
        dealt = list(pool.map(deal, starts))
        begins = np.sum(dealt, axis=0) - sum(starts)
        left, conflicts = zip(*pool.map(sort, range(1 << bucket_bits)), strict=True)
    if any(conflicts):
        return None
    n_duplicates = len(item) - sum(left)
    if n_duplicates:  # close the gaps
        kept = [slice(begin, begin + count) for begin, count in zip(begins[:-1], left, strict=True)]
        annotators, labels = (np.concatenate([codes[part] for part in kept]) for codes in (annotators, labels))
    counts.resize(n_items, refcheck=False)  # it was made for a power of two
    return SortedTriples(_indptr(counts), annotators, labels, n_duplicates, 0)


def _sort_by_row(item: IntArray, annotator: IntArray, label: IntArray, n_items: int, on_conflict: str) -> SortedTriples:
    """The plain way, which remembers the rows: stable sort by item and annotator, then settle each pair."""
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
    # every row that was not chosen either repeats the chosen label or contradicts it
    lost = len(order) - len(chosen)
    contradicting = conflicting[pair]
    if on_conflict == "drop":
        n_conflicts = int(contradicting.sum())
    else:
        n_conflicts = int((contradicting & (label != label[chosen][pair])).sum())
    return SortedTriples(
        _indptr(np.bincount(item[chosen], minlength=n_items)),
        annotator[chosen].astype(np.int32),
        label[chosen].astype(np.int32),
        lost - n_conflicts,
        n_conflicts,
    )


def _indptr(counts: IntArray) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False)


def _is_new(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the sorted values differ from the one before."""
    new = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _lowest(values: NDArray[Any], bits: int) -> NDArray[np.int32]:
    lowest: NDArray[np.int32] = (values & values.dtype.type((1 << bits) - 1)).astype(np.int32)
    return lowest


def _bits(codes: IntArray) -> int:
    return int(codes.max()).bit_length() if len(codes) else 0
