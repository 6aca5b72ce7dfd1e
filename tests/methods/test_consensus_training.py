"""Consensus training: losses against plain loops, folds that keep labels out, and crowds whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crowdfuse import Annotations, ConsensusTrainingClassifier, load
from crowdfuse.aggregation import majority_vote
from crowdfuse.labels.folds import assign_folds
from crowdfuse.methods.consensus_training import MAX_ROUNDS, ConsensusTraining
from crowdfuse.methods.data import TrainingData

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


def prepared(**settings: Any) -> tuple[ConsensusTrainingClassifier, ConsensusTraining, TrainingData]:
    """Return an estimator, its untrained network and the data, with targets drawn at random."""
    X, labels, _ = make_crowd(40)
    clf = ConsensusTrainingClassifier(hidden=(8,), dropout=0.0, **settings)
    data = clf.prepare(X, Annotations.from_matrix(labels, classes=range(K))).data
    method = clf.method_
    assert isinstance(method, ConsensusTraining)
    method.prepare(data)
    method.target.copy_(torch.rand(method.target.shape).softmax(-1))
    method.eval()
    return clf, method, data


@pytest.mark.parametrize("effort", ["high", "low"])
@pytest.mark.parametrize("phase_index", [0, 1, 2])
def test_the_loss_is_its_definition_in_plain_loops(effort: str, phase_index: int) -> None:
    _, method, data = prepared(effort=effort)
    method.phase_index = phase_index
    batch = data.batch(np.arange(0, 40, 2))
    total, weight = 0.0, 0.0
    h = method.features(batch.x)
    for f in range(method.n_networks):
        for position, row in enumerate(batch.row.tolist()):
            if method.fold[row] == f:
                continue
            weight += 1 / method.n_networks
            one = h[position : position + 1]
            pairs = (batch.item == position).nonzero()[:, 0].tolist()
            for start in range(2):
                if phase_index == 1:
                    log_f = method.class_networks(one)[start * method.n_networks + f, 0].log_softmax(0)
                    total -= float((method.target[start, row] * log_f).sum().detach())
            for pair in pairs:
                r, y = batch.annotator[pair : pair + 1], int(batch.label[pair])
                item = torch.zeros(1, dtype=torch.int64)
                if phase_index == 0:
                    total -= float(method.label_networks[f](one, item, r)[0].log_softmax(0)[y].detach())
                if phase_index == 2:
                    for start in range(2):
                        g = float(method.gate_networks[f](one, item, r)[0, start].sigmoid().detach())
                        right = float(method.target[start, row, y])
                        total -= right * np.log(g) + (1 - right) * np.log(1 - g)
    loss = method.loss(batch)
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-4)
    assert float(loss.weight) == pytest.approx(weight)


def method_of(clf: ConsensusTrainingClassifier) -> ConsensusTraining:
    """Return the network of a fitted classifier."""
    assert isinstance(clf.method_, ConsensusTraining)
    return clf.method_


def test_networks_do_not_learn_from_the_labels_of_their_fold() -> None:
    X, labels, _ = make_crowd()
    settings: dict[str, Any] = {"epochs": 3, "classes": range(K), "batch_size": 16}
    one = method_of(ConsensusTrainingClassifier(**settings).fit(X, labels))
    fold = one.fold.numpy()
    changed = labels.copy()
    changed[fold == 2] = np.where(labels[fold == 2] >= 0, (labels[fold == 2] + 1) % K, -1)
    two = method_of(ConsensusTrainingClassifier(**settings).fit(X, changed))
    before, after = (method.label_networks[2].state_dict() for method in (one, two))
    assert all(torch.equal(before[name], after[name]) for name in before)
    others = [method.label_networks[1].state_dict() for method in (one, two)]
    assert not all(torch.equal(others[0][name], others[1][name]) for name in others[0])
    from_vote = slice(2, 3)  # the class network of this fold that starts from the vote
    x = one.features(torch.from_numpy(X))
    assert torch.equal(one.class_networks(x, from_vote), two.class_networks(x, from_vote))


def test_outputs_come_from_the_networks_of_the_own_fold() -> None:
    _, method, data = prepared()
    outputs = method.outputs(data)
    x = method.features(torch.from_numpy(data.inputs.rows(np.arange(40))))
    everything = method.class_networks(x).softmax(-1).detach().numpy()
    for row in range(40):
        f = int(method.fold[row])
        for start in range(2):
            expected = everything[start * method.n_networks + f, row]
            np.testing.assert_allclose(outputs.class_probabilities[start, row], expected, rtol=1e-5)
    ann = data.annotations
    for pair in range(ann.n_labels):
        f = int(method.fold[ann.item[pair]])
        item, annotator = torch.tensor([int(ann.item[pair])]), torch.tensor([int(ann.annotator[pair])])
        expected = method.gate_networks[f](x, item, annotator)[0].detach().numpy()
        np.testing.assert_allclose(outputs.gate_logits[:, pair], expected, rtol=1e-4, atol=1e-6)


def test_gold_is_certain_in_what_networks_are_trained_on() -> None:
    X, labels, truth = make_crowd()
    gold = np.where(np.arange(len(truth)) < 10, (truth + 1) % K, -1)  # the opposite of what the labels say
    names = np.array([int(k) if k >= 0 else None for k in gold], dtype=object)
    target = method_of(ConsensusTrainingClassifier(epochs=9, classes=range(K)).fit(X, labels, gold=names)).target
    assert torch.equal(target[:, :10].argmax(-1), torch.from_numpy(gold[:10]).expand(2, -1))
    assert (target[:, :10].max(-1).values == 1).all()


def test_the_length_of_a_training_follows_the_number_of_steps() -> None:
    _, method, _ = prepared()
    for n_steps_per_pass, n_steps_per_epoch in ((2, 50), (100, 100), (5_000, 5_000)):
        phases = method.default_phases(n_steps_per_pass, n_steps_per_epoch)
        steps = [phase.epochs * n_steps_per_epoch for phase in phases]
        assert len(phases) == 1 + 2 * MAX_ROUNDS
        assert min(steps) >= 600
        assert steps[1] >= max(1_200, 10 * n_steps_per_pass)
        assert steps[1] <= max(4_000 + n_steps_per_epoch, 10 * n_steps_per_pass)
    for epochs in (2, 3, 5, 9, 40, 100):
        assert sum(phase.epochs for phase in method.phases(epochs)) <= epochs


def test_too_few_epochs_are_refused() -> None:
    X, labels, _ = make_crowd()
    with pytest.raises(ValueError, match="at least 2 epochs, got epochs=1"):
        ConsensusTrainingClassifier(epochs=1).fit(X, labels)


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
    assert clf.consensus(X, labels, folds=0).n_folds == 0
    assert not calls
    other = clf.consensus(
        X[:100], labels[:100]
    )  # other data: networks that were trained without these items are needed
    assert len(calls) == 1
    assert other.n_folds == 5
    again = load(tmp_path / "model").consensus(X, labels)  # folds are not saved: the same training again
    assert len(calls) == 2
    np.testing.assert_array_equal(again.class_probabilities, result.class_probabilities)


def test_low_effort_says_that_nothing_is_out_of_fold() -> None:
    X, labels, truth = make_crowd()
    clf = ConsensusTrainingClassifier(epochs=30, effort="low", classes=range(K), learning_rate=0.01).fit(X, labels)
    assert clf.score(X, truth) > 0.7
    result = clf.consensus(X, labels)
    assert result.n_folds == 0
    assert any("no cross-fitting" in text for text in result.limitations)


def test_folds_are_assigned_as_for_any_other_classifier() -> None:
    X, labels, _ = make_crowd()
    labels[:3] = -1  # three items without labels are in no fold
    clf = ConsensusTrainingClassifier(epochs=2, classes=range(K), random_state=3).fit(X, labels)
    fold = clf._method().fold.numpy()
    expected = assign_folds(np.arange(3, len(X)), 5, seed=3)
    assert [np.flatnonzero(fold == number).tolist() for number in range(-1, 5)] == [
        [0, 1, 2],
        *(part.tolist() for part in expected),
    ]


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
