from __future__ import annotations

import numpy as np
import pytest

from crowdfuse.synthesis import two_moon_annotators, weakness_annotators


def test_weakness_annotators_are_wrong_inside_their_ball_and_nowhere_else() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(500, 4))
    y = np.array(["a", "b", "c"])[generator.integers(0, 3, 500)]
    made = weakness_annotators(X, y, weakness=[3, 7], epsilon=[1.5, 2.5])
    said = made.annotations.to_matrix()
    for r, (row, epsilon) in enumerate(((3, 1.5), (7, 2.5))):
        inside = np.sqrt(((X - X[row]) ** 2).sum(1)) <= epsilon
        np.testing.assert_array_equal(said[:, r] != y, inside)
        np.testing.assert_allclose(made.accuracy[r], 1 - inside.mean())


def test_wrong_labels_are_uniform_over_the_wrong_classes() -> None:
    X = np.zeros((9000, 1))
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
    with pytest.raises(ValueError, match="missing must be a share"):
        weakness_annotators(X, np.arange(4000) % 2, weakness=[0], epsilon=1, missing=1.0)


def test_two_moon_annotators_each_see_one_axis() -> None:
    said = two_moon_annotators(np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])).to_matrix()
    assert said.tolist() == [[1, 0], [0, 1], [1, 1]]
