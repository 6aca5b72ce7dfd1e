"""The loop: same bits for the same seed, exact resume, means over uneven batches, best epoch, Ctrl-C, processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from crowdfuse import (
    Annotations,
    FusionClassifier,
    MajorityVoteClassifier,
    SingleAnnotatorClassifier,
    TrueLabelClassifier,
    training,
)
from crowdfuse.checkpoints import FILE_NAME
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.recipes import SCHEDULES, Recipe


@pytest.fixture
def crowd() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(90, 4))
    truth = X[:, :3].argmax(1)
    Y = np.where(generator.random((90, 4)) < 0.7, truth[:, None], generator.integers(0, 3, (90, 4)))
    Y[generator.random((90, 4)) < 0.3] = -1
    return X, truth, Y


def weights(classifier: CrowdClassifier) -> dict[str, torch.Tensor]:
    return classifier.method_.state_dict()


def assert_same_bits(one: CrowdClassifier, other: CrowdClassifier) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


class StopError(Exception):
    """Stands for the end of the process."""


SETTINGS: dict[str, Any] = {"epochs": 4, "batch_size": 16, "dropout": 0.2, "random_state": 3}


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize("stop_after", [1, 6, 11, 17, 23])  # of 24 steps: first, last of an epoch, within, nearly all
def test_a_stopped_training_resumes_to_the_same_bits(
    crowd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, stop_after: int
) -> None:
    X, truth, Y = crowd
    validation = (X[:20], truth[:20])
    whole = FusionClassifier(**SETTINGS, optimizer=optimizer).fit(X, Y, validation=validation)

    # a checkpoint after every step, then the process is gone in the middle of the next one
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    steps = 0
    original = torch.optim.Optimizer.zero_grad

    def count(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > stop_after:
            raise StopError
        original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", count)
    stopped = FusionClassifier(**SETTINGS, optimizer=optimizer, checkpoint=tmp_path)
    with pytest.raises(StopError):
        stopped.fit(X, Y, validation=validation)
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", original)
    assert (tmp_path / FILE_NAME).exists()

    torch.manual_seed(12345)  # the state of torch's generator at the restart must not matter
    resumed = FusionClassifier(**SETTINGS, optimizer=optimizer, checkpoint=tmp_path).fit(X, Y, validation=validation)
    assert_same_bits(whole, resumed)
    assert [r["loss"] for r in whole.history_] == [r["loss"] for r in resumed.history_]
    assert whole.best_epoch_ == resumed.best_epoch_


def test_a_finished_checkpoint_gives_the_model_without_training(crowd: Any, tmp_path: Path) -> None:
    X, _, Y = crowd
    first = MajorityVoteClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)
    again = MajorityVoteClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)
    assert_same_bits(first, again)
    assert [r["seconds"] for r in first.history_] == [r["seconds"] for r in again.history_]


@pytest.mark.parametrize(
    ("change", "said"),
    [("penalty", r"settings\.penalty was 1\.0, now 0\.5"), ("X", r"data\.inputs"), ("Y", r"data\.labels")],
)
def test_a_checkpoint_of_another_training_is_refused(crowd: Any, tmp_path: Path, change: str, said: str) -> None:
    X, _, Y = crowd
    FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)
    X, Y = X.copy(), Y.copy()
    if change == "X":
        X[5, 1] += 1e-6
    if change == "Y":
        Y[7, 0] = (Y[7, 0] + 1) % 3
    with pytest.raises(ValueError, match=said):
        FusionClassifier(**SETTINGS, checkpoint=tmp_path, penalty=0.5 if change == "penalty" else 1.0).fit(X, Y)


def test_a_changed_validation_is_refused(crowd: Any, tmp_path: Path) -> None:
    X, truth, Y = crowd
    FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y, validation=(X[:9], truth[:9]))
    with pytest.raises(ValueError, match="validation labels"):
        FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y, validation=(X[:9], truth[9:18]))


def test_a_damaged_checkpoint_is_named(crowd: Any, tmp_path: Path) -> None:
    X, _, Y = crowd
    FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)
    (tmp_path / FILE_NAME).write_bytes((tmp_path / FILE_NAME).read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{FILE_NAME} is damaged"):
        FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)


def test_the_same_seed_gives_the_same_bits_and_leaves_torchs_generator_alone(crowd: Any) -> None:
    X, _, Y = crowd
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = FusionClassifier(**SETTINGS).fit(X, Y)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    assert_same_bits(first, FusionClassifier(**SETTINGS).fit(X, Y))
    other = FusionClassifier(**(SETTINGS | {"random_state": 4})).fit(X, Y)
    assert not torch.equal(weights(first)["classify.0.weight"], weights(other)["classify.0.weight"])


def test_the_epochs_loss_is_the_mean_over_items_not_over_batches(crowd: Any) -> None:
    X, truth, _ = crowd
    still: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1e-30, "epochs": 1}
    losses = [
        TrueLabelClassifier(**still, batch_size=size).fit(X, truth).history_[0]["loss"] for size in (90, 64, 7, 1)
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


def test_weights_of_rows_count_like_repeated_rows(crowd: Any) -> None:
    X, truth, _ = crowd
    settings: dict[str, Any] = {
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "epochs": 3,
        "batch_size": 1000,
        "standardize": False,
    }
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = TrueLabelClassifier(**settings).fit(X, truth, sample_weight=weight)
    repeated = TrueLabelClassifier(**settings).fit(np.repeat(X, weight, 0), np.repeat(truth, weight))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)


def test_validation_keeps_the_best_epoch_and_without_it_the_last(crowd: Any) -> None:
    X, truth, Y = crowd
    chosen = MajorityVoteClassifier(epochs=8, random_state=1).fit(X[30:], Y[30:], validation=(X[:30], truth[:30]))
    scores = [record["validation"] for record in chosen.history_]
    assert chosen.best_epoch_ == 1 + int(np.argmax(scores))
    assert chosen.score(X[:30], truth[:30]) == pytest.approx(max(scores))
    assert chosen.uses_gold_ == "choosing the epoch"
    last = MajorityVoteClassifier(epochs=8, random_state=1).fit(X[30:], Y[30:])
    assert last.best_epoch_ is None
    assert last.uses_gold_ == "nothing"


def test_validation_by_annotations_and_by_a_share(crowd: Any) -> None:
    X, _, Y = crowd
    held = Annotations.from_matrix(Y[:30])
    chosen = MajorityVoteClassifier(epochs=3).fit(X[30:], Y[30:], validation=(X[:30], held))
    assert chosen.uses_gold_ == "nothing"
    best = max(record["validation"] for record in chosen.history_)
    assert chosen.score(X[:30], held) == pytest.approx(best)
    share = MajorityVoteClassifier(epochs=3).fit(X, Y, validation=0.2)
    assert "validation" in share.history_[0]
    with pytest.raises(ValueError, match="both sides"):
        MajorityVoteClassifier().fit(X, Y, validation=1.5)


def test_items_held_out_by_a_share_do_not_train(crowd: Any) -> None:
    X, _, Y = crowd
    settings: dict[str, Any] = {"epochs": 2, "standardize": False}
    first = MajorityVoteClassifier(**settings).fit(X, Y, validation=0.3)
    labelled = np.flatnonzero((Y >= 0).any(1))
    out = np.random.default_rng([0, 2]).permutation(labelled)[: round(0.3 * len(labelled))]
    changed = Y.copy()
    changed[out] = np.where(Y[out] >= 0, (Y[out] + 1) % 3, -1)  # only held-out labels differ
    second = MajorityVoteClassifier(**settings).fit(X, changed, validation=0.3)
    assert [r["loss"] for r in first.history_] == [r["loss"] for r in second.history_]
    assert [r["validation"] for r in first.history_] != [r["validation"] for r in second.history_]


def test_ctrl_c_leaves_a_usable_model(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, Y = crowd

    class Interrupting(nn.Module):
        steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Interrupting.steps += self.training
            if Interrupting.steps > 9:
                Interrupting.steps = -10_000
                raise KeyboardInterrupt
            return x

    model = FusionClassifier(**SETTINGS, backbone=Interrupting())
    with pytest.warns(UserWarning, match="interrupted after 1 of 4 epochs"):
        model.fit(X, Y)
    assert model.interrupted_
    assert np.isfinite(model.predict_proba(X)).all()


def test_two_processes_take_the_steps_of_one(crowd: Any) -> None:
    X, _, Y = crowd
    settings: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 32,
        "device": "cpu",
        "optimizer": "sgd",
        "learning_rate": 0.05,
    }
    one = FusionClassifier(**settings).fit(X, Y)
    two = FusionClassifier(**settings, devices=2).fit(X, Y)
    for name, tensor in weights(one).items():
        torch.testing.assert_close(weights(two)[name], tensor, atol=2e-6, rtol=1e-4)
    np.testing.assert_allclose([r["loss"] for r in two.history_], [r["loss"] for r in one.history_], rtol=1e-5)


def test_a_training_that_diverges_says_so(crowd: Any) -> None:
    X, _, Y = crowd
    with pytest.raises(ValueError, match=r"the loss is .* in epoch \d+, step \d+.*Lower learning_rate \(now 1e\+25\)"):
        FusionClassifier(optimizer="sgd", learning_rate=1e25, schedule="constant").fit(X, Y)


def test_one_annotators_epoch_is_not_chosen_by_the_others(crowd: Any) -> None:
    X, _, Y = crowd
    changed = Y.copy()
    changed[:, 1:] = np.where(Y[:, 1:] >= 0, 0, -1)
    fits = [SingleAnnotatorClassifier(annotator=0, epochs=5).fit(X, labels, validation=0.3) for labels in (Y, changed)]
    assert [r["validation"] for r in fits[0].history_] == [r["validation"] for r in fits[1].history_]


def test_validation_that_cannot_choose_is_refused(crowd: Any) -> None:
    X, truth, Y = crowd
    with pytest.raises(ValueError, match="no label to agree with"):
        MajorityVoteClassifier().fit(X, Y, validation=(X, np.full((90, 2), -1)))
    with pytest.raises(ValueError, match="pass gold as a 1-D array"):
        MajorityVoteClassifier().fit(X, Y, validation=(X, truth[:, None]))


def test_a_checkpoint_knows_its_seed_and_its_backbone(crowd: Any, tmp_path: Path) -> None:
    X, _, Y = crowd
    MajorityVoteClassifier(epochs=1, random_state=None, checkpoint=tmp_path / "a").fit(X, Y)
    with pytest.raises(ValueError, match=r"settings\.seed"):
        MajorityVoteClassifier(epochs=1, random_state=None, checkpoint=tmp_path / "a").fit(X, Y)
    MajorityVoteClassifier(epochs=1, backbone=nn.Sequential(nn.Linear(4, 3), nn.ReLU()), checkpoint=tmp_path / "b").fit(
        X, Y
    )
    with pytest.raises(ValueError, match=r"settings\.backbone"):
        MajorityVoteClassifier(
            epochs=1, backbone=nn.Sequential(nn.Linear(4, 3), nn.Tanh()), checkpoint=tmp_path / "b"
        ).fit(X, Y)


def test_other_precisions_train(crowd: Any) -> None:
    X, truth, Y = crowd
    double = FusionClassifier(epochs=2, precision="64-true").fit(X, Y, validation=(X, truth))
    single = FusionClassifier(epochs=2).fit(X, Y)
    np.testing.assert_allclose(double.predict_proba(X), single.predict_proba(X), atol=0.2)
    assert np.isfinite(FusionClassifier(epochs=2, precision="bf16-mixed").fit(X, Y).predict_proba(X)).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_stay_between_0_and_1(name: str) -> None:
    values = [SCHEDULES[name](step / 100) for step in range(101)]
    assert min(values) >= 0
    assert max(values) == pytest.approx(1, abs=1e-3)


def test_own_optimizer_and_schedule(crowd: Any) -> None:
    X, _, Y = crowd
    seen: list[float] = []
    model = MajorityVoteClassifier(
        epochs=2,
        batch_size=45,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        schedule=lambda progress: seen.append(progress) or 0.1,  # type: ignore[func-returns-value]  # list.append
    ).fit(X, Y)
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert len(model.history_) == 2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"learning_rate": -1.0}, "learning_rate must be a number of at least 0"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"weight_decay": "x"}, "weight_decay must be a number"),
        ({"momentum": float("nan")}, "momentum must be a number"),
        ({"random_state": -1}, "random_state must be 0 or more"),
        ({"hidden": (8, 0)}, "widths of hidden layers"),
        ({"optimizer": "adamm"}, "unknown optimizer 'adamm'"),
        ({"schedule": "linear"}, "unknown schedule 'linear'"),
    ],
)
def test_bad_settings_are_refused(crowd: Any, setting: dict[str, Any], said: str) -> None:
    X, _, Y = crowd
    with pytest.raises(ValueError, match=said):
        FusionClassifier(**setting).fit(X, Y)


def test_recipe_has_no_hidden_defaults() -> None:
    with pytest.raises(TypeError):
        Recipe()  # type: ignore[call-arg]  # every field must be said
