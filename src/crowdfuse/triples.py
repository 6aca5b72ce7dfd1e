"""Triples of codes (item, annotator, label) sorted into CSR arrays by item; repeats and contradictions settled."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.ids import IntArray

CHUNK = 1 << 17  # integers that are dealt at a time


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
    """Each triple as one integer, so that one in-place sort does it all; None where they do not fit or conflict."""
    label_bits, annotator_bits = _bits(label), _bits(annotator)
    bits = _bits(item) + annotator_bits + label_bits
    if bits > 63 or max(annotator_bits, label_bits) > 31:
        return None
    key = item.astype(np.int64)
    key <<= annotator_bits
    key |= annotator
    key <<= label_bits
    key |= label
    _sort_in_place(key, bits)
    repeated = key[1:] == key[:-1]
    n_duplicates = int(repeated.sum())
    if n_duplicates:
        key = key[np.concatenate([[True], ~repeated])]
    sorted_label = key.astype(np.int32) & np.int32((1 << label_bits) - 1)
    key >>= label_bits
    if (key[1:] == key[:-1]).any():
        return None
    sorted_annotator = key.astype(np.int32) & np.int32((1 << annotator_bits) - 1)
    key >>= annotator_bits
    return SortedTriples(_indptr(key, n_items), sorted_annotator, sorted_label, n_duplicates, 0)


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
        _indptr(item[chosen], n_items),
        annotator[chosen].astype(np.int32),
        label[chosen].astype(np.int32),
        lost - n_conflicts,
        n_conflicts,
    )


def _sort_in_place(key: NDArray[np.int64], bits: int) -> None:
    """Sort integers of at most `bits` bits, over threads.

    They are dealt by their highest bits into buckets that fit the cache, and the buckets sorted side by side.
    """
    if len(key) <= CHUNK:
        key.sort()
        return
    bucket_bits = min(8, bits)
    low_bits = bits - bucket_bits
    # the integers of a bucket agree in their highest bits, so that 32 may be enough to sort them, and faster
    low = np.uint32 if low_bits <= 32 else np.int64

    def deal(start: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Some of the integers, ordered by bucket, and where each bucket begins among them."""
        some = key[start : start + CHUNK]
        bucket = (some >> low_bits).astype(np.uint8)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=1 << bucket_bits))])
        return some.astype(low)[np.argsort(bucket, kind="stable")], bounds

    def sort(bucket: int) -> None:
        some = np.concatenate([part[bounds[bucket] : bounds[bucket + 1]] for part, bounds in dealt])
        some.sort()
        place = key[begin[bucket] : begin[bucket + 1]]
        place[:] = some
        place |= bucket << low_bits

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        dealt = list(pool.map(deal, range(0, len(key), CHUNK)))
        begin = sum((bounds for _, bounds in dealt), np.zeros((1 << bucket_bits) + 1, np.int64))
        list(pool.map(sort, range(1 << bucket_bits)))


def _indptr(item: IntArray, n_items: int) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(item, minlength=n_items))]).astype(np.int64)


def _bits(codes: IntArray) -> int:
    return int(codes.max()).bit_length() if len(codes) else 0
