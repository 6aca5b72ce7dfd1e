"""Mixup: the loss is that of mixed inputs and mixed targets, and every method trains with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crowdfuse import Annotations, MajorityVoteClassifier
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.methods.base import Loss
from crowdfuse.methods.data import Batch
from crowdfuse.training.mixup import mixup_loss
from tests.estimators.estimator_list import ALL, quick

Y = np.array([[0, 1, -1], [2, 2, 2], [1, -1, 1], [-1, 0, 0], [1, 2, -1]])
X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def test_items_can_be_reordered_with_their_labels() -> None:
    batch = MajorityVoteClassifier().prepare(X, Y).data.batch(np.arange(5))
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = batch.reorder(order)
    assert torch.equal(moved.x, batch.x[order])
    assert moved.row.tolist() == order.tolist()
    assert labels_by_row(moved) == labels_by_row(batch)
    assert (moved.item.diff() >= 0).all()


def labels_by_row(batch: Batch) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {int(row): [] for row in batch.row}
    for item, annotator, label in zip(batch.item.tolist(), batch.annotator.tolist(), batch.label.tolist(), strict=True):
        found[int(batch.row[item])].append((annotator, label))
    return {row: sorted(labels) for row, labels in found.items()}


def test_the_loss_is_cross_entropy_of_mixed_inputs_with_mixed_targets() -> None:
    clf = MajorityVoteClassifier(vote="soft")
    data = clf.prepare(X, Y).data
    method, batch = clf.method_.eval(), data.batch(np.arange(5))
    loss = mixup_loss(method, batch, 0.4, seed=3)
    generator = np.random.default_rng(3)
    share, order = float(generator.beta(0.4, 0.4)), generator.permutation(5)
    targets = np.nan_to_num(Annotations.from_matrix(Y).vote_shares())
    entropy = np.where(targets > 0, targets * np.log(np.maximum(targets, 1e-9)), 0).sum(1)
    x = share * X + (1 - share) * X[order]
    log_f = method.logits(torch.from_numpy(x)).log_softmax(1).detach().numpy()
    mixed = share * targets + (1 - share) * targets[order]
    expected = -(mixed * log_f).sum() + (share * entropy + (1 - share) * entropy[order]).sum()
    assert isinstance(loss, Loss)
    assert float(loss.total.detach()) == pytest.approx(method.loss_factor * expected, rel=1e-5)
    assert float(loss.weight) == pytest.approx(5)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.method_name)
def test_every_method_trains_with_mixup(kind: type[CrowdClassifier]) -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 60)
    inputs = np.eye(3)[truth] + 0.1 * generator.normal(size=(60, 3))
    said = np.where(generator.random((60, 3)) < 0.9, truth[:, None], generator.integers(0, 3, (60, 3)))
    gold = {"gold": truth} if kind.method_name == "true-label" else {}
    settings = {"epochs": 6} | ({"annotator": 0} if kind.method_name == "single-annotator" else {})
    one, two = (quick(kind, mixup=0.4, **settings).fit(inputs, said, **gold) for _ in range(2))
    unmixed = quick(kind, **settings).fit(inputs, said, **gold)
    assert np.array_equal(one.predict_proba(inputs), two.predict_proba(inputs))
    assert not np.array_equal(one.predict_proba(inputs), unmixed.predict_proba(inputs))
