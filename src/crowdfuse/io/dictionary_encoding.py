"""Many values -> distinct names and a code a row; millions of names by hashing in partitions that fit the cache.

One hash table over millions of names misses the cache on every row. Rows are first dealt into
partitions by a cheap hash of their bytes, so that each partition's table stays small and the partitions,
which share no names, are encoded side by side.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PARTITION_BITS = 6
CARDINALITY_SAMPLE_ROWS = 1 << 15  # rows that tell whether names are many
MIN_ROWS_TO_PARTITION = 1 << 20  # with fewer, one table is as fast


class PartitionedRows(NamedTuple):
    """Some rows of a column, ordered by partition."""

    strings: pa.Array
    rows: NDArray[np.int32]  # counted from the first of these rows
    bounds: NDArray[np.int64]  # where each partition begins, and the end


def encode_values(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """Distinct values in order of first appearance, and a code a row, -1 for null.

    >>> names, codes = encode_values(pa.chunked_array([["b", "a"], ["b", None]]))
    >>> names.to_pylist(), codes.tolist()
    (['b', 'a'], [0, 1, 0, -1])
    """
    if not pa.types.is_string(column.type) or column.null_count or len(column) <= MIN_ROWS_TO_PARTITION:
        return encode_plainly(column)
    sample = column.slice(0, CARDINALITY_SAMPLE_ROWS).combine_chunks()
    return (
        encode_in_partitions(column, trailing_bytes_to_skip(sample))
        if has_many_distinct(sample)
        else encode_plainly(column)
    )


def encode_plainly(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """One table over all rows."""
    encoded = column.dictionary_encode()  # every chunk comes with the whole dictionary
    names = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], column.type)
    codes = [chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices for chunk in encoded.chunks]
    return names, np.concatenate([np.zeros(0, np.int32), *codes])


def encode_in_partitions(column: pa.ChunkedArray, passed: int) -> tuple[pa.Array, NDArray[np.int32]]:
    """The same result as `encode_plainly`, for strings without nulls."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        dealt = list(pool.map(lambda chunk: partition_rows(chunk, passed), column.chunks))
    return encode_partitions(dealt)


def has_many_distinct(sample: pa.Array) -> bool:
    """Whether the names of a column are many, to judge by some of its rows."""
    return 4 * len(sample.unique()) > len(sample)


def trailing_bytes_to_skip(sample: pa.StringArray) -> int:
    """How many bytes at their end to pass over, because many ids end alike, such as '0017_front.jpg'."""

    def largest_partition(passed: int) -> int:
        return int(np.bincount(_cheap_hash(sample, passed), minlength=1).max())

    return min(range(0, 40, 8), key=largest_partition)


def partition_rows(strings: pa.StringArray, passed: int) -> PartitionedRows:
    """Order some rows by partition."""
    partition = _cheap_hash(strings, passed)
    order = np.argsort(partition, kind="stable").astype(np.int32)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(partition, minlength=1 << PARTITION_BITS))])
    return PartitionedRows(strings.take(pa.array(order)), order, bounds)


def encode_partitions(dealt: Sequence[PartitionedRows]) -> tuple[pa.Array, NDArray[np.int32]]:
    """Names in order of first appearance, and a code a row, of all rows that were dealt."""
    starts = np.concatenate([[0], np.cumsum([len(some.rows) for some in dealt])]).astype(np.int32)
    begins = sum((some.bounds for some in dealt), np.zeros((1 << PARTITION_BITS) + 1, np.int64))
    # large arrays that threads fill part by part: the system hands out memory in small pieces more slowly
    local, rows, codes = (np.empty(starts[-1], np.int32) for _ in range(3))

    def encode(index: int) -> tuple[pa.Array, NDArray[np.int32]]:
        """One partition's names and their first rows; the codes and numbers of its rows go into `local` and `rows`."""
        parts = [slice(some.bounds[index], some.bounds[index + 1]) for some in dealt]
        strings = [some.strings[part] for some, part in zip(dealt, parts, strict=True)]
        numbers = [some.rows[part] + start for some, part, start in zip(dealt, parts, starts[:-1], strict=True)]
        partition = slice(begins[index], begins[index + 1])
        names, local[partition] = encode_plainly(pa.chunked_array(strings, pa.string()))
        rows[partition] = np.concatenate([np.zeros(0, np.int32), *numbers])
        first = np.empty(len(names), np.int32)
        first[local[partition][::-1]] = rows[partition][::-1]  # of several writes the last one stays: the first row
        return names, first

    def place(index: int) -> None:
        partition = slice(begins[index], begins[index + 1])
        codes[rows[partition]] = rank[base[index] : base[index + 1]][local[partition]]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names, first = zip(*pool.map(encode, range(1 << PARTITION_BITS)), strict=True)
        base = np.concatenate([[0], np.cumsum([len(some) for some in names])])
        # within a partition first rows go up, and a stable sort merges such runs
        by_appearance = np.argsort(np.concatenate(first), kind="stable").astype(np.int32)
        rank = np.empty(len(by_appearance), np.int32)
        rank[by_appearance] = np.arange(len(rank), dtype=np.int32)
        list(pool.map(place, range(1 << PARTITION_BITS)))
    return pa.concat_arrays(names).take(pa.array(by_appearance)), codes


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
