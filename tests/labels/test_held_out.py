"""Held-out labels: which labels are held out, the score of a classifier, and the sanity checks."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdfuse import Annotations, GatedClassifier, SingleAnnotatorClassifier, TrueLabelClassifier
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.labels import held_out
from crowdfuse.labels.held_out import HeldOutLabels, ValidationScore, failed_sanity_checks, hold_out_labels
from crowdfuse.report.html_page import training_charts
from tests.estimators.estimator_list import ALL, quick


def crowd(n_items: int = 60, n_annotators: int = 4, n_classes: int = 3, missing: float = 0.4, seed: int = 0) -> Any:
    """True classes, and annotators whose accuracy goes from 0.5 to 0.9."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, n_classes, n_items)
    right = generator.random((n_items, n_annotators)) < np.linspace(0.5, 0.9, n_annotators)
    Y = np.where(right, truth[:, None], generator.integers(0, n_classes, (n_items, n_annotators)))
    Y[generator.random(Y.shape) < missing] = -1
    return truth, Annotations.from_matrix(Y, classes=range(n_classes))


def triples(ann: Annotations, rows: NDArray[Any] | None = None) -> set[tuple[int, int, int]]:
    items = ann.item if rows is None else rows[ann.item]
    return set(zip(items.tolist(), ann.annotator.tolist(), ann.label.tolist(), strict=True))


# ---- selection of labels --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    n_items=st.integers(1, 40),
    n_annotators=st.integers(1, 5),
    missing=st.sampled_from([0.0, 0.3, 0.7]),
    unusable=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 5),
)
def test_one_label_is_held_out_per_item_and_another_stays(
    n_items: int, n_annotators: int, missing: float, unusable: float, seed: int
) -> None:
    _, ann = crowd(n_items, n_annotators, missing=missing, seed=seed)
    usable = np.random.default_rng(seed).random(n_items) >= unusable
    kept, held = hold_out_labels(ann, usable, seed)
    several = (np.diff(ann.indptr) > 1) & usable
    if not several.any():
        assert held is None
        assert triples(kept) == triples(ann)
        return
    assert held is not None
    out = set(zip(held.rows[held.item].tolist(), held.annotator.tolist(), held.label.tolist(), strict=True))
    assert len(out) == len(held.label) == min(several.sum(), max(1, round(0.1 * ann.n_labels)))
    assert len(set(held.rows.tolist())) == len(held.rows) == len(held.label)  # no item twice
    assert several[held.rows].all()
    assert triples(kept) | out == triples(ann)
    assert not triples(kept) & out
    assert (np.diff(kept.indptr)[np.diff(ann.indptr) > 0] > 0).all()
    assert triples(held.training_annotations, held.rows) == {
        triple for triple in triples(kept) if triple[0] in held.rows
    }
    again = hold_out_labels(ann, usable, seed)[1]
    assert again is not None
    assert again.fingerprint() == held.fingerprint()


def test_the_seed_decides_which_labels_and_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    _, ann = crowd(400)
    first, other = (hold_out_labels(ann, np.ones(400, bool), seed)[1] for seed in (0, 1))
    assert first is not None
    assert other is not None
    assert first.fingerprint() != other.fingerprint()
    monkeypatch.setattr(held_out, "MAX_HELD_OUT_LABELS", 7)
    few = hold_out_labels(ann, np.ones(400, bool), 0)[1]
    assert few is not None
    assert len(few.label) == 7


def test_nothing_is_held_out_if_no_usable_item_has_two_labels() -> None:
    alone = Annotations.from_matrix([[0, -1], [-1, 1]])
    assert hold_out_labels(alone, np.ones(2, bool), 0)[1] is None
    two = Annotations.from_matrix([[0, 1], [-1, 1]])
    assert hold_out_labels(two, np.array([False, True]), 0)[1] is None
    nothing = Annotations.from_matrix([[-1, -1]], classes=[0, 1])
    assert hold_out_labels(nothing, np.ones(1, bool), 0)[1] is None


