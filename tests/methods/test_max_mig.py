"""Max-MIG: the gain against a loop over all pairs, initialization by the vote, and annotators who copy each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from crowdfuse import Annotations, MajorityVoteClassifier, MaxMIGClassifier, load
from crowdfuse.methods.max_mig import MaxMIG, mutual_information_gain
from tests.methods.test_known_answers import K, ask, blobs, one_coin
from tests.methods.uneven import SHAPES, crowd, spec
from tests.training.test_loop import SETTINGS, assert_resumes


def method(shape: tuple[int, int, int]) -> MaxMIG:
    made = MaxMIG(spec(*shape[1:]), prior="uniform").double()
    torch.nn.init.normal_(made.label_log_evidence)
    made.prior.copy_(torch.arange(1, shape[2] + 1).double().softmax(0))
    made.is_initialized.fill_(True)
    return made


def aggregated(made: MaxMIG, said: Any) -> torch.Tensor:
    """Return g of one item, by a loop over its labels."""
    each = made.label_log_evidence.view(-1, made.n_classes, made.n_classes)
    g: torch.Tensor = (made.prior.log() + sum(each[r, y] for r, y in enumerate(said) if y >= 0)).softmax(0)
    return g


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_is_its_definition_pair_by_pair(shape: tuple[int, int, int]) -> None:
    made = method(shape)
    data, Y = crowd(shape)
    batch = data.batch(np.random.default_rng(0).permutation(shape[0]))
    total, count = made.loss(batch._replace(x=batch.x.double(), weight=batch.weight.double()))
    h = made.logits(torch.from_numpy(data.inputs.rows(np.arange(shape[0]))).double()).softmax(1)
    those = [n for n in range(shape[0]) if (Y[n] >= 0).any()]
    if len(those) < 2:
        assert total.item() == count.item() == 0
        return
    matching, crossed = torch.tensor(0.0).double(), torch.tensor(0.0).double()
    w, n_crossed = data.weight.astype(float), 0.0
    for i in those:
        for j in those:
            m = (h[i] * aggregated(made, Y[j]) / made.prior).sum()
            if i == j:
                matching = matching + w[i] * (1 + m.log())
            else:
                crossed, n_crossed = crossed + w[i] * w[j] * m, n_crossed + w[i] * w[j]
    weight = w[those].sum()
    torch.testing.assert_close(total / weight, -matching / weight + crossed / n_crossed)
    assert count.item() == pytest.approx(weight)


def test_gains_have_the_right_gradients() -> None:
    ratio, g = (torch.randn(4, 3, dtype=torch.float64).log_softmax(1).requires_grad_() for _ in range(2))
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a, b: mutual_information_gain(a, b, weight), (ratio, g))


def test_a_gain_is_the_information_where_both_sides_are_right() -> None:
    """The gain is log K for K balanced classes if both sides are certain, and 0 if one side is uninformative."""
    certain = torch.eye(K, dtype=torch.float64).repeat(200, 1).clamp(min=1e-12).log()
    prior = torch.tensor(1 / K).double().log()
    weight = torch.ones(len(certain)).double()
    assert mutual_information_gain(certain - prior, certain, weight).item() == pytest.approx(np.log(K), abs=0.01)
    ignorant = torch.full_like(certain, float(prior))
    assert mutual_information_gain(ignorant - prior, certain, weight).item() == pytest.approx(0, abs=1e-9)


def test_probabilities_that_underflow_stay_finite() -> None:
    made = method((7, 3, 3)).float()
    data, _ = crowd((7, 3, 3))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(1e3)
    total, _ = made.loss(data.batch(np.arange(7)))
    total.backward()
    assert total.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.parameters())


def test_it_starts_from_the_vote() -> None:
    shape = (30, 4, 3)
    data, Y = crowd(shape)
    Y[:, 3] = np.where(Y[:, 3] == 2, -1, Y[:, 3])  # the last annotator never gives class 2
    data = data.__class__(data.inputs, Annotations.from_matrix(Y, classes=range(3)), data.gold, data.weight)
    made = MaxMIG(spec(4, 3), prior="votes")
    made.prepare(data)
    counts, prior = np.zeros((4, 3, 3)), np.full(3, 0.01)
    for n in range(30):
        said = Y[n][Y[n] >= 0]
        for y in said:
            prior[y] += data.weight[n] / len(said)
            for r in np.flatnonzero(Y[n] >= 0):
                counts[r, Y[n, r], y] += data.weight[n] / len(said)
    expected = np.log((counts + 0.01) / (counts + 0.01).sum(1, keepdims=True))
    expected[3, 2] = 0
    np.testing.assert_allclose(made.label_log_evidence.detach().view(4, 3, 3), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made.prior, prior / prior.sum(), rtol=1e-5)
    with torch.no_grad():
        made.label_log_evidence.fill_(7)
    made.prepare(data)  # training continues
    assert (made.label_log_evidence == 7).all()


def test_gold_trains_classifier_and_aggregator() -> None:
    shape = (7, 3, 3)
    gold = np.array([0, 2, -1, 1, 1, -1, -1])  # item 4 has no label
    made = method(shape)
    data, Y = crowd(shape, gold)
    whole = data.batch(np.arange(7))
    whole = whole._replace(x=whole.x.double(), weight=whole.weight.double())
    total, count = made.loss(whole)
    rest, rest_count = made.loss(whole.select(torch.from_numpy(gold < 0)))
    for n in np.flatnonzero(gold >= 0):
        loss = cross_entropy(made.logits(whole.x[n][None]), torch.tensor([gold[n]]))
        if (Y[n] >= 0).any():
            loss = loss - aggregated(made, Y[n])[gold[n]].log()
        rest, rest_count = rest + float(data.weight[n]) * loss, rest_count + float(data.weight[n])
    torch.testing.assert_close(total, rest)
    torch.testing.assert_close(count, rest_count)


def test_fused_labels_come_from_the_aggregator_only() -> None:
    shape = (7, 3, 3)
    made = method(shape)
    data, Y = crowd(shape)
    batch = data.batch(np.arange(7))
    fused = made.fused(torch.zeros(7, 8), batch.item, batch.annotator, batch.label)
    for n in range(7):
        expected = aggregated(made, Y[n]) if (Y[n] >= 0).any() else torch.zeros(3).double()
        torch.testing.assert_close(fused[n], expected)


def test_a_step_changes_only_the_rows_of_its_labels() -> None:
    shape = (3, 500, 3)
    data, Y = crowd(shape)
    made = method(shape).float()
    made.loss(data.batch(np.array([0, 1]))).total.backward()
    gradient = made.label_log_evidence.grad
    assert gradient is not None
    assert gradient.is_sparse
    rows = {3 * r + Y[n, r] for n in (0, 1) for r in np.flatnonzero(Y[n] >= 0)}
    assert gradient.coalesce().indices()[0].tolist() == sorted(rows)


# ---- claims of the paper -------------------------------------------------------------------------


@pytest.mark.parametrize("prior", ["uniform", "votes"])
def test_copies_of_an_annotator_win_the_vote_but_not_max_mig(prior: Literal["votes", "uniform"]) -> None:
    """Two annotators are right on 70 % of the items; a third gives class 0 on 80 % of all items; two copy the third.

    The copied labels also distort the prior that is computed from the votes, which costs some accuracy.
    """
    X, truth = blobs(2000, 0.4, seed=0)
    good = ask(truth, one_coin(0.7, 0.7), missing=0.2, seed=10)
    naive = ask(truth, np.array([[[0.8] + [0.2 / 3] * 3] * K]), missing=0.0, seed=20)
    Y = np.column_stack([good, naive, naive, naive])
    settings: dict[str, Any] = {"batch_size": 200, "learning_rate": 0.02, "epochs": 10, "hidden": (32,)}
    assert MajorityVoteClassifier(**settings).fit(X, Y).score(X, truth) < 0.4
    clf = MaxMIGClassifier(**settings, prior=prior).fit(X, Y)
    assert clf.score(X, truth) > (0.95 if prior == "uniform" else 0.65)
    assert (clf.fused_labels(X, Y).argmax(1) == truth).mean() > 0.6
    weights = clf.annotator_weights(X)[0]
    assert weights[:2].min() > weights[2:].max()


# ---- as an estimator -----------------------------------------------------------------------------


def test_one_annotator_is_refused_with_a_way_out_before_any_work() -> None:
    X = np.eye(4)
    for labels in ([0, 1, 0, 1], np.array([[0, -1], [1, -1], [0, -1], [1, -1]])):
        with pytest.raises(ValueError, match=r"are by one annotator; .*majority-vote"):
            MaxMIGClassifier(epochs=1).fit(X, labels)
    with pytest.raises(ValueError, match="are by one annotator"):  # the other's labels do not count
        MaxMIGClassifier(epochs=1).fit(X, [[0, -1], [1, -1], [0, -1], [-1, 1]], sample_weight=[1, 1, 1, 0])
    with pytest.raises(ValueError, match="batch_size=1 does not work"):
        MaxMIGClassifier(batch_size=1).fit(X, [[0, 0], [1, 1], [0, 0], [1, 1]])
    with pytest.raises(ValueError, match="prior"):
        MaxMIGClassifier(prior="even").fit(X, [[0, 0], [1, 1], [0, 0], [1, 1]])  # type: ignore[arg-type]


def test_a_trained_model_continues_with_one_annotator(tmp_path: Path) -> None:
    X, truth = blobs(200, 0.25, seed=0)
    clf = MaxMIGClassifier(epochs=10, learning_rate=0.02).fit(X, ask(truth, one_coin(0.9, 0.8), 0.1, seed=1))
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    alone = Annotations.from_matrix(truth[:, None], annotators=[0])
    np.testing.assert_array_equal(
        again.partial_fit(X, alone).predict_proba(X), clf.partial_fit(X, alone).predict_proba(X)
    )
    assert clf.score(X, truth) > 0.95


def test_a_stopped_training_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, Y = crowd((90, 4, 3))
    given = (data.inputs.rows(np.arange(90)), np.zeros(90, int), Annotations.from_matrix(Y))
    assert_resumes(partial(MaxMIGClassifier, **SETTINGS), given, tmp_path, monkeypatch, stop_after=9)


def test_it_trains_in_mixed_precision() -> None:
    X, truth = blobs(100, 0.25, seed=0)
    clf = MaxMIGClassifier(epochs=2, precision="bf16-mixed").fit(X, truth[:, None].repeat(2, 1))
    assert np.isfinite([record["loss"] for record in clf.history_]).all()
