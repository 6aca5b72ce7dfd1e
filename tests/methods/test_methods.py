"""Every method's loss against its definition written out, with labels missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from crowdfuse.annotations import Annotations
from crowdfuse.batches import Batch, TrainingData
from crowdfuse.inputs import Inputs
from crowdfuse.methods.base import Problem
from crowdfuse.methods.fusion import Fusion
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.single_annotator import SingleAnnotator
from crowdfuse.methods.true_label import TrueLabel
from crowdfuse.nets import make_trunk

LABELS = np.array([[0, 1, 1], [2, -1, 2], [-1, -1, -1], [1, -1, -1], [0, 1, 2]])


def problem(n_classes: int = 3) -> Problem:
    torch.manual_seed(0)
    trunk = make_trunk("mlp", (4,), (8,), 0.0)
    return Problem(trunk, None, n_classes, n_annotators=3, head_hidden=(), dropout=0.0, seed=0)


@pytest.fixture
def data() -> TrainingData:
    X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    gold = np.array([1, 2, 0, -1, 0])
    weight = np.array([1, 2, 1, 0.5, 1], np.float32)
    return TrainingData(Inputs(X), Annotations.from_matrix(LABELS), gold, weight)


@pytest.fixture
def batch(data: TrainingData) -> Batch:
    return data.batch(np.array([4, 0, 1, 2, 3]))


def fusion(**changes: object) -> Fusion:
    settings: dict[str, object] = {
        "n_bases": 4, "basis": "random", "penalty": 0.7, "confusions": "basis", "weights": "learned",
        "annotator_hidden": (5,), "loss_scale": "plain",
    }  # fmt: skip
    return Fusion(problem(), **(settings | changes))  # type: ignore[arg-type]  # settings of any kind


@pytest.mark.parametrize("confusions", ["basis", "full"])
@pytest.mark.parametrize("weights", ["learned", "uniform"])
@pytest.mark.parametrize("loss_scale", ["plain", "paper"])
def test_fusion_loss_is_the_papers_written_out(
    batch: Batch, data: TrainingData, confusions: str, weights: str, loss_scale: str
) -> None:
    method = fusion(confusions=confusions, weights=weights, loss_scale=loss_scale)
    total, count = method.loss(batch)
    h = method.features(batch.x)
    expected = torch.tensor(0.0)
    for place, row in enumerate(batch.row.tolist()):
        said = [(r, int(LABELS[row, r])) for r in range(3) if LABELS[row, r] >= 0]
        if not said:
            continue
        item = torch.full((len(said),), place)
        who = torch.tensor([r for r, _ in said])
        w = method.weight_scores(h, item, who).softmax(0)
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
    method = MajorityVote(problem(), vote="soft", loss_scale="plain")
    total, count = method.loss(batch)
    shares = torch.from_numpy(np.nan_to_num(data.annotations.vote_shares())).float()
    log_f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(5)))).log_softmax(1)
    kl = torch.special.xlogy(shares, shares).sum(1) - (shares * log_f).sum(1)
    torch.testing.assert_close(total, (kl * torch.from_numpy(data.weight))[[0, 1, 3, 4]].sum())
    assert count == 4.5
    paper = MajorityVote(problem(), vote="soft", loss_scale="paper")
    torch.testing.assert_close(paper.loss(batch).total, total / 3)


def test_hard_vote_takes_the_winner_and_breaks_ties_from_the_seed(data: TrainingData) -> None:
    picked = set()
    for seed in range(20):
        method = MajorityVote(replace(problem(), seed=seed), vote="hard", loss_scale="plain")
        method.prepare(data)
        assert method.winner[[0, 1, 3]].tolist() == [1, 2, 1]
        picked.add(int(method.winner[4]))
    assert picked == {0, 1, 2}
    total, _ = method.loss(data.batch(np.array([0, 1, 3])))
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.array([0, 1, 3]))))
    losses = cross_entropy(logits, torch.tensor([1, 2, 1]), reduction="none")
    torch.testing.assert_close(total, (losses * torch.tensor([1.0, 2.0, 0.5])).sum())


def test_single_annotator_uses_nobody_elses_labels(batch: Batch, data: TrainingData) -> None:
    method = SingleAnnotator(problem(), annotator=1)
    assert method.trains_on(data).tolist() == [True, False, False, False, True]
    total, count = method.loss(batch)
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.array([0, 4]))))
    torch.testing.assert_close(total, cross_entropy(logits, torch.tensor([1, 1]), reduction="sum"))
    assert count == 2


def test_true_label_uses_gold_where_there_is_any(batch: Batch, data: TrainingData) -> None:
    method = TrueLabel(problem())
    assert method.trains_on(data).tolist() == [True, True, True, False, True]
    total, count = method.loss(batch)
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.array([0, 1, 2, 4]))))
    losses = cross_entropy(logits, torch.tensor([1, 2, 0, 0]), reduction="none")
    torch.testing.assert_close(total, (losses * torch.tensor([1.0, 2.0, 1.0, 1.0])).sum())
    assert count == 5
