"""The fusion method: its loss against a dense oracle with missing labels, gradients, parts and ablations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.functional import basis_penalty, kl_divergence, penalty_form, permutation_basis
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.fusion import BasisConfusions, Fusion
from tests.methods.uneven import SHAPES, crowd, spec

Shape = tuple[int, int, int]


def fusion(shape: Shape, **changes: Any) -> Fusion:
    """Return a method for a crowd of this shape, in double precision."""
    settings: dict[str, Any] = {
        "n_bases": 5, "basis": "random", "penalty": 0.7, "confusions": "basis", "weights": "learned",
        "annotator_heads": "shared", "embedding": 4, "annotator_hidden": (5,), "loss_scale": "plain",
    }  # fmt: skip
    return Fusion(spec(shape[1], shape[2]), **(settings | changes)).double()


def whole_batch(data: TrainingData) -> Batch:
    """Return all rows as one batch, in double precision."""
    batch = data.batch(np.arange(len(data)))
    return batch._replace(x=batch.x.double(), weight=batch.weight.double())


def dense_parts(method: Fusion, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight scores (N, R) and confusion matrices (N, R, K, K) of every item and annotator."""
    n_items, R, K = len(h), method.n_annotators, method.n_classes
    pair = torch.arange(n_items * R)
    scores = method.weight_logits(h, pair // R, pair % R).view(n_items, R)
    return scores, method.confusions(h, pair // R, pair % R).view(n_items, R, K, K)


def dense_fused(method: Fusion, h: Tensor, Y: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Return fused labels (N, K) and mean penalties (N,), from dense matrices and a mask of missing labels."""
    scores, P = dense_parts(method, h)
    labels = torch.from_numpy(Y)
    is_labelled = labels >= 0
    weights = scores.masked_fill(~is_labelled, -torch.inf).softmax(1).nan_to_num(0)
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), method.n_classes).double() * is_labelled[..., None]
    fused = torch.einsum("nr,nrkj,nrj->nk", weights, P, one_hot)
    penalties = ((1 - P.diagonal(dim1=2, dim2=3)) ** 2).sum(2) * is_labelled
    return fused, penalties.sum(1) / is_labelled.sum(1).clamp(min=1)


@pytest.mark.parametrize("confusions", ["basis", "full"])
@pytest.mark.parametrize("heads", ["shared", "separate", "embedded"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_that_of_the_dense_oracle(shape: Shape, heads: str, confusions: str) -> None:
    data, Y = crowd(shape)
    method = fusion(shape, annotator_heads=heads, confusions=confusions)
    batch = whole_batch(data)
    loss = method.loss(batch)
    h = method.features(batch.x)
    t, penalties = dense_fused(method, h, Y)
    f = method.class_logits(h).softmax(1)
    kl = torch.special.xlogy(t, t).sum(1) - (t * f.log()).sum(1)
    weight = batch.weight * torch.from_numpy((Y >= 0).any(1))
    torch.testing.assert_close(loss.total, (weight * (kl + 0.7 * penalties)).sum())
    torch.testing.assert_close(loss.weight, weight.sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_labels_are_the_dense_ones_and_0_without_labels(shape: Shape) -> None:
    data, Y = crowd(shape)
    method, batch = fusion(shape), whole_batch(data)
    h = method.features(batch.x)
    fused = method.fused(h, batch.item, batch.annotator, batch.label)
    torch.testing.assert_close(fused, dense_fused(method, h, Y)[0])
    expected_sums = torch.from_numpy((Y >= 0).any(1)).double()
    torch.testing.assert_close(fused.sum(1), expected_sums)


def test_only_annotators_who_labelled_the_item_get_weight() -> None:
    shape = (7, 3, 3)
    data, Y = crowd(shape)
    method, batch = fusion(shape, n_bases=1), whole_batch(data)
    assert method.weigh is not None
    h = method.features(batch.x)
    before = method.fused(h, batch.item, batch.annotator, batch.label).detach()
    absent = 0
    with torch.no_grad():  # a huge score for one annotator
        method.weigh.get_parameter("last.bias")[absent] += 50
    after = method.fused(h, batch.item, batch.annotator, batch.label).detach()
    labelled = Y[:, absent] >= 0
    torch.testing.assert_close(after[~labelled], before[~labelled])
    for row in np.flatnonzero(labelled):
        assert after[row, Y[row, absent]] == pytest.approx(1)


@pytest.mark.parametrize(("n_classes", "n_bases"), [(3, 6), (4, 3), (6, 20), (9, 4)])
def test_the_penalty_is_the_dense_one(n_classes: int, n_bases: int) -> None:
    method = fusion((4, 3, n_classes), n_bases=n_bases)
    assert isinstance(method.confuse, BasisConfusions)
    c = torch.randn(11, len(method.confuse.basis), dtype=torch.float64).softmax(1)
    P = method.confuse.dense(c)
    torch.testing.assert_close(P.sum(1), torch.ones(11, n_classes, dtype=torch.float64))
    torch.testing.assert_close(method.confuse.penalty(c), ((1 - P.diagonal(dim1=1, dim2=2)) ** 2).sum(1))
    moves = (method.confuse.basis != torch.arange(n_classes)).double()
    H = moves @ moves.T
    torch.testing.assert_close(method.confuse.penalty(c), torch.einsum("lm,mn,ln->l", c, H, c))
    torch.testing.assert_close(basis_penalty(c, penalty_form(method.confuse.basis).double()), method.confuse.penalty(c))


@pytest.mark.parametrize("changes", [{}, {"confusions": "full"}, {"weights": "uniform"}, {"n_bases": 1}])
def test_gradients_of_the_loss_by_gradcheck(changes: dict[str, Any]) -> None:
    shape = (4, 3, 3)
    data, _ = crowd(shape)
    method, batch = fusion(shape, **changes), whole_batch(data)
    h = method.features(batch.x).detach().requires_grad_()
    parameters = [p for name, p in method.named_parameters() if not name.startswith("trunk")]
    assert torch.autograd.gradcheck(lambda h, *_: method.crowd_loss(h, batch).total, (h, *parameters))


def test_gradients_flow_into_both_sides_of_the_kl_divergence() -> None:
    shape = (7, 3, 3)
    method = fusion(shape, penalty=0.0)
    method.loss(whole_batch(crowd(shape)[0])).total.backward()
    without = [name for name, p in method.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


def test_gradients_are_finite_where_the_fused_label_is_0() -> None:
    shape = (7, 3, 6)
    data, _ = crowd(shape)
    method, batch = fusion(shape, n_bases=2), whole_batch(data)  # two permutations cannot reach all six classes
    h = method.features(batch.x)
    assert (method.fused(h, batch.item, batch.annotator, batch.label) == 0).any()
    loss = method.loss(batch).total
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())
    target = torch.tensor([[1.0, 0.0]], requires_grad=True)
    kl_divergence(target, torch.tensor([[0.5, 0.5]]).log()).sum().backward()
    assert target.grad is not None
    assert target.grad[0, 1] == 0


def test_one_basis_is_the_weights_only_ablation() -> None:
    shape = (7, 3, 3)
    data, Y = crowd(shape)
    method, batch = fusion(shape, n_bases=1), whole_batch(data)
    h = method.features(batch.x)
    matrices = method.confusions(h, batch.item, batch.annotator)
    assert torch.equal(matrices, torch.eye(3, dtype=torch.float64).expand_as(matrices))
    assert not any(name.startswith("confuse") for name, _ in method.named_parameters())
    fused = method.fused(h, batch.item, batch.annotator, batch.label).detach().numpy()
    for row in range(len(Y)):  # mass only on classes that somebody chose
        assert set(np.flatnonzero(fused[row])) == set(Y[row][Y[row] >= 0])


def test_uniform_weights_are_the_confusions_only_ablation() -> None:
    shape = (7, 3, 3)
    data, Y = crowd(shape)
    method, batch = fusion(shape, weights="uniform"), whole_batch(data)
    h = method.features(batch.x)
    assert method.weigh is None
    assert torch.equal(method.weight_logits(h, batch.item, batch.annotator), torch.zeros(len(batch.item)).double())
    _, P = dense_parts(method, h)
    fused = method.fused(h, batch.item, batch.annotator, batch.label)
    for row in range(len(Y)):
        columns = [P[row, r, :, Y[row, r]] for r in range(3) if Y[row, r] >= 0]
        expected = torch.stack(columns).mean(0) if columns else torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(fused[row], expected)


def test_one_basis_and_uniform_weights_fuse_to_the_vote_shares() -> None:
    shape = (7, 3, 3)
    data, _ = crowd(shape)
    method, batch = fusion(shape, n_bases=1, weights="uniform"), whole_batch(data)
    fused = method.fused(method.features(batch.x), batch.item, batch.annotator, batch.label)
    np.testing.assert_allclose(fused, np.nan_to_num(data.annotations.vote_shares()))


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_papers_loss_scale_is_the_plain_loss_divided_by_k(shape: Shape, with_gold: bool) -> None:
    gold = np.where(np.arange(shape[0]) % 2 == 0, 0, -1) if with_gold else None
    batch = whole_batch(crowd(shape, gold)[0])
    plain, paper = (fusion(shape, loss_scale=scale).loss(batch) for scale in ("plain", "paper"))
    torch.testing.assert_close(paper.total, plain.total / shape[2])
    torch.testing.assert_close(paper.weight, plain.weight)


def test_items_with_gold_train_the_classifier_and_the_fused_label() -> None:
    shape = (7, 3, 3)
    gold = np.array([2, -1, 1, -1, 0, -1, 1])
    data, Y = crowd(shape, gold)
    method, batch = fusion(shape), whole_batch(data)
    h = method.features(batch.x)
    t, penalties = dense_fused(method, h, Y)
    log_f = method.class_logits(h).log_softmax(1)
    known = batch.gold >= 0
    expected = torch.tensor(0.0, dtype=torch.float64)
    for row in np.flatnonzero(gold >= 0):
        fused = -t[row, gold[row]].clamp(min=1e-6).log() if (Y[row] >= 0).any() else 0
        expected = expected + batch.weight[row] * (fused - log_f[row, gold[row]] + 0.7 * penalties[row])
    losses = method.gold_losses(h[known], batch.select(known))
    torch.testing.assert_close((batch.weight[known] * losses).sum(), expected)


@pytest.mark.parametrize("kind", ["random", "latin"])
@pytest.mark.parametrize(("n_classes", "n_bases"), [(2, 1), (2, 5), (3, 4), (3, 100), (4, 24), (7, 20), (12, 30)])
def test_the_basis_is_distinct_permutations_with_the_identity_first(n_classes: int, n_bases: int, kind: Any) -> None:
    method = fusion((4, 2, n_classes), n_bases=n_bases, basis=kind)
    assert isinstance(method.confuse, BasisConfusions)
    basis = method.confuse.basis
    assert basis.shape == (min(n_bases, math.factorial(n_classes)), n_classes)
    assert torch.equal(basis[0], torch.arange(n_classes))
    assert len(basis.unique(dim=0)) == len(basis)
    assert torch.equal(basis.sort(1).values, torch.arange(n_classes).expand_as(basis))
    assert torch.equal(basis, permutation_basis(n_classes, n_bases, kind, seed=0))


@pytest.mark.parametrize(("n_classes", "n_bases"), [(3, 3), (4, 9), (10, 10), (10, 20)])
def test_the_latin_basis_reaches_every_class_from_every_label(n_classes: int, n_bases: int) -> None:
    method = fusion((4, 2, n_classes), n_bases=n_bases, basis="latin")
    assert isinstance(method.confuse, BasisConfusions)
    matrices = method.confuse.dense(torch.full((1, n_bases), 1 / n_bases, dtype=torch.float64))
    assert (matrices > 0).all()


def test_the_basis_is_saved_with_the_model() -> None:
    assert {"confuse.basis", "confuse.form"} <= set(fusion((4, 2, 3)).state_dict())
