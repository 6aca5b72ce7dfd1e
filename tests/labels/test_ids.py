"""Ids: which values are allowed, and how strings and integers are matched."""

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse.labels import ids

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([3, 1], [3, 1]),
        ([3.0, -0.0], [3, 0]),
        ([True, False], [1, 0]),
        (np.array([7], np.uint8), [7]),
        (np.array([2**63 - 1], np.uint64), [2**63 - 1]),
        (np.array([1, 2.0, np.int64(3), True], object), [1, 2, 3, 1]),
        (pd.Series([1, 2], dtype="Int64"), [1, 2]),
        (["007", "12"], ["007", "12"]),
        (np.array(["a", "bc"]), ["a", "bc"]),
        (pd.Series(["a", "b"]), ["a", "b"]),
        (pl.Series(["a", "b"]), ["a", "b"]),
        (pa.array(["a", "b"]), ["a", "b"]),
        ([], []),
    ],
)
def test_normalize_ids_accepts_strings_and_integers(given: Any, expected: list[Any]) -> None:
    found = ids.normalize_ids(given, "items")
    assert found.tolist() == expected
    assert found.dtype == (object if expected and isinstance(expected[0], str) else np.int64)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.0, 0.5], r"items\[1\].*whole numbers.*got 0\.5"),
        ([1.0, float("nan")], r"items\[1\].*got nan"),
        ([1.0, float("inf")], r"items\[1\].*got inf"),
        ([1.0, 2.0**53], r"items\[1\].*got 9007199254740992\.0"),
        (np.array([1, 2**63], np.uint64), r"items\[1\].*got 9223372036854775808"),
        ([1, 2**70], r"items\[1\].*got 1180591620717411303424"),
        (["a", None], r"items\[1\].*got None"),
        (["a", float("nan")], r"items\[1\].*got nan"),
        (["a", 1], r"items\[1\].*got 1"),
        ([1, "a"], r"items\[0\].*got 1"),
        (np.array([1, 2**53 + 0.0], object), r"items\[1\].*got 9007199254740992\.0"),
        (pd.Series([1, None], dtype="Int64"), r"items\[1\].*got (<NA>|nan)"),
        ([[1, 2]], r"items must be one-dimensional, got shape \(1, 2\)"),
        ([1j], r"items must be strings or integers, got dtype complex128"),
        ([b"a"], r"items must be strings or integers, got dtype \|S1"),
    ],
)
def test_normalize_ids_refuses_other_values_with_their_place(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ids.normalize_ids(given, "items")


def test_normalize_ids_uses_the_given_description_of_the_place() -> None:
    with pytest.raises(ValueError, match=r"^row 1, column 4: labels must be .*got 0\.5.*Unknown label type$"):
        ids.normalize_ids([0.0, 0.5], "labels", lambda at: f"row {at}, column 4")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["7", "12", "0", "-3"], [7, 12, 0, -3]),
        (["007", "12"], ["007", "12"]),
        (["-0"], ["-0"]),
        (["+1"], ["+1"]),
        (["1.0", "2"], [1, 2]),
        (["1.5"], ["1.5"]),
        (["1 "], ["1 "]),
        (["1\n"], ["1\n"]),
        (["\u0661"], ["\u0661"]),  # an Arabic-Indic digit
        ([str(2**63 - 1), str(-(2**63))], [2**63 - 1, -(2**63)]),
        ([str(2**63)], [str(2**63)]),
        (["1", ""], ["1", ""]),
        ([], []),
    ],
)
def test_text_becomes_integers_only_if_all_are_whole_numbers(given: list[str], expected: list[Any]) -> None:
    assert ids.parse_integer_ids(np.array(given, object)).tolist() == expected


@settings(deadline=None)
@given(st.lists(INT64 | st.text("0123456789-+. ", max_size=4), min_size=1))
def test_parse_integer_ids_keeps_every_spelling_but_zeros_after_the_point(values: list[Any]) -> None:
    spelled = [str(value) for value in values]
    found = [str(value) for value in ids.parse_integer_ids(np.array(spelled, object))]
    assert found in (spelled, [re.sub(r"\.0+$", "", text) for text in spelled])


@pytest.mark.parametrize("late", ["x", "007", ""])
def test_one_late_value_that_is_not_an_integer_keeps_all_as_text(late: str) -> None:
    spelled = [*map(str, range(500)), late]
    assert ids.parse_integer_ids(np.array(spelled, object)).tolist() == spelled


@settings(deadline=None)
@given(st.lists(TEXT), st.lists(TEXT, unique=True))
def test_positions_of_equals_a_dictionary(wanted: list[str], among: list[str]) -> None:
    position = {name: i for i, name in enumerate(among)}
    found = ids.positions_of(np.array(wanted, object), np.array(among, object))
    assert found.tolist() == [position.get(name, -1) for name in wanted]


@settings(deadline=None)
@given(st.lists(INT64), st.lists(INT64 | st.sampled_from(["1", "01", "x", ""]), unique_by=str))
def test_integers_match_their_spelling(wanted: list[int], among: list[Any]) -> None:
    names = [str(name) for name in among]
    position = {name: i for i, name in enumerate(names)}
    expected = [position.get(str(name), -1) for name in wanted]
    assert ids.positions_of(np.array(wanted, np.int64), np.array(names, object)).tolist() == expected
    back = ids.positions_of(np.array(names, object), np.unique(np.array(wanted, np.int64)))
    assert [i >= 0 for i in back] == [name in {str(value) for value in wanted} for name in names]


def test_positions_of_does_not_match_007_with_7() -> None:
    assert ids.positions_of(np.array(["007", "7"], object), np.array([7])).tolist() == [-1, 0]


@settings(deadline=None)
@given(st.lists(TEXT) | st.lists(INT64))
def test_unique_sorted_equals_a_sorted_set(values: list[Any]) -> None:
    array = np.array(values, np.int64 if values and isinstance(values[0], int) else object)
    names, position = ids.unique_sorted(array)
    assert names.tolist() == sorted(set(values))
    assert names[position].tolist() == values


def test_integers_sort_as_numbers_and_strings_alphabetically() -> None:
    assert ids.unique_sorted(np.array([10, 9, 10]))[0].tolist() == [9, 10]
    assert ids.unique_sorted(np.array(["10", "9"], object))[0].tolist() == ["10", "9"]


def test_refuse_repeats_lists_the_repeated_ids() -> None:
    ids.refuse_repeats(np.array(["a", "b"], object), "items")
    ids.refuse_repeats(np.array([], object), "items")
    with pytest.raises(ValueError, match=r"classes must be distinct, but these occur more than once: 3, 7;"):
        ids.refuse_repeats(np.array([7, 3, 7, 1, 3]), "classes")


def test_messages_show_plain_python_values() -> None:
    assert ids.format_names(np.array([1, 2])) == "1, 2"
    assert ids.format_names(np.array(["a"])) == "'a'"
    assert len(ids.format_names(["x" * 500])) < 70
    assert ids.format_names(range(1234), max_names=1) == "0, ... (1,234 in all)"
    assert (ids.format_count_with_verb(1, "item"), ids.format_count_with_verb(1200, "item")) == (
        "1 item is",
        "1,200 items are",
    )
