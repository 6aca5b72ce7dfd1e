"""Consensus training: losses against plain loops, folds that keep labels out, and crowds whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crowdfuse import Annotations, ConsensusTrainingClassifier, consensus, load
from crowdfuse.aggregation import majority_vote
from crowdfuse.estimators.consensus_candidates import combine_candidates
from crowdfuse.estimators.cross_fitting import FoldTraining, OutOfFold
from crowdfuse.labels.folds import assign_folds
from crowdfuse.methods.consensus_training import N_CLASS_NETWORKS, ConsensusTraining, TrainingConsensus
from crowdfuse.methods.data import TrainingData
from crowdfuse.training.loop import UnfitDataError

K, R = 3, 4


def make_crowd(n: int = 120, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return inputs, labels with some missing, and the true classes."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, K, n)
    X = (np.eye(K)[truth] * 2 + generator.normal(size=(n, K))).astype(np.float32)
    labels = np.where(generator.random((n, R)) < 0.75, truth[:, None], generator.integers(0, K, (n, R)))
    labels[generator.random((n, R)) < 0.3] = -1
    labels[(labels < 0).all(1), 0] = 0
    return X, labels, truth


def prepared(**settings: Any) -> tuple[ConsensusTraining, TrainingData]:
    """Return an untrained network and the data, with a consensus drawn at random."""
    X, labels, _ = make_crowd(40)
    clf = ConsensusTrainingClassifier(hidden=(8,), dropout=0.0, **settings)
    data = clf.prepare(X, Annotations.from_matrix(labels, classes=range(K))).data
    method = method_of(clf)
    method.prepare(data)
    method.target.copy_(torch.rand(method.target.shape).softmax(-1))
    method.eval()
    return method, data


def method_of(clf: ConsensusTrainingClassifier) -> ConsensusTraining:
    """Return the network of a prepared or fitted classifier."""
    assert isinstance(clf.method_, ConsensusTraining)
    return clf.method_


@pytest.mark.parametrize("phase_index", [0, 1])
def test_the_loss_is_its_definition_in_plain_loops(phase_index: int) -> None:
    method, data = prepared()
    method.phase_index = phase_index
    batch = data.batch(np.arange(0, 40, 2))
    h = method.features(batch.x)
    total, weight = 0.0, 0.0
    for position, row in enumerate(batch.row.tolist()):
        one = h[position : position + 1]
        if phase_index == 0:
            for network in range(N_CLASS_NETWORKS):
                if method.left_out_by[row] != network:
                    log_f = method.class_networks(one)[network, 0].log_softmax(0)
                    total -= float((method.target[row] * log_f).sum().detach())
                    weight += 1
            continue
        for pair in (batch.item == position).nonzero()[:, 0].tolist():
            item, r = torch.zeros(1, dtype=torch.int64), batch.annotator[pair : pair + 1]
            g = float(method.accuracies(one, item, r).detach())
            right = float(method.target[row, int(batch.label[pair])])
            total -= right * np.log(g) + (1 - right) * np.log(1 - g)
            weight += 1
    loss = method.loss(batch)
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-4)
    assert float(loss.weight) == pytest.approx(weight)


def test_each_class_network_leaves_out_another_part_of_the_items() -> None:
    method, _ = prepared()
    assert np.bincount(method.left_out_by.numpy(), minlength=N_CLASS_NETWORKS).tolist() == [8] * 5


def test_what_is_said_about_an_item_does_not_depend_on_its_labels() -> None:
    X, labels, _ = make_crowd()
    settings: dict[str, Any] = {"epochs": 3, "classes": range(K), "batch_size": 16, "hidden": (8,)}
    fold = assign_folds(np.arange(len(X)), 5)[2]
    changed = labels.copy()
    changed[fold] = np.where(labels[fold] >= 0, (labels[fold] + 1) % K, -1)
    found = []
    for given in (labels, changed):
        clf = ConsensusTrainingClassifier(**settings).fit(X, given)
        found.append([training.run() for training in clf.fold_trainings(clf.prepare(X, given))])
    for number in range(2, 25, 5):  # all five candidates, without this fold
        one, two = found[0][number], found[1][number]
        assert one is not None
        assert two is not None
        np.testing.assert_array_equal(one.class_probabilities, two.class_probabilities)
    one, two = found[0][1], found[1][1]  # another fold
    assert one is not None
    assert two is not None
    assert not np.array_equal(one.class_probabilities, two.class_probabilities)


def test_networks_learn_the_consensus_that_the_result_shows() -> None:
    X, labels, _ = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=5, classes=range(K)).fit(X, labels)
    result = clf.consensus(X, labels)
    np.testing.assert_allclose(method_of(clf).target.numpy(), result.class_probabilities, atol=1e-5)


def test_the_predictions_that_explain_the_labels_best_are_used() -> None:
    X, labels, truth = make_crowd(400)
    data = ConsensusTrainingClassifier().prepare(X, Annotations.from_matrix(labels, classes=range(K))).data
    good = np.where(np.eye(K)[truth] > 0, 0.8, 0.1)
    noise = np.random.default_rng(1).dirichlet(np.ones(K), len(truth))
    half = (np.arange(len(truth)) % 2 == 0)[:, None]
    for gated, vote, expected in (
        (good, noise, good),
        (noise, good, good),
        (np.where(half, good, 1 / K), np.where(half, 1 / K, good), None),  # the mean knows what both know
    ):
        used, chosen, fit = combine_candidates([OutOfFold(p, None, 2) for p in (gated, vote)], data)
        if expected is not None:
            np.testing.assert_array_equal(used.class_probabilities, expected)
            assert chosen == ((0,) if expected is gated else (1,))
        else:
            assert (used.class_probabilities.argmax(1) == truth).all()
            assert set(chosen) == {0, 1}
        assert fit.log_likelihood > consensus(data.annotations, noise, classes=range(K)).log_likelihood[0]


def test_gold_is_certain_in_what_networks_are_trained_on() -> None:
    X, labels, truth = make_crowd()
    gold = np.where(np.arange(len(truth)) < 10, (truth + 1) % K, -1)  # the opposite of what the labels say
    names = np.array([int(k) if k >= 0 else None for k in gold], dtype=object)
    target = method_of(
        ConsensusTrainingClassifier(epochs=4, folds=2, classes=range(K)).fit(X, labels, gold=names)
    ).target
    assert torch.equal(target[:10].argmax(-1), torch.from_numpy(gold[:10]))
    assert (target[:10].max(-1).values == 1).all()


def test_the_length_of_a_training_follows_the_number_of_steps() -> None:
    method, _ = prepared()
    for n_steps_per_pass, n_steps_per_epoch in ((2, 50), (100, 100), (5_000, 5_000)):
        classes, gates = method.default_phases(n_steps_per_pass, n_steps_per_epoch)
        assert classes.epochs * n_steps_per_epoch >= max(1_500, 10 * n_steps_per_pass)
        assert classes.epochs * n_steps_per_epoch <= max(6_000 + n_steps_per_epoch, 10 * n_steps_per_pass)
        assert gates.epochs * n_steps_per_epoch >= 1_000
    for epochs in (2, 3, 5, 9, 40, 100):
        assert sum(phase.epochs for phase in method.phases(epochs)) == epochs


def test_too_few_epochs_are_refused() -> None:
    X, labels, _ = make_crowd()
    with pytest.raises(ValueError, match="at least 2 epochs, got epochs=1"):
        ConsensusTrainingClassifier(epochs=1).fit(X, labels)


def test_the_time_limit_is_divided_among_the_trainings() -> None:
    X, labels, _ = make_crowd()
    clf = ConsensusTrainingClassifier(max_time=73, folds=2, classes=range(K))
    limits = [training.classifier.max_time for training in clf.fold_trainings(clf.prepare(X, labels))]
    assert limits == pytest.approx(np.repeat([10, 10, 4, 6, 4], 2))  # 73 s for costs of 7.3


def test_a_stopped_fit_continues_with_the_folds_that_are_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, labels, _ = make_crowd()
    settings: dict[str, Any] = {"epochs": 3, "folds": 2, "classes": range(K)}
    expected = ConsensusTrainingClassifier(**settings).fit(X, labels).predict_proba(X)
    trained: list[str] = []
    original = FoldTraining._train

    def stopped(self: FoldTraining, checkpoint: Path | None) -> OutOfFold | None:
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(self.title)
        return original(self, checkpoint)

    monkeypatch.setattr(FoldTraining, "_train", stopped)
    with pytest.raises(KeyboardInterrupt):
        ConsensusTrainingClassifier(**settings, checkpoint=tmp_path).fit(X, labels)

    def noted(self: FoldTraining, checkpoint: Path | None) -> OutOfFold | None:
        trained.append(self.title)
        return original(self, checkpoint)

    monkeypatch.setattr(FoldTraining, "_train", noted)
    clf = ConsensusTrainingClassifier(**settings, checkpoint=tmp_path).fit(X, labels)
    names = ("gated", "gated-without-dropout", "majority-vote", "annot-mix", "max-mig")
    assert trained == [f"{name}, fold {fold} of 2" for name in names for fold in (1, 2)]
    np.testing.assert_array_equal(clf.predict_proba(X), expected)


def test_stored_folds_of_other_labels_are_refused(tmp_path: Path) -> None:
    X, labels, truth = make_crowd()

    def folds(Y: NDArray[np.int64]) -> list[FoldTraining]:
        clf = ConsensusTrainingClassifier(epochs=2, folds=2, classes=range(K))
        return clf.fold_trainings(clf.prepare(X, Annotations.from_matrix(Y, classes=range(K))))

    one, again = folds(labels)[0].run(tmp_path), folds(labels)[0].run(tmp_path)
    assert one is not None
    assert again is not None
    np.testing.assert_array_equal(one.class_probabilities, again.class_probabilities)
    with pytest.raises(ValueError, match="belongs to a training run with other settings or data"):
        folds(np.stack([truth] * R, 1))[0].run(tmp_path)


def test_validation_keeps_the_gates_that_were_trained() -> None:
    X, labels, _ = make_crowd(300)
    clf = ConsensusTrainingClassifier(epochs=20, folds=2, classes=range(K), learning_rate=0.01)
    assert clf.fit(X, labels, validation=0.2).annotator_accuracy_per_item(X).mean() > 0.75  # untrained: 0.5


def test_partial_fit_keeps_what_is_known_of_absent_annotators() -> None:
    X, labels, truth = make_crowd(200)
    good, bad = truth, (truth + 1) % K
    first = Annotations.from_matrix(np.stack([good, good, bad], 1), annotators=["a", "b", "c"], classes=range(K))
    later = Annotations.from_matrix(labels[:, :2], annotators=["d", "e"], classes=range(K))
    clf = ConsensusTrainingClassifier(learning_rate=0.01).partial_fit(X, first, epochs=10)
    before = method_of(clf).right_probability[:3].clone()
    clf.partial_fit(X, later, epochs=2)
    assert torch.equal(method_of(clf).right_probability[:3], before)
    assert before[0] > before[2]


def test_gold_without_labels_is_refused_before_any_work() -> None:
    X, labels, truth = make_crowd()
    with pytest.raises(UnfitDataError, match="needs labels of annotators"):
        ConsensusTrainingClassifier(classes=range(K)).fit(X, np.full_like(labels, -1), gold=truth)


def test_partial_fit_learns_from_the_labels_and_its_own_predictions() -> None:
    X, labels, truth = make_crowd(300)
    clf = ConsensusTrainingClassifier(learning_rate=0.01)
    for rows in (slice(0, 150), slice(150, 300)):
        clf.partial_fit(X[rows], Annotations.from_matrix(labels[rows], classes=range(K)), epochs=20)
    assert clf.score(X, truth) > 0.75


def hammer_and_spammers(seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return a crowd in which each of five annotators knows two of five classes and guesses otherwise."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 5, 1_500)
    X = (2.5 * np.eye(5)[truth] + generator.normal(size=(len(truth), 5))).astype(np.float32)
    knows = np.array([[(r + shift) % 5 for shift in (0, 1)] for r in range(5)])
    is_known = (knows[None] == truth[:, None, None]).any(2)
    return X, np.where(is_known, truth[:, None], generator.integers(0, 5, (len(truth), 5))), truth


def test_it_finds_who_knows_which_class_where_the_vote_does_not() -> None:
    X, labels, truth = hammer_and_spammers(0)
    settings: dict[str, Any] = {"epochs": 60, "batch_size": 128, "learning_rate": 0.01}
    clf = ConsensusTrainingClassifier(**settings).fit(X, labels)
    best = (X.argmax(1) == truth).mean()  # nothing can be better from the input alone
    assert clf.score(X, truth) > best - 0.03
    result = clf.consensus(X, labels)
    assert (majority_vote(Annotations.from_matrix(labels)).consensus == truth).mean() < 0.9
    assert result.n_folds == 5
    assert (result.consensus == truth).mean() > 0.97


def test_the_consensus_needs_no_further_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, labels, _ = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=5, classes=range(K)).fit(X, labels)
    clf.save(tmp_path / "model")
    calls: list[int] = []
    original = ConsensusTrainingClassifier.fit_prepared

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(1)
        return original(self, *args, **options)

    monkeypatch.setattr(ConsensusTrainingClassifier, "fit_prepared", counted)
    result = clf.consensus(X, labels)
    assert not calls
    assert result.n_folds == 5
    assert clf.consensus(X, labels, folds=0).n_folds == 5
    assert not calls
    other = clf.consensus(
        X[:100], labels[:100]
    )  # other data: networks that were trained without these items are needed
    assert len(calls) == 1
    assert other.n_folds == 5
    again = load(tmp_path / "model").consensus(X, labels)  # folds are not saved: the same training again
    assert len(calls) == 2
    np.testing.assert_array_equal(again.class_probabilities, result.class_probabilities)


def test_without_folds_the_consensus_is_that_of_the_labels_alone() -> None:
    X, labels, truth = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=30, folds=0, classes=range(K), learning_rate=0.01).fit(X, labels)
    assert clf.score(X, truth) > 0.7
    result = clf.consensus(X, labels)
    assert result.n_folds == 0
    alone = consensus(Annotations.from_matrix(labels, classes=range(K)))
    np.testing.assert_array_equal(result.class_probabilities, alone.class_probabilities)
    assert sum("rests on the labels alone" in text for text in result.limitations) == 1
    assert not any("too high" in text for text in result.limitations)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_fewer_items_than_folds(n: int) -> None:
    X = np.arange(n, dtype=np.float32)[:, None]
    labels = np.stack([np.arange(n) % 2, np.arange(n) % 2], 1)
    clf = ConsensusTrainingClassifier(epochs=4).fit(X, labels)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert np.isfinite(clf.consensus(X, labels).confidence).all()


def test_label_probabilities_of_the_network_sum_to_one_and_follow_the_annotators() -> None:
    X, labels, _ = hammer_and_spammers(1)
    clf = ConsensusTrainingClassifier(epochs=30, batch_size=128, learning_rate=0.01).fit(X[:800], labels[:800])
    matrices = clf.confusion_matrices(X[:50])
    np.testing.assert_allclose(matrices.sum(-1), 1, atol=1e-4)
    mean = matrices.mean(0)
    for annotator in range(5):
        known = [annotator, (annotator + 1) % 5]
        unknown = [k for k in range(5) if k not in known]
        assert mean[annotator, known, known].min() > mean[annotator, unknown, unknown].max()


def test_until_the_gates_are_trained_they_do_not_change_the_likelihood_of_labels() -> None:
    method, data = prepared()
    assert method.consensus is None
    annotators = method._own_consensus(data).annotators._replace(gate_weight=2.0)
    method.consensus = TrainingConsensus(method.target.numpy(), annotators)
    batch = data.batch(np.arange(40))
    h = method.features(batch.x)

    def likelihoods() -> torch.Tensor:
        with torch.inference_mode():
            return method.label_log_probabilities(h, batch.item, batch.annotator, batch.label)

    method.prepare(data)
    untrained = likelihoods()
    with torch.no_grad():
        for parameter in method.gate_network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(likelihoods(), untrained)  # as without gates
    method.phase_index = 1
    method.begin_phase(data, lambda *_: np.zeros(0, np.float32), None)
    assert (likelihoods() - untrained).abs().max() > 0.01


def item_dependent_crowd(n: int = 600) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return items and labels of three annotators, of whom the first guesses on one half of the inputs."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, K, n)
    side = generator.random(n) < 0.5
    X = np.column_stack([3 * np.eye(K)[truth] + generator.normal(size=(n, K)), 4.0 * side])
    labels = np.where(generator.random((n, 3)) < 0.9, truth[:, None], generator.integers(0, K, (n, 3)))
    labels[side, 0] = generator.integers(0, K, side.sum())
    return X.astype(np.float32), labels


def test_the_gates_keep_their_weight_if_held_out_labels_choose_the_epoch() -> None:
    X, labels = item_dependent_crowd()
    clf = ConsensusTrainingClassifier(epochs=30, folds=2, classes=range(K), learning_rate=0.01)
    method = method_of(clf.fit(X, labels, validation="annotations"))
    assert clf.best_epoch_ is not None
    assert clf.history_[clf.best_epoch_ - 1]["phase"] == "classes"
    assert float(method.gate_weight) > 0.2
    recall = clf.confusion_matrices(X)[:, 0].diagonal(axis1=1, axis2=2).mean(1)
    assert recall[X[:, -1] == 0].mean() > recall[X[:, -1] > 0].mean() + 0.1


def test_partial_fit_after_load_continues_as_without_it(tmp_path: Path) -> None:
    X, labels, _ = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=4, folds=0, classes=range(K), random_state=3).fit(X, labels)
    clf.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one in (clf, loaded):
        one.partial_fit(X, labels, epochs=2)
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))


def test_a_loaded_model_without_folds_trains_nothing_for_its_consensus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, labels, _ = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=4, folds=0, classes=range(K)).fit(X, labels)
    expected = clf.consensus(X, labels)
    clf.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    monkeypatch.setattr(ConsensusTrainingClassifier, "fit_prepared", lambda *_, **__: pytest.fail("trained"))
    found = loaded.consensus(X, labels)
    np.testing.assert_array_equal(found.class_probabilities, expected.class_probabilities)
    assert found.limitations == expected.limitations
    some = labels.copy()
    some[:5] = -1  # items without labels are predicted
    predicted = loaded.consensus(X, some).predicted_probabilities
    assert predicted is not None
    np.testing.assert_allclose(predicted[:5], loaded.predict_proba(X[:5]), rtol=1e-5)


def test_the_networks_are_compiled_and_not_the_empty_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: set[str] = set()
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compiled.add(type(self).__name__))
    X, labels, _ = make_crowd()
    ConsensusTrainingClassifier(epochs=2, folds=0, compile=True, classes=range(K)).fit(X, labels)
    assert "StackedMLPs" in compiled
    assert "Identity" not in compiled


def test_items_with_gold_and_no_labels_are_predicted_out_of_fold() -> None:
    X, labels, truth = make_crowd()
    labels[:20], gold = -1, np.where(np.arange(len(X)) < 20, truth, -1)
    names: Any = [int(k) if k >= 0 else None for k in gold]
    clf = ConsensusTrainingClassifier(epochs=2, folds=2, classes=range(K)).fit(X, labels, gold=names)
    result = clf.consensus(X, labels, gold=names)
    assert result.out_of_fold_probabilities is not None
    assert result.predicted_probabilities is not None
    assert (np.abs(result.out_of_fold_probabilities - result.predicted_probabilities)[:20].max(1) > 1e-4).all()


def test_fewer_items_than_folds_are_fewer_trainings() -> None:
    X, labels, _ = make_crowd(3)
    clf = ConsensusTrainingClassifier()
    prepared = clf.prepare(X, Annotations.from_matrix(labels, classes=range(K)))
    assert [len(clf.training_costs(n)) for n in (1, 2, 3, 5, 100)] == [1, 11, 16, 26, 26]
    assert len(clf.fold_trainings(prepared)) == 15


def test_without_folds_there_is_no_finding_about_predictions() -> None:
    X, labels, _ = make_crowd(300)
    result = ConsensusTrainingClassifier(epochs=2, folds=0, classes=range(K)).fit(X, labels).consensus(X, labels)
    assert not {finding.kind for finding in result.findings} & {"class_never_predicted", "labels_ignore_inputs"}


def test_the_folds_of_fit_are_used_whatever_folds() -> None:
    X, labels, _ = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=2, folds=2, classes=range(K)).fit(X, labels)
    given, expected = clf.consensus(X, labels, folds=0), clf.consensus(X, labels)
    assert given.n_folds == 2
    np.testing.assert_array_equal(given.class_probabilities, expected.class_probabilities)


def test_slow_backbones_have_two_candidates() -> None:
    _, labels, _ = make_crowd(20)
    ann = Annotations.from_matrix(labels, classes=range(K))
    for shape, backbone, n_candidates in (
        ((1_999,), "auto", 5),
        ((2_001,), "auto", 2),
        ((4,), torch.nn.Linear(4, 3), 5),
        ((16, 16), "auto", 2),
        ((16, 16), "mlp", 5),
    ):
        clf = ConsensusTrainingClassifier(folds=2, backbone=backbone)
        prepared = clf.prepare(np.zeros((20, *shape), np.float32), ann)
        assert len(clf.fold_trainings(prepared)) == 2 * n_candidates


@pytest.mark.parametrize(("n_features", "n_networks"), [(1_999, N_CLASS_NETWORKS), (2_000, 1)])
def test_slow_backbones_have_one_class_network(n_features: int, n_networks: int, tmp_path: Path) -> None:
    """128 units on 1,999 features have 256,000 weights, biases included."""
    _, labels, _ = make_crowd(10)
    X = np.zeros((10, n_features), np.float32)
    clf = ConsensusTrainingClassifier(epochs=2, folds=0, classes=range(K)).fit(X, labels)
    assert method_of(clf).n_class_networks == n_networks
    clf.save(tmp_path / "model")
    assert method_of(load(tmp_path / "model")).n_class_networks == n_networks


def test_phases_without_epochs_are_named_in_the_result() -> None:
    X, labels, _ = make_crowd(60)
    clf = ConsensusTrainingClassifier(epochs=2, folds=2, classes=range(K)).fit(X, labels)
    assert any(
        "gated was trained without its phase 'gates', because 2 epochs" in text
        for text in clf.consensus(X, labels).limitations
    )
    clf = ConsensusTrainingClassifier(epochs=3, folds=2, classes=range(K)).fit(X, labels)
    assert not any("without its phase" in text for text in clf.consensus(X, labels).limitations)
