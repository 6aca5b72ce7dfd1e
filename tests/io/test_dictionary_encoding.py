"""Encoding in partitions, against a dictionary and against Arrow's one table."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdfuse.io import dictionary_encoding as encoding

# short and long, alike at either end, empty, of several bytes a letter
NAMES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "item", "a/long/folder/that/many/share/"]),
    st.text(st.characters(codec="utf-8"), max_size=5) | st.integers(0, 20).map(str),
    st.sampled_from(["", ".jpg", "_and_a_long_ending_too.jpeg"]),
)
CHUNKS = st.lists(st.lists(NAMES, max_size=30), max_size=5)


def plainly(values: list[Any]) -> tuple[list[Any], list[int]]:
    position: dict[Any, int] = {}
    codes = [-1 if value is None else position.setdefault(value, len(position)) for value in values]
    return list(position), codes


def chunked(chunks: list[list[str]]) -> pa.ChunkedArray:
    """Each chunk a slice from the middle of a longer array, so that offsets do not begin at 0."""
    arrays = [pa.array(["before", "", *chunk, "after"], pa.string()).slice(2, len(chunk)) for chunk in chunks]
    return pa.chunked_array(arrays, pa.string())


@settings(deadline=None)
@given(CHUNKS, st.integers(1, 8), st.sampled_from([0, 8, 32]))
def test_partitioned_encoding_equals_a_dictionary(chunks: list[list[str]], bits: int, passed: int) -> None:
    column = chunked(chunks)
    expected = plainly(column.to_pylist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "PARTITION_BITS", bits)
        names, codes = encoding.encode_in_partitions(column, passed)
    assert (names.to_pylist(), codes.tolist()) == expected
    assert (names.type, codes.dtype.name) == (pa.string(), "int32")
    names, codes = encoding.encode_plainly(column)
    assert (names.to_pylist(), codes.tolist()) == expected


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.integers(-3, 3), max_size=9), max_size=4))
def test_plain_encoding_with_nulls_and_integers(chunks: list[list[int | None]]) -> None:
    column = pa.chunked_array(chunks, pa.int64())
    names, codes = encoding.encode_values(column)
    assert (names.to_pylist(), codes.tolist()) == plainly(column.to_pylist())


@settings(deadline=None)
@given(CHUNKS, st.sampled_from(range(0, 40, 8)))
def test_a_name_always_falls_into_the_same_partition(chunks: list[list[str]], passed: int) -> None:
    partition_of: dict[str, int] = {}
    for chunk in chunked(chunks).chunks:
        for name, partition in zip(chunk.to_pylist(), encoding._cheap_hash(chunk, passed).tolist(), strict=True):
            assert 0 <= partition < 1 << encoding.PARTITION_BITS
            assert partition_of.setdefault(name, partition) == partition


@pytest.mark.parametrize("spelling", ["{}", "item{:07d}", "{:05d}_front_view.jpg", "a/{:x}/image.0001.annotated.png"])
def test_names_are_spread_over_the_partitions(spelling: str) -> None:
    names = pa.array([spelling.format(i) for i in range(20_000)])
    partition = encoding._cheap_hash(names, encoding.trailing_bytes_to_skip(names))
    sizes = np.bincount(partition, minlength=1 << encoding.PARTITION_BITS)
    assert sizes.max() < 4 * sizes.mean()


@pytest.mark.parametrize(
    ("values", "partitioned"),
    [
        ([str(i % 500) for i in range(1000)], True),
        ([str(i % 5) for i in range(1000)], False),  # few names
        ([None, *(str(i) for i in range(999))], False),
        (list(range(1000)), False),
        ([str(i) for i in range(500)], False),  # few rows
    ],
)
def test_only_many_distinct_strings_are_partitioned(
    values: list[Any], partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    in_partitions = encoding.encode_in_partitions

    def counted(column: pa.ChunkedArray, passed: int) -> tuple[pa.Array, NDArray[np.int32]]:
        calls.append(column)
        return in_partitions(column, passed)

    monkeypatch.setattr(encoding, "CARDINALITY_SAMPLE_ROWS", 64)
    monkeypatch.setattr(encoding, "MIN_ROWS_TO_PARTITION", 600)
    monkeypatch.setattr(encoding, "encode_in_partitions", counted)
    names, codes = encoding.encode_values(pa.chunked_array([values[:400], values[400:]]))
    assert (names.to_pylist(), codes.tolist()) == plainly(values)
    assert bool(calls) == partitioned
