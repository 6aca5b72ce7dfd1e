"""The gated classifier in the training loop: interruptions, few epochs, saving, new annotators, degenerate labels."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from crowdfuse import Annotations, GatedClassifier, load
from crowdfuse.methods.gated import Gated
from tests.estimators.test_new_annotators import NAMES, annotations_of, make_crowd
from tests.training.test_loop import assert_resumes, crowd  # noqa: F401 (a fixture)

# 24 steps: phases of 1, 1 and 2 epochs, 6 steps each
SETTINGS: dict[str, Any] = {"epochs": 4, "batch_size": 16, "dropout": 0.2, "random_state": 3}


@pytest.mark.parametrize("stop_after", [1, 5, 6, 7, 11, 12, 13, 18, 23])  # 6 and 12: between the phases
@pytest.mark.parametrize("validation", ["gold", "annotations", None])
def test_a_stopped_training_resumes_to_the_same_bits(
    crowd: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    validation: str | None,
) -> None:
    make = partial(GatedClassifier, **SETTINGS, hold_out=validation == "annotations")
    assert_resumes(make, crowd, tmp_path, monkeypatch, stop_after, validation)


@pytest.mark.parametrize("wrong", ["annotator", "shared", "basis"])
@pytest.mark.parametrize("heads", ["shared", "embedded"])
def test_every_kind_resumes_to_the_same_bits(
    crowd: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Any,
    heads: Any,
) -> None:
    make = partial(GatedClassifier, **SETTINGS, wrong=wrong, annotator_heads=heads, optimizer="sgd")
    assert_resumes(make, crowd, tmp_path, monkeypatch, 15, "annotations")


def test_a_checkpoint_is_refused_with_another_hold_out(crowd: Any, tmp_path: Path) -> None:  # noqa: F811
    X, _, Y = crowd
    GatedClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)
    with pytest.raises(ValueError, match=r"settings\.hold_out was True, now False"):
        GatedClassifier(**SETTINGS, hold_out=False, checkpoint=tmp_path).fit(X, Y)


# ---- few epochs, interruptions -------------------------------------------------------------------


class Interrupting(nn.Module):
    """A backbone that is interrupted at a step of the training."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.left -= self.training
        if self.left < 0:
            self.left = 10_000
            raise KeyboardInterrupt
        return x


def easy(n_items: int = 300) -> Any:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 4, n_items)
    X = 3 * np.eye(4)[truth] + generator.normal(size=(n_items, 4))
    right = generator.random((n_items, 3)) < [0.9, 0.8, 0.7]
    return X, truth, np.where(right, truth[:, None], generator.integers(0, 4, (n_items, 3)))


@pytest.mark.parametrize("hold_out", [True, False])
@pytest.mark.parametrize(("step", "least"), [(9, 0.3), (19 * 4, 0.8), (19 * 6, 0.8), (19 * 9, 0.85), (19 * 15, 0.85)])
def test_ctrl_c_in_any_phase_leaves_a_model_that_predicts(
    tmp_path: Path, step: int, least: float, hold_out: bool
) -> None:
    """19 steps per epoch: 5 epochs of the annotator-label phase, 2 of the start phase, 13 of the gates phase."""
    X, truth, Y = easy()
    backbone = Interrupting(step)
    clf = GatedClassifier(epochs=20, batch_size=16, learning_rate=0.01, backbone=backbone, hold_out=hold_out)
    with pytest.warns(UserWarning, match=r"interrupted after \d+ of 20 epochs"):
        clf.fit(X, Y)
    assert clf.score(X, truth) > least
    assert np.isfinite(clf.fused_labels(X, Y)).all()
    assert ((clf.annotator_accuracy_per_item(X) > 0) & (clf.annotator_accuracy_per_item(X) < 1)).all()
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model", backbone=Interrupting(10_000))
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize("hold_out", [True, False])
def test_two_and_three_epochs_work_and_one_is_refused(hold_out: bool) -> None:
    X, truth, Y = easy(1000)
    settings: dict[str, Any] = {"batch_size": 16, "learning_rate": 0.01, "hold_out": hold_out}
    for epochs, phases in ((2, ["annotator labels", "start"]), (3, ["annotator labels", "start", "gates"])):
        clf = GatedClassifier(**settings, epochs=epochs).fit(X, Y)
        assert [record["phase"] for record in clf.history_] == phases
        assert clf.score(X, truth) > 0.9
        accuracy = clf.annotator_accuracy_per_item(X).mean(0)
        assert accuracy[0] > accuracy[2]
    with pytest.raises(ValueError, match="gated needs at least 2 epochs, got epochs=1"):
        GatedClassifier(**settings, epochs=1).fit(X, Y)
    clf = GatedClassifier(**settings, epochs=2).partial_fit(X, Y)  # each call runs all phases
    assert len(clf.history_) == 3


