"""Mixup over items, annotators and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Beta

from crowdfuse import AnnotMixClassifier, MajorityVoteClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.annot_mix import AnnotMix
from crowdfuse.methods.base import ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.nets import Trunk, make_trunk
from crowdfuse.nets.annotator_tables import MAX_DENSE_GRADIENT_ROWS


def make(n_classes: int, n_annotators: int, alpha: float, shape: tuple[int, ...] = (4,)) -> AnnotMix:
    torch.manual_seed(0)
    trunk = make_trunk("mlp", shape, (8,), 0.0)
    spec = ModelSpec(trunk, None, None, n_classes, n_annotators, head_hidden=(), dropout=0.0, seed=0)
    method = AnnotMix(spec, alpha=alpha, eta=0.8, embedding=3)
    nn.init.normal_(method.embed.table)
    return method


def crowd(
    n_items: int, n_annotators: int, n_classes: int, shape: tuple[int, ...] = (4,), gold: int = 0
) -> TrainingData:
    """Return data with many missing labels; the first items have gold, and item 0 has no label."""
    generator = np.random.default_rng(n_items)
    said = generator.integers(0, n_classes, (n_items, n_annotators))
    said[generator.random(said.shape) < 0.6] = -1
    said[0] = -1
    truth = np.where(np.arange(n_items) < gold, generator.integers(0, n_classes, n_items), -1)
    X = generator.normal(size=(n_items, *shape)).astype(np.float32)
    weight = generator.uniform(0.5, 2, n_items).astype(np.float32)
    ann = Annotations.from_matrix(said, classes=list(range(n_classes)))
    return TrainingData(Inputs(X), ann, truth, weight)


@pytest.mark.parametrize("gold", [0, 3])
@pytest.mark.parametrize(
    ("n_items", "n_annotators", "n_classes", "shape"), [(6, 3, 2, (4,)), (9, 5, 4, (4,)), (7, 4, 3, (2, 3, 3))]
)
def test_the_mixed_loss_is_its_definition_written_out(
    n_items: int, n_annotators: int, n_classes: int, shape: tuple[int, ...], gold: int
) -> None:
    data = crowd(n_items, n_annotators, n_classes, shape, gold)
    method = make(n_classes, n_annotators, 0.7, shape)
    rows = np.random.default_rng(0).permutation(n_items)
    batch = data.batch(rows)
    torch.manual_seed(5)
    total, count = method.loss(batch)

    pairs = [
        (place, int(r), int(y))
        for place, r, y in zip(batch.item.tolist(), batch.annotator, batch.label, strict=True)
        if batch.gold[place] < 0
    ]
    torch.manual_seed(5)
    shares = Beta(0.7, 0.7).sample((len(pairs),))
    others = torch.randperm(len(pairs))
    expected = torch.tensor(0.0)
    one_hot = torch.eye(n_annotators)
    for m, pair, at in zip(shares, pairs, others.tolist(), strict=True):
        (i, r, y), (j, s, z) = pair, pairs[at]
        who = m * one_hot[r] + (1 - m) * one_hot[s]  # annotators by their features
        f = method.logits((m * batch.x[i] + (1 - m) * batch.x[j])[None])[0].softmax(0)
        A = method.confuse(who @ method.embed.table).view(n_classes, n_classes).softmax(1)
        p = f @ A
        expected = expected - m * batch.weight[i] * p[y].log() - (1 - m) * batch.weight[j] * p[z].log()
    labelled = {i for i, _, _ in pairs}
    weight = sum(float(batch.weight[i]) for i in labelled)
    for i in (batch.gold >= 0).nonzero()[:, 0].tolist():
        k = int(batch.gold[i])
        known = -method.logits(batch.x[i][None])[0].log_softmax(0)[k]
        for r, y in zip(batch.annotator[batch.item == i], batch.label[batch.item == i], strict=True):
            known = known - method.confuse(method.embed.table[r]).view(n_classes, n_classes)[k].log_softmax(0)[y]
        expected, weight = expected + batch.weight[i] * known, weight + float(batch.weight[i])
    torch.testing.assert_close(total, expected)
    assert float(count) == pytest.approx(weight)


def test_without_mixing_it_is_the_likelihood_of_each_label() -> None:
    data = crowd(8, 4, 3)
    method = make(3, 4, 0.0)
    batch = data.batch(np.arange(8))
    total, _ = method.loss(batch)
    assert total == method.loss(batch).total  # no random numbers are used
    f = method.logits(batch.x).softmax(1)
    A = method.confuse(method.embed.table).view(4, 3, 3).softmax(2)
    expected = torch.tensor(0.0)
    for i, r, y in zip(batch.item, batch.annotator, batch.label, strict=True):
        expected = expected - batch.weight[i] * (f[i] @ A[r])[y].log()
    torch.testing.assert_close(total, expected)


def test_annotators_start_alike_and_right_with_probability_eta() -> None:
    torch.manual_seed(0)
    spec = ModelSpec(make_trunk("mlp", (4,), (8,), 0.0), None, None, 3, 2, (), 0.0, 0)
    matrices = AnnotMix(spec, alpha=1.0, eta=0.8, embedding=3).log_confusions(torch.arange(2)).exp()
    torch.testing.assert_close(matrices, torch.full((2, 3, 3), 0.1) + 0.7 * torch.eye(3))


class Counting(nn.Module):
    """A backbone with batch norm that records its number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
        self.rows: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(x))
        features: torch.Tensor = self.layers(x)
        return features


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_backbone_runs_once_per_label_when_labels_are_mixed(alpha: float) -> None:
    data = crowd(8, 4, 3, gold=2)
    counting = Counting()
    spec = ModelSpec(Trunk(counting, 5, (), False), None, None, 3, 4, (), 0.0, 0)
    AnnotMix(spec, alpha=alpha, eta=0.8, embedding=3).loss(data.batch(np.arange(8)))
    n_labels = int(np.diff(data.annotations.indptr)[2:].sum())
    assert counting.rows == ([n_labels + 2] if alpha else [8])


