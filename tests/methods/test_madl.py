"""MaDL: the performance of annotators on each item, and lower weights for annotators who resemble many others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import gamma as gamma_distribution
from torch import Tensor, nn

from crowdfuse import MaDLClassifier, MajorityVoteClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.base import ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.madl import MAX_COMPARED_ANNOTATORS, MaDL, mean_similarity
from crowdfuse.nets import make_trunk
from crowdfuse.nets.annotator_tables import MAX_DENSE_GRADIENT_ROWS

KINDS = ("isotropic", "diagonal", "full")


def make(kind: Any, n_classes: int, n_annotators: int, weights: Any = "density") -> MaDL:
    torch.manual_seed(0)
    trunk = make_trunk("mlp", (4,), (8,), 0.0)
    spec = ModelSpec(trunk, None, None, n_classes, n_annotators, head_hidden=(), dropout=0.0, seed=0)
    method = MaDL(spec, confusions=kind, weights=weights, eta=0.8, embedding=3, gamma_prior=(1.25, 0.25))
    nn.init.normal_(method.of_annotator.table)
    nn.init.constant_(method.gamma, 0.6)
    return method


def crowd(n_items: int, n_annotators: int, n_classes: int, gold: int = 0) -> TrainingData:
    """Return data with many missing labels; the first items have gold, and item 0 has no label."""
    generator = np.random.default_rng(n_items)
    said = generator.integers(0, n_classes, (n_items, n_annotators))
    said[generator.random(said.shape) < 0.6] = -1
    said[0] = -1
    truth = np.where(np.arange(n_items) < gold, generator.integers(0, n_classes, n_items), -1)
    X = generator.normal(size=(n_items, 4)).astype(np.float32)
    weight = generator.uniform(0.5, 2, n_items).astype(np.float32)
    ann = Annotations.from_matrix(said, classes=list(range(n_classes)))
    return TrainingData(Inputs(X), ann, truth, weight)


def matrix(method: MaDL, h: Tensor, r: int) -> Tensor:
    """Return the confusion matrix (K, K) of an item with features h (D,) and an annotator, by its definition."""
    K, e = method.n_classes, method.of_annotator.table[r]
    u = method.of_item(h)
    product = method.product(torch.stack([a * b for a in e for b in u]))
    logits = method.out(torch.relu(e + method.hidden(torch.cat([e, u, product]))))
    if method.kind == "full":
        A: Tensor = logits.view(K, K).softmax(1)
        return A
    right = logits.sigmoid().expand(K)
    return torch.stack(
        [torch.stack([right[k] if k == y else (1 - right[k]) / (K - 1) for y in range(K)]) for k in range(K)]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["density", "uniform"])
@pytest.mark.parametrize(("n_items", "n_annotators", "n_classes", "gold"), [(6, 3, 2, 0), (9, 5, 4, 3), (5, 2, 3, 5)])
def test_the_loss_is_its_definition_written_out(
    kind: str, weights: str, n_items: int, n_annotators: int, n_classes: int, gold: int
) -> None:
    data = crowd(n_items, n_annotators, n_classes, gold)
    method = make(kind, n_classes, n_annotators, weights)
    batch = data.batch(np.random.default_rng(0).permutation(n_items))
    total, count = method.loss(batch)
    h = method.features(batch.x)
    f = method.classify(h).softmax(1)
    e = method.of_annotator.table.detach().double()
    rarity = [1 / sum((-0.6 * ((e[r] - other) ** 2).sum()).exp() for other in e) for r in range(n_annotators)]
    w = [1.0 if weights == "uniform" else float(one / (sum(rarity) / len(rarity))) for one in rarity]
    prior = 0.0 if weights == "uniform" else float(gamma_distribution.logpdf(0.6, 1.25, scale=1 / 0.25))
    expected, counted = torch.tensor(0.0), 0.0
    for i in range(n_items):
        labels = [(int(r), int(y)) for r, y in zip(*(t[batch.item == i] for t in batch[-2:]), strict=True)]
        k = int(batch.gold[i])
        losses = [-f[i, k].log()] if k >= 0 else []
        for r, y in labels:
            A = matrix(method, h[i], r)
            losses.append(-A[k, y].log() if k >= 0 else -w[r] * (f[i] @ A)[y].log() - prior)
        if losses:
            expected, counted = expected + batch.weight[i] * sum(losses), counted + float(batch.weight[i])
    torch.testing.assert_close(total, expected)
    assert float(count) == pytest.approx(counted)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_evidence_and_fused_labels_agree(kind: str) -> None:
    data = crowd(6, 3, 4)
    method = make(kind, 4, 3)
    batch = data.batch(np.arange(6))
    h = method.features(batch.x)
    A = method.confusions(h, batch.item, batch.annotator)
    torch.testing.assert_close(A.sum(2), torch.ones(len(A), 4))
    for i in range(len(A)):
        torch.testing.assert_close(A[i], matrix(method, h[batch.item[i]], int(batch.annotator[i])))
    evidence = method.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
    torch.testing.assert_close(evidence.exp(), A[torch.arange(len(A)), :, batch.label])
    fused = method.fused(h, batch.item, batch.annotator, batch.label)
    for n in range(6):
        q = method.classify(h[n]).softmax(0)
        for i in (batch.item == n).nonzero()[:, 0].tolist():
            q = q * A[i, :, batch.label[i]]
        torch.testing.assert_close(fused[n], q / q.sum() if (batch.item == n).any() else torch.zeros(4))


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_gradient_equals_finite_differences(kind: str) -> None:
    data = crowd(6, 4, 3, gold=2)
    method = make(kind, 3, 4).double()
    batch = data.batch(np.arange(6))
    batch = batch._replace(x=batch.x.double(), weight=batch.weight.double())
    names = ["gamma", "out.weight", "classify.0.weight", "of_item.bias"]
    start = [method.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def loss(*values: Tensor) -> Tensor:
        total: Tensor = torch.func.functional_call(
            _Lossy(method), {f"method.{name}": value for name, value in zip(names, values, strict=True)}, (batch,)
        )
        return total

    assert torch.autograd.gradcheck(loss, start)


class _Lossy(nn.Module):
    def __init__(self, method: MaDL) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Any) -> Tensor:
        return self.method.loss(batch).total


def test_weights_and_performance_have_no_gradient_to_embeddings_and_backbone() -> None:
    """Annotator weights have no gradient to the embeddings, and annotator performance none to the backbone."""
    data = crowd(6, 3, 3)
    method = make("isotropic", 3, 3)
    batch = data.batch(np.arange(6))
    assert not method._label_weights(batch.annotator).detach().eq(1).all()
    weights = method._label_weights(batch.annotator).sum()
    of_table: Any = torch.autograd.grad(weights, [method.of_annotator.table], allow_unused=True)
    assert of_table == (None,)
    evidence = method.label_log_probabilities(method.features(batch.x), batch.item, batch.annotator, batch.label)
    of_trunk: Any = torch.autograd.grad(evidence.sum(), list(method.trunk.parameters()), allow_unused=True)
    assert all(gradient is None for gradient in of_trunk)


def test_copies_share_the_weight_of_one() -> None:
    method = make("isotropic", 3, 5)
    with torch.no_grad():
        method.of_annotator.table.copy_(torch.tensor([[0.0], [50], [90], [90], [90]]).expand(5, 3))
    weights = method._label_weights(torch.arange(5))
    torch.testing.assert_close(weights, torch.tensor([5, 5, 5 / 3, 5 / 3, 5 / 3]) / 3)
    everyone = torch.arange(5)
    scores = method.weight_logits(torch.zeros(1, 8), torch.zeros(5, dtype=torch.long), everyone)
    torch.testing.assert_close(5 * scores.softmax(0), weights)
    nn.init.zeros_(method.of_annotator.table)  # as at the start
    torch.testing.assert_close(method._label_weights(everyone), torch.ones(5))


def test_a_step_compares_and_changes_only_the_annotators_of_its_batch() -> None:
    n_annotators = 3 * max(MAX_DENSE_GRADIENT_ROWS, MAX_COMPARED_ANNOTATORS)
    method = make("diagonal", 3, n_annotators)
    said = np.full((4, n_annotators), -1)
    said[[0, 1, 2, 3], [7, 900, 7, 42]] = [0, 1, 2, 0]
    X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    data = TrainingData(Inputs(X), Annotations.from_matrix(said), np.full(4, -1), np.ones(4, np.float32))
    batch = data.batch(np.arange(4))
    method.loss(batch).total.backward()
    gradient = method.of_annotator.table.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert gradient.coalesce().indices()[0].tolist() == [7, 42, 900]
    e = method.of_annotator.table.detach()[[7, 42, 900]]
    rarity = 1 / mean_similarity(e, e, torch.tensor(0.6))
    torch.testing.assert_close(method._label_weights(batch.annotator), (rarity / rarity.mean())[[0, 2, 0, 1]])
    assert method.weight_logits(batch.x, batch.item, batch.annotator).isfinite().all()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"confusions": "whole"}, "confusions .*'whole'"),
        ({"weights": "none"}, "weights .*'none'"),
        ({"eta": 0}, "eta must be above 0 and below 1, got 0"),
        ({"eta": 0.3}, r"eta must be above chance, which is 0.333 with 3 classes, got 0.3"),
        ({"embedding": 0}, "embedding must be a whole number of at least 1, got 0"),
        ({"gamma_shape": 0}, "gamma_shape must be above 0, got 0"),
        ({"gamma_rate": -1}, "gamma_rate must be a number of at least 0, got -1"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        MaDLClassifier(**settings).fit(np.eye(3), np.arange(3))


def halves(n_items: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return four annotators: one is right on the left half, one on the right half, two guess everywhere."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, size=(n_items, 2))
    truth = np.digitize(X[:, 1], [-0.5, 0, 0.5])
    left = X[:, 0] < 0
    reads = 0.95 * np.where(left[:, None], [1, 0, 0, 0], [0, 1, 0, 0])
    Y = np.where(generator.random((n_items, 4)) < reads, truth[:, None], generator.integers(0, 4, (n_items, 4)))
    return X, truth, Y, left


def test_it_learns_where_each_annotator_is_right() -> None:
    X, truth, Y, left = halves(1000, seed=0)
    X_test, truth_test, _, _ = halves(3000, seed=100)
    settings: dict[str, Any] = {"epochs": 20, "learning_rate": 0.02, "batch_size": 128}
    clf = MaDLClassifier(**settings).fit(X, Y)
    vote = MajorityVoteClassifier(**settings).fit(X, Y)
    right = clf.confusion_matrices(X)[np.arange(1000), :, truth, truth]  # accuracy of each annotator per item
    planted = np.array([[0.96, 0.25, 0.25, 0.25], [0.25, 0.96, 0.25, 0.25]])
    np.testing.assert_allclose([right[left].mean(0), right[~left].mean(0)], planted, atol=0.08)
    assert clf.score(X_test, truth_test) > vote.score(X_test, truth_test) + 0.01
    assert (clf.fused_labels(X, Y).argmax(1) == truth).mean() > 0.95
    assert (vote.fused_labels(X, Y).argmax(1) == truth).mean() < 0.6


def copies(n_items: int, seed: int) -> tuple[Any, Any, Any]:
    """Return four mostly right annotators and twenty copies of one who guesses; half of the labels are missing."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 4, n_items)
    X = generator.normal(size=(n_items, 10))
    X[:, :4] += 3 * np.eye(4)[truth]
    guess = np.repeat(generator.integers(0, 4, (n_items, 1)), 20, 1)
    good = np.where(generator.random((n_items, 4)) < 0.8, truth[:, None], generator.integers(0, 4, (n_items, 4)))
    said = np.hstack([good, guess])
    return X, truth, np.where(generator.random(said.shape) < 0.5, -1, said)


def test_copies_of_a_guessing_annotator_count_less() -> None:
    X, _, Y = copies(600, seed=0)
    X_test, truth_test, _ = copies(3000, seed=100)
    settings: dict[str, Any] = {"epochs": 20, "learning_rate": 0.01}
    clf = MaDLClassifier(**settings).fit(X, Y)
    alike = MaDLClassifier(weights="uniform", **settings).fit(X, Y)
    assert alike.weights_.tolist() == [1] * 24
    assert clf.weights_.mean() == pytest.approx(1)
    assert clf.weights_[4:].max() < 1 < clf.weights_[:4].min()
    assert clf.score(X_test, truth_test) > 0.85
    assert alike.score(X_test, truth_test) < 0.75
