"""The time limit of a training: which epochs are given up, what stays reproducible, and what the result says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse import GatedClassifier, MajorityVoteClassifier, MBEMClassifier, load
from crowdfuse.checks.durations import parse_duration
from crowdfuse.estimators import base
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.training import loop


class StepClock:
    """A clock on which every training step takes one second, and nothing else takes time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """All trainings of this test run on this clock."""
    clock = StepClock()
    step: Callable[..., None] = loop._Loop._run_step

    def timed_step(self: Any, *args: Any) -> None:
        step(self, *args)
        clock.seconds += 1

    monkeypatch.setattr(loop._Loop, "_run_step", timed_step)
    monkeypatch.setattr(base, "train", partial(loop.train, clock=clock))
    return clock


def make_crowd(n_items: int = 60) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n_items, 4))
    truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    Y = np.stack([np.where(generator.random(n_items) < 0.8, truth, (truth + 1) % 4) for _ in range(3)], 1)
    return X, Y


SETTINGS: dict[str, Any] = {"epochs": 20, "batch_size": 20}  # three steps, so three seconds, per epoch


def test_a_training_that_fits_into_the_limit_has_the_same_bits_as_one_without(clock: StepClock) -> None:
    X, Y = make_crowd()
    without = GatedClassifier(**SETTINGS).fit(X, Y)
    with_limit = GatedClassifier(**SETTINGS, max_time="1h").fit(X, Y)
    np.testing.assert_array_equal(without.predict_proba(X), with_limit.predict_proba(X))
    assert not with_limit.cut_short_
    assert with_limit.training_limitations() == ()


def test_the_epochs_that_do_not_fit_are_given_up(clock: StepClock) -> None:
    X, Y = make_crowd()
    clf = MajorityVoteClassifier(**SETTINGS, max_time=30).fit(X, Y)
    assert len(clf.history_) == 10
    assert clock.seconds == 30
    assert clf.cut_short_
    (sentence,) = clf.training_limitations()
    assert "max_time" in sentence
    assert "10 epochs" in sentence


def test_the_schedule_ends_with_the_shortened_training(clock: StepClock) -> None:
    X, Y = make_crowd()
    seen: list[float] = []

    def schedule(progress: float) -> float:
        seen.append(progress)
        return 1.0

    MajorityVoteClassifier(**SETTINGS, max_time=30, schedule=schedule).fit(X, Y)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(29 / 30)


def test_every_phase_gets_its_share_and_at_least_one_epoch(clock: StepClock) -> None:
    X, Y = make_crowd()
    for max_time, expected in ((36, [6, 6]), (0.5, [1, 1])):
        clf = MBEMClassifier(**SETTINGS, rounds=2, max_time=max_time).fit(X, Y)
        phases = [record["phase"] for record in clf.history_]
        assert [phases.count(name) for name in dict.fromkeys(phases)] == expected
        assert clf.cut_short_


def test_the_last_epoch_of_a_shortened_phase_is_a_candidate_of_validation(clock: StepClock) -> None:
    X, Y = make_crowd()
    clf = MBEMClassifier(**SETTINGS, rounds=2, max_time=36, chosen="round").fit(X, Y, validation=(X, Y))
    assert clf.best_epoch_ in (6, 12)


def test_a_resumed_training_keeps_the_time_it_has_used(
    clock: StepClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = make_crowd()
    settings = SETTINGS | {"max_time": 30, "checkpoint": tmp_path}
    whole = MajorityVoteClassifier(**settings | {"checkpoint": None}).fit(X, Y)
    end_epoch: Callable[..., None] = loop._Loop._end_epoch

    def interrupt(self: Any, seconds: float) -> None:
        if self.state.epoch == 4:
            raise KeyboardInterrupt
        end_epoch(self, seconds)

    monkeypatch.setattr(loop._Loop, "_end_epoch", interrupt)
    with pytest.warns(UserWarning, match="interrupted after 4"):
        MajorityVoteClassifier(**settings).fit(X, Y)
    monkeypatch.setattr(loop._Loop, "_end_epoch", end_epoch)
    clock.seconds = 1_000.0
    resumed = MajorityVoteClassifier(**settings).fit(X, Y)
    assert clock.seconds == 1_000 + 6 * 3
    assert len(resumed.history_) == 10
    np.testing.assert_array_equal(whole.predict_proba(X), resumed.predict_proba(X))


@pytest.mark.parametrize("method", list(ESTIMATORS))
def test_every_method_ends_usable_with_almost_no_time(method: str, clock: StepClock, tmp_path: Path) -> None:
    X, Y = make_crowd()
    settings: dict[str, Any] = {"annotator": 0} if method == "single-annotator" else {}
    gold = {"gold": Y[:, 0]} if method == "true-label" else {}
    clf = estimator_class(method)(max_time=1e-3, **settings).fit(X, Y, **gold)
    assert clf.cut_short_
    assert np.isfinite(clf.predict_proba(X)).all()
    limitations = clf.consensus(X, Y, folds=2 * (method == "majority-vote")).limitations
    assert any("max_time" in sentence for sentence in limitations)
    clf.save(tmp_path / "model")
    assert load(tmp_path / "model").cut_short_


@pytest.mark.parametrize("value", ["soon", "0s", -3, True, "10 weeks", "", "m"])
def test_a_limit_that_is_not_a_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"max_time must be a duration above 0 such as 90s, 10m or 2h"):
        MajorityVoteClassifier(max_time=value).fit(*make_crowd())


def test_durations_are_read_with_and_without_units() -> None:
    assert [parse_duration("max_time", text) for text in ("45", "90s", "10m", "10min", "1.5h", "1h30m", "2d", 7)] == [
        45, 90, 600, 600, 5_400, 5_400, 172_800, 7,
    ]  # fmt: skip
