"""Every method's loss against its definition written out, with labels missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from crowdfuse.estimators.registry import estimator_class
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.base import ModelSpec
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.fusion import Fusion
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.mbem import MBEM
from crowdfuse.methods.single_annotator import SingleAnnotator
from crowdfuse.methods.trace_reg import TraceReg
from crowdfuse.methods.wdn import WDN
from crowdfuse.nets import make_trunk

LABELS = np.array([[0, 1, 1], [2, -1, 2], [-1, -1, -1], [1, -1, -1], [0, 1, 2]])


def spec(n_classes: int = 3) -> ModelSpec:
    torch.manual_seed(0)
    trunk = make_trunk("mlp", (4,), (8,), 0.0)
    return ModelSpec(trunk, None, None, n_classes, n_annotators=3, head_hidden=(), dropout=0.0, seed=0)


@pytest.fixture
def data() -> TrainingData:
    X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    weight = np.array([1, 2, 1, 0.5, 1], np.float32)
    return TrainingData(Inputs(X), Annotations.from_matrix(LABELS), np.full(5, -1), weight)


@pytest.fixture
def batch(data: TrainingData) -> Batch:
    return data.batch(np.array([4, 0, 1, 2, 3]))


def fusion(**changes: object) -> Fusion:
    settings: dict[str, object] = {
        "n_bases": 4, "basis": "random", "penalty": 0.7, "confusions": "basis", "weights": "learned",
        "annotator_heads": "shared", "embedding": 4, "annotator_hidden": (5,), "loss_scale": "plain",
    }  # fmt: skip
    return Fusion(spec(), **(settings | changes))  # type: ignore[arg-type]  # settings of any kind


@pytest.mark.parametrize("confusions", ["basis", "full"])
@pytest.mark.parametrize("weights", ["learned", "uniform"])
@pytest.mark.parametrize(("loss_scale", "heads"), [("plain", "shared"), ("plain", "embedded"), ("paper", "separate")])
def test_fusion_loss_is_the_papers_written_out(
    batch: Batch, data: TrainingData, confusions: str, weights: str, loss_scale: str, heads: str
) -> None:
    method = fusion(confusions=confusions, weights=weights, loss_scale=loss_scale, annotator_heads=heads)
    total, count = method.loss(batch)
    h = method.features(batch.x)
    expected = torch.tensor(0.0)
    for place, row in enumerate(batch.row.tolist()):
        said = [(r, int(LABELS[row, r])) for r in range(3) if LABELS[row, r] >= 0]
        if not said:
            continue
        item = torch.full((len(said),), place)
        who = torch.tensor([r for r, _ in said])
        w = method.weight_logits(h, item, who).softmax(0)
        P = method.confusions(h, item, who)
        t = sum(w[i] * P[i, :, y] for i, (_, y) in enumerate(said))
        f = method.classify(h[place]).softmax(0)
        kl = sum(t[k] * (t[k] / f[k]).log() for k in range(3) if t[k] > 0)  # type: ignore[index]  # a tensor by now
        penalty = sum(((1 - P[i].diagonal()) ** 2).sum() for i in range(len(said))) / len(said)
        expected = expected + data.weight[row] * (kl + 0.7 * penalty)
    torch.testing.assert_close(total, expected / (3 if loss_scale == "paper" else 1))
    assert count == 1 + 2 + 0.5 + 1  # the weights of the items that have labels


def test_one_basis_leaves_weights_only(batch: Batch) -> None:
    method = fusion(n_bases=1)
    h = method.features(batch.x)
    assert torch.equal(method.confusions(h, batch.item, batch.annotator), torch.eye(3).expand(len(batch.item), 3, 3))
    assert not any("confuse" in name for name, _ in method.named_parameters())


def test_fusion_gradients_reach_all_heads_and_both_sides_of_the_kl(batch: Batch) -> None:
    method = fusion()
    method.loss(batch).total.backward()
    silent = [name for name, p in method.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []


def test_soft_vote_is_kl_to_the_vote_shares(batch: Batch, data: TrainingData) -> None:
    method = MajorityVote(spec(), vote="soft", loss_scale="plain")
    total, count = method.loss(batch)
    shares = torch.from_numpy(np.nan_to_num(data.annotations.vote_shares())).float()
    log_f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5)))).log_softmax(1)
    kl = torch.special.xlogy(shares, shares).sum(1) - (shares * log_f).sum(1)
    torch.testing.assert_close(total, (kl * torch.from_numpy(data.weight))[[0, 1, 3, 4]].sum())
    assert count == 4.5
    paper = MajorityVote(spec(), vote="soft", loss_scale="paper")
    torch.testing.assert_close(paper.loss(batch).total, total / 3)


def test_hard_vote_takes_the_winner_and_breaks_ties_from_the_seed(data: TrainingData) -> None:
    picked = set()
    for seed in range(20):
        method = MajorityVote(replace(spec(), seed=seed), vote="hard", loss_scale="plain")
        method.prepare(data)
        assert method.winner[[0, 1, 3]].tolist() == [1, 2, 1]
        picked.add(int(method.winner[4]))
    assert picked == {0, 1, 2}
    total, _ = method.loss(data.batch(np.array([0, 1, 3])))
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.array([0, 1, 3]))))
    losses = cross_entropy(logits, torch.tensor([1, 2, 1]), reduction="none")
    torch.testing.assert_close(total, (losses * torch.tensor([1.0, 2.0, 0.5])).sum())


def test_single_annotator_uses_nobody_elses_labels(batch: Batch, data: TrainingData) -> None:
    method = SingleAnnotator(spec(), annotator=1)
    assert method.training_mask(data).tolist() == [True, False, False, False, True]
    total, count = method.loss(batch)
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.array([0, 4]))))
    torch.testing.assert_close(total, cross_entropy(logits, torch.tensor([1, 1]), reduction="sum"))
    assert count == 2


def test_trace_reg_loss_is_its_definition_written_out(batch: Batch, data: TrainingData) -> None:
    method = TraceReg(spec(), trace_weight=0.3, start=None)
    assert torch.equal(method.confusion_logits, torch.eye(3).expand(3, 3, 3))
    torch.nn.init.normal_(method.confusion_logits)
    total, count = method.loss(batch)
    f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5)))).softmax(1)
    A = method.confusion_logits.softmax(2)
    said = torch.einsum("nk,rky->nry", f, A)  # label probabilities of each annotator
    expected = torch.tensor(0.0)
    for n, r in zip(*np.nonzero(LABELS >= 0), strict=True):
        expected = expected + data.weight[n] * (0.3 * A[r].trace() - said[n, r, LABELS[n, r]].log())
    torch.testing.assert_close(total, expected)
    assert count == 4.5
    torch.testing.assert_close(method.confusions(batch.x, batch.item, batch.annotator), A[batch.annotator])


def test_trace_reg_start_sets_the_initial_accuracy() -> None:
    method = TraceReg(spec(), trace_weight=0.3, start=0.8)
    torch.testing.assert_close(method.confusion_logits.softmax(2), torch.full((3, 3, 3), 0.1) + 0.7 * torch.eye(3))


def test_trace_reg_stays_finite_where_probabilities_underflow(batch: Batch) -> None:
    method = TraceReg(spec(), trace_weight=0.01, start=None)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.mul_(1e3)
    assert (method.logits(batch.x).softmax(1) == 0).any()
    total, _ = method.loss(batch)
    total.backward()
    assert total.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())


def test_trace_reg_fuses_by_bayes_with_the_network_as_the_prior(batch: Batch) -> None:
    method = TraceReg(spec(), trace_weight=0.01, start=None)
    torch.nn.init.normal_(method.confusion_logits)
    h = method.features(batch.x)
    fused = method.fused(h, batch.item, batch.annotator, batch.label)
    A = method.confusion_logits.softmax(2)
    for place, row in enumerate(batch.row.tolist()):
        q = method.classify(h[place]).softmax(0)
        for r in range(3):
            if LABELS[row, r] >= 0:
                q = q * A[r, :, LABELS[row, r]]
        torch.testing.assert_close(fused[place], q / q.sum() if (LABELS[row] >= 0).any() else torch.zeros(3))


def counted(data: TrainingData, classes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """MBEM's M-step, label by label: prior (K,) and matrices (R, K, K) by the classes (N, K) taken for true."""
    prior, matrices = np.full(3, 0.01), np.full((3, 3, 3), 0.01)
    for n in range(5):
        for k in range(3):
            prior[k] += data.weight[n] * classes[n, k] * (LABELS[n] >= 0).any()
            for r in range(3):
                if LABELS[n, r] >= 0:
                    matrices[r, k, LABELS[n, r]] += data.weight[n] * classes[n, k]
    for r in range(3):
        for k in range(3):
            matrices[r, k] /= matrices[r, k].sum()
    return prior / prior.sum(), matrices


