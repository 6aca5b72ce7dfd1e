"""CoNAL: its loss against the definition, its matrices, and separation of common and individual noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from crowdfuse import CoNALClassifier, CrowdLayerClassifier
from crowdfuse.methods.conal import CoNAL
from tests.methods.test_crowd_layer import SHAPES, generated, stirred
from tests.methods.test_known_answers import K, ask, blobs


def conal(spec: Any, separation: float = 0.3) -> CoNAL:
    method: CoNAL = stirred(CoNAL(spec, separation=separation, embedding=6))
    return method


def share_written_out(method: CoNAL, h: Tensor, r: int) -> Tensor:
    u, v = method.of_annotator[r], method.of_item(h)
    return torch.sigmoid(u @ v / (u.square().sum() * v.square().sum()).sqrt())


def matrix_written_out(method: CoNAL, h: Tensor, r: int) -> Tensor:
    share = share_written_out(method, h, r)
    return share * method.common + (1 - share) * method.individual[r]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_its_definition_written_out(shape: tuple[int, int, int]) -> None:
    spec, data, said = generated(*shape)
    method = conal(spec)
    h = method.features(torch.from_numpy(data.inputs.rows(np.arange(shape[0]))))
    f = method.class_logits(h).softmax(1)
    expected = torch.tensor(0.0)
    for n, r in zip(*np.nonzero(said >= 0), strict=True):
        loss = cross_entropy(f[n] @ matrix_written_out(method, h[n], r), torch.tensor(said[n, r]))
        apart = (method.common - method.individual[r]).square().sum().sqrt()
        expected = expected + float(data.weight[n]) * (loss - 0.3 * apart)
    rows = np.random.default_rng(0).permutation(shape[0])
    total, weight = method.loss(data.batch(rows))
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(weight, torch.tensor(data.weight[(said >= 0).any(1)].sum()))
    names = [name for name, _ in method.named_parameters()]
    written = torch.autograd.grad(expected, list(method.parameters()))
    total.backward()
    for name, gradient in zip(names, written, strict=True):
        found = method.get_parameter(name).grad
        assert found is not None
        assert found.is_sparse == (shape[1] > 100 and name in ("individual", "of_annotator"))
        torch.testing.assert_close(found.to_dense(), gradient, rtol=1e-4, atol=1e-5)


def test_the_first_step_is_finite_although_all_matrices_start_alike() -> None:
    spec, data, _ = generated(17, 5, 3)
    method = CoNAL(spec, separation=0.3, embedding=6)
    assert torch.equal(method.individual - method.common, torch.zeros(5, 3, 3))
    method.loss(data.batch(np.arange(17))).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())


def test_gold_trains_the_annotator_model() -> None:
    spec, data, said = generated(17, 5, 3)
    method = conal(spec)
    gold = np.random.default_rng(3).integers(0, 3, 17)
    total, weight = method.loss(replace(data, gold=gold).batch(np.arange(17)))
    h = method.features(torch.from_numpy(data.inputs.rows(np.arange(17))))
    expected = torch.tensor(0.0)
    for n in range(17):
        loss = cross_entropy(method.class_logits(h)[n], torch.tensor(gold[n]))
        for r in np.flatnonzero(said[n] >= 0).tolist():
            loss = loss + cross_entropy(matrix_written_out(method, h[n], r)[gold[n]], torch.tensor(said[n, r]))
        expected = expected + float(data.weight[n]) * loss
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(weight, torch.tensor(data.weight.sum()))


def test_matrices_and_fused_labels_are_those_of_each_pair() -> None:
    spec, data, said = generated(12, 3, 7)
    method = conal(spec)
    batch = data.batch(np.arange(12))
    h = method.features(batch.x)
    shown = method.confusions(h, batch.item, batch.annotator)
    shares = method.common_shares(h, batch.item, batch.annotator)
    q = method.class_logits(h).softmax(1)
    for i, (n, r, y) in enumerate(zip(batch.item.tolist(), batch.annotator.tolist(), batch.label, strict=True)):
        torch.testing.assert_close(shown[i], matrix_written_out(method, h[n], r).softmax(1))
        torch.testing.assert_close(shares[i], share_written_out(method, h[n], r))
        q = torch.where(torch.arange(12)[:, None] == n, q * shown[i, :, y], q)
    expected = q / q.sum(1, keepdim=True) * torch.from_numpy((said >= 0).any(1))[:, None]
    torch.testing.assert_close(method.fused(h, batch.item, batch.annotator, batch.label), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"separation": -1}, "separation must be a number of at least 0, got -1"),
        ({"embedding": 0}, "embedding must be a whole number of at least 1, got 0"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CoNALClassifier(**settings).fit(np.zeros((2, 1)), [[0], [1]])


OWN = [(1, 2), (2, 3), (3, 0), (1, 3), (2, 0), (3, 1)]  # (true, label) confused by each annotator, and (0, 1) by all


def planted() -> NDArray[Any]:
    A = np.tile(0.02 + 0.92 * np.eye(K), (len(OWN), 1, 1))
    for r, confused in enumerate(OWN):
        for true, said in [(0, 1), confused]:
            A[r, true, true] -= 0.4
            A[r, true, said] += 0.4
    return A


def excess(matrix: NDArray[Any], true: int, said: int) -> float:
    """Return the log-probability of this confusion minus the mean of the other confusions of the class."""
    others = [y for y in range(K) if y not in (true, said)]
    return float(np.log(matrix[true, said]) - np.log(matrix[true, others]).mean())


def test_common_and_individual_noise_are_separated() -> None:
    """The paper's claim. With one layer per annotator only, the common confusion would be in every matrix."""
    X, truth = blobs(1500, 0.5, seed=0)
    X_test, truth_test = blobs(4000, 0.5, seed=10)
    Y = ask(truth, planted(), missing=0.3, seed=0)
    settings: dict[str, Any] = {"batch_size": 128, "epochs": 15, "learning_rate": 0.02}
    clf = CoNALClassifier(**settings, separation=0.01).fit(X, Y)
    assert clf.score(X_test, truth_test) > 0.94  # the Bayes classifier has 95.5 %
    common, each = clf.common_confusion_, clf.individual_confusions_
    assert excess(common, 0, 1) > 2
    assert np.mean([excess(common, *own) for own in OWN]) < 1
    assert min(excess(matrix, *own) for matrix, own in zip(each, OWN, strict=True)) > 2
    assert np.mean([excess(matrix, 0, 1) for matrix in each]) < 1

    alone = CrowdLayerClassifier(**settings).fit(X, Y).confusion_matrices_
    assert min(excess(matrix, 0, 1) for matrix in alone) > 1.8
    both = [(excess(matrix, *own), excess(matrix, 0, 1)) for matrix, own in zip(alone, OWN, strict=True)]
    assert abs(np.mean([own - shared for own, shared in both])) < 0.5  # individual and common part are of the same size

    share = clf.common_share(X)  # noise is common on items of class 0, individual on others
    assert share[truth == 0].mean() > 0.55 > 0.45 > share[truth != 0].mean()
    assert 0.26 < share.min() <= share.max() < 0.74
    assert clf.confusion_given_ == "true"
    together = clf.confusion_matrices(X[truth == 0])
    np.testing.assert_allclose(together.sum(3), 1, atol=1e-5)
    assert min(excess(matrix, 0, 1) for matrix in together.mean(0)) > 1.5
