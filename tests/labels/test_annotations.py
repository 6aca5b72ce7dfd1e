"""Annotations: constructors, conversion, selection of items, alignment with X."""

import copy
import pickle
import subprocess
import sys
from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, cross_val_score, train_test_split

from crowdfuse import Annotations
from crowdfuse.labels.encoding import concatenate_ranges, encode_classes

NAN = float("nan")
Cells = list[list[int]]


@st.composite
def matrices(draw: st.DrawFn, missing: int = -1) -> Cells:
    n_items, n_annotators = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    cell = st.sampled_from([missing, 0, 1, 2])
    return draw(
        st.lists(st.lists(cell, min_size=n_annotators, max_size=n_annotators), min_size=n_items, max_size=n_items)
    )


def from_cells(cells: Cells, **names: Any) -> Annotations:
    return Annotations.from_matrix(np.array(cells, int).reshape(len(cells), -1 if cells else 1), **names)


def by_item(ann: Annotations) -> dict[Any, dict[Any, Any]]:
    """Item -> annotator -> label, by name, from the CSR arrays."""
    return {
        item: {
            ann.annotators.tolist()[ann.annotator[at]]: ann.classes.tolist()[ann.label[at]]
            for at in range(ann.indptr[n], ann.indptr[n + 1])
        }
        for n, item in enumerate(ann.items.tolist())
    }


@pytest.fixture
def by_id() -> Annotations:
    """Items known by id only: a {x: cat, y: dog}, b {x: cat}, c {}."""
    return Annotations.from_table(
        {"item": ["b", "a", "a", "c"], "annotator": ["x", "y", "x", "y"], "label": ["cat", "dog", "cat", None]}
    ).select(["a", "b", "c"])


# ---- matrices ------------------------------------------------------------------------------


@settings(deadline=None)
@given(matrices())
def test_a_matrix_equals_a_dictionary_of_dictionaries(cells: Cells) -> None:
    ann = from_cells(cells)
    expected = {n: {r: label for r, label in enumerate(row) if label >= 0} for n, row in enumerate(cells)}
    assert by_item(ann) == expected
    assert ann.classes.tolist() == sorted({label for row in cells for label in row if label >= 0})
    assert (len(ann), ann.ndim) == (len(cells), 2)
    assert ann.shape == (len(cells), len(cells[0]) if cells else 1)
    assert [array.dtype.name for array in (ann.indptr, ann.annotator, ann.label)] == ["int64", "int32", "int32"]
    assert ann.n_labels == sum(map(len, expected.values()))
    assert ann.item.tolist() == [n for n, labels in expected.items() for _ in labels]
    assert ann.to_matrix().tolist() == cells
    assert ann.by_row


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ([[0, -1], [1, 0]], [[0, -1], [1, 0]]),
        ([[0.0, NAN], [1.0, -1.0]], [[0, -1], [1, -1]]),
        ([[0, None], [1, 0]], [[0, -1], [1, 0]]),
        (np.array([[0, 1]], np.uint8), [[0, 1]]),
        (np.array([[True, False]]), [[1, 0]]),
        ([["cat", None], ["dog", "cat"]], [["cat", None], ["dog", "cat"]]),
        ([["cat", NAN], ["dog", -1]], [["cat", None], ["dog", None]]),
        ((("cat", NAN), ("dog", "")), [["cat", None], ["dog", None]]),
        (np.array([["cat", ""], ["dog", "-1"]]), [["cat", None], ["dog", "-1"]]),
        (pd.DataFrame({"x": ["cat", None], "y": ["dog", "cat"]}), [["cat", "dog"], [None, "cat"]]),
        (pd.DataFrame({"x": [3, None], "y": [1, 2]}, dtype="Int64"), [[3, 1], [-1, 2]]),
        (pd.DataFrame({"x": pd.array(["a", None]), "y": [pd.NA, "b"]}), [["a", None], [None, "b"]]),
        ([[None, None]], [[None, None]]),
        (np.zeros((0, 3)), []),
    ],
)
def test_missing_cells_of_every_kind(matrix: Any, expected: Any) -> None:
    ann = Annotations.from_matrix(matrix)
    assert ann.to_matrix().tolist() == expected
    missing = sum(cell in (-1, None) for row in expected for cell in row)
    assert ann.n_labels == sum(map(len, expected)) - missing


