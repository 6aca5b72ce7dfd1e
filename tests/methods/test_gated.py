"""Losses, tables and class rules of the gated method, each against its definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse import GatedClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import ValidationScore
from crowdfuse.methods import label_poll
from crowdfuse.methods.base import ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.gated import Gated
from crowdfuse.methods.wrong_labels import (
    BasisWrongLabels,
    PerAnnotatorWrongLabels,
    SharedWrongLabels,
    UniformWrongLabels,
    WrongLabels,
)
from crowdfuse.nets import make_trunk

WRONG: dict[str, Callable[[int, int], WrongLabels]] = {
    "uniform": UniformWrongLabels,
    "shared": lambda k, r: SharedWrongLabels(k),
    "annotator": PerAnnotatorWrongLabels,
    "basis": lambda k, r: BasisWrongLabels(k, r, 3, seed=0),
}


@pytest.fixture(autouse=True)
def _in_double_precision() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make(
    wrong: str, n_classes: int, n_annotators: int, heads: Literal["shared", "embedded"] = "shared", seed: int = 0
) -> Gated:
    torch.manual_seed(seed)
    trunk = make_trunk("mlp", (4,), (8,), 0.0)
    spec = ModelSpec(trunk, None, None, n_classes, n_annotators, head_hidden=(5,), dropout=0.0, seed=seed)
    method = Gated(spec, heads=heads, embedding=3, wrong=WRONG[wrong](n_classes, n_annotators))
    with torch.no_grad():
        for parameter in method.parameters():  # so that no table is uniform, no embedding 0, no gate 0.5
            parameter.copy_(torch.randn_like(parameter))
    return method


def crowd(n_classes: int, n_annotators: int, *, with_gold: bool, n_items: int = 9) -> TrainingData:
    """Return items with no, some or all labels, some with gold, one of these without a label; weights differ."""
    generator = np.random.default_rng(n_classes + 10 * n_annotators)
    Y = generator.integers(0, n_classes, (n_items, n_annotators))
    Y[generator.random(Y.shape) < 0.4] = -1
    Y[:2] = -1
    Y[2:4] = generator.integers(0, n_classes, (2, n_annotators))
    gold = np.full(n_items, -1)
    if with_gold:
        gold[1:4] = generator.integers(0, n_classes, 3)
    ann = Annotations.from_matrix(Y, classes=range(n_classes))
    X = generator.normal(size=(n_items, 4)).astype(np.float32)
    return TrainingData(Inputs(X), ann, gold, np.linspace(0.5, 2, n_items).astype(np.float32))


def loss_of(method: Gated, data: TrainingData, rows: Any = None) -> tuple[Tensor, Tensor]:
    batch = data.batch(np.arange(len(data)) if rows is None else rows)
    return method.loss(batch._replace(x=batch.x.double()))


def gate_and_table(method: Gated, h: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """Return gate g of one item with features (1, D), and the wrong-label table W (K, K) of one annotator."""
    g = method.gate(h, torch.tensor([0]), torch.tensor([r])).sigmoid()[0, 0]
    k = method.n_classes
    off = 1 - torch.eye(k)
    match method.wrong:
        case UniformWrongLabels():
            return g, off / (k - 1)
        case SharedWrongLabels() | PerAnnotatorWrongLabels() as learned:
            W = learned.logits[r if isinstance(learned, PerAnnotatorWrongLabels) else 0].exp() * off
            return g, W / W.sum(1, keepdim=True)
        case BasisWrongLabels() as mixture:
            shares = mixture.logits[r].softmax(0)
            W = torch.zeros(k, k)
            for share, permutation in zip(shares, mixture.basis.tolist(), strict=True):
                for true, said in enumerate(permutation):
                    W[true, said] = W[true, said] + share
            return g, W + 1e-6 * (off / (k - 1) - W)
    raise AssertionError


def joint_loss(method: Gated, data: TrainingData) -> Tensor:
    """`-log sum_k f(k) prod_r p(y_r | k)`, over items, classes and labels; of gold items the term of their class."""
    Y = data.annotations.to_matrix()
    total = torch.tensor(0.0)
    for n in range(len(data)):
        said = [(r, int(y)) for r, y in enumerate(Y[n]) if y is not None and y >= 0]
        if not said and data.gold[n] < 0:
            continue
        h = method.features(torch.from_numpy(data.inputs.rows(np.array([n]))).double())
        f = method.classify(h).softmax(1)[0]
        likely = torch.tensor(0.0)
        for k in range(method.n_classes):
            if data.gold[n] >= 0 and data.gold[n] != k:
                continue
            term = f[k]
            for r, y in said:
                g, W = gate_and_table(method, h, r)
                term = term * (g if y == k else (1 - g) * W[k, y])
            likely = likely + term
        total = total - float(data.weight[n]) * likely.log()
    return total


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize(("n_classes", "n_annotators"), [(2, 1), (2, 3), (4, 1), (5, 4)])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_loss_of_the_gates_is_the_joint_likelihood(
    wrong: str, n_classes: int, n_annotators: int, with_gold: bool
) -> None:
    method = make(wrong, n_classes, n_annotators, "embedded" if n_annotators == 4 else "shared")
    method.phase_index = 2
    data = crowd(n_classes, n_annotators, with_gold=with_gold)
    total, count = loss_of(method, data)
    torch.testing.assert_close(total, joint_loss(method, data), rtol=1e-7, atol=1e-7)
    counting = (np.diff(data.annotations.indptr) > 0) | (data.gold >= 0)
    assert count == pytest.approx(float(data.weight[counting].sum()))


def test_many_labels_do_not_underflow() -> None:
    method = make("uniform", 3, 2000)
    method.phase_index = 2
    Y = np.random.default_rng(0).integers(0, 3, (2, 2000))
    data = of_labels(Y)
    assert loss_of(method, data)[0].isfinite()


@pytest.mark.parametrize("phase", [0, 1, 2])
@pytest.mark.parametrize("wrong", WRONG)
def test_gradients_of_every_phase(wrong: str, phase: int) -> None:
    method = make(wrong, 3, 2)
    data = crowd(3, 2, with_gold=True)
    method.prepare(data)
    method.target.copy_(torch.arange(len(data)) % 3)
    method.phase_index = phase
    names, values = zip(*method.named_parameters(), strict=True)

    def loss(*parameters: Tensor) -> Tensor:
        class AsModule(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = method

            def forward(self) -> Tensor:
                return loss_of(method, data)[0]

        given = {f"inner.{name}": value for name, value in zip(names, parameters, strict=True)}
        result: Tensor = torch.func.functional_call(AsModule(), given, ())
        return result

    assert torch.autograd.gradcheck(loss, tuple(v.detach().clone().requires_grad_() for v in values))


def test_phase_1_is_cross_entropy_on_every_label() -> None:
    method = make("uniform", 3, 2)
    data = crowd(3, 2, with_gold=False)
    total, _ = loss_of(method, data)
    expected = torch.tensor(0.0)
    ann = data.annotations
    for n, r, y in zip(ann.item.tolist(), ann.annotator.tolist(), ann.label.tolist(), strict=True):
        h = method.features(torch.from_numpy(data.inputs.rows(np.array([n]))).double())
        says = method.label_head(h, torch.tensor([0]), torch.tensor([r])).log_softmax(1)
        expected = expected - float(data.weight[n]) * says[0, y]
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("wrong", WRONG)
def test_the_start_is_the_joint_likelihood_with_the_initial_class(wrong: str) -> None:
    method = make(wrong, 4, 3)
    data = crowd(4, 3, with_gold=True)
    method.prepare(data)
    target = torch.arange(len(data)) % 4
    method.target.copy_(target)
    method.phase_index = 1
    labelled = np.diff(data.annotations.indptr) > 0
    certain = replace(data, gold=np.where(data.gold >= 0, data.gold, np.where(labelled, target.numpy(), -1)))
    total, _ = loss_of(method, data)
    torch.testing.assert_close(total, joint_loss(method, certain))


def test_held_out_gold_does_not_train_the_gates() -> None:
    """In the last phase, rows with held-out gold train by their labels only, or not at all if they have none."""
    method = make("uniform", 3, 2)
    data = crowd(3, 2, with_gold=True)
    method.prepare(data)
    method.starts_from_gold.fill_(True)
    held_out = np.array([1, 2])  # row 1 has gold and no label, row 2 has both, row 3 has both and still trains
    method.held_out_gold[held_out] = torch.from_numpy(data.gold[held_out])
    gold = data.gold.copy()
    gold[held_out] = -1
    without = replace(data, gold=gold)
    method.phase_index = 2
    total, count = loss_of(method, data)
    torch.testing.assert_close(total, joint_loss(method, without), rtol=1e-7, atol=1e-7)
    assert abs(total - joint_loss(method, data)) > 0.1
    counting = (np.diff(data.annotations.indptr) > 0) | (gold >= 0)
    assert count == pytest.approx(float(data.weight[counting].sum()))


def test_the_vote_is_the_mean_over_the_labels_of_each_item() -> None:
    """The classifier trains on soft votes, whatever the number of labels of an item; the gates train on every label."""
    method = make("uniform", 3, 4)
    data = crowd(3, 4, with_gold=False)
    assert set(np.diff(data.annotations.indptr)) == {0, 2, 4}
    method.prepare(data)
    method.trains_on_vote.fill_(True)
    total_of_votes = expected = torch.tensor(0.0)
    Y = data.annotations.to_matrix()
    for n in range(len(data)):
        h = method.features(torch.from_numpy(data.inputs.rows(np.array([n]))).double())
        log_f = method.classify(h).log_softmax(1)[0]
        said = [(r, int(y)) for r, y in enumerate(Y[n]) if y >= 0]
        for r, y in said:
            g, f = gate_and_table(method, h, r)[0], log_f[y].detach().exp()
            vote = -float(data.weight[n]) * log_f[y] / len(said)
            total_of_votes = total_of_votes + vote
            expected = expected + vote - float(data.weight[n]) * (f * g.log() + (1 - f) * (1 - g).log())
    for phase in (1, 2):
        method.phase_index = phase
        total, _ = loss_of(method, data)
        torch.testing.assert_close(total, expected)
        classifier = list(method.classify.parameters())
        gradients = torch.autograd.grad(total, classifier)
        torch.testing.assert_close(gradients, torch.autograd.grad(total_of_votes, classifier, retain_graph=True))


# ---- tables and likelihoods --------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("wrong", WRONG)
def test_tables_have_rows_that_sum_to_1_and_a_diagonal_of_0(wrong: str, n_classes: int) -> None:
    method = make(wrong, n_classes, 3)
    for newcomers in (0, 2):
        if newcomers:
            method.add_annotators(newcomers)
        everyone = torch.arange(3 + newcomers)
        tables = method.wrong.matrices(everyone)
        assert tables.shape == (3 + newcomers, n_classes, n_classes)
        assert (tables >= 0).all()
        assert (tables.diagonal(dim1=1, dim2=2) == 0).all()
        torch.testing.assert_close(tables.sum(2), torch.ones(3 + newcomers, n_classes))
        pairs = list(product(range(3 + newcomers), range(n_classes), range(n_classes)))
        who, true, said = (torch.tensor(part) for part in zip(*pairs, strict=True))
        given = method.wrong.given(who, true, said)
        expected = torch.where(true == said, 1.0, tables[who, true, said])
        torch.testing.assert_close(given.exp(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("wrong", ["annotator", "basis"])
def test_tables_of_many_annotators_are_those_of_few(wrong: str) -> None:
    """With more than 100 annotators, only the rows of the batch are read."""
    method = make(wrong, 3, 150)
    who, said = torch.tensor([149, 3, 149, 70]), torch.tensor([0, 1, 2, 0])
    alone = torch.cat([method.wrong(who[i : i + 1], said[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(method.wrong(who, said), alone)
    torch.testing.assert_close(method.wrong.matrices(who)[0], method.wrong.matrices(torch.arange(150))[149])


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(("n_classes", "n_annotators"), [(2, 1), (3, 2), (6, 5)])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_probabilities_of_all_labels_sum_to_1(wrong: str, n_classes: int, n_annotators: int, started: bool) -> None:
    method = make(wrong, n_classes, n_annotators)
    method.is_initialized.fill_(started)
    method.poll_weights.fill_(1 / n_annotators)
    h = method.features(torch.randn(4, 4))
    pairs = list(product(range(4), range(n_annotators), range(n_classes)))
    item, annotator, label = (torch.tensor(part) for part in zip(*pairs, strict=True))
    evidence = method.label_log_probabilities(h, item, annotator, label)
    likely = (method.class_logits(h).log_softmax(1)[item] + evidence).logsumexp(1).exp()
    likely = likely.view(4, n_annotators, n_classes)
    torch.testing.assert_close(likely.sum(2), torch.ones(4, n_annotators), rtol=1e-9, atol=1e-9)
    matrices = method.confusions(h, item, annotator)
    f = method.class_logits(h).softmax(1)[item]
    by_matrix = torch.einsum("lk,lky->ly", f, matrices).gather(1, label[:, None])[:, 0]
    torch.testing.assert_close(likely.flatten(), by_matrix)


@pytest.mark.parametrize("rule", ["any", "above chance"])
def test_the_probabilities_of_all_labels_of_a_class_rule_sum_to_1(rule: Any) -> None:
    method = make("uniform", 4, 2)
    method.poll_weights.fill_(0.5)
    h = method.features(torch.randn(3, 4))
    pairs = list(product(range(3), range(2), range(4)))
    likely = method._rule_log_likelihood(rule, h, *(torch.tensor(part) for part in zip(*pairs, strict=True))).exp()
    torch.testing.assert_close(likely.view(6, 4).sum(1), torch.ones(6))


@pytest.mark.parametrize("wrong", WRONG)
def test_fused_labels_are_the_posterior(wrong: str) -> None:
    method = make(wrong, 3, 2)
    method.is_initialized.fill_(True)
    data = crowd(3, 2, with_gold=False)
    batch = data.batch(np.arange(len(data)))
    h = method.features(batch.x.double())
    fused = method.fused(h, batch.item, batch.annotator, batch.label)
    for n in range(len(data)):
        said = [(int(r), int(y)) for i, r, y in zip(batch.item, batch.annotator, batch.label, strict=True) if i == n]
        expected = method.classify(h[n : n + 1]).softmax(1)[0]
        for r, y in said:
            g, W = gate_and_table(method, h[n : n + 1], r)
            expected = expected * torch.stack([g if y == k else (1 - g) * W[k, y] for k in range(3)])
        torch.testing.assert_close(fused[n], expected / expected.sum() if said else torch.zeros(3))


# ---- the start ---------------------------------------------------------------------------------


def of_labels(Y: NDArray[Any]) -> TrainingData:
    """Return items with equal inputs and these labels."""
    n = len(Y)
    return TrainingData(Inputs(np.ones((n, 4))), Annotations.from_matrix(Y), np.full(n, -1), np.ones(n, np.float32))


def set_label_probabilities(method: Gated, shares: NDArray[Any]) -> None:
    """Set the label probabilities (R, K) of the annotators, equal for all items."""
    with torch.no_grad():
        for parameter in method.label_head.parameters():
            parameter.zero_()
        method.label_head.get_parameter("last.bias").copy_(torch.from_numpy(shares).clamp(min=1e-12).log())


def predict_on(method: Gated, x: torch.Tensor) -> Any:
    """Return the class probabilities of the current network on these inputs."""

    def predict(feature_function: Any = None, rows: Any = None) -> NDArray[np.float32]:
        with torch.no_grad():
            h = method.features(x if rows is None else x[rows])
            found: NDArray[np.float32] = (feature_function or method.class_logits)(h).numpy()
        return found

    return predict


def test_only_the_annotators_with_the_most_labels_are_polled() -> None:
    n = label_poll.MAX_POLLED_ANNOTATORS + 30
    Y = np.full((n + 2, n), -1)
    Y[np.arange(n), np.arange(n)] = 0  # one label per item, and a second one for the last two
    Y[n:, -2:] = 1
    data = of_labels(Y)
    method = make("uniform", 2, n)
    method.prepare(data)
    asked = method.poll_weights.numpy()
    assert (asked > 0).sum() == label_poll.MAX_POLLED_ANNOTATORS
    assert asked.sum() == pytest.approx(1)
    assert asked[-2:].tolist() == pytest.approx([3 / (label_poll.MAX_POLLED_ANNOTATORS + 4)] * 2)


def test_item_weights_count_in_the_choice_of_polled_annotators() -> None:
    method = make("uniform", 2, 2)
    ann = Annotations.from_matrix([[0, -1], [-1, 1], [1, -1]])
    weight = np.array([1, 3, 0], np.float32)
    method.prepare(TrainingData(Inputs(np.ones((3, 4))), ann, np.full(3, -1), weight))
    assert method.poll_weights.tolist() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(("likelier", "expected"), [(True, 3), (False, 0)])
def test_held_out_labels_choose_the_class_rule(likelier: bool, expected: int) -> None:
    """No annotator gives class 3 and the others are nearly equally frequent: the class rule decides between 3 and 0."""
    method = make("uniform", 4, 1)
    data = of_labels(np.array([[0], [1]]))
    method.prepare(data)
    set_label_probabilities(method, np.array([[0.36, 0.32, 0.32, 0.0]]))
    x = torch.ones(2, 4)

    def judge(ask: Any) -> ValidationScore:
        likely = ask(method.features(x), torch.tensor([0]), torch.tensor([0]), torch.tensor([1 if likelier else 3]))
        return ValidationScore(likely.detach().numpy(), ())

    method.phase_index = 1
    method.begin_phase(data, predict_on(method, x), judge)
    assert method.target.tolist() == [expected] * 2
    assert method.is_initialized


def test_two_classes_always_use_the_rule_above_chance() -> None:
    method = make("uniform", 2, 3)
    data = of_labels(np.array([[0] * 3, [1] * 3]))
    method.prepare(data)
    set_label_probabilities(method, np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]))
    x = torch.ones(2, 4)

    def never(ask: Any) -> ValidationScore:
        raise AssertionError("the mirror image is as likely: nothing to ask")

    assert method._best_class_rule(never) == "above chance"
    method.phase_index = 1
    method.begin_phase(data, predict_on(method, x), None)
    assert method.target.tolist() == [0, 0]


def test_ctrl_c_before_the_second_phase_leaves_the_model_uninitialized() -> None:
    method = make("uniform", 3, 2)
    data = crowd(3, 2, with_gold=False)
    method.prepare(data)
    method.phase_index = 1

    def interrupt(feature_function: Any = None, rows: Any = None) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method.begin_phase(data, interrupt, None)
    assert not method.is_initialized


@pytest.mark.parametrize(("epochs", "each"), [(2, [1, 1, 0]), (3, [1, 1, 1]), (12, [3, 1, 8]), (40, [10, 3, 27])])
def test_epochs_are_split_over_the_phases(epochs: int, each: list[int]) -> None:
    phases = make("uniform", 3, 2).phases(epochs)
    assert [phase.epochs for phase in phases] == each
    assert sum(each) == epochs


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epochs": 1}, "at least 2 epochs, got epochs=1"),
        ({"wrong": "even"}, "unknown wrong 'even'|wrong"),
        ({"annotator_heads": "separate"}, "annotator_heads"),
        ({"n_bases": 0, "wrong": "basis"}, "n_bases"),
        ({"embedding": 0}, "embedding"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GatedClassifier(**settings).fit(np.eye(3), np.arange(3))


def test_weights_are_in_proportion_to_the_gates() -> None:
    method = make("uniform", 3, 4)
    h = method.features(torch.randn(2, 4))
    item, annotator = torch.tensor([0, 0, 1]), torch.tensor([0, 3, 2])
    g = method.accuracies(h, item, annotator)
    weights = method.weight_logits(h, item, annotator)
    torch.testing.assert_close((weights[0] - weights[1]).exp(), g[0] / g[1])
