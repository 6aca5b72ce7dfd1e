"""Crowd layer: its loss against the definition, its matrices, and recovery of planted biases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse import CrowdLayerClassifier, MajorityVoteClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.base import ModelSpec
from crowdfuse.methods.crowd_layer import CrowdLayer, times_matrices
from crowdfuse.methods.data import TrainingData
from tests.methods.test_known_answers import FAST, K, ask, blobs, one_coin
from tests.methods.test_methods import spec

LAYERS: Any = ["matrix", "vector", "bias", "vector+bias"]
SHAPES = [(9, 2, 2), (17, 5, 3), (12, 3, 7), (10, 130, 3)]  # items, annotators, classes; 130: gradients are sparse


def generated(n_items: int, n_annotators: int, n_classes: int) -> tuple[ModelSpec, TrainingData, NDArray[Any]]:
    """A spec, data with uneven weights and many labels missing, and the labels as a matrix, -1 where missing."""
    generator = np.random.default_rng(n_items)
    X = generator.normal(size=(n_items, 4)).astype(np.float32)
    said = generator.integers(0, n_classes, (n_items, n_annotators))
    said[generator.random(said.shape) < generator.random((n_items, 1))] = -1
    said[0], said[1, 0] = -1, 0  # item 0 has no label, item 1 at least one
    ann = Annotations.from_matrix(said, classes=list(range(n_classes)), annotators=list(range(n_annotators)))
    data = TrainingData(Inputs(X), ann, np.full(n_items, -1), generator.random(n_items).astype(np.float32) + 0.5)
    return replace(spec(n_classes), n_annotators=n_annotators), data, said


def stirred(method: Any) -> Any:
    """Return the method with different parameters for each annotator."""
    torch.manual_seed(1)
    for name, parameter in method.named_parameters():
        if not name.startswith(("trunk", "classify")):
            torch.nn.init.normal_(parameter)
    return method


def layer_written_out(method: CrowdLayer, f: Tensor, r: int) -> Tensor:
    if "matrix" in method.tables:
        return f @ method.matrix[r]
    w = method.vector[r] if "vector" in method.tables else torch.ones(method.n_classes)
    b = method.bias[r] if "bias" in method.tables else torch.zeros(method.n_classes)
    return w * f + b


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_loss_is_its_definition_written_out(layer: Any, shape: tuple[int, int, int]) -> None:
    spec, data, said = generated(*shape)
    method = stirred(CrowdLayer(spec, layer=layer))
    f = method.logits(torch.from_numpy(data.inputs.rows(np.arange(shape[0])))).softmax(1)
    expected = torch.tensor(0.0)
    for n, r in zip(*np.nonzero(said >= 0), strict=True):
        loss = cross_entropy(layer_written_out(method, f[n], r), torch.tensor(said[n, r]))
        expected = expected + float(data.weight[n]) * loss
    rows = np.random.default_rng(0).permutation(shape[0])
    total, weight = method.loss(data.batch(rows))
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(weight, torch.tensor(data.weight[(said >= 0).any(1)].sum()))
    names = [name for name, _ in method.named_parameters()]
    written = torch.autograd.grad(expected, list(method.parameters()))
    total.backward()
    for name, gradient in zip(names, written, strict=True):
        found = method.get_parameter(name).grad
        assert found.is_sparse == (shape[1] > 100 and name in method.tables)
        torch.testing.assert_close(found.to_dense(), gradient)


@pytest.mark.parametrize("layer", LAYERS)
def test_it_starts_as_the_identity(layer: Any) -> None:
    method = CrowdLayer(spec(), layer=layer)
    f = torch.rand(3, 3).softmax(1)
    assert torch.equal(method.label_logits(f, torch.arange(3), torch.arange(3)), f)
    right = np.e / (np.e + 2)
    expected = torch.full((3, 3, 3), (1 - right) / 2).masked_fill(torch.eye(3, dtype=torch.bool), right)
    torch.testing.assert_close(method.log_confusions(torch.arange(3)).exp(), expected)


@pytest.mark.parametrize("layer", LAYERS)
def test_matrices_are_label_distributions_given_a_certain_class(layer: Any) -> None:
    method = stirred(CrowdLayer(spec(), layer=layer))
    shown = method.log_confusions(torch.tensor([2, 0])).exp()
    for place, r in enumerate([2, 0]):
        for k in range(3):
            torch.testing.assert_close(shown[place, k], layer_written_out(method, torch.eye(3)[k], r).softmax(0))


@pytest.mark.parametrize("layer", LAYERS)
def test_gold_trains_the_annotator_model(layer: Any) -> None:
    spec, data, said = generated(17, 5, 3)
    method = stirred(CrowdLayer(spec, layer=layer))
    gold = np.random.default_rng(3).integers(0, 3, 17)
    total, weight = method.loss(replace(data, gold=gold).batch(np.arange(17)))
    logits = method.logits(torch.from_numpy(data.inputs.rows(np.arange(17))))
    expected = torch.tensor(0.0)
    for n in range(17):
        loss = cross_entropy(logits[n], torch.tensor(gold[n]))
        for r in np.flatnonzero(said[n] >= 0).tolist():
            certain = layer_written_out(method, torch.eye(3)[gold[n]], r)
            loss = loss + cross_entropy(certain, torch.tensor(said[n, r]))
        expected = expected + float(data.weight[n]) * loss
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(weight, torch.tensor(data.weight.sum()))


@pytest.mark.parametrize("n_labels", [1, 40])
def test_products_per_pair_equal_the_dense_product(n_labels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    f = torch.rand(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    W = torch.rand(5, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    item, annotator = torch.arange(n_labels) % 6, torch.arange(n_labels) % 5
    expected = torch.stack([f[n] @ W[r] for n, r in zip(item, annotator, strict=True)])
    torch.testing.assert_close(times_matrices(f, W, item, annotator), expected)
    assert torch.autograd.gradcheck(lambda f, W: times_matrices(f, W, item, annotator), (f, W))


def test_new_annotators_have_the_mean_layer() -> None:
    method = stirred(CrowdLayer(spec(), layer="vector+bias"))
    means = method.vector.mean(0), method.bias.mean(0)
    method.add_annotators(2)
    assert method.n_annotators == 5
    for table, mean in zip((method.vector, method.bias), means, strict=True):
        torch.testing.assert_close(table[3:], mean.expand(2, -1))


def test_an_unknown_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="layer must be one of matrix, vector, bias, vector\\+bias, got 'MW'"):
        CrowdLayerClassifier(layer="MW").fit(np.zeros((2, 1)), [[0], [1]])  # type: ignore[arg-type]  # that is the test


CALLS_2_A_3 = 0.9 * np.eye(K)[[0, 1, 3, 3]] + 0.025
ADVERSARY = 0.9 * np.eye(K)[[1, 2, 3, 0]] + 0.025


def test_planted_annotator_biases_are_recovered() -> None:
    """The paper's claim. One annotator labels class 2 as 3, another gives the next class; the vote confuses 2 and 3."""
    X, truth = blobs(2000, 0.5, seed=1)
    X_test, truth_test = blobs(4000, 0.5, seed=11)
    planted = np.concatenate([one_coin(0.6, 0.65, 0.7), CALLS_2_A_3[None], ADVERSARY[None]])
    Y = ask(truth, planted, missing=0.3, seed=1)
    settings: dict[str, Any] = FAST | {"epochs": 15, "batch_size": 128, "learning_rate": 0.02, "random_state": 1}
    clf = CrowdLayerClassifier(**settings).fit(X, Y)
    assert clf.confusion_matrices_.argmax(2).tolist() == planted.argmax(2).tolist()
    np.testing.assert_allclose(clf.confusion_matrices_.sum(2), 1, atol=1e-5)
    assert clf.confusion_given_ == "true"
    assert clf.score(X_test, truth_test) > 0.94  # the Bayes classifier has 95.5 %
    vote = MajorityVoteClassifier(**settings).fit(X, Y)
    assert vote.score(X_test, truth_test) < 0.8
    labelled = (Y >= 0).any(1)
    assert (clf.fused_labels(X, Y).argmax(1) == truth)[labelled].mean() > 0.97
