"""Encode a column as distinct names and one code per row; millions of names are split into partitions.

One hash table over millions of names misses the cache on every row. Rows are therefore first split into partitions by a
cheap hash of their bytes. The hash table of each partition stays small. Partitions share no names, so they are encoded
in parallel.
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
CARDINALITY_SAMPLE_ROWS = 1 << 15  # rows checked for whether a column has many distinct names
MIN_ROWS_TO_PARTITION = 1 << 20  # with fewer rows, one hash table is as fast


class PartitionedRows(NamedTuple):
    """Some rows of a column, ordered by partition."""

    strings: pa.Array
    rows: NDArray[np.int32]  # row numbers, relative to the first of these rows
    bounds: NDArray[np.int64]  # where each partition begins, and the end


def encode_values(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """Distinct values in order of first appearance, and one code per row, -1 for null.

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
    """Return the same as `encode_values`, with one hash table over all rows."""
    encoded = column.dictionary_encode()  # every chunk comes with the whole dictionary
    names = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], column.type)
    codes = [chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices for chunk in encoded.chunks]
    return names, np.concatenate([np.zeros(0, np.int32), *codes])


def encode_in_partitions(column: pa.ChunkedArray, skipped_bytes: int) -> tuple[pa.Array, NDArray[np.int32]]:
    """The same result as `encode_plainly`, for strings without nulls."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        partitioned = list(pool.map(lambda chunk: partition_rows(chunk, skipped_bytes), column.chunks))
    return encode_partitions(partitioned)


def has_many_distinct(sample: pa.Array) -> bool:
    """Whether more than a quarter of the values in a sample are distinct."""
    return 4 * len(sample.unique()) > len(sample)


def trailing_bytes_to_skip(sample: pa.StringArray) -> int:
    """How many trailing bytes the hash should skip, because many ids end alike, such as '0017_front.jpg'."""

    def largest_partition(skipped_bytes: int) -> int:
        return int(np.bincount(_cheap_hash(sample, skipped_bytes), minlength=1).max())

    return min(range(0, 40, 8), key=largest_partition)


def partition_rows(strings: pa.StringArray, skipped_bytes: int) -> PartitionedRows:
    """Some rows of a column, ordered by partition."""
    partition = _cheap_hash(strings, skipped_bytes)
    order = np.argsort(partition, kind="stable").astype(np.int32)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(partition, minlength=1 << PARTITION_BITS))])
    return PartitionedRows(strings.take(pa.array(order)), order, bounds)


def encode_partitions(partitioned: Sequence[PartitionedRows]) -> tuple[pa.Array, NDArray[np.int32]]:
    """Distinct names in order of first appearance, and one code per row, of all partitioned rows."""
    starts = np.concatenate([[0], np.cumsum([len(block.rows) for block in partitioned])]).astype(np.int32)
    begins = sum((block.bounds for block in partitioned), np.zeros((1 << PARTITION_BITS) + 1, np.int64))
    # large arrays that threads fill in parts: many small allocations would be slower
    local, rows, codes = (np.empty(starts[-1], np.int32) for _ in range(3))

    def encode(index: int) -> tuple[pa.Array, NDArray[np.int32]]:
        """The names of a partition and their first rows. Also fills the partition's part of `local` and `rows`."""
        parts = [slice(block.bounds[index], block.bounds[index + 1]) for block in partitioned]
        strings = [block.strings[part] for block, part in zip(partitioned, parts, strict=True)]
        numbers = [block.rows[part] + start for block, part, start in zip(partitioned, parts, starts[:-1], strict=True)]
        partition = slice(begins[index], begins[index + 1])
        names, local[partition] = encode_plainly(pa.chunked_array(strings, pa.string()))
        rows[partition] = np.concatenate([np.zeros(0, np.int32), *numbers])
        first = np.empty(len(names), np.int32)
        first[local[partition][::-1]] = rows[partition][::-1]  # in reversed order, the last write is the first row
        return names, first

    def place(index: int) -> None:
        """Write the final codes of a partition."""
        partition = slice(begins[index], begins[index + 1])
        codes[rows[partition]] = rank[base[index] : base[index + 1]][local[partition]]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names, first = zip(*pool.map(encode, range(1 << PARTITION_BITS)), strict=True)
        base = np.concatenate([[0], np.cumsum([len(block) for block in names])])
        # first rows ascend within a partition, and a stable sort merges such runs quickly
        by_appearance = np.argsort(np.concatenate(first), kind="stable").astype(np.int32)
        rank = np.empty(len(by_appearance), np.int32)
        rank[by_appearance] = np.arange(len(rank), dtype=np.int32)
        list(pool.map(place, range(1 << PARTITION_BITS)))
    return pa.concat_arrays(names).take(pa.array(by_appearance)), codes


def _cheap_hash(strings: pa.StringArray, skipped_bytes: int) -> NDArray[np.uint8]:
    """The partition of each string: a hash of eight bytes near its end (fewer if the string is short)."""
    _, offset_buffer, data = strings.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else np.zeros(0, np.uint8)
    padded = np.concatenate([np.zeros(8 + skipped_bytes, np.uint8), text])
    words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))  # one word starting at every byte
    found: NDArray[np.uint64] = words[offsets[1:] - offsets[0]]
    foreign = 8 + skipped_bytes - np.diff(offsets)  # how many of the eight bytes belong to the previous string
    if len(foreign) and foreign.max() > 0:
        found >>= (8 * np.clip(foreign, 0, 7)).astype(np.uint64)
        found[foreign >= 8] = 0
    found *= np.uint64(0x9E3779B97F4A7C15)
    found >>= np.uint64(64 - PARTITION_BITS)
    return found.astype(np.uint8)