def test_gold_can_choose_the_epoch() -> None:
    X, truth, Y = easy(400)
    clf = GatedClassifier(epochs=12, batch_size=16).fit(X[100:], Y[100:], validation=(X[:100], truth[:100]))
    figures = [record["validation_accuracy"] for record in clf.history_]
    offered = figures[3:]  # the end of the start phase and the epochs of the gates phase; earlier epochs give no model
    assert clf.best_epoch_ == 4 + int(np.argmax(offered))
    assert clf.score(X[:100], truth[:100]) == pytest.approx(max(offered))
    assert clf.gold_used_for_ == "choosing the epoch"


def test_without_two_labels_of_an_item_the_last_epoch_is_kept() -> None:
    X, truth, Y = easy(600)
    alone = np.where(np.arange(3) == np.arange(600)[:, None] % 3, Y, -1)
    clf = GatedClassifier(epochs=8, batch_size=32, learning_rate=0.01).fit(X, alone)
    assert clf.best_epoch_ is None
    assert clf.score(X, truth) > 0.85


# ---- saved, and going on -------------------------------------------------------------------------


def save_and_load(clf: GatedClassifier, folder: Path, X: Any, labels: Annotations) -> GatedClassifier:
    """Save and load the model, check that both predict the same, and return the loaded one."""
    clf.save(folder)
    again = load(folder)
    assert isinstance(again, GatedClassifier)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(again.annotator_accuracy_per_item(X), clf.annotator_accuracy_per_item(X))
    np.testing.assert_array_equal(again.confusion_matrices(X), clf.confusion_matrices(X))
    np.testing.assert_array_equal(again.fused_labels(X, labels), clf.fused_labels(X, labels))
    return again


@pytest.mark.parametrize("heads", ["shared", "embedded"])
@pytest.mark.parametrize("wrong", ["uniform", "annotator", "shared", "basis"])
def test_a_saved_model_is_identical_also_after_new_annotators(tmp_path: Path, wrong: Any, heads: Any) -> None:
    X, truth, said = make_crowd(400)
    clf = GatedClassifier(epochs=6, batch_size=32, learning_rate=0.01, wrong=wrong, annotator_heads=heads)
    clf.fit(X[:200], annotations_of(said[:200, :3], NAMES[:3]))
    again = save_and_load(clf, tmp_path / "before", X, annotations_of(said[:, :3], NAMES[:3]))
    for model in (clf, again):
        model.partial_fit(X[200:], annotations_of(said[200:]), epochs=3)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    save_and_load(clf, tmp_path / "after", X, annotations_of(said))
    assert clf.annotator_accuracy_per_item(X).shape == (400, 4)
    np.testing.assert_allclose(clf.confusion_matrices(X).sum(3), 1, atol=1e-5)
    assert clf.score(X, truth) > 0.9


