"""Sorting of triples, against a dictionary of dictionaries."""

from collections import defaultdict
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse.labels import triples
from crowdfuse.labels.ids import IntArray
from crowdfuse.labels.triples import ConflictError, SortedTriples, sort_triples

OnConflict = Literal["error", "first", "last", "drop"]
N_ITEMS = 5
ROWS = st.lists(st.tuples(st.integers(0, N_ITEMS - 1), st.integers(0, 3), st.integers(0, 2)), max_size=40)


def columns(rows: list[tuple[int, int, int]]) -> tuple[IntArray, IntArray, IntArray]:
    item, annotator, label = np.array(rows, np.int32).reshape(-1, 3).T
    return item, annotator, label


def as_rows(found: SortedTriples) -> list[tuple[int, int, int]]:
    item = np.repeat(np.arange(len(found.indptr) - 1), np.diff(found.indptr))
    return list(zip(item.tolist(), found.annotator.tolist(), found.label.tolist(), strict=True))


def sorted_by_dictionary(
    rows: list[tuple[int, int, int]], on_conflict: OnConflict
) -> tuple[list[tuple[int, int, int]], int, int]:
    """Remaining rows, and numbers of dropped repeats and conflicts, one (item, annotator) pair at a time."""
    said = defaultdict(list)
    for item, annotator, label in rows:
        said[item, annotator].append(label)
    kept, duplicates, conflicts = [], 0, 0
    for (item, annotator), labels in sorted(said.items()):
        if on_conflict == "drop" and len(set(labels)) > 1:
            conflicts += len(labels)
            continue
        label = labels[-1] if on_conflict == "last" else labels[0]
        kept.append((item, annotator, label))
        duplicates += labels.count(label) - 1
        conflicts += len(labels) - labels.count(label)
    return kept, duplicates, conflicts


@settings(deadline=None)
@given(ROWS, st.sampled_from(["first", "last", "drop"]))
def test_sorting_equals_the_dictionary(rows: list[tuple[int, int, int]], on_conflict: OnConflict) -> None:
    found = sort_triples(*columns(rows), N_ITEMS, on_conflict)
    assert (as_rows(found), found.n_duplicates, found.n_conflicts) == sorted_by_dictionary(rows, on_conflict)
    assert len(found.indptr) == N_ITEMS + 1
    assert [array.dtype.name for array in found[:3]] == ["int64", "int32", "int32"]


@settings(deadline=None)
@given(ROWS)
def test_conflicts_are_an_error_that_lists_rows(rows: list[tuple[int, int, int]]) -> None:
    said = defaultdict(list)
    for row, (item, annotator, _) in enumerate(rows):
        said[item, annotator].append(row)
    expected = []
    for _, at in sorted(said.items()):
        other = [row for row in at if rows[row][2] != rows[at[0]][2]]
        expected += [(at[0], other[0])] if other else []
    if not expected:
        assert as_rows(sort_triples(*columns(rows), N_ITEMS)) == sorted_by_dictionary(rows, "error")[0]
        return
    with pytest.raises(ConflictError) as caught:
        sort_triples(*columns(rows), N_ITEMS)
    assert caught.value.count == len(expected)
    assert caught.value.rows == expected[:5]


@pytest.mark.parametrize("chunk", [1 << 6, 1 << 17])
@pytest.mark.parametrize(
    ("n_items", "n_annotators", "n_classes"),
    [
        (3000, 50, 4),
        (1, 20_000, 1),  # no bits but the annotator's
        (1, 1, 1),  # no bits at all
        (5, 1000, 10),  # fewer items than buckets
        (2**17 + 1, 1000, 10),  # 32 bits in all, 24 in a bucket
        (2**17 + 1, 2**18, 2**4),  # 40 bits in all, 32 in a bucket
        (2**17 + 1, 2**22, 2**4),  # 36 bits in a bucket
        (300, 2**31 - 1, 2**20),  # 52 bits in a bucket
    ],
)
def test_the_packed_sort_equals_the_sort_by_row(
    n_items: int, n_annotators: int, n_classes: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triples, "TRIPLES_PER_CHUNK", chunk)
    rng = np.random.default_rng(0)
    sizes = (n_items, n_annotators, n_classes)
    item, annotator, _ = (rng.integers(size, size=20_000, dtype=np.int32) for size in sizes)
    label = ((item.astype(np.int64) * 31 + annotator) % n_classes).astype(np.int32)  # the same pair, the same label
    fast = triples._sort_packed(item, annotator, label, n_items)
    slow = triples._sort_by_row(item, annotator, label, n_items, "error")
    assert fast is not None
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one, other)


def test_triples_that_do_not_fit_into_one_integer_are_sorted_by_row() -> None:
    for item, annotator, label in ((2**20, 2**30, 2**30), (2**31, 1, 1), (1, 2**31, 1), (1, 1, 2**31)):
        assert triples._sort_packed(np.array([item]), np.array([annotator]), np.array([label]), item + 1) is None


def test_conflicts_are_left_to_the_sort_by_row() -> None:
    assert triples._sort_packed(*columns([(0, 1, 1), (0, 1, 0)]), 1) is None
