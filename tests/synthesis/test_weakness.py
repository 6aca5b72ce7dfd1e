from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse.synthesis import distances as looks
from crowdfuse.synthesis import weakness_annotators


def crowd(n_items: int = 500) -> tuple[NDArray[np.float64], NDArray[Any]]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(n_items, 4)), np.array(["a", "b", "c"])[generator.integers(0, 3, n_items)]


def test_annotators_are_wrong_inside_their_ball_and_nowhere_else() -> None:
    X, y = crowd()
    made = weakness_annotators(X, y, weakness=[3, 7], epsilon=[1.5, 2.5])
    said = made.annotations.to_matrix()
    for r, (row, epsilon) in enumerate(((3, 1.5), (7, 2.5))):
        inside = np.sqrt(((X - X[row]) ** 2).sum(1)) <= epsilon
        np.testing.assert_array_equal(said[:, r] != y, inside)
        np.testing.assert_allclose(made.accuracy[r], 1 - inside.mean())
    assert made.weakness is not None
    assert made.weakness.tolist() == [3, 7]
    np.testing.assert_array_equal(made.annotations.classes[made.truth], y)


def test_the_labels_of_a_seed_stay_the_same() -> None:
    """The results of the demo depend on these labels, recorded before distances were computed in blocks."""
    X = np.arange(60.0).reshape(30, 2) % 11
    made = weakness_annotators(X, np.arange(30) % 4, weakness=[0, 5], epsilon=5, missing=0.3, seed=7)
    codes = np.asarray(made.annotations)
    assert codes.shape == (30, 2)
    assert hashlib.sha256(codes.astype("<i4").tobytes()).hexdigest()[:16] == "23b5a925f6e65183"


def test_wrong_labels_are_uniform_over_the_wrong_classes() -> None:
    X = np.zeros((9000, 1))
    with pytest.warns(UserWarning, match="always wrong"):
        made = weakness_annotators(X, np.arange(9000) % 10, weakness=[0], epsilon=1)
    shift = (made.annotations.label - np.arange(9000)) % 10
    counts = np.bincount(shift, minlength=10)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 1000) < 150).all()


def test_missing_labels_leave_every_item_at_least_one() -> None:
    X = np.random.default_rng(0).normal(size=(4000, 2))
    made = weakness_annotators(X, np.arange(4000) % 2, weakness=[0, 1, 2], epsilon=1, missing=0.4, seed=1)
    assert made.annotations.n_labels / 12_000 == pytest.approx(0.6 + 0.4**3 / 3, abs=0.01)
    assert (np.diff(made.annotations.indptr) >= 1).all()
    again = weakness_annotators(X, np.arange(4000) % 2, weakness=[0, 1, 2], epsilon=1, missing=0.4, seed=1)
    assert again.annotations == made.annotations


