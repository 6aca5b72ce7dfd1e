from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdfuse.synthesis import SyntheticCrowd, hammer_spammer_annotators

Y = np.arange(6000) % 10


def hammers(made: SyntheticCrowd) -> Any:
    assert made.hammer is not None
    return made.hammer


@pytest.mark.parametrize("rule", [{"n_correct": 3}, {"p": 0.3}])
def test_by_class_a_hammer_is_always_right_and_a_spammer_always_and_uniformly_wrong(rule: dict[str, Any]) -> None:
    made = hammer_spammer_annotators(Y, **rule)
    hammer = hammers(made)
    assert hammer.shape == (5, 10)
    for r in range(5):
        for k in range(10):
            expected = np.eye(10)[k] if hammer[r, k] else (1 - np.eye(10)[k]) / 9
            np.testing.assert_allclose(made.confusion_matrices[r, k], expected, atol=0.06 * (not hammer[r, k]))
    np.testing.assert_array_equal(made.is_correct, hammer[:, Y].T)
    np.testing.assert_array_equal(made.annotations.to_matrix() == Y[:, None], made.is_correct)


def test_n_correct_is_exact_and_uniform_over_classes() -> None:
    hammer = hammers(hammer_spammer_annotators(np.arange(10), n_annotators=3000, n_correct=3))
    assert (hammer.sum(1) == 3).all()
    np.testing.assert_allclose(hammer.mean(0), 0.3, atol=0.04)


def test_p_is_the_probability_to_be_a_hammer_per_class() -> None:
    hammer = hammers(hammer_spammer_annotators(np.arange(10), n_annotators=3000, p=0.3))
    np.testing.assert_allclose(hammer.mean(0), 0.3, atol=0.04)
    assert hammer.sum(1).min() == 0
    np.testing.assert_allclose((hammer.sum(1) == 0).mean(), 0.7**10, atol=0.015)
    assert hammers(hammer_spammer_annotators(Y, p=1)).all()
    assert not hammers(hammer_spammer_annotators(Y, p=0)).any()


def test_whole_spammers_draw_from_all_classes() -> None:
    made = hammer_spammer_annotators(Y, by="annotator", n_annotators=4, n_hammers=1, seed=1)
    hammer = hammers(made)
    assert hammer.all(1).sum() == 1
    assert (hammer.all(1) == hammer.any(1)).all()
    for r in range(4):
        expected = np.eye(10) if hammer[r].all() else np.full((10, 10), 0.1)
        np.testing.assert_allclose(made.confusion_matrices[r], expected, atol=0.06)
        assert made.accuracy[r] == pytest.approx(1 if hammer[r].all() else 0.1, abs=0.02)
    np.testing.assert_array_equal(made.annotations.to_matrix() == Y[:, None], made.is_correct)


def test_whole_annotators_are_hammers_with_probability_p() -> None:
    hammer = hammers(hammer_spammer_annotators(np.arange(10), by="annotator", n_annotators=3000, p=0.6))
    assert hammer.all(1).mean() == pytest.approx(0.6, abs=0.04)


def test_the_seed_decides_and_missing_only_removes_labels() -> None:
    full = hammer_spammer_annotators(Y, n_correct=3, seed=4)
    assert hammer_spammer_annotators(Y, n_correct=3, seed=4).annotations == full.annotations
    assert hammer_spammer_annotators(Y, n_correct=3, seed=5).annotations != full.annotations
    names = ["Ada", "Ben", "Cleo", "Dan", "Eve"]
    part = hammer_spammer_annotators(Y, n_correct=3, seed=4, missing=0.5, annotators=names)
    given = part.annotations.to_matrix()
    np.testing.assert_array_equal(given[given >= 0], full.annotations.to_matrix()[given >= 0])
    assert (given >= 0).mean() == pytest.approx(0.5, abs=0.02)
    assert (given >= 0).any(1).all()
    assert part.annotations.annotators.tolist() == names


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give exactly one of n_correct and p with by='class'"),
        ({"n_correct": 3, "p": 0.5}, "give exactly one of n_correct and p"),
        ({"by": "annotator"}, "give exactly one of n_hammers and p with by='annotator'"),
        ({"by": "annotator", "n_correct": 3}, "n_correct= cannot be used with by='annotator'; pass n_hammers= or p="),
        ({"n_hammers": 3}, "n_hammers= cannot be used with by='class'; pass n_correct= or p="),
        ({"by": "item", "p": 0.5}, "by must be 'class' or 'annotator', got 'item'"),
        ({"n_correct": 11}, "n_correct must be from 0 to 10, got 11"),
        ({"by": "annotator", "n_hammers": 6}, "n_hammers must be from 0 to 5, got 6"),
        ({"p": 1.1}, "p must be a probability from 0 to 1, got 1.1"),
        ({"p": float("nan")}, "p must be a probability"),
        ({"p": 0.5, "n_annotators": 0}, "n_annotators must be at least 1, got 0"),
        ({"p": 0.5, "missing": 1}, "missing must be a share"),
        ({"p": 0.5, "y": [1, 1]}, "at least two classes"),
    ],
)
def test_invalid_arguments_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hammer_spammer_annotators(**({"y": Y} | settings))
