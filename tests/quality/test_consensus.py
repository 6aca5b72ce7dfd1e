"""The consensus: the posterior against brute force, planted answers, invariances, storage, and bad input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import (
    Annotations,
    Consensus,
    GatedClassifier,
    MajorityVoteClassifier,
    TrueLabelClassifier,
    consensus,
    load_consensus,
)
from crowdfuse.aggregation import posterior
from crowdfuse.aggregation.votes import Votes
from crowdfuse.estimators.cross_fitting import OutOfFold, trained_rows
from crowdfuse.labels.folds import assign_folds
from crowdfuse.quality.consensus_file import DamagedConsensusError, save_consensus


def make_crowd(seed: int = 0, N: int = 400, K: int = 3, share: float = 0.6) -> dict[str, Any]:
    """Return labels of four annotators, the last of whom guesses, and a classifier that is right on most items."""
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, K, N)
    said = np.stack(
        [np.where(generator.random(N) < skill, gold, generator.integers(0, K, N)) for skill in (0.9, 0.8, 0.6, 0.0)],
        axis=1,
    )
    said[generator.random(said.shape) > share] = -1
    scores = generator.normal(size=(N, K)) + 2 * np.eye(K)[gold]
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return {"gold": gold, "said": said, "probs": probs, "ann": Annotations.from_matrix(said, classes=range(K))}


def posterior_by_hand(found: Consensus, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the posterior of the module's formula with the fitted parameters, by a loop over labels."""
    assert found.confusion_matrices is not None
    floor, K = posterior.UNIFORM_MIXTURE_WEIGHT, len(found.classes)
    ann, C = found.annotations, found.confusion_matrices
    wrong = np.zeros((K, K))  # axes (true, said)
    np.add.at(wrong.T, ann.label, found.class_probabilities[ann.item])
    wrong = (wrong + 1) * (1 - np.eye(K))
    wrong /= wrong.sum(1, keepdims=True)
    share = float(found.parameters["same_mistake_share"])
    soft = np.empty((len(probs), K))
    for n, row in enumerate(probs):
        labels = slice(ann.indptr[n], ann.indptr[n + 1])
        given = list(zip(ann.annotator[labels], ann.label[labels], strict=True))
        for k in range(K):
            p = row[k] * (1 - floor) + floor / K
            soft[n, k] = p ** float(found.parameters["sharpness"]) * np.exp(found.parameters["class_bias"][k])
            independent = np.prod([C[r, k, y] for r, y in given])
            same = sum(
                wrong[k, mistake]
                * np.prod([C[r, k, k] if y == k else (1 - C[r, k, k]) * (y == mistake) for r, y in given])
                for mistake in range(K)
            )
            soft[n, k] *= (1 - share) * independent + share * same
        soft[n] **= float(found.parameters["temperature"])
        soft[n] /= soft[n].sum()
    return soft


@pytest.fixture(scope="module")
def crowd() -> dict[str, Any]:
    return make_crowd()


