"""The gated classifier on data where the answer is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import GatedClassifier, MajorityVoteClassifier, TrueLabelClassifier

FAST: dict[str, Any] = {"batch_size": 256, "learning_rate": 0.02, "epochs": 12}


class Ring(NamedTuple):
    """Training and test items around K points on a circle, one per class."""

    X: NDArray[Any]
    truth: NDArray[Any]
    X_test: NDArray[Any]
    truth_test: NDArray[Any]

    def score(self, clf: Any) -> float:
        return float(clf.score(self.X_test, self.truth_test))


def ring(n_classes: int, spread: float, n_items: int = 2500, seed: int = 0) -> Ring:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, n_classes, 2 * n_items)
    angle = 2 * np.pi * truth / n_classes
    X = np.stack([np.cos(angle), np.sin(angle)], 1) + spread * generator.normal(size=(2 * n_items, 2))
    return Ring(X[:n_items], truth[:n_items], X[n_items:], truth[n_items:])


def ask(truth: NDArray[Any], right: Any, n_classes: int, seed: int = 1) -> NDArray[Any]:
    """Return labels (N, R) of annotators with these accuracies, (R,) or (N, R), and uniform mistakes."""
    generator = np.random.default_rng(seed)
    shape = np.broadcast_shapes((len(truth), 1), np.shape(right))
    wrong = (truth[:, None] + generator.integers(1, n_classes, shape)) % n_classes
    return np.where(generator.random(shape) < right, truth[:, None], wrong)


@pytest.mark.parametrize("wrong", ["uniform", "annotator", "shared", "basis"])
def test_weak_regions_of_annotators_are_found(wrong: Any) -> None:
    """Each annotator is always wrong inside one disc and right outside."""
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    centres = np.array([[0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
    weak = np.linalg.norm(X[:, None] - centres, axis=2) < 0.6
    clf = GatedClassifier(**FAST, wrong=wrong).fit(X, ask(truth, ~weak, 4))
    gates = clf.annotator_accuracy_per_item(X)
    assert clf.score(X, truth) > 0.98
    for r in range(3):
        assert np.corrcoef(gates[:, r], ~weak[:, r])[0, 1] > 0.85
    assert gates[weak].mean() < 0.2
    assert gates[~weak].mean() > 0.9


@pytest.mark.parametrize(("n_classes", "n_known"), [(6, 2), (8, 3)])
def test_classes_that_an_annotator_does_not_know_are_found(n_classes: int, n_known: int) -> None:
    """Five annotators are each right on a few classes and wrong on the others; two classes are known to none."""
    data = ring(n_classes, 0.12, n_items=5000, seed=1)
    generator = np.random.default_rng(2)
    knows = np.zeros((5, n_classes), bool)
    for r in range(5):
        knows[r, generator.permutation(n_classes - 2)[:n_known]] = True
    Y = ask(data.truth, knows[:, data.truth].T, n_classes)
    clf = GatedClassifier(**FAST).fit(data.X, Y)
    vote = MajorityVoteClassifier(**FAST).fit(data.X, Y)
    assert data.score(vote) < 0.8
    assert data.score(clf) > 0.93
    gates = np.stack([clf.annotator_accuracy_per_item(data.X)[data.truth == k].mean(0) for k in range(n_classes)], 1)
    assert ((gates > 0.5) == knows).mean() > 0.9


@pytest.mark.parametrize("wrong", ["uniform", "annotator"])
def test_a_spammer_and_an_adversary_are_recognized_and_cost_little(wrong: Any) -> None:
    data = ring(5, 0.25)
    good = ask(data.truth, [0.85, 0.8, 0.8, 0.75], 5)
    fits = {}
    for name, fifth in (("spammer", np.full(2500, 2)), ("adversary", (data.truth + 1) % 5)):
        fits[name] = GatedClassifier(**FAST, wrong=wrong).fit(data.X, np.column_stack([good, fifth]))
    without = data.score(GatedClassifier(**FAST, wrong=wrong).fit(data.X, good))
    assert without > 0.97
    for clf in fits.values():
        assert data.score(clf) > without - 0.01
        assert clf.annotator_accuracy_per_item(data.X).mean(0).argmin() == 4
    gates = fits["spammer"].annotator_accuracy_per_item(data.X)[:, 4]
    assert gates[data.truth == 2].mean() > 0.8  # it is right there, and nowhere else
    assert gates[data.truth != 2].mean() < 0.1
    if wrong == "annotator":
        matrices = fits["adversary"].confusion_matrices(data.X[:200])[:, 4].mean(0)
        assert matrices.argmax(1).tolist() == [1, 2, 3, 4, 0]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_perfect_annotators_are_as_good_as_gold(n_classes: int) -> None:
    data = ring(n_classes, 0.3)
    upper = data.score(TrueLabelClassifier(**FAST).fit(data.X, data.truth))
    clf = GatedClassifier(**FAST).fit(data.X, np.column_stack([data.truth] * 3))
    assert data.score(clf) > upper - 0.01
    assert clf.annotator_accuracy_per_item(data.X).mean() > 0.95


@pytest.mark.parametrize("right", [(0.9, 0.75, 0.65), (0.7, 0.7, 0.7), (0.9, 0.55, 0.3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_two_classes_are_not_worse_than_the_vote(right: Any, seed: int) -> None:
    data = ring(2, 0.6, seed=seed)
    Y = ask(data.truth, right, 2, seed + 10)
    clf, vote = (kind(**FAST).fit(data.X, Y) for kind in (GatedClassifier, MajorityVoteClassifier))
    assert data.score(clf) > data.score(vote) - 0.01
    assert clf.annotator_accuracy_per_item(data.X).mean(0).argmax() == 0 or right[0] == right[1]


@pytest.mark.parametrize("wrong", ["uniform", "annotator"])
def test_gold_corrects_mistakes_that_all_annotators_share(wrong: Any) -> None:
    """All annotators always give the next class; only gold can show that."""
    data = ring(5, 0.2)
    Y = np.column_stack([(data.truth + 1) % 5] * 3)
    gold = np.where(np.arange(2500) < 100, data.truth, -1)
    assert data.score(GatedClassifier(**FAST, wrong=wrong).fit(data.X, Y)) < 0.05
    clf = GatedClassifier(**FAST, wrong=wrong).fit(data.X, Y, gold=gold)
    assert clf.gold_used_for_ == "training"
    assert data.score(clf) > 0.9


def test_random_labels_get_low_gates() -> None:
    data = ring(4, 0.3)
    clf = GatedClassifier(**FAST).fit(data.X, np.random.default_rng(0).integers(0, 4, (2500, 3)))
    assert clf.annotator_accuracy_per_item(data.X).mean() < 0.5
