"""Model selection without gold: the label likelihood against plain sums, its ranking, and its sanity checks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV

import crowdfuse
from crowdfuse import Annotations, GatedClassifier, MajorityVoteClassifier, label_likelihood, label_score
from crowdfuse.quality.model_selection import leave_one_out

FAST: dict[str, Any] = {"epochs": 12, "batch_size": 32, "random_state": 0}


def crowd(n: int = 600, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return three classes and four annotators: one accurate, one less accurate, and two who guess."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 4)).astype(np.float32)
    truth = X[:, :3].argmax(1)
    right = generator.random((n, 4)) < np.array([0.9, 0.7, 0.0, 0.0])
    return X, truth, np.where(right, truth[:, None], generator.integers(0, 3, (n, 4)))


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("n_annotators", [1, 2, 3])
def test_leave_one_out_equals_bayes_rule_over_the_other_labels(n_classes: int, n_annotators: int) -> None:
    generator = np.random.default_rng(n_classes)
    log_f = np.log(generator.dirichlet(np.ones(n_classes), 5))
    channel = generator.dirichlet(np.ones(n_classes), (n_annotators, n_classes))  # (annotator, true, label)
    Y = generator.integers(0, n_classes, (5, n_annotators))
    Y[generator.random(Y.shape) < 0.2] = -1
    ann = Annotations.from_matrix(Y, classes=list(range(n_classes)))
    evidence = np.log(channel[ann.annotator, :, ann.label])
    found = leave_one_out(log_f, evidence, ann)
    for at, (n, r, y) in enumerate(zip(ann.item, ann.annotator, ann.label, strict=True)):
        total = np.zeros(n_classes)  # per label that r could have given, the other labels fixed
        for k, said in itertools.product(range(n_classes), range(n_classes)):
            others = [channel[s, k, Y[n, s]] for s in range(n_annotators) if s != r and Y[n, s] >= 0]
            total[said] += np.exp(log_f[n, k]) * np.prod(others) * channel[r, k, said]
        assert found[at] == pytest.approx(np.log(total[y] / total.sum()))


def test_the_better_classifier_has_the_higher_label_likelihood() -> None:
    X, truth, Y = crowd()
    guessed = np.tile(Y[:, 2:], 2)
    good, poor = (
        GatedClassifier(**FAST).fit(X[:400], Y[:400]),
        MajorityVoteClassifier(**FAST).fit(X[:400], guessed[:400]),
    )
    assert good.score(X[400:], truth[400:]) > poor.score(X[400:], truth[400:]) + 0.2
    good_score, poor_score = (label_likelihood(clf, X[400:], Y[400:]) for clf in (good, poor))
    assert good_score.beats(poor_score)
    assert not poor_score.beats(good_score)


def test_a_classifier_with_swapped_classes_fails_the_checks() -> None:
    """With two classes, the opposite classifier and annotators who are always wrong explain the labels equally well."""
    X, truth, _ = crowd()
    two = (truth > 0).astype(int)
    right = np.random.default_rng(1).random((600, 3)) < 0.8
    Y = np.where(right, two[:, None], 1 - two[:, None])
    seen = MajorityVoteClassifier(**FAST).fit(X[:400], Y[:400])
    mirrored = MajorityVoteClassifier(**FAST).fit(X[:400], 1 - Y[:400])
    verdict, mirror = (label_likelihood(clf, X[400:], Y[400:]) for clf in (seen, mirrored))
    assert not verdict.failed_checks
    assert any("no better than chance" in one for one in mirror.failed_checks)
    assert verdict.beats(mirror)
    assert not mirror._replace(values=verdict.values + 1).beats(verdict)
    with pytest.warns(UserWarning, match="failed a sanity check"):
        assert label_score(mirrored, X[400:], Y[400:]) < label_score(seen, X[400:], Y[400:])


def test_label_score_works_in_grid_search() -> None:
    X, _, Y = crowd()
    search = GridSearchCV(
        MajorityVoteClassifier(**FAST), {"learning_rate": [1e-6, 3e-3]}, scoring=crowdfuse.label_score, cv=3
    )
    assert search.fit(X, Y).best_params_ == {"learning_rate": 3e-3}


def test_no_labels_raise_an_error() -> None:
    X, _, Y = crowd(60)
    clf = MajorityVoteClassifier(epochs=2).fit(X, Y)
    with pytest.raises(ValueError, match="no labels, so the classifier cannot be scored"):
        label_likelihood(clf, X[:3], np.full((3, 4), -1))


def test_one_label_is_enough() -> None:
    X, _, Y = crowd(60)
    clf = MajorityVoteClassifier(epochs=2).fit(X, Y)
    assert np.isfinite(label_likelihood(clf, X[:1], [[0, -1, -1, -1]]).mean)