def test_class_probabilities_are_the_posterior_of_the_stated_model(
    crowd: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the parameters are one step ahead of the posterior: iterate to convergence
    monkeypatch.setattr(posterior, "CONVERGENCE_TOLERANCE", 1e-6)
    monkeypatch.setattr(posterior, "MAX_EM_ITERATIONS", 2000)
    found = consensus(crowd["ann"], crowd["probs"])
    assert found.converged
    by_hand = posterior_by_hand(found, crowd["probs"])
    labelled = found.labels_per_item > 0
    np.testing.assert_allclose(found.class_probabilities[labelled], by_hand[labelled], atol=1e-4)
    ann = found.annotations
    np.testing.assert_allclose(found.suspicion, 1 - by_hand[ann.item, ann.label], atol=1e-4)


def test_gates_shift_the_diagonal_of_the_confusion_matrix() -> None:
    """`AnnotatorModel` with gates against the formula, label by label."""
    generator = np.random.default_rng(0)
    ann = Annotations.from_matrix([[0, 1, -1], [2, 2, 0], [1, -1, 1]])
    K, gate = 3, generator.normal(size=ann.n_labels)
    confusions = generator.dirichlet(np.ones(K), (3, K)).transpose(0, 2, 1)  # axes (annotator, said, true)
    wrong = np.full((K, K), 0.5) * (1 - np.eye(K))
    model = posterior.AnnotatorModel(np.full(3, 0.7), wrong, confusions, 0.8)
    (block,) = Votes(ann).blocks
    expected = np.zeros((3, K))
    for label in range(ann.n_labels):
        r, said = ann.annotator[label], ann.label[label]
        for k in range(K):
            right = confusions[r, k, k]
            odds = right / (1 - right) * np.exp(0.8 * gate[label])
            shifted = odds / (1 + odds)
            p = shifted if said == k else confusions[r, said, k] / (1 - right) * (1 - shifted)
            expected[ann.item[label], k] += np.log(p)
    np.testing.assert_allclose(model.log_label_probability(block, gate), expected, atol=1e-5)


def test_confusions_are_shrunk_counts(crowd: dict[str, Any]) -> None:
    found = consensus(crowd["ann"], crowd["probs"])
    assert found.confusion_matrices is not None
    assert float(found.parameters["temperature"]) == 1
    K, soft, said = 3, found.class_probabilities.astype(float), crowd["said"]
    counts = np.zeros((4, K, K))
    for n, r in zip(*np.nonzero(said >= 0), strict=True):
        counts[r, :, said[n, r]] += soft[n]
    right = counts.trace(axis1=1, axis2=2)
    n_labels = (said >= 0).sum(0)
    everyone = (right.sum() + 0.7 * 2) / (n_labels.sum() + 2)
    accuracy = (right + 10 * everyone) / (n_labels + 10)
    wrong = (counts.sum(0) + 1) * (1 - np.eye(K))
    wrong /= wrong.sum(1, keepdims=True)
    for r in range(4):
        prior = accuracy[r] * np.eye(K) + (1 - accuracy[r]) * wrong
        expected = (counts[r] + 30 * prior) / (counts[r].sum(1, keepdims=True) + 30)
        np.testing.assert_allclose(found.confusion_matrices[r], expected, atol=1e-5)
    np.testing.assert_allclose(found.confusion_matrices.sum(2), 1)


@pytest.mark.parametrize("n_labels", [2, 3, 5])
@pytest.mark.parametrize("has_classifier", [False, True])
def test_planted_accuracies_are_recovered(n_labels: int, has_classifier: bool) -> None:
    """Independent annotators: the plain mean of the posterior would be off by 0.1 and more."""
    generator = np.random.default_rng(n_labels)
    N, K, R = 3000, 3, 8
    gold = generator.integers(0, K, N)
    planted = np.linspace(0.55, 0.85, R)
    said = np.full((N, R), -1)
    for n in range(N):
        for r in generator.choice(R, n_labels, replace=False):
            is_right = generator.random() < planted[r]
            said[n, r] = gold[n] if is_right else (gold[n] + generator.integers(1, K)) % K
    scores = 1.5 * (generator.normal(size=(N, K)) + 1.5 * np.eye(K)[gold])
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True) if has_classifier else None
    found = consensus(Annotations.from_matrix(said), probs)
    truth = np.array([(said[said[:, r] >= 0, r] == gold[said[:, r] >= 0]).mean() for r in range(R)])
    assert np.abs(found.annotator_accuracy - truth).mean() < 0.04
    assert abs(float((found.annotator_accuracy - truth).mean())) < 0.02
    low, high = found.annotator_accuracy_interval.T
    assert ((low <= truth) & (truth <= high)).sum() >= R - 2


def test_a_classifier_that_knows_nothing_leaves_the_consensus_of_the_labels(crowd: dict[str, Any]) -> None:
    alone = consensus(crowd["ann"])
    noise = np.random.default_rng(1).dirichlet(np.ones(3), len(crowd["gold"]))
    for probs in (noise, np.full_like(noise, 1 / 3)):
        found = consensus(crowd["ann"], probs)
        assert float(found.parameters["sharpness"]) == 0
        labelled = found.labels_per_item > 0
        np.testing.assert_array_equal(found.class_probabilities[labelled], alone.class_probabilities[labelled])
        np.testing.assert_array_equal(found.annotator_accuracy, alone.annotator_accuracy)
        assert "labels alone" in " ".join(found.limitations)


