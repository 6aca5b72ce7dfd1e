"""Annotators that were not seen in training: in predictions (unknown) and in `partial_fit` (new)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crowdfuse import (
    Annotations,
    FusionClassifier,
    MBEMClassifier,
    SingleAnnotatorClassifier,
    TraceRegClassifier,
    TrueLabelClassifier,
    load,
)
from crowdfuse.estimators.base import CrowdClassifier
from tests.estimators.estimator_list import ALL

NAMES = np.array(["ann", "bob", "cy", "dee"])
USES_ALL_ANNOTATORS = [kind for kind in ALL if kind not in (TrueLabelClassifier, SingleAnnotatorClassifier)]


def crowd(n_items: int = 300, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 3, n_items)
    X = np.eye(3)[truth] + generator.normal(scale=0.25, size=(n_items, 3))
    right = generator.random((n_items, 4)) < [0.9, 0.8, 0.7, 0.9]
    said = np.where(right, truth[:, None], generator.integers(0, 3, (n_items, 4)))
    said[generator.random(said.shape) < 0.2] = -1
    said[np.arange(n_items), generator.integers(0, 3, n_items)] = truth
    return X, truth, said


def named(said: NDArray[Any], names: Any = NAMES) -> Annotations:
    return Annotations.from_matrix(said, annotators=names, classes=[0, 1, 2])


def settings(kind: type[CrowdClassifier]) -> dict[str, Any]:
    return {"annotator": "ann"} if kind is SingleAnnotatorClassifier else {}


@pytest.mark.parametrize("kind", USES_ALL_ANNOTATORS)
def test_an_unknown_annotator_is_treated_like_the_average_one(kind: type[CrowdClassifier]) -> None:
    X, _, said = crowd()
    clf = kind(epochs=2).fit(X, named(said[:, :3], NAMES[:3]))
    stranger = np.full((300, 4), -1)
    stranger[:, :2], stranger[:, 3] = said[:, :2], 1
    with pytest.warns(UserWarning, match=r"1 annotator with 300 labels never seen in training.*'dee'"):
        fused = clf.fused_labels(X, named(stranger))
    assert not np.isnan(fused).any()
    with pytest.warns(UserWarning, match="never seen"):
        weights = clf.annotator_weights(X, named(stranger))
    assert weights.shape == (300, 4)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert (weights[:, 3] > 0).all()
    with pytest.warns(UserWarning, match="never seen"):
        reliability = clf.annotator_agreement(X, named(stranger))
    assert reliability[3] == pytest.approx((clf.predict(X) == 1).mean())
    assert clf.annotators_.tolist() == ["ann", "bob", "cy"]  # a query does not change the model


@pytest.mark.parametrize("kind", [TraceRegClassifier, MBEMClassifier])
def test_the_average_matrix_is_the_mean_of_the_matrices(kind: Any) -> None:
    X, _, said = crowd()
    clf = kind(epochs=3).fit(X, named(said[:, :3], NAMES[:3]))
    with pytest.warns(UserWarning, match="never seen"):
        matrices = clf.confusion_matrices(X[:1], named(np.array([[-1, -1, -1, 2]])))
    np.testing.assert_allclose(matrices[0], clf.confusion_matrices_.mean(0), atol=1e-6)


@pytest.mark.parametrize("heads", ["separate", "shared", "embedded"])
def test_the_average_annotator_of_fusion_is_the_mean_of_the_heads(heads: Any) -> None:
    X, _, said = crowd()
    clf = FusionClassifier(epochs=3, annotator_heads=heads, annotator_hidden=()).fit(X, named(said[:, :3], NAMES[:3]))
    with pytest.warns(UserWarning, match="never seen"):
        stranger = clf.confusion_matrices(X[:5], named(np.repeat([[-1, -1, -1, 2]], 5, 0)))
    if heads == "embedded":
        return
    # without hidden layers, the mean of the layers gives the mean of their outputs
    pairs = torch.arange(5).repeat_interleave(3), torch.arange(3).repeat(5)
    confuse: Any = clf.method_.confuse
    with torch.no_grad():
        h = clf.method_.features(torch.from_numpy(X[:5]).float())
        mean = confuse.head(h, *pairs).view(5, 3, -1).mean(1).softmax(1)
        expected = confuse.dense(mean)
    np.testing.assert_allclose(stranger, expected, atol=1e-6)


def test_many_unknown_annotators_keep_their_own_columns() -> None:
    X, _, said = crowd(60)
    clf = FusionClassifier(epochs=1).fit(X, named(said))
    names = [f"stranger {i}" for i in range(60)]
    everyone = np.where(np.eye(60, dtype=bool), said[:, :1], -1)
    with pytest.warns(UserWarning, match=r"5\d annotators|60 annotators"):
        weights = clf.annotator_weights(X, named(everyone, names), sparse=True)
    assert weights.shape[1] == 4 + (everyone >= 0).any(0).sum()
    assert (weights.data == 1).all()  # each is alone with its item


@pytest.mark.parametrize("kind", ALL)
def test_partial_fit_takes_new_items_and_annotators(kind: type[CrowdClassifier]) -> None:
    X, truth, said = crowd(600)
    first, later = slice(0, 300), slice(300, 600)
    gold = kind is TrueLabelClassifier
    clf = kind(epochs=20, learning_rate=0.01, batch_size=16, **settings(kind))
    clf.fit(X[first], truth[first] if gold else named(said[first, :3], NAMES[:3]))
    before = clf.score(X[later], truth[later])
    n_epochs = len(clf.history_)
    clf.partial_fit(X[later], truth[later] if gold else named(said[later]))
    assert clf.score(X[later], truth[later]) > before - 0.02
    assert [record["epoch"] for record in clf.history_] == list(range(1, len(clf.history_) + 1))
    assert len(clf.history_) > n_epochs
    if gold:
        return
    assert clf.annotators_.tolist() == NAMES.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # dee is known now
        fused = clf.fused_labels(X, named(said))
    known = ~np.isnan(fused).any(1)
    assert (fused[known].argmax(1) == truth[known]).mean() > 0.8


def test_partial_fit_learns_a_task_from_the_start() -> None:
    X, truth, said = crowd(600)
    clf = FusionClassifier(learning_rate=0.01, batch_size=16)
    for start in range(0, 600, 100):
        rows = slice(start, start + 100)
        clf.partial_fit(X[rows], named(said[rows]), classes=[0, 1, 2], epochs=3)
    assert len(clf.history_) == 18
    assert clf.score(X, truth) > 0.9


def test_partial_fit_continues_from_the_current_weights(tmp_path: Any) -> None:
    X, _, said = crowd()
    clf = FusionClassifier(epochs=3, random_state=1).fit(X, named(said[:, :3], NAMES[:3]))
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    logits = clf.predict_proba(X)
    clf.set_params(learning_rate=1e-9, weight_decay=0.0)
    again.set_params(learning_rate=1e-9, weight_decay=0.0)
    clf.partial_fit(X, named(said))
    np.testing.assert_allclose(clf.predict_proba(X), logits, atol=1e-5)
    again.partial_fit(X, named(said))
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))
    clf.save(tmp_path / "later")
    np.testing.assert_array_equal(
        load(tmp_path / "later").fused_labels(X, named(said)), clf.fused_labels(X, named(said))
    )


@pytest.mark.parametrize(
    ("clf", "n_first", "n_later", "settled"),
    [
        (FusionClassifier(epochs=1), 100, 103, {"annotator_heads": "shared"}),
        (SingleAnnotatorClassifier(epochs=1), 1, 2, {"annotator": "0"}),
    ],
    ids=["fusion", "single-annotator"],
)
def test_auto_settings_of_the_first_fit_are_saved_after_annotators_were_added(
    clf: CrowdClassifier, n_first: int, n_later: int, settled: dict[str, Any], tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(n_later, 2))
    said = np.where(np.eye(n_later, dtype=bool) | (np.arange(n_later) == 0), np.arange(n_later)[:, None] % 2, -1)
    names = np.arange(n_later).astype(str)
    clf.fit(X, Annotations.from_matrix(said[:, :n_first], annotators=names[:n_first]))
    clf.save(tmp_path / "before")
    assert load(tmp_path / "before").get_params() == clf.get_params()
    everyone = Annotations.from_matrix(said, annotators=names)
    clf.partial_fit(X, everyone)
    clf.save(tmp_path / "after")
    again = load(tmp_path / "after")
    np.testing.assert_array_equal(again.fused_labels(X, everyone), clf.fused_labels(X, everyone))
    assert again.get_params().items() >= settled.items()
    clf.partial_fit(X, everyone)
    again.partial_fit(X, everyone)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_a_new_annotator_starts_as_the_average_and_learns() -> None:
    X, truth, said = crowd(900)
    said = said.copy()
    said[:, 3] = (truth + 1) % 3  # always wrong
    clf = TraceRegClassifier(epochs=20, learning_rate=0.02).fit(X[:300], named(said[:300, :3], NAMES[:3]))
    clf.partial_fit(X[300:], named(said[300:]), epochs=20)
    assert clf.score(X, truth) > 0.9
    assert clf.confusion_matrices_.argmax(2).tolist() == [[0, 1, 2]] * 3 + [[1, 2, 0]]


def test_partial_fit_refuses_data_that_does_not_fit_the_model() -> None:
    X, _, said = crowd(60)
    clf = FusionClassifier(epochs=1, annotator_heads="separate").fit(X, named(said[:, :3], NAMES[:3]))
    with pytest.raises(ValueError, match=r"1 annotator never seen before: 'dee'; separate heads"):
        clf.partial_fit(X, named(said))
    assert clf.annotators_.tolist() == NAMES[:3].tolist()
    with pytest.raises(ValueError, match="classes= names other classes"):
        clf.partial_fit(X, named(said[:, :3], NAMES[:3]), classes=[0, 1])
    with pytest.raises(ValueError, match="label 7 is not one of the 3 classes"):
        clf.partial_fit(X[:1], Annotations.from_matrix([[7]], annotators=["ann"]))
    with pytest.raises(ValueError, match="epochs must be a whole number"):
        clf.partial_fit(X, named(said[:, :3], NAMES[:3]), epochs=0)


def test_gold_used_in_a_later_partial_fit_is_reported() -> None:
    X, truth, said = crowd(60)
    clf = FusionClassifier(epochs=1).fit(X, named(said))
    clf.partial_fit(X, named(said), gold=truth)
    clf.partial_fit(X, named(said))
    assert clf.gold_used_for_ == "training"
