"""GeoCrowdNet: the loss against its definition, finite volumes, and matrices found only with a volume term."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from crowdfuse import Annotations, GeoCrowdNetClassifier
from crowdfuse.methods.geo_crowd_net import GeoCrowdNet, log_volume
from tests.methods.test_known_answers import ask, blobs, one_coin
from tests.methods.uneven import SHAPES, crowd, spec
from tests.training.test_loop import SETTINGS, assert_resumes

REGULARIZERS: list[Literal["f", "w"]] = ["f", "w"]


def method(shape: tuple[int, int, int], regularizer: Literal["f", "w"] = "f") -> GeoCrowdNet:
    made = GeoCrowdNet(spec(*shape[1:]), regularizer=regularizer, volume_weight=0.7, start=0.8).double()
    torch.nn.init.normal_(made.confusion_logits)
    return made


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_is_its_definition_written_out(shape: tuple[int, int, int], regularizer: Literal["f", "w"]) -> None:
    made = method(shape, regularizer)
    data, Y = crowd(shape)
    order = np.random.default_rng(0).permutation(shape[0])
    batch = data.batch(order)
    total, count = made.loss(batch._replace(x=batch.x.double(), weight=batch.weight.double()))
    f = made.logits(torch.from_numpy(data.inputs.rows(np.arange(shape[0]))).double()).softmax(1)
    A = made.confusion_logits.softmax(2)
    K = shape[2]
    loss, of_items, of_annotators = torch.tensor(0.0).double(), torch.zeros(K, K), torch.zeros(K, K)
    weight = labels = 0.0
    for n in range(shape[0]):
        w = float(data.weight[n])
        if (Y[n] >= 0).any():
            of_items = of_items + w * torch.outer(f[n], f[n])
            weight += w
        for r in range(shape[1]):
            if Y[n, r] >= 0:
                loss = loss - w * (f[n] @ A[r])[Y[n, r]].log()
                of_annotators = of_annotators + w * A[r] @ A[r].T
                labels += w
    gram = K * of_items / weight if regularizer == "f" else of_annotators / labels
    volume = torch.logdet(gram + 1e-3 * torch.eye(K))
    torch.testing.assert_close(total, loss - 0.7 * weight * volume)  # the mean over items includes the volume once
    assert count.item() == pytest.approx(weight)


def test_with_complete_labels_the_volume_is_the_papers_up_to_a_constant() -> None:
    A = torch.rand(3, 4, 4).double().softmax(2)
    stacked = A.transpose(1, 2).flatten(0, 1)  # the paper's W: labels by true classes, annotators stacked
    ours = log_volume(stacked, torch.ones(12).double())
    torch.testing.assert_close(ours, torch.logdet(stacked.T @ stacked / 3), rtol=0.05, atol=0.05)


def test_volumes_have_the_right_gradients() -> None:
    rows = torch.rand(5, 3, dtype=torch.float64).requires_grad_()
    weight = torch.rand(5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: log_volume(x, weight), (rows,))
    assert torch.autograd.gradcheck(lambda x: log_volume(x, weight[:2]), (rows[:2].detach().requires_grad_(),))


@pytest.mark.parametrize("n_items", [0, 1, 2, 50])
def test_volumes_of_flat_matrices_are_finite(n_items: int) -> None:
    rows = torch.full((n_items, 20), 0.05).requires_grad_()
    volume = log_volume(rows, torch.ones(n_items))
    volume.backward()
    assert volume.isfinite()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_the_volume_is_largest_for_certain_balanced_classes() -> None:
    even, uneven = torch.eye(3), torch.eye(3)[[0, 0, 0, 1, 2]]
    unsure = 0.8 * even + 0.2 / 3
    volumes = [log_volume(rows, torch.ones(len(rows))).item() for rows in (even, uneven, unsure)]
    assert volumes[0] == pytest.approx(0, abs=0.01)
    assert max(volumes[1:]) < -0.1
    assert log_volume(even, torch.ones(3)).item() == pytest.approx(log_volume(even.repeat(9, 1), torch.ones(27)).item())


def test_a_step_changes_only_the_annotators_of_its_batch() -> None:
    shape = (3, 500, 3)
    data, Y = crowd(shape)
    for regularizer in REGULARIZERS:
        made = method(shape, regularizer).float()
        made.loss(data.batch(np.array([0]))).total.backward()
        gradient = made.confusion_logits.grad
        assert gradient is not None
        assert gradient.is_sparse
        assert gradient.coalesce().indices()[0].tolist() == np.flatnonzero(Y[0] >= 0).tolist()


def test_gold_trains_classifier_and_annotator_model() -> None:
    shape = (7, 3, 3)
    gold = np.array([0, 2, -1, 1, 1, -1, -1])
    made = method(shape)
    data, Y = crowd(shape, gold)
    whole = data.batch(np.arange(7))
    whole = whole._replace(x=whole.x.double(), weight=whole.weight.double())
    total, count = made.loss(whole)
    rest, rest_count = made.loss(whole.select(torch.from_numpy(gold < 0)))
    A = made.confusion_logits.log_softmax(2)
    for n in np.flatnonzero(gold >= 0):
        certain = cross_entropy(made.logits(whole.x[n][None]), torch.tensor([gold[n]]))
        told = sum(A[r, gold[n], Y[n, r]] for r in range(3) if Y[n, r] >= 0)
        rest = rest + float(data.weight[n]) * (certain - told)
        rest_count = rest_count + float(data.weight[n])
    torch.testing.assert_close(total, rest)
    torch.testing.assert_close(count, rest_count)


def test_label_probabilities_and_fused_labels_come_from_the_matrices() -> None:
    shape = (7, 3, 3)
    made = method(shape)
    data, Y = crowd(shape)
    batch = data.batch(np.arange(7))
    h = made.features(batch.x.double())
    evidence = made.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
    fused = made.fused(h, batch.item, batch.annotator, batch.label)
    A = made.confusion_logits.softmax(2)
    torch.testing.assert_close(evidence.exp(), A[batch.annotator, :, batch.label])
    for n in range(7):
        q = made.class_logits(h)[n].softmax(0)
        for r in range(3):
            if Y[n, r] >= 0:
                q = q * A[r, :, Y[n, r]]
        torch.testing.assert_close(fused[n], q / q.sum() if (Y[n] >= 0).any() else torch.zeros(3).double())


def test_start_sets_the_initial_accuracy() -> None:
    made = GeoCrowdNet(spec(2, 3), regularizer="f", volume_weight=0.1, start=0.8)
    torch.testing.assert_close(made.confusion_logits.softmax(2), torch.full((2, 3, 3), 0.1) + 0.7 * torch.eye(3))


# ---- claims of the paper -------------------------------------------------------------------------

FAST: dict[str, Any] = {"batch_size": 200, "learning_rate": 0.05, "epochs": 10, "hidden": (32,)}


def diagonals(regularizer: Literal["f", "w"], volume_weight: float, X: Any, Y: Any, start: float) -> NDArray[Any]:
    clf = GeoCrowdNetClassifier(**FAST, regularizer=regularizer, volume_weight=volume_weight, start=start).fit(X, Y)
    found: NDArray[Any] = clf.confusion_matrices_.diagonal(axis1=1, axis2=2)
    return found


def test_bad_annotators_of_certain_items_are_found_only_with_the_volume_of_the_items() -> None:
    """All are right on 60 % of the items; better annotators of less certain items would explain that too."""
    X, truth = blobs(2000, 0.25, seed=0)
    Y = ask(truth, one_coin(0.6, 0.6, 0.6), missing=0.2, seed=1)
    assert np.abs(diagonals("f", 0.03, X, Y, start=0.9) - 0.6).max() < 0.1
    assert diagonals("f", 0.0, X, Y, start=0.9).mean() > 0.66


def test_experts_of_uncertain_items_are_found_only_with_the_volume_of_the_matrices() -> None:
    """All are right and items are uncertain; worse annotators of more certain items would explain that too."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2000, 2))
    f = np.exp(0.4 * np.column_stack([X, -X]))
    below = (f / f.sum(1, keepdims=True)).cumsum(1)[:, None, :-1]
    Y = (generator.random((2000, 3, 1)) > below).sum(2)
    Y[generator.random(Y.shape) < 0.2] = -1
    assert diagonals("w", 0.1, X, Y, start=0.7).min() > 0.9
    assert diagonals("w", 0.0, X, Y, start=0.7).mean() < 0.75