@pytest.mark.parametrize("shape", [(500, 4), (500, 2, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_types_shapes_and_ready_distances_make_no_difference(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: type
) -> None:
    X, y = crowd()
    X = X.astype(np.float32).astype(np.float64)
    distance = np.stack([np.linalg.norm(X - X[row], axis=1) for row in (3, 7)], axis=1)
    epsilon = float(np.sort(distance[:, 0])[200])  # on the border, which is inside
    ready = weakness_annotators(y=y, distances=distance, epsilon=epsilon, missing=0.2)
    assert ready.weakness is None
    assert not ready.is_correct[:, 0].all()
    assert (~ready.is_correct[:, 0]).sum() == 201
    monkeypatch.setattr(looks, "VALUES_PER_BLOCK", 4 * 17)
    made = weakness_annotators(X.reshape(shape).astype(dtype), y, weakness=[3, 7], epsilon=epsilon, missing=0.2)
    assert made.annotations == ready.annotations
    np.testing.assert_array_equal(made.is_correct, ready.is_correct)


@pytest.mark.parametrize("names", [[-1, 0, 1], ["x", "", "z"], [10, 200, 3000], [0.0, 1.0, 2.0]])
def test_classes_keep_their_names(names: list[Any]) -> None:
    X, _ = crowd()
    y = np.array(names)[np.arange(500) % 3]
    made = weakness_annotators(X, y, weakness=[0], epsilon=2, annotators=["Ada"], missing=0.1)
    ann = made.annotations
    assert ann.classes.tolist() == sorted(names)
    assert ann.annotators.tolist() == ["Ada"]
    assert ann.n_labels == 500  # each is its item's last
    np.testing.assert_array_equal(ann.classes[ann.label] == y, made.is_correct[:, 0])


def test_accuracies_choose_different_rows_that_come_close() -> None:
    X, y = crowd(2000)
    X += 1e8  # far from the origin, where |a|^2 - 2ab + |b|^2 would lose its digits
    accuracies = [0.7, 0.7, 0.9, 0.95]
    made = weakness_annotators(X, y, accuracies=accuracies, epsilon=2, seed=3)
    np.testing.assert_allclose(made.is_correct.mean(0), accuracies, atol=0.01)
    assert made.weakness is not None
    assert len(set(made.weakness.tolist())) == 4
    again = weakness_annotators(X, y, weakness=made.weakness.tolist(), epsilon=2, seed=3)
    assert again.annotations == made.annotations
    other = weakness_annotators(X, y, accuracies=accuracies, epsilon=2, seed=4)
    assert other.weakness is not None
    assert other.weakness.tolist() != made.weakness.tolist()


def test_accuracies_with_an_epsilon_each_and_as_many_annotators_as_rows() -> None:
    X = np.arange(4.0)[:, None]
    made = weakness_annotators(X, [0, 1, 0, 1], accuracies=[0.25, 0.5, 0.75, 0.75], epsilon=[1, 1, 0.5, 0.5])
    assert made.weakness is not None
    assert sorted(made.weakness.tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(made.is_correct.mean(0), [0.25, 0.5, 0.75, 0.75])


def test_annotators_who_are_always_right_or_wrong_cause_a_warning() -> None:
    X, y = np.arange(8.0)[:, None], np.arange(8) % 2
    distance = np.abs(X - [0, 0, 20])
    message = r"always right: 'c'; always wrong: 'b' \(shares of right labels: 62\.5, 0\.0, 100\.0 %\)"
    with pytest.warns(UserWarning, match=message) as caught:
        weakness_annotators(y=y, distances=distance, epsilon=[2, 7, 2], annotators=["a", "b", "c"])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weakness_annotators(X, y, weakness=[0], epsilon=2)


GOOD: dict[str, Any] = {"X": np.arange(6.0)[:, None], "y": [0, 1, 0, 1, 0, 1], "weakness": [0, 5], "epsilon": 1}
FAR = {"X": None, "weakness": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weakness": [0, 6]}, "weakness must hold row numbers of X, from 0 to 5, but it contains 6"),
        ({"weakness": [-1]}, "row numbers of X, from 0 to .*contains -1"),
        ({"weakness": [0.5]}, "weakness must be one row number of X"),
        ({"weakness": []}, "weakness must be one row number of X"),
        ({"epsilon": -1}, "epsilon must be a distance, 0 or more, got -1"),
        ({"epsilon": float("nan")}, "epsilon must be a distance, 0 or more, got nan"),
        ({"epsilon": [1, 2, 3]}, r"one for each of the 2 annotators, got \[1, 2, 3\]"),
        ({"y": [0, 1]}, r"X and y must have one row per item, got X of shape \(6, 1\) and 2 true classes in y"),
        ({"y": [1] * 6}, "y must contain at least two classes, got 6 items of 1; .*add items of another class"),
        ({"y": []}, "at least two classes, got 0 items of no class"),
        ({"y": [0.5, 1, 0, 1, 0, 1]}, r"y\[0\]: y must be only strings, or only whole numbers"),
        ({"X": [["a"]] * 6}, "X must be numbers"),
        ({"X": [[0], [0], [np.nan], [0], [0], [0]]}, "row 2: the distance to the weakness of annotator 0 is nan"),
        ({"missing": 1.0}, "missing must be a share of the labels, at least 0 and below 1, got 1.0"),
        ({"missing": -0.1}, "missing must be a share"),
        ({"missing": float("nan")}, "missing must be a share"),
        ({"annotators": ["a"]}, "annotators= must have one id per column"),
        ({"accuracies": [0.5]}, "exactly one of weakness= .* and accuracies="),
        ({"weakness": None}, "exactly one of weakness="),
        ({"weakness": None, "accuracies": [1.5]}, r"accuracies must hold one share .* from 0 to 1, got \[1.5\]"),
        (
            {"weakness": None, "accuracies": [0.5] * 7},
            "7 accuracies needs a row of X of its own, but X has 6 rows; give fewer",
        ),
        ({"distances": np.ones((6, 2))}, "leave out X and accuracies"),
        ({"X": None}, "needs X or distances="),
        (
            FAR | {"distances": np.ones((5, 2))},
            r"distances must have one row per item .* got shape \(5, 2\); the number of items is 6",
        ),
        (FAR | {"distances": np.ones(6)}, r"distances must have one row per item .* got shape \(6,\)"),
        (FAR | {"distances": -np.ones((6, 2))}, "row 0: the distance to the weakness of annotator 0 is -1.0"),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weakness_annotators(**(GOOD | change))


def test_y_is_required() -> None:
    with pytest.raises(TypeError, match="needs y="):
        weakness_annotators(np.zeros((3, 1)), weakness=[0], epsilon=1)


def test_the_papers_shares_on_mnist() -> None:
    folder = os.environ.get("CROWDFUSE_DATA")
    if not folder or not (Path(folder) / "mnist").is_dir():
        pytest.skip("CROWDFUSE_DATA has no mnist")
    from crowdfuse.datasets.mnist import load_mnist

    data = load_mnist()
    X, y = data.X_train[:55_000], data.y_train[:55_000]
    shares = {
        30: (69.5, 61.0, 43.3),
        31: (61.0, 52.2, 35.5),
        32: (51.9, 43.4, 28.3),
        33: (42.6, 34.9, 21.9),
        34: (33.6, 26.9, 16.5),
        35: (25.4, 20.0, 12.3),
    }
    for epsilon, expected in shares.items():
        made = weakness_annotators(X, y, weakness=[11, 103, 364], epsilon=epsilon)
        np.testing.assert_allclose(100 * made.accuracy, expected, atol=0.1)