def test_independent_mistakes_do_not_lower_the_confidence() -> None:
    generator = np.random.default_rng(0)
    N, K = 1500, 4
    gold = generator.integers(0, K, N)
    said = np.where(generator.random((N, 3)) < 0.85, gold[:, None], generator.integers(0, K, (N, 3)))
    probs = 0.4 * np.eye(K)[gold] + 0.6 * generator.dirichlet(np.ones(K), N)
    found = consensus(Annotations.from_matrix(said), probs)
    assert float(found.parameters["temperature"]) > 0.8
    assert abs(float(found.confidence.mean() - (found.consensus == gold).mean())) < 0.03


def test_the_same_seed_gives_the_same_bits_and_another_seed_other_intervals(crowd: dict[str, Any]) -> None:
    one, same, other = (consensus(crowd["ann"], crowd["probs"], seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.annotator_accuracy_interval, same.annotator_accuracy_interval)
    assert not np.array_equal(one.annotator_accuracy_interval, other.annotator_accuracy_interval)


def test_estimates_of_right_labels_help_where_annotators_depend_on_the_item() -> None:
    generator = np.random.default_rng(0)
    N, K, R = 1000, 4, 3
    gold = generator.integers(0, K, N)
    weak = generator.random((N, R)) < 0.4
    said = np.where(
        generator.random((N, R)) < np.where(weak, 0.3, 0.95), gold[:, None], generator.integers(0, K, (N, R))
    )
    scores = generator.normal(size=(N, K)) + 1.5 * np.eye(K)[gold]
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    ann = Annotations.from_matrix(said)
    right = np.where(weak, 0.4, 0.95).ravel()
    plain, gated = consensus(ann, probs), consensus(ann, probs, right_probability=right)
    assert float(gated.parameters["gate_weight"]) > 0.5
    assert (gated.consensus == gold).mean() > (plain.consensus == gold).mean() + 0.01
    useless = consensus(ann, probs, right_probability=generator.permutation(right))
    assert float(useless.parameters["gate_weight"]) < 0.1
    with pytest.raises(ValueError, match="3,000 labels"):
        consensus(ann, probs, right_probability=right[:-1])
    with pytest.raises(ValueError, match="changes the order"):
        consensus(ann, probs, items=np.arange(N), right_probability=right)


def test_labels_that_cannot_show_accuracies_say_so() -> None:
    single = np.full((60, 6), -1)
    single[np.arange(60), np.arange(60) % 6] = np.arange(60) % 3
    found = consensus(Annotations.from_matrix(single))
    assert np.isnan(found.annotator_accuracy).all()
    assert "no item has more than one label" in found.limitations[0]
    assert found.annotator_table()["accuracy"].null_count == 6
    probs = 0.7 * np.eye(3)[np.arange(60) % 3] + 0.1
    helped = consensus(Annotations.from_matrix(single), probs)
    assert not np.isnan(helped.annotator_accuracy).any()
    assert "No item has more than one label" in helped.limitations[0]
    one = consensus(Annotations.from_matrix(single.max(1, keepdims=True)), probs)
    assert "one annotator" in one.limitations[0]


def test_a_stored_consensus_is_equal_to_the_digit(crowd: dict[str, Any], tmp_path: Path) -> None:
    said = crowd["ann"].to_matrix().astype(object)
    said[said == -1] = None
    ann = Annotations.from_matrix(said, items=[f"item {n}" for n in range(len(said))])
    for found in (consensus(ann, crowd["probs"], items=ann.items), consensus(ann)):
        save_consensus(found, tmp_path / "posterior.safetensors")
        again = load_consensus(str(tmp_path))
        for field in fields(Consensus):
            one, other = getattr(found, field.name), getattr(again, field.name)
            if field.name == "parameters":
                assert {name: value.tolist() for name, value in one.items()} == {
                    name: value.tolist() for name, value in other.items()
                }
            elif isinstance(one, np.ndarray):
                np.testing.assert_array_equal(one, other)
            else:
                assert one == other, field.name


def test_a_damaged_file_is_refused_by_name(crowd: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "posterior.safetensors"
    for missing in (path, tmp_path):
        with pytest.raises(DamagedConsensusError, match=r"posterior\.safetensors does not exist; .* 'crowdfuse fit'"):
            load_consensus(missing)
    save_consensus(consensus(crowd["ann"], crowd["probs"]), path)
    content = path.read_bytes()
    for damaged in (
        b"",
        content[:100],
        content[: len(content) // 2],
        content.replace(b"label_indptr", b"label_indptX"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DamagedConsensusError, match=r"posterior\.safetensors"):
            load_consensus(path)


def test_it_finds_wrong_labels_and_bad_annotators(crowd: dict[str, Any]) -> None:
    found = consensus(crowd["ann"], crowd["probs"])
    ann, gold = found.annotations, crowd["gold"]
    wrong = ann.label != gold[ann.item]
    suspected = np.argsort(-found.suspicion)[:150]
    assert wrong[suspected].mean() > 0.95 > 2 * wrong.mean()
    truth = [float((~wrong)[ann.annotator == r].mean()) for r in range(4)]
    np.testing.assert_allclose(found.annotator_accuracy, truth, atol=0.06)
    alone = (crowd["probs"].argmax(1) == gold).mean()
    assert (found.consensus_codes == gold).mean() > alone + 0.03
    # calibrated: of labels with suspicion of about s, a share of about s is wrong
    assert abs(float(found.suspicion.mean() - wrong.mean())) < 0.03


def test_the_sharpness_undoes_a_temperature(crowd: dict[str, Any]) -> None:
    honest = consensus(crowd["ann"], crowd["probs"])
    dull = crowd["probs"] ** 0.4
    found = consensus(crowd["ann"], dull / dull.sum(1, keepdims=True))
    ratio = float(found.parameters["sharpness"] / honest.parameters["sharpness"])
    assert ratio == pytest.approx(1 / 0.4, rel=0.05)
    np.testing.assert_allclose(found.suspicion, honest.suspicion, atol=0.03)


def test_a_classifier_that_learned_the_labels_is_not_sharpened(crowd: dict[str, Any]) -> None:
    dull = crowd["probs"] ** 0.4
    found = consensus(crowd["ann"], dull / dull.sum(1, keepdims=True), n_folds=0)
    assert float(found.parameters["sharpness"]) == 1


@pytest.mark.parametrize("K", [2, 3])
def test_a_classifier_at_chance_says_nothing_about_annotators_of_single_labels(K: int) -> None:
    n_used, n_repetitions = 0, 20
    for seed in range(n_repetitions):
        generator = np.random.default_rng([seed, K])
        n = 200
        said, who = generator.integers(0, K, n), generator.integers(0, 4, n)
        probs = generator.dirichlet(np.full(K, 5.0), n)  # knows nothing about the labels
        ann = Annotations.from_table({"item": np.arange(n), "annotator": who, "label": said})
        found = consensus(ann, probs, items=np.arange(n), classes=np.arange(K))
        n_used += int(np.isfinite(found.annotator_accuracy).any())
    assert n_used <= 4  # of 20; a test at the 5 % level lets one through on average


def test_single_labels_are_the_consensus_if_the_classifier_is_uninformative() -> None:
    generator = np.random.default_rng(3)
    said = np.full((300, 30), -1)
    said[np.arange(300), generator.integers(0, 30, 300)] = generator.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    found = consensus(Annotations.from_matrix(said), np.full((300, 4), 0.25))
    assert (found.consensus_codes == said.max(1)).all()


def test_an_item_without_labels_gets_the_calibrated_classifier(crowd: dict[str, Any]) -> None:
    found = consensus(crowd["ann"], crowd["probs"])
    empty = np.flatnonzero(found.labels_per_item == 0)
    assert len(empty)
    sharper = np.log(crowd["probs"][empty] * 0.999 + 0.001 / 3) * min(1.0, float(found.parameters["sharpness"]))
    expected = np.exp(sharper + found.parameters["class_bias"])
    np.testing.assert_allclose(found.class_probabilities[empty], expected / expected.sum(1, keepdims=True), atol=1e-5)
    table = {row["item"]: row for row in found.to_table().to_pylist()}
    assert all(table[n]["share_of_votes"] is None and table[n]["n_labels"] == 0 for n in empty.tolist())


def test_gold_is_certain_and_shows_which_annotators_are_right() -> None:
    generator = np.random.default_rng(0)
    gold = generator.integers(0, 2, 300)
    said = np.where(generator.random((300, 3)) < [0.1, 0.1, 0.95], gold[:, None], 1 - gold[:, None])
    said[0] = -1
    ann, unsure = Annotations.from_matrix(said), np.full((300, 2), 0.5)
    some = np.where(np.arange(300) < 60, gold, np.nan)
    misled, found = consensus(ann, unsure), consensus(ann, unsure, gold=some)
    assert (misled.consensus[60:] == gold[60:]).mean() < 0.2  # two mostly wrong annotators outvote a mostly right one
    assert (found.consensus[60:] == gold[60:]).mean() > 0.9
    assert found.consensus[:60].tolist() == gold[:60].tolist()  # the first has no labels
    assert (found.confidence[:60] == 1).all()
    of_gold = ann.item < 60
    np.testing.assert_array_equal(found.suspicion[of_gold], (ann.label != gold[ann.item])[of_gold])
    nothing = consensus(ann, unsure, gold=[None] * 300)
    np.testing.assert_array_equal(nothing.suspicion, misled.suspicion)
    with pytest.raises(ValueError, match="gold contains 7"):
        consensus(ann, unsure, gold=[7] * 300)


def test_many_annotators_share_their_confusions(crowd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    own = consensus(crowd["ann"], crowd["probs"])
    monkeypatch.setattr(posterior, "MAX_CONFUSION_BYTES", 0)
    shared = consensus(crowd["ann"], crowd["probs"])
    assert shared.confusion_matrices is None
    np.testing.assert_allclose(shared.annotator_accuracy, own.annotator_accuracy, atol=0.05)
    monkeypatch.setattr(posterior, "MAX_CONFUSION_BYTES", 1 << 28)
    for name in ("ANNOTATOR_PRIOR_LABELS", "ROW_PRIOR_LABELS"):  # so that all annotators share one confusion matrix
        monkeypatch.setattr(posterior, name, 1e9)
    no_own = consensus(crowd["ann"], crowd["probs"])
    monkeypatch.setattr(posterior, "MAX_CONFUSION_BYTES", 0)
    np.testing.assert_allclose(consensus(crowd["ann"], crowd["probs"]).suspicion, no_own.suspicion, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_items_annotators_and_classes_does_not_matter(seed: int) -> None:
    crowd = make_crowd(seed, N=80)
    generator = np.random.default_rng(seed)
    found = consensus(crowd["ann"], crowd["probs"])
    rows, people, kinds = generator.permutation(80), generator.permutation(4), generator.permutation(3)
    said = np.where(crowd["said"] < 0, -1, np.argsort(kinds)[crowd["said"]])[np.ix_(rows, people)]
    other = consensus(Annotations.from_matrix(said, classes=range(3)), crowd["probs"][np.ix_(rows, kinds)])
    np.testing.assert_allclose(other.class_probabilities, found.class_probabilities[np.ix_(rows, kinds)], atol=1e-4)
    np.testing.assert_allclose(other.annotator_accuracy, found.annotator_accuracy[people], atol=0.03)  # of draws


def test_the_block_size_does_not_matter(crowd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = consensus(crowd["ann"], crowd["probs"])
    monkeypatch.setattr("crowdfuse.aggregation.votes.FLOATS_PER_BLOCK", 64)
    np.testing.assert_allclose(consensus(crowd["ann"], crowd["probs"]).suspicion, whole.suspicion, atol=1e-5)


def test_rows_are_matched_to_items_by_id() -> None:
    table = {"item": ["b", "a", "a", "c"], "annotator": ["x", "x", "y", "y"], "label": ["no", "yes", "yes", "no"]}
    ann = Annotations.from_table(table)
    probs = {"a": [0.1, 0.9], "b": [0.8, 0.2], "c": [0.7, 0.3], "d": [0.2, 0.8]}
    order = ["d", "c", "a", "b"]
    found = consensus(ann, [probs[item] for item in order], items=order)
    assert found.items.tolist() == order
    assert found.consensus[1:].tolist() == ["no", "yes", "no"]  # the first has no labels
    assert found.predicted_codes is not None
    assert found.classes[found.predicted_codes].tolist() == ["yes", "no", "yes", "no"]
    with pytest.raises(ValueError, match="items="):
        consensus(ann, [probs[item] for item in "abc"])


def test_columns_are_matched_to_classes_by_name() -> None:
    ann = Annotations.from_matrix([["cat", "cat"], ["dog", "dog"], ["cow", "dog"], ["cat", "cat"]])
    probs = np.array([[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    found = consensus(ann, probs, classes=["dog", "cat"])  # the classifier was not trained on class cow
    assert found.classes.tolist() == ["dog", "cat", "cow"]
    assert found.consensus.tolist() == ["cat", "dog", "dog", "cat"]
    assert found.suspicious_labels()["label"][0].as_py() == "cow"


def test_tables_are_sorted_by_what_to_look_at_first_and_use_names() -> None:
    table = {
        "item": ["a", "a", "a", "b", "b", "c"],
        "annotator": ["ada", "bob", "cy", "ada", "cy", "bob"],
        "label": ["cat", "cat", "dog", "dog", "dog", "cat"],
    }
    found = consensus(Annotations.from_table(table), [[0.9, 0.1], [0.2, 0.8], [0.45, 0.55]], items=["a", "b", "c"])
    labels = found.suspicious_labels().to_pylist()
    assert labels[0] == {
        "item": "a", "annotator": "cy", "label": "dog", "consensus": "cat", "suspicion": found.suspicion.max(),
    }  # fmt: skip
    assert [row["suspicion"] for row in labels] == sorted(found.suspicion, reverse=True)
    items = {row["item"]: row for row in found.to_table().to_pylist()}
    assert (items["a"]["n_labels"], items["a"]["share_of_votes"]) == (3, pytest.approx(2 / 3))
    assert (items["c"]["predicted"], items["c"]["predicted_confidence"]) == ("dog", pytest.approx(0.55))
    confidence = found.to_table()["confidence"].to_pylist()
    assert confidence == sorted(confidence) == sorted(found.confidence.tolist())
    annotators = found.annotator_table().to_pylist()
    assert [row["accuracy_high"] for row in annotators] == sorted(row["accuracy_high"] for row in annotators)
    assert {row["annotator"]: row["n_labels"] for row in annotators} == {"ada": 2, "bob": 2, "cy": 2}


def test_tables_accept_numbers_as_names() -> None:
    found = consensus(Annotations.from_matrix([[3, 3, 5]], classes=[3, 5]), [[0.6, 0.4]])
    row = found.to_table().to_pylist()[0]
    assert (row["item"], row["label"], row["n_labels"]) == (0, 3, 3)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (np.full((2, 3), 1 / 3), "2 classes"),
        (np.full(2, 0.5), "column_stack"),
        (np.full((3, 2), 0.5), "pred_probs has 3 rows, but the labels are of 2 items"),
        ([[0.5, 0.5], [0.5, np.nan]], r"pred_probs\[1, 1\] is nan"),
        ([[0.5, 0.5], [1.5, -0.5]], r"pred_probs\[1, 0\] is 1.5"),
        ([[0.5, 0.5], [0.2, 0.2]], r"pred_probs\[1\] sums to 0.4"),
        ([["a", "b"], ["c", "d"]], "array of probabilities"),
    ],
)
def test_invalid_probabilities_are_refused(probs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        consensus(Annotations.from_matrix([[0, 1], [1, 1]]), probs)


def test_other_types_than_annotations_are_refused() -> None:
    with pytest.raises(TypeError, match="got list"):
        consensus([[0, 1]], [[0.5, 0.5]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no label"):
        consensus(Annotations.from_matrix([[-1, -1]], classes=[0, 1]), [[0.5, 0.5]])


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, crowdfuse; from crowdfuse import Annotations, consensus, next_labels; "
        "found = consensus(Annotations.from_matrix([[0, 1], [1, -1]]), [[.9, .1], [.2, .8]]); "
        "next_labels(found.annotations, found, 1); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# ---- from a fitted classifier -----------------------------------------------------------------------


def fitted_crowd() -> tuple[NDArray[np.float32], NDArray[np.int64], Annotations]:
    generator = np.random.default_rng(5)
    X = generator.normal(size=(200, 2)).astype(np.float32)
    gold = (X[:, 0] > 0).astype(np.int64)
    said = np.where(generator.random((200, 3)) < [0.9, 0.8, 0.7], gold[:, None], 1 - gold[:, None])
    said[generator.random(said.shape) < 0.4] = -1
    return X, gold, Annotations.from_matrix(said)


def test_a_fitted_classifier_judges_labels_in_and_out_of_sample() -> None:
    X, gold, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=3).fit(X, ann)
    quick = clf.consensus(X, ann, folds=0)
    expected = consensus(ann, clf.predict_proba(X), n_folds=0)
    np.testing.assert_array_equal(quick.suspicion, expected.suspicion)
    assert "no cross-fitting" in quick.limitations[0]
    honest = clf.consensus(X, ann, folds=3)
    assert (honest.n_folds, honest.limitations) == (3, ())
    wrong = ann.label != gold[ann.item]
    for found in (quick, honest):
        assert found.suspicion[wrong].mean() > found.suspicion[~wrong].mean() + 0.2
        np.testing.assert_array_equal(found.predicted_codes, clf.predict_proba(X).argmax(1))
    assert not np.array_equal(honest.suspicion, quick.suspicion)
    np.testing.assert_array_equal(clf.consensus(X, ann, folds=3).suspicion, honest.suspicion)


def test_out_of_fold_predictions_come_from_classifiers_that_did_not_see_the_item() -> None:
    """Each fold against a classifier trained by hand without its items."""
    X, _, ann = fitted_crowd()
    clf = GatedClassifier(epochs=3, random_state=1).fit(X, ann)
    found = clf._out_of_fold(clf._inputs(X), ann, None, 4)
    assert found is not None
    assert found.n_folds == 4
    assert found.right_probability is not None
    rows = trained_rows(clf, ann, None)
    for fold in assign_folds(rows, 4):
        train = np.setdiff1d(rows, fold)
        by_hand = GatedClassifier(epochs=3, random_state=1, classes=[0, 1]).fit(X[train], ann[train])
        np.testing.assert_array_equal(found.class_probabilities[fold], by_hand.predict_proba(X[fold]))
        right = by_hand.annotator_accuracy_per_item(X[fold], ann[fold])
        np.testing.assert_array_equal(found.right_probability[np.isin(ann.item, fold)], right)
    unlabelled = np.setdiff1d(np.arange(len(X)), rows)
    np.testing.assert_allclose(found.class_probabilities[unlabelled], clf.predict_proba(X[unlabelled]), atol=1e-6)


def test_a_method_that_cross_fits_by_itself_is_not_cross_fitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=1).fit(X, ann)
    own = OutOfFold(np.full((len(X), 2), 0.5), None, 7)
    monkeypatch.setattr(MajorityVoteClassifier, "_out_of_fold", lambda *_, **__: own)
    monkeypatch.setattr(MajorityVoteClassifier, "fit_prepared", None)
    assert clf.consensus(X, ann).n_folds == 7


def test_a_fitted_classifier_takes_gold_for_certain() -> None:
    X, gold, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=3).fit(X, ann)
    some = np.where(np.arange(len(gold)) < 50, gold, np.nan)
    for folds in (0, 2):
        found = clf.consensus(X, ann, gold=some, folds=folds)
        assert found.consensus[:50].tolist() == gold[:50].tolist()
        assert (found.confidence[:50] == 1).all()
    truth = TrueLabelClassifier(epochs=3).fit(X, ann, gold=some)
    assert len(truth.consensus(X, ann, gold=some, folds=2).suspicion) == ann.n_labels


def test_labels_of_new_annotators_are_judged() -> None:
    X, _, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=1).fit(X, ann)
    new = Annotations.from_matrix([[0, 1], [1, 1]], items=["p", "q"], annotators=["new", "newer"])
    found = clf.consensus(X[:2], new, items=["q", "p"], folds=0)
    assert found.items.tolist() == ["q", "p"]
    assert found.annotators.tolist() == ["new", "newer"]


@pytest.mark.parametrize("folds", [1, -1, True, 2.5, None])
def test_invalid_folds_are_refused(folds: Any) -> None:
    X, _, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=1).fit(X, ann)
    with pytest.raises(ValueError, match="folds must be"):
        clf.consensus(X, ann, folds=folds)


def test_fewer_items_than_folds_and_rare_classes_work() -> None:
    X, _, ann = fitted_crowd()
    rows = np.flatnonzero(np.diff(ann.indptr) > 1)[:3]
    few = MajorityVoteClassifier(epochs=1, classes=[0, 1]).fit(X[rows], ann[rows]).consensus(X[rows], ann[rows])
    assert few.n_folds == 3
    said = ann.to_matrix()
    said[7] = 2  # the only item of its class
    rare = Annotations.from_matrix(said)
    found = MajorityVoteClassifier(epochs=1).fit(X, rare).consensus(X, rare)
    assert found.n_folds == 5
    assert found.classes.tolist() == [0, 1, 2]
    assert "class 2: it is the consensus of 1 item, but at least 5 are needed" in " ".join(found.limitations)
    assert not MajorityVoteClassifier(epochs=1).fit(X, ann).consensus(X, ann).limitations
