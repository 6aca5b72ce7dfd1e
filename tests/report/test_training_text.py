"""Which epoch was kept, and the loss of each phase, as HTML and Markdown say it."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdfuse import GatedClassifier
from crowdfuse.labels.number_format import whole_percentages
from crowdfuse.report.training_text import kept_epoch_sentence, loss_sentence


def test_only_candidates_are_called_epochs_that_can_be_kept() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 2))
    truth = (X[:, 0] > 0).astype(int)
    Y = np.stack([np.where(generator.random(120) < 0.8, truth, 1 - truth) for _ in range(3)], 1)
    clf = GatedClassifier(epochs=12).fit(X, Y)
    assert clf.best_epoch_ is not None
    record = clf.history_[clf.best_epoch_ - 1]
    assert record["candidate"]
    first = next(other["epoch"] for other in clf.history_ if other["candidate"])
    assert [other["candidate"] for other in clf.history_] == [other["epoch"] >= first for other in clf.history_]
    sentence = kept_epoch_sentence({"best_epoch": clf.best_epoch_, "history": clf.history_})
    assert f"Epochs before {first} only prepare" in sentence
    assert f"{record['held_out_log_likelihood']:.3f}" in sentence
    assert "standard error" in sentence


def test_each_phase_has_its_own_losses() -> None:
    history: list[dict[str, Any]] = [{"epoch": k + 1, "loss": 4.0 - k, "phase": "start"} for k in range(3)]
    history.append({"epoch": 4, "loss": 9.0, "phase": "gates"})
    expected = "Loss in phase start (epochs 1 to 3): 4 to 2; gates (epoch 4): 9."
    assert loss_sentence({"history": history}).startswith(expected)
    assert kept_epoch_sentence({"best_epoch": None, "history": history}) == ""


def test_rows_of_a_confusion_matrix_sum_to_100_as_shown() -> None:
    for row in np.random.default_rng(0).dirichlet(np.full(8, 0.3), size=200):
        shown = whole_percentages(row)
        assert sum(shown) == 100
        assert np.abs(np.array(shown) - 100 * row).max() <= 1