def test_ids_of_rows_and_columns_and_class_order_can_be_given() -> None:
    ann = Annotations.from_matrix(
        [["p", None], ["q", "p"]], items=[10, 9], annotators=["y", "x"], classes=["q", "p", "r"]
    )
    assert by_item(ann) == {10: {"y": "p"}, 9: {"y": "q", "x": "p"}}
    assert ann.classes.tolist() == ["q", "p", "r"]
    assert repr(ann) == "Annotations(2 items, 2 annotators, 3 classes, 3 labels)"


def test_a_vector_is_one_annotator_and_minus_one_is_a_class() -> None:
    ann = Annotations.from_vector([1, -1, 1])
    assert (ann.shape, ann.classes.tolist(), ann.label.tolist()) == ((3, 1), [-1, 1], [1, 0, 1])
    assert ann.to_matrix().tolist() == [[1], [-1], [1]]
    for values in (["b", None, "a"], ["b", NAN, "a"], np.array(["b", NAN, "a"], object)):
        ann = Annotations.from_vector(values)
        assert (ann.indptr.tolist(), ann.classes.tolist(), ann.label.tolist()) == ([0, 1, 1, 2], ["a", "b"], [1, 0])
    assert Annotations.from_vector(np.array([2.0, NAN])).to_matrix().tolist() == [[2], [-1]]