# ---- score -------------------------------------------------------------------------------


def scores_by_loops(held: HeldOutLabels, logits: NDArray[Any]) -> list[float]:
    """Log-likelihood of each held-out label, by EM over the training labels, in plain loops."""
    M, K = logits.shape
    f = [[math.exp(v - max(row)) for v in row] for row in logits.tolist()]
    f = [[v / sum(row) for v in row] for row in f]
    labels = list(
        zip(
            held.training_annotations.item.tolist(),
            held.training_annotations.annotator.tolist(),
            held.training_annotations.label.tolist(),
            strict=True,
        )
    )
    R = held.training_annotations.n_annotators
    a = [0.7] * R
    W = [[0.0 if k == y else 1 / (K - 1) for y in range(K)] for k in range(K)]

    def given(r: int, k: int, y: int) -> float:
        return a[r] if k == y else (1 - a[r]) * W[k][y]

    for _ in range(8):
        right, counts = [0.0] * R, [0] * R
        said = [[1.0] * K for _ in range(K)]
        for n, r, y in labels:
            q = [f[n][k] * given(r, k, y) for k in range(K)]
            q = [v / sum(q) for v in q]
            right[r] += q[y]
            counts[r] += 1
            for k in range(K):
                said[k][y] += q[k]
        usual = sum(right) / sum(counts)
        a = [min(max((right[r] + 5 * usual) / (counts[r] + 5), 1e-3), 1 - 1e-3) for r in range(R)]
        W = [[0.0 if k == y else said[k][y] / (sum(said[k]) - said[k][k]) for y in range(K)] for k in range(K)]
    assert len(held.rows) == M
    return [
        math.log(sum(f[n][k] * given(r, k, y) for k in range(K)))
        for n, r, y in zip(held.item.tolist(), held.annotator.tolist(), held.label.tolist(), strict=True)
    ]


@pytest.mark.parametrize(("n_classes", "n_annotators"), [(2, 2), (3, 4), (6, 3)])
def test_score_equals_plain_loops(n_classes: int, n_annotators: int) -> None:
    _, ann = crowd(200, n_annotators, n_classes)
    held = hold_out_labels(ann, np.ones(200, bool), 0)[1]
    assert held is not None
    logits = 2 * np.random.default_rng(1).normal(size=(len(held.rows), n_classes))
    np.testing.assert_allclose(held.score(logits).values, scores_by_loops(held, logits), rtol=1e-9)
    moved = held.score(logits.astype(np.float32) + 50)  # only differences of logits matter
    np.testing.assert_allclose(moved.values, held.score(logits).values, rtol=1e-4)


def test_score_of_a_confident_and_wrong_classifier_is_finite() -> None:
    truth, ann = crowd(200)
    held = hold_out_labels(ann, np.ones(200, bool), 0)[1]
    assert held is not None
    wrong = 1e4 * np.eye(3)[(truth[held.rows] + 1) % 3]
    assert np.isfinite(held.score(wrong).values).all()


def test_a_more_accurate_classifier_scores_higher() -> None:
    truth, ann = crowd(2000, missing=0.2)
    held = hold_out_labels(ann, np.ones(2000, bool), 0)[1]
    assert held is not None
    generator = np.random.default_rng(0)
    scores = []
    for accuracy in (1.0, 0.9, 0.7, 0.5):
        right = generator.random(len(held.rows)) < accuracy
        classes = np.where(right, truth[held.rows], generator.integers(0, 3, len(held.rows)))
        scores.append(held.score(3 * np.eye(3)[classes]))
    assert all(better.beats(worse) for better, worse in pairwise(scores))
    assert not any(worse.beats(better) for better, worse in pairwise(scores))


def test_a_classifier_that_memorized_the_training_labels_scores_lower() -> None:
    """The majority vote agrees best with the training labels; the true classes still score higher."""
    truth, ann = crowd(2000, missing=0.2)
    held = hold_out_labels(ann, np.ones(2000, bool), 0)[1]
    assert held is not None
    memorized = held.score(5 * np.eye(3)[np.nan_to_num(held.training_annotations.vote_shares()).argmax(1)])
    true = held.score(5 * np.eye(3)[truth[held.rows]])
    assert true.beats(memorized)


