from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from crowdfuse.synthesis import SyntheticCrowd, habit_annotators

X, Y = load_digits(return_X_y=True)


def looped(made: SyntheticCrowd, pairs: list[list[tuple[int, int]]], share: list[float]) -> None:
    """Check every label against the rule, item by item."""
    means = [X[k == Y].mean(0) for k in range(10)]
    said = made.annotations.to_matrix()
    for r, mine in enumerate(pairs):
        border = {}
        for a, b in mine:
            far = sorted(float(np.linalg.norm(x - means[b])) for x in X[a == Y])
            border[a, b] = far[round(share[r] * len(far)) - 1]
        for n in range(len(Y)):
            seen = {}
            for a, b in mine:
                distance = float(np.linalg.norm(X[n] - means[b]))
                if a == Y[n] and distance <= border[a, b]:
                    seen[b] = distance
            assert said[n, r] == (min(seen, key=lambda b: seen[b]) if seen else Y[n])


def test_items_that_look_like_another_class_are_labelled_as_it() -> None:
    pairs = [[(5, 6), (3, 8)], [(1, 2)], [(9, 4), (9, 3)]]
    share = [0.3, 0.5, 0.7]
    made = habit_annotators(X, Y, habits=pairs, share=share)
    looped(made, pairs, share)
    assert made.habit is not None
    assert [[tuple(pair) for pair in np.argwhere(mine)] for mine in made.habit] == [sorted(mine) for mine in pairs]
    wrong = [round(0.3 * (Y == 5).sum()) + round(0.3 * (Y == 3).sum()), round(0.5 * (Y == 1).sum())]
    np.testing.assert_array_equal((~made.is_correct).sum(0)[:2], wrong)
    np.testing.assert_allclose(made.accuracy, made.is_correct.mean(0))
    assert made.all_wrong_share == 0  # each has classes of its own
    both = {int(said) for said in made.annotations.to_matrix()[Y == 9, 2]}
    assert both == {3, 4, 9}  # two habits of one class divide what looks like either


def test_the_nearer_class_wins_if_two_habits_apply() -> None:
    line = np.array([-1.0, 1.0, 2.0, -9.0, 9.0])[:, None]  # three items of a between b and c
    for mine in ([("a", "b"), ("a", "c")], [("a", "c"), ("a", "b")]):
        made = habit_annotators(line, ["a", "a", "a", "b", "c"], habits=[mine], share=1)
        assert made.annotations.to_matrix().ravel().tolist() == ["b", "c", "c", "b", "c"]


def test_a_shared_habit_leaves_items_with_only_wrong_labels() -> None:
    made = habit_annotators(X, Y, habits=[[(5, 6)], [(5, 6)], [(5, 9)]], share=[0.2, 0.4, 1.0])
    assert made.all_wrong_share == round(0.2 * (Y == 5).sum()) / len(Y)
    assert (made.annotations.to_matrix()[Y == 5, 2] == 9).all()


def test_drawn_habits_are_one_per_class_and_depend_on_the_seed() -> None:
    made = habit_annotators(X, Y, n_annotators=4, share=0.25, seed=1)
    assert made.habit is not None
    assert (made.habit.sum(2) == 1).all()
    assert not made.habit[:, range(10), range(10)].any()
    looped(made, [[(int(a), int(b)) for a, b in np.argwhere(mine)] for mine in made.habit], [0.25] * 4)
    np.testing.assert_allclose(made.accuracy, 0.75, atol=0.01)
    again, other = (habit_annotators(X, Y, n_annotators=4, share=0.25, seed=seed) for seed in (1, 2))
    assert again.annotations == made.annotations
    assert other.annotations != made.annotations
    few = habit_annotators(X, Y, n_habits=2)
    assert few.habit is not None
    assert few.habit.any(2).sum(1).tolist() == [2, 2, 2]
    assert few.habit.any((0, 2)).sum() > 2  # not the same two classes for all


def test_drawn_habits_are_uniform_over_the_other_classes() -> None:
    made = habit_annotators(np.arange(4.0)[:, None], np.arange(4), n_annotators=3000, n_habits=2)
    assert made.habit is not None
    np.testing.assert_allclose(made.habit.mean(0), (1 - np.eye(4)) / 6, atol=0.03)


def test_two_classes_and_missing_labels() -> None:
    odd = np.where(Y % 2, "odd", "even")
    full = habit_annotators(X.reshape(-1, 8, 8), odd, habits=[[("odd", "even")], [("even", "odd")], []], seed=3)
    said = full.annotations.to_matrix()
    assert (said[odd == "even", 0] == "even").all()
    assert (said[odd == "odd", 0] == "even").mean() == pytest.approx(0.5, abs=0.01)
    assert full.is_correct[:, 2].all()
    part = habit_annotators(X, odd, habits=[[("odd", "even")], [("even", "odd")], []], seed=3, missing=0.5)
    left = part.annotations.to_matrix()
    given = left != None  # noqa: E711 (elementwise)
    assert given.mean() == pytest.approx(0.5 + 0.5**3 / 3, abs=0.03)
    assert (left[given] == said[given]).all()
    assert part.all_wrong_share > full.all_wrong_share == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"habits": []}, "habits is empty; give each annotator a list of pairs"),
        (
            {"habits": [(5, 6)]},
            r"habits\[0\] must be a list of pairs \(true class, label given instead\), got \(5, 6\)",
        ),
        ({"habits": [[(5, 6)], [(5, 6, 7)]]}, r"habits\[1\] must be a list of pairs"),
        ({"habits": [5]}, r"habits\[0\] must be a list of pairs"),
        ({"habits": [["56"]]}, r"habits\[0\] must be a list of pairs"),
        ({"habits": [[(5, 6)], [(4, 10)]]}, r"habits\[1\]: 10 is not one of the 10 classes in y \(0, 1, 2"),
        ({"habits": [[(5, 5)]]}, r"habits\[0\] confuses class 5 with itself; give another class"),
        ({"habits": [[(5, 6)]], "n_annotators": 1}, "leave out n_annotators and n_habits"),
        ({"n_annotators": 0}, "n_annotators must be at least 1, got 0"),
        ({"n_habits": 11}, "n_habits must be from 1 to 10, the number of classes, got 11"),
        ({"share": 1.5}, "share must be from 0 to 1, got 1.5"),
        ({"share": float("nan")}, "share must be from 0 to 1"),
        ({"share": [0.1, 0.2]}, r"one for each of the 3 annotators, got \[0.1, 0.2\]"),
        ({"missing": 1}, "missing must be a share"),
        ({"y": Y[:5]}, "X and y must have one row per item"),
        ({"y": np.zeros(len(Y), int)}, "at least two classes"),
        (
            {"X": np.where(np.arange(len(Y)) == 7, np.nan, 0.0)},
            "X, row 7 has NaN or infinity, but class means require finite values",
        ),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        habit_annotators(**({"X": X, "y": Y} | change))
