"""COINNet: outlier terms against a numerical search, and items on which nearly all annotators are wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.metrics import average_precision_score

from crowdfuse import Annotations, COINNetClassifier, GeoCrowdNetClassifier, load
from crowdfuse.methods import coin_net
from crowdfuse.methods.coin_net import EPSILON, POWER, COINNet, outlier_losses, outlier_terms
from tests.methods.test_known_answers import ask, blobs, one_coin
from tests.methods.uneven import SHAPES, crowd, spec
from tests.training.test_loop import SETTINGS, assert_resumes

NONE = torch.tensor(1.0)


def objective(d: Any, q: Any, cost: float, usual: float) -> float:
    """Return the loss of an item with these outlier terms, by its definition."""
    M = max(len(q), usual)
    powers = (np.square(d).sum() / M + EPSILON) ** (POWER / 2) - EPSILON ** (POWER / 2)
    return float(-np.log(q + d).sum() + cost * M * powers)


@pytest.mark.parametrize("cost", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("usual", [1.0, 3.5])
def test_outlier_terms_are_as_good_as_a_numerical_search(cost: float, usual: float) -> None:
    generator = np.random.default_rng(0)
    found = 0
    for n_labels in (1, 2, 3):
        for _ in range(8):
            q = generator.beta(0.4, 0.6, n_labels).clip(1e-3, 1 - 1e-3)
            item = torch.zeros(n_labels, dtype=torch.long)
            terms = outlier_terms(torch.from_numpy(q), item, 1, cost, torch.tensor(usual).double())
            bounds = [(0, 1 - p) for p in q]
            starts = [(1 - q) * share for share in (0.0, 0.1, 0.4, 0.7, 1.0)]
            starts += [generator.random(n_labels) * (1 - q) for _ in range(5)]
            best = min(
                min(minimize(objective, at, (q, cost, usual), bounds=bounds).fun, objective(at, q, cost, usual))
                for at in starts
            )
            assert ((terms >= 0) & (terms <= torch.from_numpy(1 - q) + 1e-12)).all()
            assert objective(terms.numpy(), q, cost, usual) <= best + 0.02
            losses = outlier_losses(torch.from_numpy(q).log(), item, 1, cost, torch.tensor(usual).double())
            assert losses.item() == pytest.approx(objective(terms.numpy(), q, cost, usual))
            found += bool(terms.any())
    assert found if cost < 2 else found < 24


def test_outlier_losses_have_the_right_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with finite differences at converged outlier terms, after many rounds.

    The cases include terms that reach their limit and items without terms.
    """
    monkeypatch.setattr(coin_net, "N_SOLVER_ITERATIONS", 300)
    item = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3])
    q = torch.tensor([0.05, 0.1, 0.02, 0.9, 0.7, 0.3, 0.01, 0.6], dtype=torch.float64)
    for cost in (0.5, 1.5, 3.0):
        terms = outlier_terms(q, item, 4, cost, NONE.double())
        assert terms.any()
        assert not terms.all()
        log_q = q.log().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x: outlier_losses(x, item, 4, cost, NONE.double()),  # noqa: B023
            (log_q,),
        )


def test_nearly_impossible_labels_give_finite_losses() -> None:
    log_q = torch.tensor([-500.0, -500.0, -1e-9, -0.1]).requires_grad_()
    losses = outlier_losses(log_q, torch.tensor([0, 0, 1, 1]), 3, 1.0, NONE)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert losses[2] == 0  # an item without labels
    assert log_q.grad is not None
    assert log_q.grad.isfinite().all()


def method(shape: tuple[int, int, int], weight: float = 0.8) -> COINNet:
    made = COINNet(spec(*shape[1:]), outlier_weight=weight, volume_weight=0.7, start=0.8).double()
    torch.nn.init.normal_(made.confusion_logits)
    made.phase_index = 1  # the phase with outliers
    return made


