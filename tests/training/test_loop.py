"""The loop: same bits for the same seed, exact resume, phases, means over uneven batches, best epoch."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn.functional import cross_entropy

from crowdfuse import (
    Annotations,
    FusionClassifier,
    MajorityVoteClassifier,
    MBEMClassifier,
    SingleAnnotatorClassifier,
    TrueLabelClassifier,
    WDNClassifier,
)
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.methods.base import HeldOutScorer, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.wdn import WDN
from crowdfuse.nets import make_trunk
from crowdfuse.training import loop
from crowdfuse.training.checkpoints import FILE_NAME
from crowdfuse.training.progress import BarReporter, LineReporter, TrainingPlan
from crowdfuse.training.recipes import SCHEDULES, Recipe


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
    """Simulates the end of the process."""


SETTINGS: dict[str, Any] = {"epochs": 4, "batch_size": 16, "dropout": 0.2, "random_state": 3}


def assert_resumes(
    make: Callable[..., CrowdClassifier],
    crowd: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    validation: Any = "gold",
    **given: Any,
) -> None:
    """Check that a training that is stopped after `stop_after` steps and resumed gives the same bits."""
    X, truth, Y = crowd
    if validation == "gold":
        validation = (X[:20], truth[:20])
    whole = make().fit(X, Y, validation=validation, **given)

    # a checkpoint after every step; the process ends in the middle of the next one
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    steps = 0
    original = torch.optim.Optimizer.zero_grad

    def count(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > stop_after:
            raise StopError
        original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", count)
    with pytest.raises(StopError):
        make(checkpoint=folder).fit(X, Y, validation=validation, **given)
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", original)
    assert (folder / FILE_NAME).exists()

    torch.manual_seed(12345)  # the state of torch's generator at the restart must not matter
    resumed = make(checkpoint=folder).fit(X, Y, validation=validation, **given)
    assert_same_bits(whole, resumed)
    untimed = [[{**record, "seconds": 0} for record in clf.history_] for clf in (whole, resumed)]
    assert untimed[0] == untimed[1]
    assert whole.best_epoch_ == resumed.best_epoch_


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize("stop_after", [1, 6, 11, 17, 23])  # of 24 steps: first, last of an epoch, within, nearly all
def test_a_stopped_training_resumes_to_the_same_bits(
    crowd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, stop_after: int
) -> None:
    make = partial(FusionClassifier, **SETTINGS, optimizer=optimizer)
    assert_resumes(make, crowd, tmp_path, monkeypatch, stop_after)


def test_a_training_in_double_precision_resumes_to_the_same_bits(
    crowd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_resumes(
        partial(MajorityVoteClassifier, **SETTINGS, precision="64-true"), crowd, tmp_path, monkeypatch, stop_after=9
    )


PHASED: dict[str, Callable[..., CrowdClassifier]] = {  # 24 steps each, the second phase after 12
    "mbem": partial(MBEMClassifier, **SETTINGS),
    "wdn": partial(WDNClassifier, **(SETTINGS | {"epochs": 2}), weight_epochs=2, weights="released"),
    "wdn, softmax": partial(WDNClassifier, **(SETTINGS | {"epochs": 2}), weight_epochs=2),
}


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("stop_after", [5, 11, 12, 13, 18, 23])  # 12: between the phases
@pytest.mark.parametrize("name", PHASED)
def test_a_training_with_phases_resumes_to_the_same_bits(
    crowd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, stop_after: int, optimizer: str
) -> None:
    assert_resumes(partial(PHASED[name], optimizer=optimizer), crowd, tmp_path, monkeypatch, stop_after)


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
    with pytest.raises(ValueError, match="validation_labels"):
        FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y, validation=(X[:9], truth[9:18]))


def test_a_damaged_checkpoint_gives_a_clear_error(crowd: Any, tmp_path: Path) -> None:
    X, _, Y = crowd
    FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)
    (tmp_path / FILE_NAME).write_bytes((tmp_path / FILE_NAME).read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{FILE_NAME} is damaged"):
        FusionClassifier(**SETTINGS, checkpoint=tmp_path).fit(X, Y)


def test_the_same_seed_gives_the_same_bits_and_does_not_change_torchs_generator(crowd: Any) -> None:
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


class RecordingBackbone(nn.Module):
    """Batch norm, which refuses a batch of one row; keeps the first input of every row that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
        self.batches: list[list[float]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.batches.append(x[:, 0].tolist())
        found: torch.Tensor = self.layers(x)
        return found


@pytest.mark.parametrize(("n_rows", "sizes"), [(33, [16, 17]), (32, [16, 16]), (34, [16, 16, 2]), (17, [17])])
def test_a_single_row_left_over_joins_the_batch_before_it(crowd: Any, n_rows: int, sizes: list[int]) -> None:
    X, truth, _ = crowd
    X = X[:n_rows].astype(np.float32)
    clf = MajorityVoteClassifier(epochs=2, batch_size=16, backbone=RecordingBackbone()).fit(X, truth[:n_rows])
    backbone = next(part for part in clf.method_.modules() if isinstance(part, RecordingBackbone))
    assert [len(batch) for batch in backbone.batches] == sizes * 2
    for epoch in (backbone.batches[: len(sizes)], backbone.batches[len(sizes) :]):
        assert sorted(value for batch in epoch for value in batch) == sorted(X[:, 0].tolist())


def test_sample_weights_equal_repeated_rows(crowd: Any) -> None:
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
    scores = [record["validation_accuracy"] for record in chosen.history_]
    assert chosen.best_epoch_ == 1 + int(np.argmax(scores))
    assert chosen.score(X[:30], truth[:30]) == pytest.approx(max(scores))
    assert chosen.gold_used_for_ == "choosing the epoch"
    last = MajorityVoteClassifier(epochs=8, random_state=1).fit(X[30:], Y[30:])
    assert last.best_epoch_ is None
    assert last.gold_used_for_ == "nothing"


def test_validation_by_annotations_and_by_a_share(crowd: Any) -> None:
    X, _, Y = crowd
    held = Annotations.from_matrix(Y[:30])
    chosen = MajorityVoteClassifier(epochs=3).fit(X[30:], Y[30:], validation=(X[:30], held))
    assert chosen.gold_used_for_ == "nothing"
    best = max(record["validation_accuracy"] for record in chosen.history_)
    assert chosen.score(X[:30], held) == pytest.approx(best)
    share = MajorityVoteClassifier(epochs=3).fit(X, Y, validation=0.2)
    assert "validation_accuracy" in share.history_[0]
    with pytest.raises(ValueError, match="must leave items for training and for validation"):
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
    assert [r["validation_accuracy"] for r in first.history_] != [r["validation_accuracy"] for r in second.history_]


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


# ---- phases ----------------------------------------------------------------------------------


class Probe(Method):
    """A method with three phases that records the calls of the loop."""

    def __init__(self) -> None:
        trunk = make_trunk(Watched(), (4,), (), 0.0)
        super().__init__(ModelSpec(trunk, None, None, 3, n_annotators=4, head_hidden=(), dropout=0.0, seed=0))
        self.notes: list[tuple[Any, ...]] = []

    def phases(self, epochs: int) -> list[Phase]:
        return [
            Phase("first", epochs),
            Phase("head", 1, trainable=("classify",)),
            Phase("head again", 2, trainable=("classify",)),
        ]

    def begin_phase(self, data: TrainingData, predict: Predict, judge: HeldOutScorer | None) -> None:
        self.notes.append(("begins", self.phase_index, predict().shape))

    def crowd_loss(self, h: torch.Tensor, batch: Batch) -> Loss:
        learning = [name for name, tensor in self.named_parameters() if tensor.requires_grad]
        self.notes.append(("step", self.phase_index, self.trunk.training, self.classify.training, len(learning)))
        losses = cross_entropy(self.class_logits(h)[batch.item], batch.label, reduction="none")
        return Loss(losses.sum(), batch.weight.sum())


class Watched(nn.Module):
    """A custom backbone with a frozen layer, a trainable layer and batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.free = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.free(self.frozen(x))
        return features


def recipe(**changes: Any) -> Recipe:
    settings: dict[str, Any] = {
        "optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "schedule": "cosine",
        "batch_size": 45, "epochs": 2, "max_time": None, "mixup": 0.0, "device": "cpu", "devices": 1,
        "precision": "32-true", "channels_last": False, "compile": False, "seed": 0,
    }  # fmt: skip
    return Recipe(**(settings | changes))


def test_phases_run_in_turn_each_with_its_parts_and_schedule(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, truth, Y = crowd
    Y[:, 0] = truth  # a label on every row
    data = TrainingData(Inputs(X), Annotations.from_matrix(Y), np.full(90, -1), np.ones(90, np.float32))
    seen: list[float] = []
    optimizers: list[list[Any]] = []
    made = Recipe.make_optimizer

    def make(self: Recipe, parameters: Any) -> torch.optim.Optimizer:
        optimizers.append(list(parameters))
        return made(self, optimizers[-1])

    monkeypatch.setattr(Recipe, "make_optimizer", make)
    probe = Probe()
    before = copy.deepcopy(probe.trunk.state_dict())

    def schedule(progress: float) -> float:
        seen.append(progress)
        return 1.0

    trained = loop.train(probe, data, recipe(schedule=schedule))
    assert probe.notes == [
        *[("step", 0, True, True, 6)] * 4,  # all but the user's frozen layer
        ("begins", 1, (90, 3)),
        *[("step", 1, False, True, 2)] * 2,
        ("begins", 2, (90, 3)),
        *[("step", 2, False, True, 2)] * 4,
    ]
    assert seen == [0, 0.25, 0.5, 0.75, 0, 0.5, 0, 0.25, 0.5, 0.75]
    assert [len(parameters) for parameters in optimizers] == [8, 2]  # the second is carried on into the last phase
    assert [(record["epoch"], record["phase"]) for record in trained.history] == [
        (1, "first"), (2, "first"), (3, "head"), (4, "head again"), (5, "head again")
    ]  # fmt: skip
    assert [name for name, p in probe.named_parameters() if not p.requires_grad] == [
        "trunk.frozen.weight",
        "trunk.frozen.bias",
    ]  # as it was
    assert torch.equal(before["frozen.weight"], trained.weights["trunk.frozen.weight"])


def test_frozen_parts_stay_as_they_are_to_the_last_bit(crowd: Any) -> None:
    X, _, Y = crowd
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 16, "dropout": 0.2, "backbone": Watched()}
    short, long = (WDNClassifier(**settings, weight_epochs=n).fit(X, Y) for n in (1, 4))
    differing = [name for name, tensor in weights(short).items() if not torch.equal(tensor, weights(long)[name])]
    assert differing == ["weights"]  # not even batch norm's statistics


def test_validation_chooses_within_the_last_phase(crowd: Any) -> None:
    X, truth, Y = crowd
    clf = MBEMClassifier(epochs=9, rounds=3, random_state=1).fit(X[30:], Y[30:], validation=(X[:30], truth[:30]))
    scores = [record["validation_accuracy"] for record in clf.history_]
    assert max(scores[:6]) > max(scores[6:])  # an earlier round was better, and is gone
    assert clf.best_epoch_ == 7 + int(np.argmax(scores[6:]))
    assert clf.score(X[:30], truth[:30]) == pytest.approx(max(scores[6:]))


def test_validation_can_choose_among_the_ends_of_phases(crowd: Any) -> None:
    X, truth, Y = crowd
    settings: dict[str, Any] = {"epochs": 9, "rounds": 3, "random_state": 1, "chosen": "round"}
    clf = MBEMClassifier(**settings).fit(X[30:], Y[30:], validation=(X[:30], truth[:30]))
    scores = [record["validation_accuracy"] for record in clf.history_]
    ends = scores[2::3]
    assert max(scores) > max(ends)  # epochs between the ends were better, and do not count
    assert clf.best_epoch_ == 3 * (1 + int(np.argmax(ends)))
    assert clf.score(X[:30], truth[:30]) == pytest.approx(max(ends))


def test_only_named_phases_are_in_the_history(crowd: Any) -> None:
    X, _, Y = crowd
    clf = MajorityVoteClassifier(epochs=2).fit(X, Y)
    assert all("phase" not in record for record in clf.history_)
    clf = WDNClassifier(epochs=2, weight_epochs=1).fit(X, Y)
    assert [record["phase"] for record in clf.history_] == ["networks", "networks", "weights"]


def test_the_progress_bar_shows_the_phase() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    bar = BarReporter(console)
    bar.start(TrainingPlan("mbem", n_epochs=4, n_steps_per_epoch=2))
    bar.start_phase("round 2 of 2")
    assert bar.progress.tasks[0].description == "mbem round 2 of 2"
    bar.end_step(2, 5, 0.5)
    assert bar.progress.tasks[0].description == "mbem round 2 of 2 epoch 3/4"
    bar.start_phase("")
    assert bar.progress.tasks[0].description == "mbem"
    bar.stop()


def test_ctrl_c_in_a_later_phase_keeps_the_best_of_the_one_before(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, truth, Y = crowd

    def interrupt(self: WDN, data: TrainingData, predict: Predict, judge: HeldOutScorer | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(WDN, "begin_phase", interrupt)
    clf = WDNClassifier(**SETTINGS, weight_epochs=3)
    with pytest.warns(UserWarning, match="interrupted after 4 of 7 epochs"):
        clf.fit(X, Y, validation=(X, truth))
    assert clf.score(X, truth) == pytest.approx(max(record["validation_accuracy"] for record in clf.history_))
    np.testing.assert_allclose(clf.weights_, 1 / 4)


# ---- settings --------------------------------------------------------------------------------


def test_a_diverging_training_raises_a_clear_error(crowd: Any) -> None:
    X, _, Y = crowd
    with pytest.raises(ValueError, match=r"the loss is .* in epoch \d+, step \d+.*Lower learning_rate \(now 1e\+25\)"):
        FusionClassifier(optimizer="sgd", learning_rate=1e25, schedule="constant").fit(X, Y)


def test_validation_of_a_single_annotator_ignores_the_other_annotators(crowd: Any) -> None:
    X, _, Y = crowd
    changed = Y.copy()
    changed[:, 1:] = np.where(Y[:, 1:] >= 0, 0, -1)
    fits = [SingleAnnotatorClassifier(annotator=0, epochs=5).fit(X, labels, validation=0.3) for labels in (Y, changed)]
    assert [r["validation_accuracy"] for r in fits[0].history_] == [r["validation_accuracy"] for r in fits[1].history_]


def test_validation_without_usable_labels_is_refused(crowd: Any) -> None:
    X, truth, Y = crowd
    with pytest.raises(ValueError, match="no labels to compare predictions with"):
        MajorityVoteClassifier().fit(X, Y, validation=(X, np.full((90, 2), -1)))
    with pytest.raises(ValueError, match="pass gold as a 1-D array"):
        MajorityVoteClassifier().fit(X, Y, validation=(X, truth[:, None]))


def test_a_checkpoint_with_another_seed_or_backbone_is_refused(crowd: Any, tmp_path: Path) -> None:
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


def test_training_works_in_other_precisions(crowd: Any) -> None:
    X, truth, Y = crowd
    double = FusionClassifier(epochs=2, precision="64-true").fit(X, Y, validation=(X, truth))
    single = FusionClassifier(epochs=2).fit(X, Y)
    np.testing.assert_allclose(double.predict_proba(X), single.predict_proba(X), atol=0.2)
    assert np.isfinite(FusionClassifier(epochs=2, precision="bf16-mixed").fit(X, Y).predict_proba(X)).all()
    FusionClassifier(epochs=1, precision="64-true", standardize=False).fit(X, Y)


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
        ({"device": "gpu0"}, "device must be one of auto, cpu, cuda, mps, got 'gpu0'"),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1, got 1.5"),
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
        Recipe()  # type: ignore[call-arg]  # every field is required


# ---- images ------------------------------------------------------------------------------------


@pytest.fixture
def images() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    Y = generator.integers(0, 3, (40, 2))
    return generator.integers(0, 256, (40, 3, 16, 16)).astype(np.uint8), Y


@pytest.mark.parametrize("kind", [MajorityVoteClassifier, WDNClassifier])
def test_crops_and_flips_apply_only_in_training(images: Any, kind: type[CrowdClassifier]) -> None:
    X, Y = images
    names = (None, "crop-flip", "crop-flip")
    plain, moved, again = (kind(backbone="lenet", epochs=2, augment=name).fit(X, Y) for name in names)
    assert any(not torch.equal(tensor, weights(moved)[name]) for name, tensor in weights(plain).items())
    assert_same_bits(moved, again)
    np.testing.assert_array_equal(moved.predict_proba(X), moved.predict_proba(X))


def test_channels_last_changes_no_more_than_rounding(images: Any) -> None:
    X, Y = images
    plain, last = (
        MajorityVoteClassifier(backbone="resnet18", epochs=1, learning_rate=1e-4, channels_last=channels_last).fit(X, Y)
        for channels_last in (False, True)
    )
    np.testing.assert_allclose(plain.predict_proba(X), last.predict_proba(X), atol=1e-3)


def test_only_the_backbone_is_compiled_and_only_for_training(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled.append(type(self).__name__))
    X, Y = images
    clf = MajorityVoteClassifier(backbone="lenet", epochs=1, compile=True).fit(X, Y)
    assert compiled == ["LeNet"]
    assert clf.method_.trunk._compiled_call_impl is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"augment": "crop"}, "did you mean 'crop-flip'"),
        ({"augment": "crop-flip"}, "needs images"),
        ({"backbone": "resnet18"}, "reads images"),
    ],
)
def test_image_settings_are_refused_for_tables(crowd: Any, settings: dict[str, Any], said: str) -> None:
    X, _, Y = crowd
    with pytest.raises(ValueError, match=said):
        MajorityVoteClassifier(**settings).fit(X, Y)


def test_mixed_precision_reaches_the_loss(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, Y = crowd
    seen = []
    loss = MajorityVote.loss

    def looked_at(self: MajorityVote, batch: Any) -> Any:
        seen.append((self.logits(batch.x).dtype, torch.is_autocast_enabled("cpu")))
        return loss(self, batch)

    monkeypatch.setattr(MajorityVote, "loss", looked_at)
    for precision in ("32-true", "bf16-mixed"):
        clf = MajorityVoteClassifier(epochs=1, precision=precision).fit(X, Y)
        assert np.isfinite(clf.history_[-1]["loss"])
        assert clf.predict_proba(X).dtype == np.float64
    assert set(seen) == {(torch.float32, False), (torch.bfloat16, True)}


def test_the_line_of_a_training_has_the_figures_of_the_epoch_that_was_kept() -> None:
    text = io.StringIO()
    lines = LineReporter(Console(file=text))
    lines.start(TrainingPlan("gated", n_epochs=2, n_steps_per_epoch=1))
    kept = {"epoch": 1, "loss": 0.5, "held_out_log_likelihood": -0.9}
    last = {"epoch": 2, "loss": 0.1, "held_out_log_likelihood": -1.4}
    lines.end_epoch(kept, kept)
    assert not text.getvalue()
    lines.end_epoch(last, kept)
    assert "2 epochs, kept epoch 1, loss 0.5000, held-out log-likelihood -0.900" in text.getvalue()
