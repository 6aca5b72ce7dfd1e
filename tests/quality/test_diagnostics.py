"""Diagnostics: each violated assumption is reported, and only that one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import Annotations, GatedClassifier, load
from crowdfuse.quality.diagnostics import Diagnostics, diagnose

N, K = 3_000, 5
TRUTH = np.arange(N) % K
SKILLS = np.array([0.9, 0.7, 0.5])


def crowd(kind: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labels (N, 3) and the true gates (N, 3)."""
    generator = np.random.default_rng(0)
    is_right = generator.random((N, 3)) < SKILLS
    wrong = (TRUTH[:, None] + generator.integers(1, K, (N, 3))) % K
    if kind == "shift":
        wrong = (TRUTH[:, None] + np.array([1, 2, 3])) % K
    if kind == "copy":
        wrong = np.repeat(wrong[:, :1], 3, axis=1)
    if kind == "together":
        is_right = np.repeat(generator.random((N, 1)) < 0.7, 3, axis=1)
        return np.where(is_right, TRUTH[:, None], wrong), np.full((N, 3), 0.7)
    return np.where(is_right, TRUTH[:, None], wrong), np.tile(SKILLS, (N, 1))


def diagnosed(kind: str) -> Diagnostics:
    said, gates = crowd(kind)
    return diagnose(np.eye(K)[TRUTH], gates.ravel(), Annotations.from_matrix(said, classes=range(K)))


def test_even_independent_mistakes_give_no_message() -> None:
    found = diagnosed("even")
    assert found.gates_can_be_trusted
    assert found.messages == ()
    assert found.error_concentration == pytest.approx(0, abs=0.05)
    assert found.shared_error_rate == pytest.approx(1 / (K - 1), abs=0.05)
    assert found.joint_error_ratio == pytest.approx(1, abs=0.1)
    assert found.overlap == 1


@pytest.mark.parametrize(
    ("kind", "doubt"),
    [("shift", "concentrate on some classes"), ("copy", "share mistakes"), ("together", "both wrong")],
)
def test_each_violated_assumption_is_reported(kind: str, doubt: str) -> None:
    found = diagnosed(kind)
    assert not found.gates_can_be_trusted
    assert "cannot be trusted" in found.messages[0]
    assert any(doubt in message for message in found.messages)


def test_shared_mistakes_are_counted_over_pairs_of_labels() -> None:
    """Against a loop over all pairs of labels of an item."""
    said, gates = crowd("copy")
    said[np.random.default_rng(1).random(said.shape) < 0.3] = -1
    ann = Annotations.from_matrix(said, classes=range(K))
    found = diagnose(np.eye(K)[TRUTH], gates[said >= 0], ann)
    same = both = 0
    expected = 0.0
    for n in range(N):
        for r in range(3):
            for s in range(r):
                if said[n, r] >= 0 and said[n, s] >= 0:
                    expected += (1 - gates[n, r]) * (1 - gates[n, s])
                    if said[n, r] != TRUTH[n] and said[n, s] != TRUTH[n]:
                        both += 1
                        same += int(said[n, r] == said[n, s])
    assert found.shared_error_rate == pytest.approx(same / both)
    assert found.joint_error_ratio == pytest.approx(both / expected)


def test_two_classes_ask_for_gold() -> None:
    truth = np.arange(200) % 2
    ann = Annotations.from_matrix(np.stack([truth, truth, 1 - truth], 1))
    gates = np.tile([1.0, 1.0, 0.0], 200)
    assert any("pass some gold" in message for message in diagnose(np.eye(2)[truth], gates, ann).messages)
    assert diagnose(np.eye(2)[truth], gates, ann, initial_classes_from="labels and gold").gates_can_be_trusted


def poor(kind: str, generator: np.random.Generator, truth: NDArray[np.int64]) -> NDArray[np.int64]:
    if kind == "no overlap":
        said = np.full((len(truth), 3), -1)
        said[np.arange(len(truth)), generator.integers(0, 3, len(truth))] = truth
        return said
    if kind == "one annotator":
        return truth[:, None]
    if kind == "a class without labels":
        return np.stack([truth % 3] * 3, 1)
    return generator.integers(0, 4, (len(truth), 3))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no overlap", "no item has two labels"),
        ("one annotator", "all labels come from one annotator"),
        ("a class without labels", "no annotator uses class 3"),
        ("at random", "hardly depend on the inputs"),
    ],
)
def test_fit_reports_what_the_labels_cannot_show(kind: str, message: str, tmp_path: Any) -> None:
    generator = np.random.default_rng(0)
    truth = np.arange(400) % 4
    X = np.eye(4)[truth] * 3 + generator.normal(size=(400, 4))
    ann = Annotations.from_matrix(poor(kind, generator, truth), classes=range(4))
    clf = GatedClassifier(epochs=6, batch_size=64, classes=range(4)).fit(X, ann)
    assert any(message in one for one in clf.diagnostics_["messages"]), clf.diagnostics_
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, GatedClassifier)
    assert again.diagnostics_ == clf.diagnostics_


def test_the_confusion_matrix_shows_an_annotator_who_always_names_the_next_class() -> None:
    generator = np.random.default_rng(0)
    truth = np.arange(600) % 4
    X = np.eye(4)[truth] * 3 + generator.normal(size=(600, 4))
    good = np.where(generator.random((600, 4)) < 0.9, truth[:, None], generator.integers(0, 4, (600, 4)))
    said = np.column_stack([good, (truth + 1) % 4])
    matrix = GatedClassifier(epochs=20, batch_size=64).fit(X, said).confusion_matrices(X).mean(0)[4]
    assert all(matrix[k, (k + 1) % 4] > 0.8 for k in range(4))
    assert matrix.diagonal().max() < 0.1