def test_the_first_phase_has_no_outliers() -> None:
    made = method(SHAPES[0])
    batch = crowd(SHAPES[0])[0].batch(np.arange(SHAPES[0][0]))
    likely = torch.full((len(batch.item),), 1e-6, dtype=torch.float64).log()
    with_terms = made.item_losses(likely, batch)
    made.phase_index = 0
    plain = made.item_losses(likely, batch)
    assert (with_terms[plain > 0] < plain[plain > 0]).all()
    torch.testing.assert_close(plain.sum(), -likely.sum())
    assert [(phase.name, phase.epochs) for phase in made.phases(20)] == [("matrices", 6), ("outliers", 14)]
    assert [(phase.name, phase.epochs) for phase in made.phases(1)] == [("matrices", 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_is_its_definition_written_out(shape: tuple[int, int, int]) -> None:
    made = method(shape)
    data, Y = crowd(shape)
    made.prepare(data)
    counts = (Y >= 0).sum(1)
    usual = np.average(counts[counts > 0], weights=data.weight[counts > 0])
    assert made.mean_labels_per_item.item() == pytest.approx(usual, rel=1e-5)
    batch = data.batch(np.random.default_rng(0).permutation(shape[0]))
    total, count = made.loss(batch._replace(x=batch.x.double(), weight=batch.weight.double()))
    f = made.logits(torch.from_numpy(data.inputs.rows(np.arange(shape[0]))).double()).softmax(1).detach().numpy()
    A = made.confusion_logits.softmax(2).detach().numpy()
    K = shape[2]
    expected, gram = 0.0, np.zeros((K, K))
    for n in np.flatnonzero(counts):
        q = np.array([f[n] @ A[r, :, Y[n, r]] for r in range(shape[1]) if Y[n, r] >= 0])
        terms = outlier_terms(
            torch.from_numpy(q), torch.zeros(len(q), dtype=torch.long), 1, made.cost, made.mean_labels_per_item
        )
        expected += data.weight[n] * objective(terms.numpy(), q, 0.8 * np.log(K), float(made.mean_labels_per_item))
        gram += data.weight[n] * np.outer(f[n], f[n])
    weight = data.weight[counts > 0].sum()
    volume = np.linalg.slogdet(K * gram / weight + 1e-3 * np.eye(K))[1]
    assert total.item() == pytest.approx(expected - 0.7 * weight * volume, rel=1e-4)
    assert count.item() == pytest.approx(weight)


def test_a_very_large_outlier_cost_gives_geo_crowd_net() -> None:
    X, truth = blobs(300, 0.3, seed=0)
    Y = ask(truth, one_coin(0.8, 0.7, 0.6), missing=0.2, seed=1)
    same: dict[str, Any] = {"epochs": 3, "schedule": "constant"}  # other schedules begin anew with each phase
    dear = COINNetClassifier(**same, outlier_weight=100.0).fit(X, Y)
    np.testing.assert_allclose(
        dear.predict_proba(X), GeoCrowdNetClassifier(**same).fit(X, Y).predict_proba(X), atol=1e-5
    )
    assert not np.nan_to_num(dear.outliers(X, Y)).any()


# ---- claims of the paper -------------------------------------------------------------------------


def test_items_on_which_everybody_errs_are_found_and_do_no_harm() -> None:
    """On a quarter of the items nearly all annotators give the next class, so they agree more there than elsewhere."""
    generator = np.random.default_rng(0)
    X, truth = blobs(400, 0.4, seed=0)
    Y = ask(truth, one_coin(0.8, 0.75, 0.7, 0.7, 0.7), missing=0.1, seed=10)
    fools = generator.random(400) < 0.25
    wrong = np.where(generator.random(Y.shape) < 0.9, ((truth + 1) % 4)[:, None], generator.integers(0, 4, Y.shape))
    Y = np.where(fools[:, None] & (Y >= 0), wrong, Y)
    settings: dict[str, Any] = {"batch_size": 50, "learning_rate": 0.02, "epochs": 25, "hidden": (64,)}
    clf = COINNetClassifier(**settings).fit(X, Y)
    without = GeoCrowdNetClassifier(**settings).fit(X, Y)
    disagreement = 1 - Annotations.from_matrix(Y).vote_shares().max(1)
    precision = average_precision_score(fools, clf.outliers(X, Y))
    assert precision > 0.8
    assert average_precision_score(fools, disagreement) < 0.3
    X_test, truth_test = blobs(4000, 0.4, seed=50)
    assert clf.score(X_test, truth_test) >= without.score(X_test, truth_test)
    fused, plain = (made.fused_labels(X, Y).argmax(1) for made in (clf, without))
    assert (fused == truth).mean() > (plain == truth).mean() + 0.05


# ---- as an estimator -----------------------------------------------------------------------------


def test_labels_without_overlap_are_refused_with_a_way_out() -> None:
    X = np.eye(4)
    for labels in ([0, 1, 0, 1], [[0, -1], [-1, 1], [0, -1], [-1, 1]]):
        with pytest.raises(ValueError, match=r"no training item has two or more labels; .*trace-reg, gated or maj"):
            COINNetClassifier(epochs=1).fit(X, labels)
    with pytest.raises(ValueError, match="no training item has two or more labels"):  # among items with weight
        COINNetClassifier(epochs=1).fit(X, [[0, 0], [-1, 1], [0, -1], [-1, 1]], sample_weight=[0, 1, 1, 1])


@pytest.mark.parametrize("setting", [{"outlier_weight": 0}, {"volume_weight": -1}, {"start": 0.3}])
def test_invalid_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        COINNetClassifier(**setting).fit(np.eye(4), [[0, 0], [1, 1], [0, 0], [1, 1]])


def test_outliers_of_a_saved_model_and_of_other_items_are_the_same(tmp_path: Path) -> None:
    data, Y = crowd((90, 4, 3))
    X = data.inputs.rows(np.arange(90))
    ann = Annotations.from_matrix(Y)
    clf = COINNetClassifier(epochs=5, outlier_weight=0.7).fit(X, ann)
    far = clf.outliers(X, ann)
    assert far.shape == (90,)
    assert np.isnan(far).tolist() == ((Y < 0).all(1)).tolist()
    known = far[~np.isnan(far)]
    assert 0 <= known.min() < known.max() <= 1
    np.testing.assert_allclose(clf.outliers(X[10:20], ann[np.arange(10, 20)]), far[10:20], atol=1e-5)
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").outliers(X, ann), far)


def test_a_stopped_training_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, Y = crowd((90, 4, 3))
    given = (data.inputs.rows(np.arange(90)), np.zeros(90, int), Annotations.from_matrix(Y))
    assert_resumes(partial(COINNetClassifier, **SETTINGS), given, tmp_path, monkeypatch, stop_after=9)


def test_it_trains_in_mixed_precision() -> None:
    X, truth = blobs(100, 0.25, seed=0)
    clf = COINNetClassifier(epochs=2, precision="bf16-mixed").fit(X, truth[:, None].repeat(2, 1))
    assert np.isfinite([record["loss"] for record in clf.history_]).all()
