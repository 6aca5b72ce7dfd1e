"""Many values -> distinct names and a code a row; millions of names by hashing in partitions that fit the cache.

One hash table over millions of names misses the cache on every row. Rows are first dealt into
partitions by a cheap hash of their bytes, so that each partition's table stays small and the partitions,
which share no names, are encoded side by side.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PARTITION_BITS = 6
SAMPLE = 1 << 17  # rows that tell whether there are many names; below, one table is as fast


def encode_values(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """Distinct values in order of first appearance, and a code a row, -1 for null.

    >>> names, codes = encode_values(pa.chunked_array([["b", "a"], ["b", None]]))
    >>> names.to_pylist(), codes.tolist()
    (['b', 'a'], [0, 1, 0, -1])
    """
    if not pa.types.is_string(column.type) or column.null_count or len(column) <= 8 * SAMPLE:
        return encode_plainly(column)
    many = len(column.slice(0, SAMPLE).unique()) > SAMPLE // 8
    return encode_in_partitions(column) if many else encode_plainly(column)


def encode_plainly(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """One table over all rows."""
    encoded = column.dictionary_encode()  # every chunk comes with the whole dictionary
    names = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], column.type)
    codes = [chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices for chunk in encoded.chunks]
    return names, np.concatenate([np.zeros(0, np.int32), *codes])


def encode_in_partitions(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """The same result as `encode_plainly`, for strings without nulls, at least one chunk of them."""
    starts = np.concatenate([[0], np.cumsum([len(chunk) for chunk in column.chunks])]).astype(np.int32)
    passed = _telling_bytes(column)

    def deal(index: int) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.int64]]:
        """One chunk's strings and row numbers, ordered by partition, and where each partition begins."""
        partition = _cheap_hash(column.chunk(index), passed)
        order = np.argsort(partition, kind="stable").astype(np.int32)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(partition, minlength=1 << PARTITION_BITS))])
        return column.chunk(index).take(pa.array(order)), order + starts[index], bounds

    def encode(index: int) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """One partition's names, the code and the number of each of its rows, and each name's first row."""
        strings = [strings.slice(bounds[index], bounds[index + 1] - bounds[index]) for strings, _, bounds in dealt]
        rows = np.concatenate([rows[bounds[index] : bounds[index + 1]] for _, rows, bounds in dealt])
        names, local = encode_plainly(pa.chunked_array(strings))
        first = np.empty(len(names), np.int32)
        first[local[::-1]] = rows[::-1]  # of several writes the last one stays, which is the first row's
        return names, local, rows, first

    def place(index: int) -> None:
        _, local, rows, _ = parts[index]
        codes[rows] = rank[base[index] : base[index + 1]][local]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        dealt = list(pool.map(deal, range(column.num_chunks)))
        parts = list(pool.map(encode, range(1 << PARTITION_BITS)))
        dealt.clear()
        base = np.concatenate([[0], np.cumsum([len(names) for names, *_ in parts])])
        # within a partition first rows go up, and a stable sort merges such runs
        by_appearance = np.argsort(np.concatenate([first for *_, first in parts]), kind="stable").astype(np.int32)
        rank = np.empty(len(by_appearance), np.int32)
        rank[by_appearance] = np.arange(len(rank), dtype=np.int32)
        codes = np.empty(len(column), np.int32)
        list(pool.map(place, range(len(parts))))
    return pa.concat_arrays([names for names, *_ in parts]).take(pa.array(by_appearance)), codes


def _telling_bytes(column: pa.ChunkedArray) -> int:
    """How many bytes at their end to pass over, because many ids end alike, such as '0017_front.jpg'."""
    some = column.slice(0, 4096).combine_chunks()

    def largest_partition(passed: int) -> int:
        return int(np.bincount(_cheap_hash(some, passed), minlength=1).max())

    return min(range(0, 40, 8), key=largest_partition)


def _cheap_hash(strings: pa.StringArray, passed: int) -> NDArray[np.uint8]:
    """A partition number a string: eight bytes near its end (fewer where it is short), multiplied and shifted."""
    _, offset_buffer, data = strings.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else np.zeros(0, np.uint8)
    padded = np.concatenate([np.zeros(8 + passed, np.uint8), text])
    words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))  # one from every byte on
    found: NDArray[np.uint64] = words[offsets[1:] - offsets[0]]
    foreign = 8 + passed - np.diff(offsets)  # of the eight bytes, how many belong to the string before
    if len(foreign) and foreign.max() > 0:
        found >>= (8 * np.clip(foreign, 0, 7)).astype(np.uint64)
        found[foreign >= 8] = 0
    found *= np.uint64(0x9E3779B97F4A7C15)
    found >>= np.uint64(64 - PARTITION_BITS)
    return found.astype(np.uint8)