def test_mbem_trains_on_the_vote_and_then_on_the_posterior(batch: Batch, data: TrainingData) -> None:
    method = MBEM(spec(), rounds=2, chosen="epoch")
    method.prepare(data)
    log_f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5)))).log_softmax(1).double()
    weight = torch.from_numpy(data.weight).double()

    shares = np.nan_to_num(data.annotations.vote_shares())
    prior, matrices = counted(data, shares)
    np.testing.assert_allclose(method.matrices, matrices, rtol=1e-5)
    np.testing.assert_allclose(method.prior, prior, rtol=1e-5)
    total, count = method.loss(batch)
    torch.testing.assert_close(total.double(), -(weight[:, None] * torch.from_numpy(shares) * log_f).sum())
    assert count == 4.5

    method.phase_index = 1
    predicted = np.array([[0, 9, 1], [1, 2, 3], [5, 0, 0], [0, 1, 0], [3, 2, 1]], np.float32)
    method.begin_phase(data, lambda feature_function=None, rows=None: predicted, None)
    prior, matrices = counted(data, np.eye(3)[predicted.argmax(1)])
    np.testing.assert_allclose(method.matrices, matrices, rtol=1e-5)
    np.testing.assert_allclose(method.prior, prior, rtol=1e-5)
    q = np.zeros((5, 3))
    for n in (0, 1, 3, 4):
        for k in range(3):
            q[n, k] = prior[k]
            for r in range(3):
                if LABELS[n, r] >= 0:
                    q[n, k] *= matrices[r, k, LABELS[n, r]]
        q[n] /= q[n].sum()
    total, count = method.loss(batch)
    torch.testing.assert_close(total.double(), -(weight[:, None] * torch.from_numpy(q) * log_f).sum())
    assert count == 4.5
    fused = method.fused(method.features(batch.x), batch.item, batch.annotator, batch.label)
    np.testing.assert_allclose(fused, q[batch.row], rtol=1e-4)


