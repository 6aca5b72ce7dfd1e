"""Every kind of wrong labels, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse.synthesis import SyntheticCrowd, weakness_annotators
from crowdfuse.synthesis.wrong_label_kinds import WRONG_LABEL_KINDS, shifts

K = 5
WEAKNESS, EPSILON = [3, 7, 11], [2.5, 3.0, 3.5]


def crowd(n_classes: int = K, n_items: int = 600) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    y = generator.integers(0, n_classes, n_items)
    return generator.normal(size=(n_items, 4)) + 0.5 * generator.normal(size=(n_classes, 4))[y], y


def make(X: Any, y: Any, wrong: Any, **given: Any) -> SyntheticCrowd:
    return weakness_annotators(X, y, weakness=WEAKNESS, epsilon=EPSILON, wrong=wrong, **given)


def inside(X: NDArray[np.float64]) -> NDArray[np.bool_]:
    ball = zip(WEAKNESS, EPSILON, strict=True)
    return np.stack([np.sqrt(((X - X[row]) ** 2).sum(1)) <= epsilon for row, epsilon in ball], axis=1)


def said(made: SyntheticCrowd) -> NDArray[np.int64]:
    return made.annotations.to_matrix().astype(np.int64)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"weakness": [0, 5]},
            [[3, 0, 2, 3, 1, 1, 2, 1, 1, 1, 2, 1], [0, 0, 1, 3, 1, 0, 3, 3, 3, 3, 2, 0]],
        ),
        (
            {"weakness": [0, 5], "missing": 0.3},
            [[-1, 0, 2, 3, 1, 1, -1, 1, 1, 1, -1, 1], [0, 0, 1, 3, -1, -1, 3, 3, 3, -1, 2, -1]],
        ),
        (
            {"accuracies": [0.5, 0.75], "missing": 0.3},
            [[-1, 0, 2, 3, 1, 1, -1, 1, 1, 1, -1, 1], [0, 1, 1, 3, -1, -1, 3, 3, 0, -1, 2, -1]],
        ),
    ],
)
def test_uniform_gives_fixed_labels_for_a_seed(given: Any, expected: list[list[int]]) -> None:
    X, y = np.arange(24.0).reshape(12, 2) % 7, np.arange(12) % 4
    for settings in (given, given | {"wrong": "uniform"}):
        made = weakness_annotators(X, y, epsilon=4, seed=7, **settings)
        assert made.annotations.to_matrix().T.tolist() == expected


@pytest.mark.parametrize("n_classes", [2, K])
@pytest.mark.parametrize("wrong", WRONG_LABEL_KINDS)
def test_labels_are_right_outside_the_ball_and_is_correct_matches_them(wrong: str, n_classes: int) -> None:
    X, y = crowd(n_classes)
    made = make(X, y, wrong)
    labels, ball = said(made), inside(X)
    np.testing.assert_array_equal(labels[~ball], np.repeat(y[:, None], 3, 1)[~ball])
    np.testing.assert_array_equal(made.is_correct, labels == y[:, None])
    np.testing.assert_allclose(made.accuracy, (labels == y[:, None]).mean(0))
    alone = [all(label != true for label in row) for row, true in zip(labels.tolist(), y.tolist(), strict=True)]
    assert made.all_wrong_share == np.mean(alone)
    assert wrong == "looks" or 0.05 < made.all_wrong_share < 0.95
    if wrong not in ("any", "looks"):
        np.testing.assert_array_equal(made.is_correct, ~ball)


def test_any_is_uniform_over_all_classes() -> None:
    y = np.arange(10_000) % K
    made = weakness_annotators(np.zeros((10_000, 1)), y, weakness=[0, 1], epsilon=1, wrong="any")
    np.testing.assert_allclose(made.confusion_matrices, 1 / K, atol=0.05)
    np.testing.assert_allclose(made.accuracy, 1 / K, atol=0.02)
    assert made.all_wrong_share == pytest.approx((1 - 1 / K) ** 2, abs=0.02)  # two independent draws


@pytest.mark.parametrize("n_classes", [2, K])
def test_looks_gives_the_class_of_the_weakness_image(n_classes: int) -> None:
    X, y = crowd(n_classes)
    labels, ball = said(make(X, y, "looks")), inside(X)
    for r, row in enumerate(WEAKNESS):
        for n in range(len(y)):
            assert labels[n, r] == (y[row] if ball[n, r] else y[n])
    distance = np.stack([np.linalg.norm(X - X[row], axis=1) for row in WEAKNESS], axis=1)
    ready = weakness_annotators(y=y, distances=distance, weakness=WEAKNESS, epsilon=EPSILON, wrong="looks")
    np.testing.assert_array_equal(said(ready), labels)
    assert ready.weakness is not None
    assert ready.weakness.tolist() == WEAKNESS


@pytest.mark.parametrize("n_classes", [2, 3, K])
def test_shift_is_one_number_per_annotator(n_classes: int) -> None:
    X, y = crowd(n_classes)
    labels, ball = said(make(X, y, "shift", seed=2)), inside(X)
    found = [{int(labels[n, r] - y[n]) % n_classes for n in np.flatnonzero(ball[:, r])} for r in range(3)]
    assert all(len(mine) == 1 and mine != {0} for mine in found)
    assert len(set.union(*found)) == min(3, n_classes - 1)  # distinct as long as possible


def test_shifts_are_uniform_and_do_not_repeat_until_all_were_used() -> None:
    for n_classes in (2, 3, 7):
        counts = np.bincount(shifts(20, n_classes, np.random.default_rng(1)), minlength=n_classes)
        assert counts[0] == 0
        assert counts[1:].max() - counts[1:].min() <= 1
    first = np.bincount([shifts(1, 5, np.random.default_rng(seed))[0] for seed in range(800)], minlength=5)
    assert (np.abs(first[1:] - 200) < 60).all()


@pytest.mark.parametrize("n_classes", [2, K])
def test_neighbour_gives_the_class_with_the_nearest_mean(n_classes: int) -> None:
    X, y = crowd(n_classes)
    labels, ball = said(make(X, y, "neighbour")), inside(X)
    means = [X[y == k].mean(0) for k in range(n_classes)]
    table = {}
    for k in range(n_classes):
        others = [other for other in range(n_classes) if other != k]
        table[k] = min(others, key=lambda other: float(np.linalg.norm(means[k] - means[other])))
    for n in range(len(y)):
        for r in range(3):
            assert labels[n, r] == (table[int(y[n])] if ball[n, r] else y[n])
    distance = np.stack([np.linalg.norm(X - X[row], axis=1) for row in WEAKNESS], axis=1)
    for given in ({"inputs": X.reshape(-1, 2, 2)}, {"confusable": table}):
        ready = weakness_annotators(y=y, distances=distance, epsilon=EPSILON, wrong="neighbour", **given)
        np.testing.assert_array_equal(said(ready), labels)


def test_neighbours_can_come_from_other_inputs_or_a_table() -> None:
    X, y = crowd(3)
    line = np.array([0.0, 1.0, 5.0])[y][:, None]  # 0 and 1 are close, and 2 is nearer to 1
    expected = np.where(inside(X), np.array([1, 0, 1])[y][:, None], y[:, None])
    np.testing.assert_array_equal(said(make(X, y, "neighbour", inputs=line)), expected)
    names = np.array(["x", "y", "z"])
    made = make(X, names[y], "neighbour", confusable={"z": "y", "x": "y", "y": "x"})
    np.testing.assert_array_equal(made.annotations.to_matrix(), names[expected])


@pytest.mark.parametrize("n_classes", [2, K])
def test_copy_is_one_wrong_label_per_item(n_classes: int) -> None:
    X, y = crowd(n_classes, 3000)
    labels, ball = said(make(X, y, "copy")), inside(X)
    drawn = []
    for n in np.flatnonzero(ball.any(1)):
        mistakes = set(labels[n, ball[n]].tolist())
        assert len(mistakes) == 1
        drawn.append((mistakes.pop() - int(y[n])) % n_classes)
    counts = np.bincount(drawn, minlength=n_classes)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:] / len(drawn), 1 / (n_classes - 1), atol=0.05)


def test_with_two_classes_there_is_one_wrong_label() -> None:
    X, y = crowd(2)
    for wrong in ("uniform", "shift", "neighbour", "copy"):
        np.testing.assert_array_equal(said(make(X, y, wrong)), np.where(inside(X), 1 - y[:, None], y[:, None]))


@pytest.mark.parametrize("wrong", WRONG_LABEL_KINDS)
def test_the_seed_decides_and_all_kinds_leave_out_the_same_labels(wrong: str) -> None:
    X, y = crowd()
    full, part = said(make(X, y, wrong, seed=4)), make(X, y, wrong, seed=4, missing=0.5)
    given = said(part) != -1
    np.testing.assert_array_equal(said(part)[given], full[given])
    np.testing.assert_array_equal(given, said(make(X, y, "uniform", seed=4, missing=0.5)) != -1)
    assert given.mean() == pytest.approx(0.5 + 0.5**3 / 3, abs=0.05)
    assert given.any(1).all()
    assert make(X, y, wrong, seed=4, missing=0.5).annotations == part.annotations
    other = said(make(X, y, wrong, seed=5))
    assert (other == full).all() == (wrong in ("looks", "neighbour"))  # these kinds are not random


@pytest.mark.parametrize("wrong", WRONG_LABEL_KINDS)
def test_chosen_rows_passed_as_weakness_give_the_same_labels(wrong: Any) -> None:
    X, y = crowd()
    made = weakness_annotators(X, y, accuracies=[0.7, 0.5], epsilon=2, wrong=wrong, seed=3)
    assert made.weakness is not None
    again = weakness_annotators(X, y, weakness=made.weakness.tolist(), epsilon=2, wrong=wrong, seed=3)
    assert again.annotations == made.annotations


GOOD: dict[str, Any] = {"X": np.arange(6.0)[:, None], "y": [0, 1, 2, 0, 1, 2], "weakness": [0, 5], "epsilon": 1}
FAR: dict[str, Any] = {"X": None, "weakness": None, "distances": np.ones((6, 2))}
NEXT = {0: 1, 1: 2, 2: 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wrong": "neighbor"}, "wrong must be one of uniform, any, .* got 'neighbor'; did you mean 'neighbour'?"),
        ({"wrong": "look"}, "got 'look'; did you mean 'looks'?"),
        ({"wrong": "xyz"}, "wrong must be one of uniform, any, looks, shift, neighbour, copy, got 'xyz'$"),
        ({"wrong": None}, "wrong must be one of .* got None"),
        (
            FAR | {"wrong": "looks"},
            r"distances= does not tell which image this is; also pass weakness=",
        ),
        (FAR | {"wrong": "looks", "weakness": [0]}, "weakness has 1 row numbers, but distances has 2 columns"),
        (FAR | {"wrong": "looks", "weakness": [0, 6]}, "row numbers of X, from 0 to .*contains 6"),
        (FAR | {"wrong": "neighbour"}, r"Pass inputs=, .* or confusable=\{true class: similar class\}"),
        (
            {"wrong": "copy", "inputs": np.ones((6, 1))},
            "inputs= can be used only with wrong='neighbour', got wrong='copy'",
        ),
        ({"confusable": NEXT}, "confusable= can be used only with wrong='neighbour', got wrong='uniform'"),
        ({"wrong": "neighbour", "confusable": NEXT, "inputs": np.ones((6, 1))}, "leave out inputs"),
        ({"wrong": "neighbour", "confusable": {0: 1, 1: 2}}, "confusable has no entry for class 2"),
        ({"wrong": "neighbour", "confusable": NEXT | {2: 2}}, "confusable confuses class 2 with itself"),
        ({"wrong": "neighbour", "confusable": NEXT | {2: 3}}, r"confusable: 3 is not one of the 3 classes in y \(0, 1"),
        ({"wrong": "neighbour", "confusable": NEXT | {9: 0}}, "confusable: 9 is not one of the 3 classes"),
        (
            {"wrong": "neighbour", "inputs": np.ones((5, 1))},
            r"inputs and y must have one row per item, got inputs of shape \(5, 1\)",
        ),
        ({"wrong": "neighbour", "inputs": [["a"]] * 6}, "inputs must be numbers"),
        (
            {"wrong": "neighbour", "inputs": [[0], [0], [np.nan]] * 2},
            "inputs, row 2 has NaN or infinity, but class means require finite values",
        ),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weakness_annotators(**(GOOD | change))