def test_batch_norm_works_with_one_label_and_one_gold_item() -> None:
    X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    ann = Annotations.from_matrix(np.array([[-1], [1]]), classes=[0, 1])
    data = TrainingData(Inputs(X), ann, np.array([0, -1]), np.ones(2, np.float32))
    spec = ModelSpec(Trunk(Counting(), 5, (), False), None, None, 2, 1, (), 0.0, 0)
    total, weight = AnnotMix(spec, alpha=1.0, eta=0.8, embedding=3).loss(data.batch(np.arange(2)))
    assert total.isfinite()
    assert weight == 2


def test_a_step_changes_only_the_annotators_of_its_batch() -> None:
    n_annotators = 10 * MAX_DENSE_GRADIENT_ROWS
    method = make(3, n_annotators, 1.0)
    said = np.full((4, n_annotators), -1)
    said[[0, 1, 2, 3], [7, 900, 7, 42]] = [0, 1, 2, 0]
    X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    data = TrainingData(Inputs(X), Annotations.from_matrix(said), np.full(4, -1), np.ones(4, np.float32))
    method.loss(data.batch(np.arange(4))).total.backward()
    gradient = method.embed.table.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert gradient.coalesce().indices()[0].tolist() == [7, 42, 900]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"alpha": -1}, "alpha must be a number of at least 0, got -1"),
        ({"eta": 1.0}, "eta must be above 0 and below 1, got 1.0"),
        ({"eta": 0.3}, r"eta must be above chance, which is 0.333 with 3 classes, got 0.3"),
        ({"embedding": 0}, "embedding must be a whole number of at least 1, got 0"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AnnotMixClassifier(**settings).fit(np.eye(3), np.arange(3))


ACCURACIES = np.array([0.9, 0.65, 0.45, 0.25])  # of four annotators; with four classes, the last guesses


def one_label_each(n_items: int, seed: int) -> tuple[Any, Any, Any]:
    """Four classes in ten dimensions, and one label per item, 44 % of them wrong."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 4, n_items)
    X = generator.normal(size=(n_items, 10))
    X[:, :4] += 3 * np.eye(4)[truth]
    who = generator.integers(0, 4, n_items)
    wrong = (truth + generator.integers(1, 4, n_items)) % 4
    Y = np.full((n_items, 4), -1)
    Y[np.arange(n_items), who] = np.where(generator.random(n_items) < ACCURACIES[who], truth, wrong)
    return X, truth, Y


def test_mixing_reduces_memorization_of_few_noisy_labels() -> None:
    """The paper's claim, with one label per item: mixing is better than no mixing and than the vote."""
    X, _, Y = one_label_each(400, seed=0)
    X_test, truth_test, _ = one_label_each(3000, seed=100)
    settings: dict[str, Any] = {"epochs": 40, "hidden": (256,), "learning_rate": 0.02, "batch_size": 128}
    clf = AnnotMixClassifier(**settings).fit(X, Y)
    mixed = clf.score(X_test, truth_test)
    assert mixed > AnnotMixClassifier(alpha=0, **settings).fit(X, Y).score(X_test, truth_test) + 0.05
    assert mixed > MajorityVoteClassifier(**settings).fit(X, Y).score(X_test, truth_test) + 0.1
    assert clf.confusion_matrices_.diagonal(axis1=1, axis2=2).mean(1).argsort().tolist() == [3, 2, 1, 0]


def test_confusion_matrices_are_close_to_the_planted_ones() -> None:
    X, truth, _ = one_label_each(4000, seed=0)
    generator = np.random.default_rng(1)
    wrong = (truth[:, None] + generator.integers(1, 4, (4000, 4))) % 4
    Y = np.where(generator.random((4000, 4)) < ACCURACIES, truth[:, None], wrong)
    clf = AnnotMixClassifier(epochs=8, learning_rate=0.01, batch_size=256).fit(X, Y)
    assert clf.score(X, truth) > 0.93
    planted = np.where(np.eye(4, dtype=bool), ACCURACIES[:, None, None], (1 - ACCURACIES[:, None, None]) / 3)
    assert np.abs(clf.confusion_matrices_ - planted).max() < 0.12
    assert (clf.fused_labels(X, Y).argmax(1) == truth).mean() > clf.score(X, truth)