# ---- comparison of two scores --------------------------------------------------------------------------------


def test_beats_is_paired() -> None:
    """Likelihoods vary much between labels and little between classifiers: the paired difference decides."""
    spread = np.random.default_rng(0).normal(scale=5, size=1000)
    old = ValidationScore(spread, ())
    assert ValidationScore(spread + 0.01, ()).beats(old)
    assert not old.beats(ValidationScore(spread + 0.01, ()))
    noisy = ValidationScore(spread + 0.01 + np.tile([1, -1], 500), ())
    assert not noisy.beats(old)  # within a standard error
    assert not old.beats(old)
    assert not old.beats(noisy)
    assert ValidationScore(np.array([-1.0]), ()).beats(ValidationScore(np.array([-1.5]), ()))


def test_failed_checks_outweigh_the_likelihood() -> None:
    likely, unlikely = np.zeros(5), np.full(5, -3.0)
    assert ValidationScore(unlikely, ()).beats(ValidationScore(likely, ("check",)))
    assert not ValidationScore(likely, ("check",)).beats(ValidationScore(unlikely, ()))
    assert ValidationScore(likely, ("check", "other")).beats(
        ValidationScore(unlikely, ("check",))
    )  # both fail: the likelihood decides
    assert not ValidationScore(unlikely, ("check",)).beats(ValidationScore(likely, ("check", "other")))


# ---- sanity checks --------------------------------------------------------------------------------------


def test_true_classes_pass_all_checks() -> None:
    for n_classes in (2, 3, 6):
        truth, ann = crowd(600, n_classes=n_classes)
        assert failed_sanity_checks(truth, ann) == ()


def test_predictions_that_make_annotators_no_better_than_chance_fail() -> None:
    truth, ann = crowd(600)
    found = failed_sanity_checks((truth + 1) % 3, ann)
    assert any("no better than chance" in text for text in found)
    alike = Annotations.from_matrix(np.tile([[0, 1, 2]], (30, 1)))  # every label is as frequent as by chance
    assert "agrees with only 33 % of the labels, no better than chance" in failed_sanity_checks(
        np.zeros(30, int), alike
    )


def test_predictions_against_unanimous_annotators_fail() -> None:
    """Two annotators agree on 100 items, where the classifier is wrong; it is right on the 300 others."""
    together = np.column_stack([np.arange(100) % 5] * 2)
    alone = np.column_stack([np.arange(300) % 5, np.full(300, -1)])
    ann = Annotations.from_matrix(np.concatenate([together, alone]))
    predicted = np.concatenate([(np.arange(100) + 1) % 5, np.arange(300) % 5])
    assert failed_sanity_checks(predicted, ann) == (
        "agrees with the annotators on only 0 % of the items with unanimous labels",
    )
    predicted[:51] = np.arange(51) % 5
    assert failed_sanity_checks(predicted, ann) == ()


def test_a_class_that_is_never_predicted_fails() -> None:
    truth, ann = crowd(600, n_classes=5, missing=0.1)
    predicted = np.where(truth == 3, 2, truth)
    found = failed_sanity_checks(predicted, ann)
    assert found == ("never or almost never predicts class 3, although annotators use it",)
    found = failed_sanity_checks(np.where(truth > 0, 1, 0), ann)
    assert found[-1] == "never or almost never predicts classes 2, 3, 4, although annotators use them"
    rare = Annotations.from_matrix(np.array([[1]] + [[0]] * 50))  # one label of fifty may be a mistake
    assert failed_sanity_checks(np.zeros(51, int), rare) == ()