def test_missing_is_none_if_minus_one_is_a_class() -> None:
    ann = Annotations.from_table({"item": [1, 2], "annotator": [1, 2], "label": [-1, 0]})
    assert ann.to_matrix().tolist() == [[-1, None], [None, 0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"matrix": [0, 1]}, r"one column per annotator, got shape \(2,\); use from_vector\(\)"),
        ({"matrix": [["a", "b"], ["a"]]}, r"one column per annotator|inhomogeneous"),
        ({"matrix": [[0, 1]], "items": [1, 2]}, r"items= must have one id per row of the labels \(1\), got 2 ids"),
        (
            {"matrix": [[0, 1]], "annotators": ["x"]},
            r"annotators= must have one id per column of the labels \(2\), got 1",
        ),
        ({"matrix": [[0], [1]], "items": ["a", "a"]}, "items must be distinct, but these occur more than once: 'a'"),
        ({"matrix": [[0], [1]], "items": ["a", None]}, r"items\[1\]: items must be only strings, .* got None"),
        (
            {"matrix": [[0, -1], [NAN, 7]], "classes": [0, 1]},
            r"^row 1, column 1: label 7 is not one of the 2 classes \(0, 1\); correct it, or add it to classes=",
        ),
        ({"matrix": [["a", None], [None, 1]]}, r"^row 1, column 1: labels must be only strings, or only whole .*got 1"),
        ({"matrix": [[0, -1], [0.5, 1]]}, r"^row 1, column 0: .*got 0\.5.*Unknown label type"),
        ({"matrix": [[0, 1]], "classes": [0, 1, 1]}, "classes must be distinct, but these occur more than once: 1"),
    ],
)
def test_bad_matrices_are_refused_with_their_place(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Annotations.from_matrix(**arguments)


def test_bad_vectors_are_refused_with_their_place() -> None:
    with pytest.raises(ValueError, match=r"one label per item, got shape \(1, 2\); use from_matrix\(\)"):
        Annotations.from_vector([[0, 1]])
    with pytest.raises(ValueError, match=r"^row 1, column 0: label 'x' is not one of the 1 classes"):
        Annotations.from_vector(["a", "x"], classes=["a"])


def test_classes_are_sorted_or_in_the_given_order() -> None:
    names, code = encode_classes(np.array(["b", "a", "b"]), None)
    assert (names.tolist(), code.tolist()) == (["a", "b"], [1, 0, 1])
    names, code = encode_classes(np.array([10, 9]), ["9", "10"])
    assert (names.tolist(), code.tolist()) == (["9", "10"], [1, 0])
    with pytest.raises(ValueError, match=r"labels\[1\]: label 3 is not one of the 1 classes \(4\)"):
        encode_classes(np.array([4, 3]), [4])


# ---- conversion ----------------------------------------------------------------------------


@settings(deadline=None)
@given(matrices())
def test_a_table_and_back_gives_the_same_labels(cells: Cells) -> None:
    ann = from_cells(cells)
    table = ann.to_table()
    assert table.column_names == ["item", "annotator", "label"]
    assert table.to_pylist() == [
        {"item": item, "annotator": annotator, "label": label}
        for item, labels in by_item(ann).items()
        for annotator, label in labels.items()
    ]
    if ann.n_labels:
        back = {item: labels for item, labels in by_item(ann).items() if labels}
        assert by_item(Annotations.from_table(table)) == back


@settings(deadline=None)
@given(matrices())
def test_vote_shares_equal_counts_per_item(cells: Cells) -> None:
    ann = from_cells(cells)
    shares = ann.vote_shares()
    assert shares.shape == (ann.n_items, ann.n_classes)
    for row, found in zip(cells, shares, strict=True):
        labels = [label for label in row if label >= 0]
        expected = [labels.count(name) / len(labels) if labels else NAN for name in ann.classes]
        np.testing.assert_allclose(found, expected)


def test_numpy_gets_class_codes() -> None:
    ann = Annotations.from_matrix([["b", None], ["a", "b"]])
    assert np.asarray(ann).tolist() == [[1, -1], [0, 1]]
    assert np.asarray(ann, dtype=float).dtype == float


def test_dense_results_over_2_gb_are_refused() -> None:
    n = 30_000
    ann = Annotations(
        indptr=np.zeros(n + 1, np.int64),
        annotator=np.zeros(0, np.int32),
        label=np.zeros(0, np.int32),
        items=np.arange(n),
        annotators=np.arange(n),
        classes=np.arange(n),
        by_row=True,
    )
    with pytest.raises(ValueError, match=r"30,000 items x 30,000 annotators would take over 2 GB; use to_table\(\)"):
        ann.to_matrix()
    with pytest.raises(ValueError, match=r"30,000 items x 30,000 annotators .*KFold"):
        np.asarray(ann)
    with pytest.raises(ValueError, match=r"30,000 items x 30,000 classes would take over 2 GB"):
        ann.vote_shares()


# ---- summary -------------------------------------------------------------------------------


def alpha_by_definition(rows: list[list[Any]]) -> float:
    """Krippendorff's nominal alpha: the coincidence matrix, one pair of values at a time."""
    coincidence: Counter[tuple[Any, Any]] = Counter()
    for row in rows:
        values = [value for value in row if value is not None]
        for one, other in permutations(range(len(values)), 2):
            coincidence[values[one], values[other]] += 1 / (len(values) - 1)  # type: ignore[assignment]
    marginal: Counter[Any] = Counter()
    for (one, _), count in coincidence.items():
        marginal[one] += count
    n = sum(marginal.values())
    observed = sum(count for (one, other), count in coincidence.items() if one != other) / n if n else NAN
    pairs = [(one, other) for one in marginal for other in marginal if one != other]
    expected = sum(marginal[one] * marginal[other] for one, other in pairs) / (n * (n - 1)) if n else NAN
    return 1 - observed / expected if expected else NAN


@settings(deadline=None)
@given(matrices())
def test_summary_equals_its_definition(cells: Cells) -> None:
    summary = from_cells(cells).summary()
    rows = [[None if label < 0 else label for label in row] for row in cells]
    np.testing.assert_allclose(summary.krippendorff_alpha, alpha_by_definition(rows), atol=1e-12)
    labels = [[label for label in row if label is not None] for row in rows]
    pairs = [one == other for row in labels for one, other in permutations(row, 2)]
    np.testing.assert_allclose(summary.agreement, np.mean(pairs) if pairs else NAN)
    counts = [len(row) for row in labels]
    assert summary.n_labels == sum(counts)
    assert summary.items_without_labels == counts.count(0)
    if counts:
        assert summary.labels_per_item == {"min": min(counts), "mean": np.mean(counts), "max": max(counts)}
        per_annotator = [sum(cell is not None for cell in column) for column in zip(*rows, strict=True)]
        assert summary.labels_per_annotator == {
            "min": min(per_annotator),
            "mean": np.mean(per_annotator),
            "max": max(per_annotator),
        }


# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers, twelve units
KRIPPENDORFF = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


def test_alpha_of_krippendorffs_example() -> None:
    rows = [list(row) for row in zip(*KRIPPENDORFF, strict=True)]
    assert alpha_by_definition(rows) == pytest.approx(0.743, abs=5e-4)
    assert Annotations.from_matrix(rows).summary().krippendorff_alpha == pytest.approx(0.743, abs=5e-4)


def test_summary_as_text() -> None:
    text = str(Annotations.from_matrix([["a", "b"], ["a", "a"], [None, None], ["b", None]]).summary())
    assert text.splitlines() == [
        "4 items, 2 annotators, 2 classes, 5 labels",
        "labels per item       1.25 (from 0 to 2)",
        "labels per annotator  2.50 (from 2 to 3)",
        "agreement             0.500 of the pairs of labels on the same item",
        "Krippendorff's alpha  0.000",
        "note: 1 item has no label",
    ]
    undefined = str(Annotations.from_matrix([["a"], ["b"]]).summary())
    assert "agreement             not defined: no item has two labels" in undefined
    assert "nan" not in undefined


# ---- selection ------------------------------------------------------------------------


def test_select_by_id(by_id: Annotations) -> None:
    chosen = by_id.select(["c", "a"])
    assert by_item(chosen) == {"c": {}, "a": {"x": "cat", "y": "dog"}}
    assert list(by_item(chosen)) == ["c", "a"]
    assert not chosen.by_row
    assert chosen.classes is by_id.classes
    with pytest.raises(KeyError, match="2 items are not in these annotations: 'd', 'e'"):
        by_id.select(["a", "d", "e"])
    with pytest.raises(ValueError, match="items must be distinct, but these occur more than once: 'a'"):
        by_id.select(["a", "b", "a"])


def test_integers_match_ids_that_are_spelled_as_numbers() -> None:
    ann = Annotations.from_table({"item": ["1", "2", "02"], "annotator": [0, 0, 0], "label": [0, 1, 2]})
    assert by_item(ann.select([2, 1])) == {"2": {0: 1}, "1": {0: 0}}
    assert by_item(ann.align([1, 2, 3], on_missing="drop")) == {1: {0: 0}, 2: {0: 1}, 3: {}}


def test_selected_rows_of_a_matrix_are_matched_by_id() -> None:
    ann = Annotations.from_matrix([[0], [1], [2]]).select([2, 0])
    assert not ann.by_row
    assert by_item(ann.align(np.arange(3))) == {0: {0: 0}, 1: {}, 2: {0: 2}}


def test_align_puts_labels_in_the_order_of_the_rows(by_id: Annotations) -> None:
    aligned = by_id.align(["z", "b", "a"])  # c has no labels to lose
    assert by_item(aligned) == {"z": {}, "b": {"x": "cat"}, "a": {"x": "cat", "y": "dog"}}
    assert list(by_item(aligned)) == ["z", "b", "a"]
    assert aligned.by_row


def test_align_drops_labels_only_on_request(by_id: Annotations) -> None:
    with pytest.raises(
        ValueError, match=r"1 labelled item is not among the 2 rows of X: 'a'\. Check that items= holds"
    ):
        by_id.align(["b", "z"])
    assert by_item(by_id.align(["b", "z"], on_missing="drop")) == {"b": {"x": "cat"}, "z": {}}
    with pytest.raises(ValueError, match="on_missing must be 'error' or 'drop', got 'ignore'"):
        by_id.align(["b"], on_missing="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="items must be distinct, but these occur more than once: 'b'"):
        by_id.align(["a", "b", "b"])


@settings(deadline=None)
@given(matrices(), st.randoms(use_true_random=False))
def test_align_is_a_lookup_by_id(cells: Cells, random: Any) -> None:
    names = [f"i{n}" for n in range(len(cells))]
    ann = from_cells(cells, items=np.array(names, object)).select(random.sample(names, len(names)))
    rows = random.sample([*names, "new", "newer"], len(names) + 2)
    aligned = ann.align(rows)
    assert list(by_item(aligned).items()) == [(name, by_item(ann).get(name, {})) for name in rows]


def test_empty_annotations_align_to_any_rows() -> None:
    empty = Annotations.from_matrix(np.zeros((0, 2)))
    assert by_item(empty.align(["a", "b"])) == {"a": {}, "b": {}}
    assert len(empty.select([])) == 0


def test_rows_by_position_need_annotations_by_row(by_id: Annotations) -> None:
    for key in (0, slice(2), [0, 1], np.array([True, False, True]), (np.array([0]), ...)):
        with pytest.raises(TypeError, match=r"identify items by id.*annotations\.align\(items\).*\.select\(ids\)"):
            by_id[key]
    assert by_item(by_id.align(["c", "b", "a"])[[2, 0]]) == {"a": {"x": "cat", "y": "dog"}, "c": {}}


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (1, [1]),
        (-1, [3]),
        (np.int64(2), [2]),
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        ([3, 0], [3, 0]),
        (np.array([3, 0]), [3, 0]),
        ([True, False, False, True], [0, 3]),
        (np.array([False] * 4), []),
        ((np.array([3, 0]), ...), [3, 0]),
        (..., [0, 1, 2, 3]),
    ],
)
def test_rows_by_position(key: Any, rows: list[int]) -> None:
    cells = [[0, -1], [-1, -1], [1, 2], [-1, 0]]
    chosen = from_cells(cells)[key]
    assert chosen.items.tolist() == rows
    assert chosen.to_matrix().tolist() == [cells[row] for row in rows]
    assert chosen.by_row


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ([0, 0], ValueError),
        ([0, -2], ValueError),  # the same row, counted from the end
        ([[0], [1]], IndexError),
        (None, IndexError),
        (2, IndexError),
        ([True], IndexError),
        ((slice(None), [0]), IndexError),
        ((0, 1), IndexError),
        ("a", IndexError),
        (1.0, IndexError),
    ],
)
def test_invalid_rows_are_refused(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        from_cells([[0, 1], [1, 0]])[key]


def test_selecting_a_row_twice_suggests_sample_weight() -> None:
    with pytest.raises(ValueError, match=r"was selected more than once.* use sample_weight"):
        from_cells([[0], [1]])[[1, 1]]


def test_select_annotator(by_id: Annotations) -> None:
    only = by_id.select_annotator("y")
    assert by_item(only) == {"a": {"y": "dog"}, "b": {}, "c": {}}
    assert only.classes.tolist() == ["cat", "dog"]
    assert only.by_row == by_id.by_row
    numbers = Annotations.from_matrix([[0, 1], [1, -1]])
    assert by_item(numbers.select_annotator("1")) == by_item(numbers.select_annotator(1)) == {0: {1: 1}, 1: {}}
    assert numbers.select_annotator(1).by_row
    with pytest.raises(KeyError, match=r"annotator 'z' is not one of the 2 annotators \('x', 'y'\)"):
        by_id.select_annotator("z")


@pytest.mark.parametrize("by_row", [True, False])
def test_kept_labels_stay_with_the_same_items(by_id: Annotations, by_row: bool) -> None:
    ann = by_id.align(["a", "b", "c"]) if by_row else by_id
    keep = ann.annotators[ann.annotator] == "x"
    kept = ann.keep_labels(keep)
    assert kept.by_row is by_row
    assert by_item(kept) == {"a": {"x": "cat"}, "b": {"x": "cat"}, "c": {}}
    assert kept.annotators.tolist() == ann.annotators.tolist()
    assert kept.classes.tolist() == ann.classes.tolist()
    assert ann.keep_labels(np.ones(ann.n_labels, bool)) == ann


def test_kept_labels_know_whether_ids_are_row_numbers() -> None:
    table = Annotations.from_table({"item": [1, 0, 1], "annotator": ["x", "x", "y"], "label": ["cat", "dog", "cat"]})
    for ann, expected in ((table, True), (table.select([1, 0]), False)):
        assert ann.keep_labels(np.array([True, False, True])).ids_may_be_row_numbers is expected


def test_with_classes(by_id: Annotations) -> None:
    wider = by_id.with_classes(["dog", "cow", "cat"])
    assert (wider.classes.tolist(), by_item(wider)) == (["dog", "cow", "cat"], by_item(by_id))
    assert wider.with_classes(["cat", "dog"]) == by_id  # no label names cow
    with pytest.raises(ValueError, match=r"label 'dog' is not one of the 2 classes \('cat', 'cow'\); correct it"):
        by_id.with_classes(["cat", "cow"])
    with pytest.raises(ValueError, match="classes must be distinct"):
        by_id.with_classes(["cat", "dog", "dog"])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=8))
