"""X is checked once: numbers, finite, one row per item; and a hash knows it again."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crowdfuse.io import inputs
from crowdfuse.io.inputs import check_inputs


def fingerprint(X: Any) -> str:
    digest = hashlib.blake2b()
    check_inputs(X).hash_into(digest)
    return digest.hexdigest()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, bool, object])
def test_rows_are_dense_float32(dtype: Any) -> None:
    X = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    checked = check_inputs(X)
    assert len(checked) == 3
    assert checked.item_shape == (2,)
    rows = checked.rows(np.array([2, 0]))
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert rows.tolist() == [[1, 1], [0, 1]]


def test_images_stay_bytes_until_a_batch_is_read() -> None:
    checked = check_inputs(np.full((4, 3, 5, 6), 255, np.uint8))
    assert checked.values.dtype == np.uint8
    assert checked.item_shape == (3, 5, 6)
    assert checked.rows(np.array([1])).max() == 255


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "csr_matrix"])
def test_sparse_rows_become_dense_on_request(kind: str) -> None:
    dense = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    checked = check_inputs(getattr(sparse, kind)(dense))
    assert sparse.issparse(checked.values)
    assert checked.rows(np.array([1, 0])).tolist() == dense[[1, 0]].tolist()


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_a_value_that_is_not_finite_is_named_with_its_place(value: float, word: str) -> None:
    X = np.zeros((9, 4))
    X[6, 2] = value
    with pytest.raises(ValueError, match=rf"^features contains {word}.* at row 6, column 2; fill or drop"):
        check_inputs(X, "features")
    with pytest.raises(ValueError, match=rf"^X contains {word}.* at row 6, column 2; fill or drop"):
        check_inputs(sparse.csr_array(X))


def test_values_too_large_for_float32_count_as_infinite() -> None:
    with pytest.raises(ValueError, match="too large for float32 at row 1, column 0"):
        check_inputs(np.array([[1.0], [1e39]]))


def test_the_place_is_right_in_any_block_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "VALUES_PER_BLOCK", 6)  # two rows a block
    X = np.zeros((7, 3))
    X[3, 1] = X[5, 0] = X[6, 2] = np.nan
    with pytest.raises(ValueError, match="at row 3, column 1, the first of 3 such values"):
        check_inputs(X)
    with pytest.raises(ValueError, match="at row 3, column 1, the first of 3 such values"):
        check_inputs(sparse.csr_array(X))


def test_images_name_the_row_and_the_place_in_it() -> None:
    X = np.zeros((3, 1, 4, 5))
    X[2, 0, 3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 2, at \(0, 3, 1\)"):
        check_inputs(X)


def test_callers_can_describe_positions() -> None:
    with pytest.raises(ValueError, match=r"t\.csv contains NaN at line 3 of column b;"):
        check_inputs(np.array([[1, 2], [3, np.nan]]), "t.csv", lambda at: f"line {at[0] + 2} of column {'ab'[at[1]]}")


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (np.zeros(3), ValueError, r"shape \(3,\).*X.reshape\(-1, 1\)"),
        (np.float64(3), ValueError, r"shape \(\)"),
        (sparse.coo_array(np.ones(3)), ValueError, "one row per item"),
        (np.zeros((0, 3)), ValueError, r"0 sample\(s\)"),
        (np.zeros((3, 0)), ValueError, r"0 feature\(s\)"),
        (np.zeros((2, 2), complex), ValueError, "Complex data not supported"),
        (sparse.csr_array(np.zeros((2, 2), complex)), ValueError, "Complex data not supported"),
        (np.array([["a", "b"]]), ValueError, "must hold numbers, got dtype"),
        (np.array([["a", 1]], object), ValueError, "must hold numbers"),
        (np.array([[{}, 1]], object), TypeError, "must hold numbers"),
        (np.array([["2020-01-01"]], "datetime64[D]"), ValueError, "must hold numbers"),
    ],
)
def test_inputs_that_are_not_numeric_arrays_are_refused(X: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_inputs(X)


def test_the_hash_depends_on_content_shape_and_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.arange(24.0).reshape(6, 4)
    same = fingerprint(X)
    assert fingerprint(np.asfortranarray(X)) == same
    assert fingerprint(np.repeat(X, 2, axis=0)[::2]) == same
    changed = X.copy()
    changed[5, 3] += 1e-9
    others = [changed, X.reshape(4, 6), X.reshape(6, 2, 2), X.astype(np.float32), X[::-1]]
    assert len({same, *map(fingerprint, others)}) == 6
    monkeypatch.setattr(inputs, "VALUES_PER_BLOCK", 8)
    assert fingerprint(X) == same


def test_sparse_matrices_of_different_width_differ_in_hash() -> None:
    X = sparse.csr_array(np.eye(3))
    wider = sparse.csr_array(np.eye(3, 4))
    assert fingerprint(X) != fingerprint(wider)
    assert fingerprint(X) == fingerprint(X.tocoo())
