"""The vote under generalised cross-entropy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from crowdfuse import MajorityVoteClassifier, RobustVoteClassifier
from crowdfuse.functional import generalized_cross_entropy
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.robust_vote import RobustVote
from tests.methods.test_methods import LABELS, spec

WEIGHT = np.array([1, 2, 1, 0.5, 1], np.float32)


def crowd(gold: Any = (-1, -1, -1, -1, -1)) -> TrainingData:
    X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    return TrainingData(Inputs(X), Annotations.from_matrix(LABELS), np.array(gold), WEIGHT)


@pytest.mark.parametrize("q", [1e-3, 0.3, 0.7, 1.0])
def test_the_loss_is_its_definition_and_has_its_gradient(q: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, 2, 3, 3, 0])
    p = logits.softmax(1)[torch.arange(6), target]
    torch.testing.assert_close(generalized_cross_entropy(logits.log_softmax(1), target, q), (1 - p**q) / q)
    assert torch.autograd.gradcheck(lambda z: generalized_cross_entropy(z.log_softmax(1), target, q), logits)


def test_a_small_q_is_cross_entropy_and_the_largest_is_one_minus_p() -> None:
    logits, target = torch.randn(50, 5, generator=torch.Generator().manual_seed(0)) * 3, torch.arange(50) % 5
    log_p = logits.log_softmax(1)
    expected = cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(generalized_cross_entropy(log_p, target, 1e-6), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        generalized_cross_entropy(log_p, target, 1.0), 1 - log_p.exp()[torch.arange(50), target], rtol=1e-4, atol=1e-5
    )


def test_a_nearly_impossible_label_has_bounded_loss_and_no_gradient() -> None:
    logits = torch.tensor([[500.0, -500.0]], requires_grad=True)
    loss = generalized_cross_entropy(logits.log_softmax(1), torch.tensor([1]), 0.7)
    loss.sum().backward()
    assert loss.item() == pytest.approx(1 / 0.7)
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros(1, 2))


@pytest.mark.parametrize("seed", range(5))
def test_votes_and_ties_are_those_of_the_hard_vote(seed: int) -> None:
    given = replace(spec(), seed=seed)
    hard, robust = MajorityVote(given, vote="hard", loss_scale="plain"), RobustVote(given, q=0.7, vote="hard")
    hard.prepare(crowd())
    robust.prepare(crowd())
    assert torch.equal(hard.winner, robust.winner)


def test_the_soft_loss_is_the_mean_over_an_items_labels() -> None:
    data = crowd()
    method = RobustVote(spec(), q=0.7, vote="soft")
    method.prepare(data)
    total, weight = method.loss(data.batch(np.array([4, 0, 2, 1, 3])))
    f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5)))).softmax(1)
    expected, counted = torch.tensor(0.0), 0.0
    for n in range(5):
        said = data.annotations.label[data.annotations.indptr[n] : data.annotations.indptr[n + 1]]
        if len(said):
            expected = expected + float(WEIGHT[n]) * ((1 - f[n, said] ** 0.7) / 0.7).mean()
            counted += float(WEIGHT[n])
    torch.testing.assert_close(total, expected)
    assert weight == counted


def test_the_loss_of_a_batch_is_written_out_with_gold_by_cross_entropy() -> None:
    data = crowd((-1, -1, 2, 0, -1))
    method = RobustVote(spec(), q=0.7, vote="hard")
    method.prepare(data)
    total, weight = method.loss(data.batch(np.array([4, 0, 2, 1, 3])))
    f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5)))).softmax(1)
    expected = torch.tensor(0.0)
    for n, v in ((0, 1), (1, 2), (4, int(method.winner[4]))):
        expected = expected + float(WEIGHT[n]) * (1 - f[n, v] ** 0.7) / 0.7
    for n, k in ((2, 2), (3, 0)):
        expected = expected - float(WEIGHT[n]) * f[n, k].log()
    torch.testing.assert_close(total, expected)
    assert weight == 5.5
    unlabelled = crowd()
    method.prepare(unlabelled)
    total, weight = method.loss(unlabelled.batch(np.array([2])))  # neither label nor gold
    assert total == weight == 0


@pytest.mark.parametrize("q", [0, -0.1, 1.01, np.nan, "0.7"])
def test_invalid_q_is_refused(q: Any) -> None:
    with pytest.raises(ValueError, match=r"q must be a number above 0 and at most 1, got .*MajorityVoteClassifier"):
        RobustVoteClassifier(q=q).fit(np.eye(3), np.arange(3))


def noisy(n_items: int, wrong: float, seed: int) -> tuple[Any, Any, Any]:
    """Four classes in ten dimensions, and one label per item, of which a share is any of the other classes."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 4, n_items)
    X = generator.normal(size=(n_items, 10))
    X[:, :4] += 3 * np.eye(4)[truth]
    said = np.where(generator.random(n_items) < wrong, (truth + generator.integers(1, 4, n_items)) % 4, truth)
    return X, truth, said[:, None]


def test_robust_loss_memorizes_fewer_wrong_votes() -> None:
    """The paper's claim: with 40 % of the labels wrong at random, cross-entropy memorises, the robust loss does not."""
    X, truth, Y = noisy(300, 0.4, seed=0)
    X_test, truth_test, _ = noisy(2000, 0.4, seed=100)
    wrong = Y[:, 0] != truth
    settings: dict[str, Any] = {"epochs": 50, "hidden": (256,), "learning_rate": 0.02}
    plain = MajorityVoteClassifier(vote="hard", **settings).fit(X, Y)
    robust = RobustVoteClassifier(**settings).fit(X, Y)
    assert (plain.predict(X) == Y[:, 0])[wrong].mean() > 0.9  # cross-entropy memorized the wrong labels
    assert (robust.predict(X) == Y[:, 0])[wrong].mean() < 0.5
    assert plain.score(X_test, truth_test) < 0.75
    assert robust.score(X_test, truth_test) > plain.score(X_test, truth_test) + 0.1
