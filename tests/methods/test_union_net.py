"""UnionNet: its loss against the dense definition, and recovery of the true class probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse import CrowdLayerClassifier, MajorityVoteClassifier, UnionNetClassifier
from crowdfuse.methods.union_net import UnionNet, segment_logsumexp
from tests.methods.test_crowd_layer import SHAPES, generated, stirred
from tests.methods.test_known_answers import K, ask, blobs
from tests.methods.test_methods import spec

VARIANTS: Any = ["a", "b"]


def union_written_out(method: UnionNet, f: Tensor, who: list[int]) -> Tensor:
    """Return u[r, y] (len(who), K) for class probabilities f (K,), by one matrix over all annotators' labels."""
    side_by_side = torch.cat([method.transition[r] for r in who], 1)  # (K, S K)
    if method.variant == "a":
        return (f @ side_by_side).softmax(0).view(len(who), -1)
    return (f @ side_by_side.softmax(1)).view(len(who), -1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_its_definition_written_out(variant: Any, shape: tuple[int, int, int]) -> None:
    spec, data, said = generated(*shape)
    method = stirred(UnionNet(spec, variant=variant))
    f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(shape[0])))).softmax(1)
    expected = torch.tensor(0.0)
    for n in range(shape[0]):
        who = np.flatnonzero(said[n] >= 0).tolist()
        if who:
            u = union_written_out(method, f[n], who)
            expected = expected - float(data.weight[n]) * u[torch.arange(len(who)), said[n, who]].log().sum()
    rows = np.random.default_rng(0).permutation(shape[0])
    total, weight = method.loss(data.batch(rows))
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(weight, torch.tensor(data.weight[(said >= 0).any(1)].sum()))
    names = [name for name, _ in method.named_parameters()]
    written = torch.autograd.grad(expected, list(method.parameters()))
    total.backward()
    for name, gradient in zip(names, written, strict=True):
        found = method.get_parameter(name).grad
        assert found.is_sparse == (shape[1] > 100 and name == "transition")
        torch.testing.assert_close(found.to_dense(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_stays_finite_where_probabilities_underflow(variant: Any) -> None:
    spec, data, _ = generated(17, 5, 3)
    method = stirred(UnionNet(spec, variant=variant))
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.mul_(1e3)
    batch = data.batch(np.arange(17))
    assert (method.logits(batch.x).softmax(1) == 0).any()
    total, _ = method.loss(batch)
    total.backward()
    assert total.isfinite()
    assert all(p.grad.isfinite().all() for p in method.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_gold_trains_the_annotator_model(variant: Any) -> None:
    spec, data, said = generated(17, 5, 3)
    method = stirred(UnionNet(spec, variant=variant))
    gold = np.random.default_rng(3).integers(0, 3, 17)
    total, weight = method.loss(replace(data, gold=gold).batch(np.arange(17)))
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.arange(17))))
    expected = torch.tensor(0.0)
    for n in range(17):
        loss = cross_entropy(logits[n], torch.tensor(gold[n]))
        who = np.flatnonzero(said[n] >= 0).tolist()
        if who:
            u = union_written_out(method, torch.eye(3)[gold[n]], who)
            loss = loss - u[torch.arange(len(who)), said[n, who]].log().sum()
        expected = expected + float(data.weight[n]) * loss
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(weight, torch.tensor(data.weight.sum()))


def test_matrices_are_the_annotators_part_of_the_union() -> None:
    method = stirred(UnionNet(spec(), variant="b"))
    shown = method.log_confusions(torch.tensor([2, 0])).exp()
    for place, r in enumerate([2, 0]):
        for k in range(3):
            u = union_written_out(method, torch.eye(3)[k], [0, 1, 2])[r]
            torch.testing.assert_close(shown[place, k], u / u.sum())


@pytest.mark.parametrize("more", [(), (2,)])
def test_segment_logsumexp_is_logsumexp_per_item(more: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(7, *more, generator=generator, dtype=torch.float64, requires_grad=True)
    item = torch.tensor([0, 3, 0, 1, 3, 3, 0])
    found = segment_logsumexp(values, item, 5)
    for n in (0, 1, 3):
        torch.testing.assert_close(found[n], values[item == n].logsumexp(0))
    assert not found[[2, 4]].any()
    assert torch.autograd.gradcheck(lambda v: segment_logsumexp(v, item, 5), (values,))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="variant must be one of a, b, got 'c'"):
        UnionNetClassifier(variant="c").fit(np.zeros((2, 1)), [[0], [1]])  # type: ignore[arg-type]  # that is the test


def expert(*classes: int) -> NDArray[Any]:
    """Return the confusion matrix of an annotator who is right on these classes and guesses on the others."""
    right = np.full(K, 1 / K)
    right[list(classes)] = 0.97
    return np.where(np.eye(K, dtype=bool), right[:, None], (1 - right[:, None]) / (K - 1))


PLANTED = np.stack(
    [expert(0, 1), expert(1, 2), expert(2, 3), expert(3, 0), 0.9 * np.eye(K)[[1, 2, 3, 0]] + 0.025]  # an adversary
)


def far(clf: Any, X: NDArray[Any], spread: float) -> float:
    """Return the mean total variation distance between predicted and true class probabilities."""
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    likely = np.exp(-((X[:, None] - corners) ** 2).sum(2) / (2 * spread**2))
    truth = likely / likely.sum(1, keepdims=True)
    return float(np.abs(clf.predict_proba(X) - truth).sum(1).mean() / 2)


def test_experts_of_different_classes_recover_the_true_probabilities() -> None:
    """The paper's claim: the method is consistent, although no single annotator knows all classes.

    One layer per annotator followed by a softmax finds the classes too, but not their probabilities; nor does a vote.
    """
    X, truth = blobs(5000, 0.8, seed=1)
    X_test, truth_test = blobs(4000, 0.8, seed=11)
    Y = ask(truth, PLANTED, missing=0.3, seed=1)
    settings: dict[str, Any] = {"backbone": "identity", "head_hidden": (), "batch_size": 200, "epochs": 18}
    settings |= {"learning_rate": 0.05}
    clf = UnionNetClassifier(**settings).fit(X, Y)
    assert far(clf, X_test, 0.8) < 0.025
    assert np.abs(clf.confusion_matrices_ - PLANTED).mean() < 0.015
    assert clf.score(X_test, truth_test) > 0.785  # the Bayes classifier has 79.3 %

    layers = CrowdLayerClassifier(**settings).fit(X, Y)
    assert far(layers, X_test, 0.8) > 0.04
    vote = MajorityVoteClassifier(**settings).fit(X, Y)
    assert far(vote, X_test, 0.8) > 0.4
    assert vote.score(X_test, truth_test) < 0.77
