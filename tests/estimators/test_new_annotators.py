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


def make_crowd(n_items: int = 300, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return inputs, true classes and a label matrix with missing labels (-1); each item has a right label."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 3, n_items)
    X = np.eye(3)[truth] + generator.normal(scale=0.25, size=(n_items, 3))
    right = generator.random((n_items, 4)) < [0.9, 0.8, 0.7, 0.9]
    labels = np.where(right, truth[:, None], generator.integers(0, 3, (n_items, 4)))
    labels[generator.random(labels.shape) < 0.2] = -1
    labels[np.arange(n_items), generator.integers(0, 3, n_items)] = truth
    return X, truth, labels


def annotations_of(labels: NDArray[Any], names: Any = NAMES) -> Annotations:
    """Return the annotations of a label matrix, with named annotators."""
    return Annotations.from_matrix(labels, annotators=names, classes=[0, 1, 2])


def settings(kind: type[CrowdClassifier]) -> dict[str, Any]:
    return {"annotator": "ann"} if kind is SingleAnnotatorClassifier else {}


@pytest.mark.parametrize("kind", USES_ALL_ANNOTATORS)
def test_an_unknown_annotator_counts_as_the_average_annotator(kind: type[CrowdClassifier]) -> None:
    X, _, labels = make_crowd()
    clf = kind(epochs=2).fit(X, annotations_of(labels[:, :3], NAMES[:3]))
    with_unknown = np.full((300, 4), -1)
    with_unknown[:, :2], with_unknown[:, 3] = labels[:, :2], 1
    with pytest.warns(UserWarning, match=r"300 labels by 1 annotator never seen in training.*'dee'"):
        fused = clf.fused_labels(X, annotations_of(with_unknown))
    assert not np.isnan(fused).any()
    with pytest.warns(UserWarning, match="never seen"):
        weights = clf.annotator_weights(X, annotations_of(with_unknown))
    assert weights.shape == (300, 4)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert (weights[:, 3] > 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clf.consensus(X, annotations_of(with_unknown), folds=0)
    assert found.annotators.tolist() == NAMES.tolist()
    assert found.annotator_accuracy[3] == pytest.approx((found.consensus_codes == 1).mean(), abs=0.05)
    assert clf.annotators_.tolist() == ["ann", "bob", "cy"]  # predicting does not change the model


@pytest.mark.parametrize("kind", [TraceRegClassifier, MBEMClassifier])
def test_the_average_matrix_is_the_mean_of_the_matrices(kind: Any) -> None:
    X, _, labels = make_crowd()
    clf = kind(epochs=3).fit(X, annotations_of(labels[:, :3], NAMES[:3]))
    with pytest.warns(UserWarning, match="never seen"):
        matrices = clf.confusion_matrices(X[:1], annotations_of(np.array([[-1, -1, -1, 2]])))
    np.testing.assert_allclose(matrices[0], clf.confusion_matrices_.mean(0), atol=1e-6)


@pytest.mark.parametrize("heads", ["separate", "shared", "embedded"])
def test_the_average_annotator_of_fusion_is_the_mean_of_the_heads(heads: Any) -> None:
    X, _, labels = make_crowd()
    clf = FusionClassifier(epochs=3, annotator_heads=heads, annotator_hidden=()).fit(
        X, annotations_of(labels[:, :3], NAMES[:3])
    )
    with pytest.warns(UserWarning, match="never seen"):
        matrices = clf.confusion_matrices(X[:5], annotations_of(np.repeat([[-1, -1, -1, 2]], 5, 0)))
    if heads == "embedded":
        return
    # without hidden layers, averaging the layers is the same as averaging their outputs
    pairs = torch.arange(5).repeat_interleave(3), torch.arange(3).repeat(5)
    confuse: Any = clf.method_.confuse
    with torch.no_grad():
        h = clf.method_.features(torch.from_numpy(X[:5]).float())
        mean = confuse.head(h, *pairs).view(5, 3, -1).mean(1).softmax(1)
        expected = confuse.dense(mean)
    np.testing.assert_allclose(matrices, expected, atol=1e-6)


def test_each_unknown_annotator_has_a_column_of_weights() -> None:
    X, _, labels = make_crowd(60)
    clf = FusionClassifier(epochs=1).fit(X, annotations_of(labels))
    names = [f"unknown {i}" for i in range(60)]
    all_labels = np.where(np.eye(60, dtype=bool), labels[:, :1], -1)
    with pytest.warns(UserWarning, match=r"5\d annotators|60 annotators"):
        weights = clf.annotator_weights(X, annotations_of(all_labels, names), sparse=True)
    assert weights.shape[1] == 4 + (all_labels >= 0).any(0).sum()
    assert (weights.data == 1).all()  # each item has one label


@pytest.mark.parametrize("kind", ALL)
def test_partial_fit_accepts_new_items_and_annotators(kind: type[CrowdClassifier]) -> None:
    X, truth, labels = make_crowd(600)
    first, later = slice(0, 300), slice(300, 600)
    gold = kind is TrueLabelClassifier
    clf = kind(epochs=20, learning_rate=0.01, batch_size=16, **settings(kind))
    clf.fit(X[first], truth[first] if gold else annotations_of(labels[first, :3], NAMES[:3]))
    before = clf.score(X[later], truth[later])
    n_epochs = len(clf.history_)
    clf.partial_fit(X[later], truth[later] if gold else annotations_of(labels[later]))
    assert clf.score(X[later], truth[later]) > before - 0.02
    assert [record["epoch"] for record in clf.history_] == list(range(1, len(clf.history_) + 1))
    assert len(clf.history_) > n_epochs
    if gold:
        return
    assert clf.annotators_.tolist() == NAMES.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # annotator dee is known now
        fused = clf.fused_labels(X, annotations_of(labels))
    known = ~np.isnan(fused).any(1)
    assert (fused[known].argmax(1) == truth[known]).mean() > 0.8


def test_partial_fit_learns_a_task_from_the_start() -> None:
    X, truth, labels = make_crowd(600)
    clf = FusionClassifier(learning_rate=0.01, batch_size=16)
    for start in range(0, 600, 100):
        rows = slice(start, start + 100)
        clf.partial_fit(X[rows], annotations_of(labels[rows]), classes=[0, 1, 2], epochs=3)
    assert len(clf.history_) == 18
    assert clf.score(X, truth) > 0.9


def test_partial_fit_continues_from_the_current_weights(tmp_path: Any) -> None:
    X, _, labels = make_crowd()
    clf = FusionClassifier(epochs=3, random_state=1).fit(X, annotations_of(labels[:, :3], NAMES[:3]))
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    logits = clf.predict_proba(X)
    clf.set_params(learning_rate=1e-9, weight_decay=0.0)
    again.set_params(learning_rate=1e-9, weight_decay=0.0)
    clf.partial_fit(X, annotations_of(labels))
    np.testing.assert_allclose(clf.predict_proba(X), logits, atol=1e-5)
    again.partial_fit(X, annotations_of(labels))
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))
    clf.save(tmp_path / "later")
    np.testing.assert_array_equal(
        load(tmp_path / "later").fused_labels(X, annotations_of(labels)), clf.fused_labels(X, annotations_of(labels))
    )