# ---- as an estimator -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"regularizer": "F"}, "regularizer"),
        ({"volume_weight": -1}, "volume_weight must be a number of at least 0"),
        ({"start": 1.0}, "start must be above 0 and below 1"),
        ({"start": 0.4}, "start must be above chance, which is 0.5 with 2 classes, got 0.4"),
    ],
)
def test_invalid_settings_are_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GeoCrowdNetClassifier(**setting).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_it_trains_in_mixed_precision_on_batches_smaller_than_the_classes(regularizer: Literal["f", "w"]) -> None:
    X, truth = np.eye(8).repeat(4, 0), np.arange(8).repeat(4)
    clf = GeoCrowdNetClassifier(epochs=2, batch_size=3, precision="bf16-mixed", regularizer=regularizer)
    clf.fit(X, truth[:, None].repeat(2, 1))
    assert np.isfinite([record["loss"] for record in clf.history_]).all()


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_a_stopped_training_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regularizer: Literal["f", "w"]
) -> None:
    data, Y = crowd((90, 4, 3))
    given = (data.inputs.rows(np.arange(90)), np.zeros(90, int), Annotations.from_matrix(Y))
    make = partial(GeoCrowdNetClassifier, **SETTINGS, regularizer=regularizer)
    assert_resumes(make, given, tmp_path, monkeypatch, stop_after=9)


def test_more_labels_elsewhere_do_not_change_a_batch() -> None:
    """Rows outside the batch do not enter the volume of its loss."""
    shape = (7, 3, 3)
    data, _ = crowd(shape)
    made = method(shape).float()
    part = replace(data, annotations=data.annotations[np.arange(3)], inputs=data.inputs.take(np.arange(3)))
    torch.testing.assert_close(made.loss(data.batch(np.arange(3))).total, made.loss(part.batch(np.arange(3))).total)
