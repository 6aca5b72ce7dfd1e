"""Gold labels in training: the class of the item is certain, and its labels train the annotator model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from crowdfuse import FusionClassifier, GatedClassifier, MBEMClassifier, TraceRegClassifier, TwoStageClassifier
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.base import Method
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.fusion import Fusion
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.mbem import MBEM
from crowdfuse.methods.single_annotator import SingleAnnotator
from crowdfuse.methods.trace_reg import TraceReg
from crowdfuse.methods.true_label import TrueLabel
from crowdfuse.methods.two_stage import TwoStage
from crowdfuse.methods.wdn import WDN
from tests.methods.test_methods import LABELS, fusion, spec, wdn

GOLD = np.array([1, 2, 0, -1, -1])  # item 2 has gold and no label
WEIGHT = np.array([1, 2, 3, 0.5, 1], np.float32)


def data(gold: Any = GOLD) -> TrainingData:
    X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    return TrainingData(Inputs(X), Annotations.from_matrix(LABELS), np.asarray(gold), WEIGHT)


def two_stage() -> TwoStage:
    return TwoStage(spec(), aggregator="dawid-skene", target="soft")


METHODS: dict[str, Any] = {
    "fusion": fusion,
    "soft vote": lambda: MajorityVote(spec(), vote="soft", loss_scale="plain"),
    "hard vote": lambda: MajorityVote(spec(), vote="hard", loss_scale="plain"),
    "trace-reg": lambda: TraceReg(spec(), trace_weight=0.3, start=None),
    "mbem": lambda: MBEM(spec(), rounds=2, chosen="epoch"),
    "two-stage": two_stage,
    "wdn": wdn,
    "single": lambda: SingleAnnotator(spec(), annotator=0),
}


def of_labels(method: Method, n: int) -> torch.Tensor:
    """Return the loss of the labels of item n, whose class is known, by its definition."""
    x = torch.from_numpy(data().inputs.rows(np.array([n])))
    said = [(r, int(LABELS[n, r])) for r in range(3) if LABELS[n, r] >= 0]
    if not said:
        return torch.tensor(0.0)
    item, who = torch.zeros(len(said), dtype=torch.long), torch.tensor([r for r, _ in said])
    h = method.features(x)
    if isinstance(method, Fusion):
        P = method.confusions(h, item, who)
        w = method.weight_logits(h, item, who).softmax(0)
        t = sum(w[i] * P[i, GOLD[n], y] for i, (_, y) in enumerate(said))
        penalty = sum(((1 - P[i].diagonal()) ** 2).sum() for i in range(len(said))) / len(said)
        return 0.7 * penalty - t.log()  # type: ignore[union-attr]  # a tensor
    if isinstance(method, TraceReg):
        A = method.confusion_logits.softmax(2)
        return -sum(A[r, GOLD[n], y].log() for r, y in said)  # type: ignore[return-value]  # a tensor
    if isinstance(method, WDN):
        logits = method.last(method.classify(h), item, who)
        return cross_entropy(logits, torch.tensor([y for _, y in said]), reduction="sum")
    return torch.tensor(0.0)


@pytest.mark.parametrize("name", METHODS)
def test_gold_items_train_classifier_and_annotator_model(name: str) -> None:
    method = METHODS[name]()
    mixed = data()
    method.prepare(mixed)
    total, count = method.loss(mixed.batch(np.arange(5)))
    rest, rest_count = method.loss(mixed.batch(np.array([3, 4])))  # these have no gold
    logits = method.logits(torch.from_numpy(mixed.inputs.rows(np.arange(3))))
    certain = cross_entropy(logits, torch.from_numpy(GOLD[:3]), reduction="none")
    expected = rest + sum(float(WEIGHT[n]) * (certain[n] + of_labels(method, n)) for n in range(3))
    torch.testing.assert_close(total, expected)
    assert count == rest_count + 6


@pytest.mark.parametrize("name", METHODS)
def test_items_with_gold_and_no_labels_are_trained_on(name: str) -> None:
    assert METHODS[name]().training_mask(data())[:3].all()


def test_true_label_uses_only_gold() -> None:
    method = TrueLabel(spec())
    mixed = data()
    assert method.training_mask(mixed).tolist() == [True, True, True, False, False]
    total, count = method.loss(mixed.batch(np.arange(5)))
    logits = method.logits(torch.from_numpy(mixed.inputs.rows(np.arange(3))))
    losses = cross_entropy(logits, torch.from_numpy(GOLD[:3]), reduction="none")
    torch.testing.assert_close(total, (losses * torch.from_numpy(WEIGHT[:3])).sum())
    assert count == 6


def test_fusion_survives_gold_that_no_permutation_reaches() -> None:
    method = fusion(n_bases=1)  # only the identity: fused labels equal the labels
    wrong = data([2, 0, 1, 0, -1])  # classes that no annotator gave
    total, _ = method.loss(wrong.batch(np.arange(5)))
    total.backward()
    assert total.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


@pytest.mark.parametrize("make", [METHODS["mbem"], two_stage])
def test_counted_matrices_take_gold_for_the_truth(make: Any) -> None:
    method = make()
    gold = np.array([0, 1, 2, 0, 1])
    method.prepare(data(gold))
    for r in range(3):
        for k in range(3):
            counts = np.full(3, 0.01)
            for n in range(5):
                if gold[n] == k and LABELS[n, r] >= 0:
                    counts[LABELS[n, r]] += WEIGHT[n]
            np.testing.assert_allclose(method.matrices[r, k], counts / counts.sum(), rtol=1e-5)
    prior = 0.01 + np.bincount(gold, WEIGHT)
    np.testing.assert_allclose(method.prior, prior / prior.sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "kind", [FusionClassifier, GatedClassifier, TraceRegClassifier, MBEMClassifier, TwoStageClassifier]
)
def test_a_little_gold_corrects_a_crowd_that_is_mostly_wrong(kind: type[CrowdClassifier]) -> None:
    """Two of three annotators always give the next class, so only gold shows who is right."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 600)
    X = np.eye(3)[truth] + generator.normal(scale=0.25, size=(600, 3))
    Y = np.stack([truth, (truth + 1) % 3, (truth + 1) % 3], 1)
    gold = np.where(np.arange(600) < 150, truth, -1)
    settings: dict[str, Any] = {"epochs": 20, "learning_rate": 0.01}
    if kind is MBEMClassifier:
        settings["rounds"] = 4  # the second round corrects the vote
    assert kind(**settings).fit(X, Y).score(X[150:], truth[150:]) < 0.1
    clf = kind(**settings).fit(X, Y, gold=gold)
    assert clf.gold_used_for_ == "training"
    assert clf.score(X[150:], truth[150:]) > 0.9
    assert (clf.fused_labels(X, Y).argmax(1) == truth).mean() > 0.9