@pytest.mark.parametrize(
    ("clf", "n_first", "n_later", "resolved"),
    [
        (FusionClassifier(epochs=1), 100, 103, {"annotator_heads": "shared"}),
        (SingleAnnotatorClassifier(epochs=1), 1, 2, {"annotator": "0"}),
    ],
    ids=["fusion", "single-annotator"],
)
def test_auto_settings_of_the_first_fit_are_saved_after_annotators_were_added(
    clf: CrowdClassifier, n_first: int, n_later: int, resolved: dict[str, Any], tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(n_later, 2))
    labels = np.where(np.eye(n_later, dtype=bool) | (np.arange(n_later) == 0), np.arange(n_later)[:, None] % 2, -1)
    names = np.arange(n_later).astype(str)
    clf.fit(X, Annotations.from_matrix(labels[:, :n_first], annotators=names[:n_first]))
    clf.save(tmp_path / "before")
    assert load(tmp_path / "before").get_params() == clf.get_params()
    all_labels = Annotations.from_matrix(labels, annotators=names)
    clf.partial_fit(X, all_labels)
    clf.save(tmp_path / "after")
    again = load(tmp_path / "after")
    np.testing.assert_array_equal(again.fused_labels(X, all_labels), clf.fused_labels(X, all_labels))
    assert again.get_params().items() >= resolved.items()
    clf.partial_fit(X, all_labels)
    again.partial_fit(X, all_labels)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_a_new_annotator_starts_as_the_average_and_learns() -> None:
    X, truth, labels = make_crowd(900)
    labels = labels.copy()
    labels[:, 3] = (truth + 1) % 3  # always wrong
    clf = TraceRegClassifier(epochs=20, learning_rate=0.02).fit(X[:300], annotations_of(labels[:300, :3], NAMES[:3]))
    clf.partial_fit(X[300:], annotations_of(labels[300:]), epochs=20)
    assert clf.score(X, truth) > 0.9
    assert clf.confusion_matrices_.argmax(2).tolist() == [[0, 1, 2]] * 3 + [[1, 2, 0]]


def test_partial_fit_refuses_data_that_does_not_fit_the_model() -> None:
    X, _, labels = make_crowd(60)
    clf = FusionClassifier(epochs=1, annotator_heads="separate").fit(X, annotations_of(labels[:, :3], NAMES[:3]))
    with pytest.raises(ValueError, match=r"1 annotator .*'dee'. .* annotator_heads='separate'"):
        clf.partial_fit(X, annotations_of(labels))
    assert clf.annotators_.tolist() == NAMES[:3].tolist()
    with pytest.raises(ValueError, match="classes differs from the classes"):
        clf.partial_fit(X, annotations_of(labels[:, :3], NAMES[:3]), classes=[0, 1])
    with pytest.raises(ValueError, match="label 7 is not one of the 3 classes"):
        clf.partial_fit(X[:1], Annotations.from_matrix([[7]], annotators=["ann"]))
    with pytest.raises(ValueError, match="epochs must be a whole number"):
        clf.partial_fit(X, annotations_of(labels[:, :3], NAMES[:3]), epochs=0)


def test_gold_used_in_a_later_partial_fit_is_reported() -> None:
    X, truth, labels = make_crowd(60)
    clf = FusionClassifier(epochs=1).fit(X, annotations_of(labels))
    clf.partial_fit(X, annotations_of(labels), gold=truth)
    clf.partial_fit(X, annotations_of(labels))
    assert clf.gold_used_for_ == "training"
