"""The gated classifier on contradictory labels: gold overrules them; without gold it follows the vote."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crowdfuse import GatedClassifier, MajorityVoteClassifier
from crowdfuse.methods import gated
from crowdfuse.methods.gold_classifier import fit_gold_classifier
from tests.training.test_loop import assert_resumes

SETTINGS: dict[str, Any] = {"epochs": 24, "batch_size": 32, "random_state": 0}


def contradicting(n: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return two classes; each of three annotators is wrong on a different half, or more, of the items."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3)).astype(np.float32)
    truth = (X[:, 0] > 0).astype(int)
    wrong = np.stack([X[:, 1] > 0.3, X[:, 2] > -0.6, X[:, 1] + X[:, 2] < 0.5], axis=1)
    return X, truth, np.where(wrong, 1 - truth[:, None], truth[:, None])


def make_shifted_labels() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return labels that are the next class on most items for all annotators; without gold, these are learned."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(1500, 3)).astype(np.float32)
    truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    shifted = np.where((X[:, 2] > -0.5)[:, None], ((truth + 1) % 4)[:, None], truth[:, None])
    return X, truth, np.where(generator.random((1500, 3)) < 0.1, generator.integers(0, 4, (1500, 3)), shifted)


def gold_of_first(truth: NDArray[Any], count: int) -> NDArray[np.float64]:
    gold = np.full(len(truth), np.nan)
    gold[:count] = truth[:count]
    return gold


def training_target(clf: GatedClassifier) -> str:
    """Return what the training took for the true classes: "gold", "vote" or "labels" of the annotators it trusts."""
    assert isinstance(clf.method_, gated.Gated)
    if clf.method_.starts_from_gold:
        return "gold"
    return "vote" if clf.method_.trains_on_vote else "labels"


def test_contradicting_annotators_of_two_classes_fall_back_to_the_vote() -> None:
    X, truth, Y = contradicting(1200)
    clf = GatedClassifier(**SETTINGS).fit(X, Y)
    vote = MajorityVoteClassifier(**SETTINGS).fit(X, Y)
    assert training_target(clf) == "vote"
    (told,) = [line for line in clf.consensus(X, Y, folds=0).limitations if "majority vote" in line]
    assert "gold" in told  # the way out
    assert np.mean(clf.predict(X) == vote.predict(X)) > 0.85
    assert clf.score(X, truth) > vote.score(X, truth) - 0.05


def divided_by_shifts(n: int, wrong: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return four classes; each of three annotators shifts the class where its own feature is below `wrong`."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, 5)).astype(np.float32)
    truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    said = [np.where(X[:, 2 + r] < wrong, (truth + 1 + r) % 4, truth) for r in range(3)]
    return X, truth, np.stack(said, axis=1)


def test_contradicting_annotators_of_many_classes_fall_back_to_the_vote() -> None:
    X, truth, Y = divided_by_shifts(1500, wrong=0.1)
    clf = GatedClassifier(**SETTINGS, learning_rate=0.01).fit(X, Y)
    vote = MajorityVoteClassifier(**SETTINGS, learning_rate=0.01).fit(X, Y)
    assert training_target(clf) == "vote"
    assert clf.score(X, truth) > vote.score(X, truth) - 0.05
    X, truth, Y = divided_by_shifts(1500, wrong=-1.0)
    assert training_target(GatedClassifier(**SETTINGS, learning_rate=0.01).fit(X, Y)) == "labels"
    with_gold = GatedClassifier(**SETTINGS, learning_rate=0.01).fit(
        *divided_by_shifts(1500, wrong=0.1)[::2], gold=gold_of_first(truth, 100)
    )
    assert training_target(with_gold) == "gold"


@pytest.mark.parametrize(
    ("named", "share"),
    [
        ([[0, 0, 0], [1, 1, 1], [2, 2, 2]], 0.0),
        ([[0, 0, 1], [1, 1, 2], [2, 2, 0]], 0.0),  # the third permutes the classes
        ([[0, 0, 0], [1, 2, 3], [2, 0, 1]], 2 / 3),
        ([[-1, -1, -1], [-1, -1, 0], [0, -1, -1]], 0.0),
    ],
)
def test_confident_pairs_that_disagree_are_counted(named: list[list[int]], share: float) -> None:
    assert gated.disagreement_share(np.array(named), np.ones(3)) == pytest.approx(share)


def test_a_few_gold_items_tell_who_is_right_where() -> None:
    X, truth, Y = contradicting(1200)
    clf = GatedClassifier(**SETTINGS).fit(X, Y, gold=gold_of_first(truth, 50))
    assert training_target(clf) == "gold"
    assert clf.score(X[50:], truth[50:]) > 0.93
    gates = clf.annotator_accuracy_per_item(X)
    assert np.mean((gates > 0.5) == (truth[:, None] == Y)) > 0.85


def test_gold_overrules_unanimous_labels_and_checks_the_likelihood_phase() -> None:
    X, truth, noisy = make_shifted_labels()
    alone = GatedClassifier(**SETTINGS).fit(X, noisy)
    with_gold = GatedClassifier(**SETTINGS).fit(X, noisy, gold=gold_of_first(truth, 200))
    assert alone.score(X[200:], truth[200:]) < 0.5
    assert with_gold.score(X[200:], truth[200:]) > 0.85
    refused = [epoch for epoch in with_gold.history_ if "held-out gold" in str(epoch.get("failed_checks"))]
    assert refused
    assert with_gold.history_[(with_gold.best_epoch_ or 0) - 1] not in refused


@pytest.mark.parametrize("hold_out", [True, False])
def test_gold_is_used_with_and_without_held_out_labels(hold_out: bool) -> None:
    X, truth, Y = contradicting(800, seed=2)
    clf = GatedClassifier(**SETTINGS, hold_out=hold_out).fit(X, Y, gold=gold_of_first(truth, 60))
    assert clf.score(X[60:], truth[60:]) > 0.9
    assert bool(clf.method_.skips_likelihood) is not hold_out


def test_gold_without_a_common_class_does_not_choose_the_start() -> None:
    """A classifier trained on this gold could not predict the class without gold."""
    X, truth, Y = make_shifted_labels()
    gold = gold_of_first(truth, 200)
    assert training_target(GatedClassifier(**SETTINGS).fit(X, Y, gold=gold)) == "gold"
    gold[gold == 3] = np.nan
    clf = GatedClassifier(**SETTINGS).fit(X, Y, gold=gold)
    assert training_target(clf) == "labels"
    assert np.mean(clf.predict(X) == 3) > 0.1


def test_gold_that_agrees_with_the_labels_does_not_change_the_start() -> None:
    X, truth, _ = contradicting(600)
    right = np.random.default_rng(3).random((600, 3)) < 0.9
    clf = GatedClassifier(**SETTINGS).fit(
        X, np.where(right, truth[:, None], 1 - truth[:, None]), gold=gold_of_first(truth, 50)
    )
    assert training_target(clf) == "labels"
    assert clf.score(X, truth) > 0.95


def test_an_annotator_who_is_always_wrong_is_not_a_contradiction() -> None:
    X, truth, _ = contradicting(600)
    right = np.random.default_rng(3).random((600, 5)) < np.array([0.95, 0.9, 0.9, 0.9, 0.03])
    clf = GatedClassifier(**SETTINGS).fit(X, np.where(right, truth[:, None], 1 - truth[:, None]))
    assert training_target(clf) == "labels"
    assert clf.score(X, truth) > 0.95


@pytest.mark.parametrize("gold", [None, 40])
@pytest.mark.parametrize("stop_after", [6, 7, 13, 18])
def test_decisions_survive_stop_and_resume(
    gold: int | None, stop_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, truth, Y = contradicting(400, seed=4)
    monkeypatch.setattr(gated, "MAX_CONTESTED_SHARE", -1.0)  # no annotator is confident after one epoch
    make = partial(GatedClassifier, epochs=4, batch_size=64, learning_rate=0.02, random_state=1)
    given: dict[str, Any] = {} if gold is None else {"gold": gold_of_first(truth, gold)}
    whole = make().fit(X, Y, **given)
    assert training_target(whole) == ("vote" if gold is None else "gold")
    assert_resumes(make, (X, truth, Y), tmp_path, monkeypatch, stop_after, None, **given)


def test_partial_fit_decides_anew() -> None:
    X, truth, Y = contradicting(600)
    clf = GatedClassifier(**SETTINGS).fit(X, Y, gold=gold_of_first(truth, 50))
    assert training_target(clf) == "gold"
    assert training_target(clf.partial_fit(X, Y)) != "gold"


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_gold_classifier_is_a_logistic_regression(n_classes: int) -> None:
    generator = np.random.default_rng(n_classes)
    described = generator.normal(size=(400, 6)).astype(np.float32)
    gold = (described @ generator.normal(size=(6, n_classes))).argmax(1)
    classifier = fit_gold_classifier(described[:150], gold[:150], np.zeros(150, np.int64), n_classes)
    assert classifier is not None
    found = classifier(torch.from_numpy(described[150:])).argmax(1).numpy()
    assert np.mean(found == gold[150:]) > 0.85
    assert (
        abs(classifier.is_correct_out_of_fold.mean() - np.mean(found == gold[150:])) < 0.12
    )  # the cross-validated accuracy is right


def test_gold_classifier_never_predicts_a_class_without_gold() -> None:
    described = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    gold = np.where(described[:, 0] > 0, 3, 1)
    classifier = fit_gold_classifier(described, gold, np.zeros(60, np.int64), 5)
    assert classifier is not None
    assert set(classifier(torch.from_numpy(described)).argmax(1).tolist()) == {1, 3}


@pytest.mark.parametrize("count", [0, 1, 9])
def test_too_little_gold_gives_no_classifier(count: int) -> None:
    described = np.ones((count, 3), np.float32)
    assert fit_gold_classifier(described, np.arange(count) % 2, np.ones(count, np.int64), 2) is None
