"""Many strings -> distinct names and codes, by hashing in partitions that fit the cache, over two threads or more.

One hash table over millions of names misses the cache on every row. Rows are first dealt into
partitions by a cheap hash of their bytes, so that each partition's table stays small and the partitions,
which share no names, are encoded side by side.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PARTITIONS = 64
SAMPLE = 1 << 17  # rows that tell whether there are many names; below, one table is as fast


def encode_values(column: Any) -> tuple[pa.Array, NDArray[np.int32]]:
    """Distinct values in order of first appearance, and a code a row, -1 for null.

    >>> names, codes = encode_values(pa.chunked_array([["b", "a"], ["b", None]]))
    >>> names.to_pylist(), codes.tolist()
    (['b', 'a'], [0, 1, 0, -1])
    """
    many = len(column) > 8 * SAMPLE and len(column.slice(0, SAMPLE).unique()) > SAMPLE // 8
    dealable = pa.types.is_string(column.type) and not column.null_count
    return encode_in_partitions(column) if many and dealable else encode_plainly(column)


def encode_plainly(column: Any) -> tuple[pa.Array, NDArray[np.int32]]:
    """One table over all rows."""
    encoded = column.dictionary_encode()  # every chunk comes with the whole dictionary
    names = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], column.type)
    codes = [chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices for chunk in encoded.chunks]
    return names, np.concatenate([np.zeros(0, np.int32), *codes])


def encode_in_partitions(column: Any) -> tuple[pa.Array, NDArray[np.int32]]:
    """The same result as `encode_plainly`, for a chunked string array without nulls."""
    starts = np.concatenate([[0], np.cumsum([len(chunk) for chunk in column.chunks])])

    def deal(index: int) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.int64]]:
        """One chunk's strings and row numbers, ordered by partition, and where each partition begins."""
        partition = _cheap_hash(column.chunk(index))
        order = np.argsort(partition, kind="stable").astype(np.int32)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(partition, minlength=PARTITIONS))])
        return column.chunk(index).take(pa.array(order)), order + np.int32(starts[index]), bounds

    def encode(index: int) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """One partition's names, the code and the number of each of its rows, and each name's first row."""
        strings = [strings.slice(bounds[index], bounds[index + 1] - bounds[index]) for strings, _, bounds in dealt]
        rows = np.concatenate([rows[bounds[index] : bounds[index + 1]] for _, rows, bounds in dealt])
        encoded = pa.concat_arrays(strings).dictionary_encode()
        codes = np.asarray(encoded.indices)
        # codes count up as names appear, so a name's first row is where the running maximum grows
        fresh = np.diff(np.maximum.accumulate(codes), prepend=-1) > 0
        return encoded.dictionary, codes, rows, rows[fresh]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        dealt = list(pool.map(deal, range(column.num_chunks)))
        parts = list(pool.map(encode, range(PARTITIONS)))
    first_row = np.concatenate([first for *_, first in parts])
    by_appearance = np.argsort(first_row)
    rank = np.empty(len(first_row), np.int32)
    rank[by_appearance] = np.arange(len(first_row), dtype=np.int32)
    codes = np.empty(len(column), np.int32)
    base = 0
    for names, local, rows, _ in parts:
        codes[rows] = rank[base : base + len(names)][local]
        base += len(names)
    return pa.concat_arrays([names for names, *_ in parts]).take(pa.array(by_appearance)), codes


def _cheap_hash(strings: pa.StringArray) -> NDArray[np.uint8]:
    """A partition number a string: its last eight bytes (fewer where it is shorter), multiplied and shifted."""
    _, offset_buffer, data = strings.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else np.zeros(0, np.uint8)
    padded = np.concatenate([np.zeros(8, np.uint8), text])
    words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
    tail = words[offsets[1:] - offsets[0]]  # in the padded bytes, the eight that end where the string ends
    length = np.minimum(np.diff(offsets), 8).astype(np.uint64)
    shift = np.uint64(64) - np.uint64(8) * length
    tail = np.where(length > 0, tail >> (shift & np.uint64(63)), np.uint64(0))
    return ((tail * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)).astype(np.uint8)