def test_checks_with_no_labels_one_class_and_unlabelled_items() -> None:
    nothing = Annotations.from_matrix([[-1, -1]] * 3, classes=["a", "b"])
    assert failed_sanity_checks(np.zeros(3, int), nothing) == ()
    one_class = Annotations.from_matrix([["a", "a"]] * 30, classes=["a", "b"])
    assert failed_sanity_checks(np.zeros(30, int), one_class) == ()
    assert (
        len(failed_sanity_checks(np.ones(30, int), one_class)) == 3
    )  # below chance, against unanimous annotators, never predicts class a
    unlabelled = Annotations.from_matrix([[0, 0], [1, 1], [-1, -1]])  # the last item has no label
    assert failed_sanity_checks(np.array([0, 1, 1]), unlabelled) == ()


# ---- every classifier ------------------------------------------------------------------------


def labelled(seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(200, 4))
    truth = X[:, :3].argmax(1)
    right = generator.random((200, 3)) < [0.9, 0.8, 0.6]
    Y = np.where(right, truth[:, None], generator.integers(0, 3, (200, 3)))
    Y[generator.random(Y.shape) < 0.2] = -1
    return X, truth, Y


@pytest.mark.parametrize("kind", ALL)
def test_every_classifier_can_choose_its_epoch_by_held_out_labels(kind: type[CrowdClassifier]) -> None:
    X, truth, Y = labelled()
    if kind is SingleAnnotatorClassifier:
        with pytest.raises(ValueError, match=r"no item has two labels.*validation=0\.1"):
            quick(kind, annotator=0).fit(X, Y, validation="annotations")
        return
    given = {"gold": truth} if kind is TrueLabelClassifier else {}
    clf = quick(kind, epochs=8).fit(X, Y, validation="annotations", **given)
    assert clf.best_epoch_ is not None
    assert clf.gold_used_for_ == ("training" if given else "nothing")
    assert clf.score(X, truth) > 0.7
    figures = [record["held_out_log_likelihood"] for record in clf.history_]
    assert np.isfinite(figures).all()
    assert max(figures) < 0
    assert not any("validation_accuracy" in record for record in clf.history_)  # that key is an accuracy


def test_true_labels_alone_cannot_be_held_out() -> None:
    X, truth, _ = labelled()
    with pytest.raises(ValueError, match="no item has two"):
        quick(TrueLabelClassifier).fit(X, truth, validation="annotations")


@pytest.mark.parametrize("name", ["annotation", "gold", ""])
def test_an_unknown_name_for_validation_is_refused(name: str) -> None:
    X, _, Y = labelled()
    with pytest.raises(ValueError, match="annotations"):
        quick(GatedClassifier).fit(X, Y, validation=name)


def test_held_out_labels_do_not_train() -> None:
    X, _, Y = labelled()
    ann = Annotations.from_matrix(Y)
    held = hold_out_labels(ann, np.ones(200, bool), 0)[1]
    assert held is not None
    changed = Y.copy()
    changed[held.rows, held.annotator] = (held.label + 1) % 3
    fits = [quick(GatedClassifier, epochs=4).fit(X, labels) for labels in (Y, changed)]
    losses = [[record["loss"] for record in clf.history_] for clf in fits]
    assert losses[0][0] == losses[1][0]  # later epochs may differ: the held-out labels choose the start
    assert fits[0].history_[0]["held_out_log_likelihood"] != fits[1].history_[0]["held_out_log_likelihood"]


def test_the_likelihood_of_held_out_labels_is_not_shown_as_an_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    X, truth, Y = labelled()
    clf = quick(GatedClassifier, epochs=3, verbose=1).fit(X, Y)
    shown = capsys.readouterr().err
    assert "held-out log-likelihood -" in shown
    assert "validation" not in shown
    drawn = dict(training_charts({"history": clf.history_, "best_epoch": clf.best_epoch_}))
    assert "Held-out labels" in drawn
    assert "Validation accuracy" not in drawn
    by_gold = quick(GatedClassifier, epochs=3).fit(X, Y, validation=(X, truth))
    facts = {"history": by_gold.history_, "best_epoch": by_gold.best_epoch_}
    assert "Validation accuracy" in dict(training_charts(facts))
    assert by_gold.gold_used_for_ == "choosing the epoch"