def test_concatenate_ranges(runs: list[tuple[int, int]]) -> None:
    starts, counts = np.array(runs, int).reshape(-1, 2).T
    assert concatenate_ranges(starts, counts).tolist() == [start + i for start, count in runs for i in range(count)]


# ---- scikit-learn and copies ------------------------------------------------------------------


@pytest.fixture
def numbered() -> tuple[NDArray[np.int64], Annotations]:
    """Row n of X holds n, and both annotators label it n; one label in three is missing."""
    n = np.arange(30)
    return n[:, None], Annotations.from_matrix(np.where((n[:, None] + [0, 1]) % 3 == 0, -1, n[:, None]))


def agrees(X: NDArray[np.int64], ann: Annotations) -> bool:
    return len(X) == len(ann) and bool((ann.classes[ann.label] == X[ann.item, 0]).all())


@pytest.mark.parametrize("splitter", [KFold(4, shuffle=True, random_state=0), ShuffleSplit(3, random_state=0)])
def test_splitters_of_scikit_learn_keep_labels_aligned(
    splitter: Any, numbered: tuple[NDArray[np.int64], Annotations]
) -> None:
    X, ann = numbered
    for train, test in splitter.split(X, ann):
        assert agrees(X[train], ann[train])
        assert agrees(X[test], ann[test])
        assert ann[train].n_labels + ann[test].n_labels == ann.n_labels
        assert not agrees(X[train][::-1], ann[train])  # the check can fail
    for train, _ in GroupKFold(3).split(X, ann, groups=X[:, 0] % 5):
        assert agrees(X[train], ann[train])