def test_a_model_for_many_annotators_keeps_its_heads_when_more_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crowdfuse.estimators.gated.MAX_ANNOTATORS_WITH_SHARED_GATES", 3)
    X, _, said = make_crowd(100)
    clf = GatedClassifier(epochs=3).fit(X, annotations_of(said[:, :3], NAMES[:3]))
    clf.partial_fit(X, annotations_of(said))
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params()["annotator_heads"] == "shared"
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_buffers_of_rows_are_not_saved_with_the_model() -> None:
    X, _, Y = easy(200)
    clf = GatedClassifier(epochs=3).fit(X, Y)
    assert isinstance(clf.method_, Gated)
    assert len(clf.method_.target) == 200
    assert "target" not in clf.method_.state_dict()


def test_other_precisions_train() -> None:
    X, truth, Y = easy()
    for precision in ("64-true", "bf16-mixed"):
        for wrong in ("uniform", "basis"):
            clf = GatedClassifier(epochs=8, batch_size=32, learning_rate=0.01, precision=precision, wrong=wrong)
            assert clf.fit(X, Y).score(X, truth) > 0.85


# ---- degenerate labels ----------------------------------------------------------------------------


def without_overlap(generator: Any, Y: Any) -> Any:
    """Return labels in which no two annotators share an item."""
    return np.where(np.arange(3) == np.arange(len(Y))[:, None] % 3, Y, -1)


DEGENERATE_LABELS: dict[str, Any] = {
    "no item with two labels": without_overlap,
    "one annotator": lambda generator, Y: Y[:, :1],
    "one annotator of three": lambda generator, Y: np.where(np.arange(3) == 0, Y, -1),
    "a class without labels": lambda generator, Y: np.where(Y == 3, 0, Y),
    "one class alone is named": lambda generator, Y: np.where(Y >= 0, 1, Y),
    "at random": lambda generator, Y: generator.integers(0, 4, Y.shape),
    "two labels": lambda generator, Y: np.where(np.arange(len(Y))[:, None] < 2, Y, -1)[:, :1],
    "one item with two": lambda generator, Y: np.where((np.arange(len(Y))[:, None] == 0) | (np.arange(3) == 0), Y, -1),
}


@pytest.mark.parametrize("wrong", ["uniform", "annotator", "shared", "basis"])
@pytest.mark.parametrize("name", DEGENERATE_LABELS)
def test_training_ends_on_degenerate_labels(name: str, wrong: Any) -> None:
    X, _, Y = easy(120)
    labels = DEGENERATE_LABELS[name](np.random.default_rng(1), Y)
    ann = Annotations.from_matrix(labels, classes=range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as the mean of an empty array
        clf = GatedClassifier(epochs=5, batch_size=32, wrong=wrong, classes=range(5)).fit(X, ann)
        assert np.isfinite(clf.annotator_accuracy_per_item(X)).all()
    assert np.isfinite(clf.predict_proba(X)).all()
    assert np.isfinite(clf.confusion_matrices(X)).all()
    assert np.isfinite([record["loss"] for record in clf.history_]).all()
    labelled = (labels >= 0).any(1)
    assert np.isfinite(clf.fused_labels(X, ann)[labelled]).all()


def test_gold_alone_trains() -> None:
    X, truth, Y = easy(300)
    nothing = Annotations.from_matrix(np.full_like(Y, -1), classes=range(4))
    clf = GatedClassifier(epochs=20, batch_size=16, learning_rate=0.01).fit(X, nothing, gold=truth)
    assert clf.score(X, truth) > 0.85


def test_memorized_labels_are_not_taken_for_contradicting_annotators(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, 120)
    X = generator.normal(size=(120, 200)).astype(np.float32)  # more features than items: any labels can be memorized
    X[:, :20] += 0.3 * (2 * truth[:, None] - 1)
    said = np.where(generator.random((120, 3)) < [0.9, 0.75, 0.65], truth[:, None], 1 - truth[:, None])
    assert GatedClassifier(epochs=100).fit(X, said).method_.limitations() == ()
    monkeypatch.setattr(Gated, "_has_memorized", lambda *_: False)
    assert "trained on the majority vote" in GatedClassifier(epochs=100).fit(X, said).method_.limitations()[0]