def test_mbem_posterior_of_many_labels_does_not_underflow() -> None:
    R = 2000  # a product of so many probabilities is 0 in any float
    method = MBEM(replace(spec(), n_annotators=R), rounds=2, chosen="epoch")
    method.matrices.copy_(torch.tensor([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]]).expand(R, 3, 3))
    said = torch.arange(R) % 3
    said[0] = 1  # class 1 has one label more
    q = method.fused(torch.zeros(1, 8), torch.zeros(R, dtype=torch.long), torch.arange(R), said)
    counts = torch.bincount(said).double()
    torch.testing.assert_close(q[0].double(), (counts * np.log(4 / 3)).softmax(0), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("epochs", "rounds", "each"), [(40, 2, [20, 20]), (7, 3, [3, 2, 2]), (5, 1, [5])])
def test_mbem_splits_its_epochs_over_the_rounds(epochs: int, rounds: int, each: list[int]) -> None:
    phases = MBEM(spec(), rounds=rounds, chosen="epoch").phases(epochs)
    assert [phase.epochs for phase in phases] == each
    assert phases[-1].name == f"round {rounds} of {rounds}"


def wdn(weights: str = "softmax", loss_scale: str = "plain") -> WDN:
    settings: dict[str, Any] = {"weights": weights, "loss_scale": loss_scale}
    method = WDN(replace(spec(), head_hidden=(6,)), **settings, weight_epochs=5)
    method.labelled.fill_(True)
    return method


def networks(method: WDN, x: torch.Tensor) -> torch.Tensor:
    """Return the class probabilities (N, R, K) of each annotator's network."""
    h = method.classify(method.features(x))
    rows = torch.arange(len(x))
    return torch.stack([method.last(h, rows, torch.full_like(rows, r)).softmax(1) for r in range(3)], 1)


def test_wdn_trains_each_network_on_its_own_annotator(batch: Batch, data: TrainingData) -> None:
    method = wdn()
    method.prepare(data)
    x = torch.from_numpy(data.inputs.rows(np.arange(5)))
    p = networks(method, x)
    total, count = method.loss(batch)
    expected = torch.tensor(0.0)
    for n, r in zip(*np.nonzero(LABELS >= 0), strict=True):
        expected = expected - data.weight[n] * p[n, r, LABELS[n, r]].log()
    torch.testing.assert_close(total, expected)
    assert count == 4.5
    torch.testing.assert_close(method.logits(x).softmax(1), p.mean(1))  # equal weights at first