def test_train_test_split_keeps_labels_aligned(
    numbered: tuple[NDArray[np.int64], Annotations], by_id: Annotations
) -> None:
    X, ann = numbered
    X_train, X_test, train, test = train_test_split(X, ann, random_state=0)
    assert isinstance(train, Annotations)
    assert agrees(X_train, train)
    assert agrees(X_test, test)
    with pytest.raises(TypeError, match="identify items by id"):
        train_test_split(np.zeros((3, 1)), by_id)


def test_cross_validation_passes_annotations_to_fit_and_score(numbered: tuple[NDArray[np.int64], Annotations]) -> None:
    class Checker(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
        def fit(self, X: Any, y: Any) -> "Checker":
            assert isinstance(y, Annotations)
            assert agrees(X, y)
            return self

        def score(self, X: Any, y: Any) -> float:
            return float(agrees(X, y))

    X, ann = numbered
    assert cross_val_score(Checker(), X, ann, cv=KFold(3), error_score="raise").tolist() == [1.0] * 3


def test_equality_compares_all_arrays_and_the_meaning_of_rows(by_id: Annotations) -> None:
    aligned = by_id.align(by_id.items)
    assert aligned != by_id  # rows of X against items known by id
    assert by_id == by_id.select(by_id.items)
    assert by_id != by_id.select(["b", "a", "c"])
    assert by_id != by_id.with_classes(["dog", "cat"])
    assert (by_id == "by_id") is False
    with pytest.raises(TypeError, match="unhashable"):
        hash(by_id)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda ann: pickle.loads(pickle.dumps(ann))])