def never(feature_function: Any = None, rows: Any = None) -> Any:
    raise AssertionError("nobody asked for predictions")


@pytest.mark.parametrize("loss_scale", ["plain", "paper"])
@pytest.mark.parametrize("weights", ["released", "softmax"])
def test_wdn_fits_the_average_of_its_networks_to_the_vote(
    batch: Batch, data: TrainingData, weights: str, loss_scale: str
) -> None:
    method = wdn(weights, loss_scale)
    method.phase_index = 1
    method.begin_phase(data, never, None)
    assert torch.equal(method.weights, torch.ones(3)) == (weights == "softmax")  # otherwise drawn
    torch.nn.init.normal_(method.weights)
    w = method.weights
    total, count = method.loss(batch)
    p = networks(method, torch.from_numpy(data.inputs.rows(np.arange(5))))
    if weights == "released":
        log_f = sum(w[r] * p[:, r] for r in range(3)).log_softmax(1)  # type: ignore[union-attr]  # a tensor
    else:
        log_f = sum(w.softmax(0)[r] * p[:, r] for r in range(3)).log()  # type: ignore[union-attr]  # a tensor
    shares = torch.from_numpy(np.nan_to_num(data.annotations.vote_shares())).float()
    kl = torch.special.xlogy(shares, shares).sum(1) - (shares * log_f).sum(1)
    expected = (kl * torch.from_numpy(data.weight))[[0, 1, 3, 4]].sum()
    torch.testing.assert_close(total, expected / (3 if loss_scale == "paper" else 1))
    assert count == 4.5


def test_wdn_starts_its_released_weights_from_the_seed(data: TrainingData) -> None:
    starts = []
    for seed in (0, 0, 1):
        method = WDN(replace(spec(), seed=seed), weights="released", weight_epochs=5, loss_scale="plain")
        method.begin_phase(data, never, None)
        starts.append(method.weights.tolist())
    assert starts[0] == starts[1] != starts[2]


@pytest.mark.parametrize("weights", ["released", "softmax"])
def test_wdn_leaves_annotators_without_labels_out(data: TrainingData, weights: str) -> None:
    method = wdn(weights)
    method.labelled.fill_(False)
    counting = np.array([1, 1, 1, 1, 0], np.float32)  # annotator 1 labelled only items 0 and 4
    counting[0] = 0
    method.prepare(replace(data, weight=counting))
    assert method.average()[1] == 0
    p = networks(method, torch.from_numpy(data.inputs.rows(np.arange(5))))[:, [0, 2]]
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5))))
    torch.testing.assert_close(logits, p.sum(1) if weights == "released" else p.mean(1).log())


def test_wdn_negative_weights_count_as_0() -> None:
    method = wdn("released")
    item, annotator = torch.zeros(3, dtype=torch.long), torch.arange(3)
    with torch.no_grad():
        method.weights.copy_(torch.tensor([3.0, -2.0, 1.0]))
        scores = method.weight_logits(torch.zeros(1, 8), item, annotator)
        torch.testing.assert_close(scores.softmax(0), torch.tensor([0.75, 0.0, 0.25]))
        method.weights.copy_(torch.tensor([-3.0, -2.0, -1.0]))
        assert method.weight_logits(torch.zeros(1, 8), item, annotator).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("method", "n_steps_per_pass", "n_steps_per_epoch", "expected"),
    [
        ("majority-vote", 2, 50, 400),
        ("gated", 2, 50, 2_000),
        ("majority-vote", 100, 100, 4_000),
        ("majority-vote", 500, 500, 20_000),
        ("gated", 1_000, 1_000, 20_000),
        ("majority-vote", 5_000, 5_000, 50_000),
        ("gated", 5_000, 5_000, 50_000),
    ],
)
def test_length_of_a_training_without_a_number_of_epochs(
    method: str, n_steps_per_pass: int, n_steps_per_epoch: int, expected: int
) -> None:
    """40 passes over the data, unless these are few steps or more than 20,000; never fewer than 10 passes."""
    classifier = estimator_class(method)()
    classifier.prepare(np.eye(4), [0, 1, 0, 1])
    phases = classifier.method_.default_phases(n_steps_per_pass, n_steps_per_epoch)
    assert sum(phase.epochs for phase in phases) * n_steps_per_epoch == expected
    assert min(phase.epochs for phase in phases) > 0