def test_copies_are_equal(duplicate: Any, by_id: Annotations) -> None:
    for ann in (by_id, by_id.align(["b", "a"], on_missing="drop")):
        again = duplicate(ann)
        assert again is not ann
        assert again == ann
        assert str(again.summary()) == str(ann.summary())


def test_reading_labels_does_not_import_torch(tmp_path: Any) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("item,annotator,label\na,x,1\n")
    code = (
        f"import sys; from crowdfuse import Annotations; Annotations.read({str(path)!r}); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_classes_that_differ_only_by_case_or_spaces_cause_a_warning() -> None:
    said = [["cat", "Cat"], ["dog", None]]
    with pytest.warns(UserWarning, match="classes that differ only by case or spaces: 'Cat', 'cat'"):
        ann = Annotations.from_matrix(said)
    assert ann.notes == (
        "classes that differ only by case or spaces: 'Cat', 'cat'; rename them if they are the same class",
    )
    with pytest.warns(UserWarning, match="'dog', 'dog '"):
        Annotations.from_vector(["dog", "dog "])
    assert Annotations.from_matrix(said, classes=["cat", "Cat", "dog"]).notes == ()  # given explicitly


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_annotator_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"annotators\[1\] is empty; give this annotator an id"):
        Annotations.from_matrix([[0, 1]], annotators=["ada", name])
