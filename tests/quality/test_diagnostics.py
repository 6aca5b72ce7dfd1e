"""Diagnostics: planted faults are found and named with their counts, healthy and small data give no findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.quality.annotator_pairs import choose_pairs, couple, examine_pair
from crowdfuse.quality.diagnostics import diagnose
from crowdfuse.quality.findings import Finding
from crowdfuse.quality.independent_crowd import IndependentCrowd

K, N, R = 4, 600, 6
NAMES = ["ada", "bob", "cleo", "dan", "eve", "fay"]
CLASSES = ["ant", "bee", "cat", "dog"]


def healthy(n: int = N) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return truth, labels (n, R) and predictions."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, K, n)
    is_right = generator.random((n, R)) < np.linspace(0.6, 0.9, R)
    labels = np.where(is_right, truth[:, None], (truth[:, None] + generator.integers(1, K, (n, R))) % K)
    predicted = np.where(generator.random(n) < 0.75, truth, generator.integers(0, K, n))
    return truth, labels, predicted


def make_annotations(labels: NDArray[Any]) -> Annotations:
    names = np.array([*CLASSES, None], object)
    return Annotations.from_matrix(names[labels], annotators=NAMES[: labels.shape[1]], classes=CLASSES)


def find(labels: NDArray[Any], predicted: NDArray[Any] | None, **options: Any) -> tuple[Finding, ...]:
    ann = make_annotations(labels)
    return diagnose(ann, ann.vote_shares(), predicted=predicted, **options)


def test_healthy_labels_give_no_finding() -> None:
    truth, labels, predicted = healthy()
    assert find(labels, predicted, gold=truth) == ()
    labels[np.random.default_rng(1).random(labels.shape) < 0.4] = -1
    assert find(labels, predicted, gold=truth) == ()
    assert find(labels, None) == ()


def test_shared_mistakes_name_the_pair() -> None:
    truth, labels, predicted = healthy()
    shared = np.random.default_rng(1).random(N) < 0.15
    labels[shared, 0] = labels[shared, 3] = (truth[shared] + 1) % K
    (finding,) = find(labels, predicted)
    assert finding.kind == "shared_mistakes"
    assert "ada" in finding.message
    assert "dan" in finding.message
    assert f"on {N} items that both labelled" in finding.message
    assert "third person" in finding.message
    assert finding.n == N
    assert finding.p_value < 0.01


def test_copied_labels_name_the_pair_and_the_disagreements() -> None:
    _, labels, predicted = healthy()
    labels[:, 2] = labels[:, 1]
    labels[:7, 2] = (labels[:7, 1] + 1) % K
    (finding,) = find(labels, predicted)
    assert finding.kind == "copied_labels"
    assert finding.message.startswith("bob and cleo")
    assert f"disagree on 7 of {N} items that both labelled" in finding.message


def make_crowd(truth: NDArray[Any], sources: NDArray[Any], n_classes: int = K) -> IndependentCrowd:
    item, source = np.divmod(np.arange(sources.size), sources.shape[1])
    return IndependentCrowd(item, source, sources.ravel(), sources.shape[1], n_classes, np.eye(n_classes)[truth])


def test_expected_counts_of_a_pair_match_known_confusions() -> None:
    truth, labels, predicted = healthy(3_000)
    crowd = make_crowd(truth, np.column_stack([labels, predicted]))
    chosen = choose_pairs(crowd, R)
    assert chosen.n_pairs == len(chosen.pairs) == R * (R - 1) // 2
    accuracy = np.linspace(0.6, 0.9, R)
    for first, second in chosen.pairs[::2]:
        pair = examine_pair(crowd, (first, second))
        assert pair is not None
        e, f = 1 - accuracy[[first, second]]
        disagreement = 1 - (1 - e) * (1 - f) - e * f / (K - 1)
        assert pair.expected_disagreements / pair.n_examined == pytest.approx(disagreement, abs=0.04)
        assert pair.same_mistakes / pair.n_examined == pytest.approx(e * f / (K - 1), abs=0.015)
        assert pair.expected_same_mistakes / pair.n_examined == pytest.approx(e * f / (K - 1), abs=0.015)
        assert pair.dependence < 0.1


def test_coupled_labels_keep_both_confusion_matrices_and_agree_as_often_as_possible() -> None:
    generator = np.random.default_rng(0)
    for n_classes in (2, 3, 7):
        first, second = generator.dirichlet(np.ones(n_classes), (2, n_classes)).transpose(0, 2, 1)
        both = couple(first, second)
        assert (both >= 0).all()
        np.testing.assert_allclose(both.sum(1), first)
        np.testing.assert_allclose(both.sum(0), second)
        np.testing.assert_allclose(np.einsum("aak->k", both), np.minimum(first, second).sum(0))
        np.testing.assert_allclose(np.einsum("aak->k", couple(first, first)), 1)


def test_dependence_is_the_share_of_coupled_labels() -> None:
    """The second annotator repeats the first on 40 % of the items; both have the same confusion matrix."""
    generator = np.random.default_rng(0)
    n = 1_500
    truth = generator.integers(0, 3, n)
    labels = np.where(generator.random((n, 6)) < 0.7, truth[:, None], generator.integers(0, 3, (n, 6)))
    repeats = generator.random(n) < 0.4
    labels[repeats, 1] = labels[repeats, 0]
    crowd = make_crowd(truth, labels, 3)
    pair, other = examine_pair(crowd, (0, 1)), examine_pair(crowd, (2, 3))
    assert pair is not None
    assert other is not None
    assert pair.dependence == pytest.approx(0.4, abs=0.06)
    assert pair.log_ratio > 20
    same = (labels[:, 0] == labels[:, 1]) & (labels[:, 0] != truth)
    assert pair.same_mistakes == pytest.approx(same.sum(), rel=0.15)
    assert pair.same_mistakes > 2 * pair.expected_same_mistakes
    assert other.log_ratio < 3


def shared_mistakes(n: int, n_annotators: int, n_classes: int, share: float, seed: int) -> Annotations:
    """Return labels, 75 % of them right, in which the second annotator repeats a share of the first one's mistakes."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, n_classes, n)
    wrong = (truth[:, None] + generator.integers(1, n_classes, (n, n_annotators))) % n_classes
    labels = np.where(generator.random((n, n_annotators)) < 0.75, truth[:, None], wrong)
    repeats = (labels[:, 0] != truth) & (generator.random(n) < share)
    labels[repeats, 1] = labels[repeats, 0]
    return Annotations.from_matrix(labels, classes=range(n_classes))


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_shared_mistakes_are_found_among_five_annotators_and_nobody_else_is_accused(n_classes: int) -> None:
    """Two of five annotators who repeat each other make the other three look as if they shared mistakes."""
    ann = shared_mistakes(1_000, 5, n_classes, 0.6, seed=n_classes)
    (finding,) = diagnose(ann, ann.vote_shares())
    assert finding.kind == "shared_mistakes"
    assert finding.message.startswith("Annotator 0 and annotator 1 ")


def test_items_that_mislead_everybody_accuse_no_pair() -> None:
    """All pairs make the same mistakes more often than independent annotators, and all equally often."""
    generator = np.random.default_rng(3)
    n = 1_500
    truth = generator.integers(0, K, n)
    hard = generator.random(n) < 0.2
    right = generator.random((n, 8)) < np.where(hard, 0.4, 0.9)[:, None]
    labels = np.where(right, truth[:, None], ((truth + 1) % K)[:, None])
    ann = Annotations.from_matrix(labels, classes=range(K))
    crowd = make_crowd(truth, labels)
    evidence = examine_pair(crowd, (0, 1))
    assert evidence is not None
    assert evidence.log_ratio > 5  # the dependence is there, but it is usual
    assert diagnose(ann, ann.vote_shares()) == ()


@pytest.mark.parametrize("constant", [False, True])
def test_an_annotator_who_guesses_is_named(constant: bool) -> None:
    _, labels, predicted = healthy()
    labels[:, 4] = 2 if constant else np.random.default_rng(2).integers(0, K, N)
    (finding,) = find(labels, predicted)
    assert finding.kind == "uninformative_annotator"
    assert finding.message.startswith("eve")
    assert f"of {N} labels" in finding.message
    assert ("Every label is cat" in finding.message) is constant
    assert finding.n == N


def test_an_annotator_who_swaps_classes_is_informative() -> None:
    _, labels, predicted = healthy()
    labels[:, 4] = np.array([1, 0, 3, 2])[labels[:, 4]]
    assert find(labels, predicted) == ()


def test_a_class_that_is_never_predicted_is_named_with_its_count() -> None:
    truth, labels, predicted = healthy()
    ann = make_annotations(labels)
    predicted = np.where(predicted == 3, 0, predicted)
    (finding,) = diagnose(ann, np.eye(K)[truth], predicted=predicted, out_of_fold=False)
    assert finding.kind == "class_never_predicted"
    assert "never predicts class dog" in finding.message
    assert f"about {(truth == 3).sum()} of {N}" in finding.message
    predicted[:3] = 3
    (finding,) = diagnose(ann, np.eye(K)[truth], predicted=predicted, out_of_fold=False)
    assert "predicts class dog for only 3 items" in finding.message


def test_p_value_of_a_class_is_corrected_for_the_number_of_classes() -> None:
    """Three classes with enough items are tested; the test is the binomial probability of no prediction."""
    truth = np.repeat([0, 1, 2], [200, 200, 30])
    ann = make_annotations(np.stack([truth] * 2, 1))
    predicted = np.where(truth == 2, 1, truth)
    (finding,) = diagnose(ann, np.eye(K)[truth], predicted=predicted, out_of_fold=False)
    assert finding.p_value == pytest.approx(3 * 0.75**30)


def test_gold_that_contradicts_the_consensus_is_counted() -> None:
    truth, labels, predicted = healthy()
    gold = np.where(np.arange(N) < 100, truth, -1)
    gold[:40] = (gold[:40] + 1) % K
    ann = make_annotations(labels)
    (finding,) = diagnose(ann, 0.96 * np.eye(K)[truth] + 0.01, predicted=predicted, gold=gold)
    assert finding.kind == "gold_contradicts_consensus"
    assert "on 40 of 100 items" in finding.message
    assert "only about 3" in finding.message
    assert finding.n == 100


def test_a_classifier_that_learned_wrong_gold_does_not_mean_that_the_labels_ignore_the_inputs() -> None:
    truth, labels, predicted = healthy()
    gold = np.where(np.arange(N) < N // 2, (truth + 1) % K, -1)
    learned = np.where(np.random.default_rng(4).random(N) < 0.85, (truth + 1) % K, predicted)
    assert [finding.kind for finding in find(labels, learned)] == ["labels_ignore_inputs"]
    ann = make_annotations(labels)
    found = diagnose(ann, 0.96 * np.eye(K)[truth] + 0.01, predicted=learned, gold=gold)
    assert [finding.kind for finding in found] == ["gold_contradicts_consensus"]


def test_predictions_no_better_than_chance_are_reported_if_out_of_fold() -> None:
    _, labels, predicted = healthy()
    shuffled = np.random.default_rng(3).permutation(predicted)
    (finding,) = find(labels, shuffled)
    assert finding.kind == "labels_ignore_inputs"
    assert f"{N} items" in finding.message
    assert find(labels, shuffled, out_of_fold=False) == ()


def test_little_data_gives_no_finding() -> None:
    truth, labels, _ = healthy(18)
    labels[:, 1] = labels[:, 0]
    labels[:, 2] = 0
    assert find(labels, np.zeros(18, int), gold=(truth + 1) % K) == ()
    assert find(np.full((5, R), -1), None) == ()


def test_unlabelled_items_may_have_no_probabilities() -> None:
    _, labels, predicted = healthy()
    labels[:50] = -1
    ann = make_annotations(labels)
    assert np.isnan(ann.vote_shares()[:50]).all()
    assert diagnose(ann, ann.vote_shares(), predicted=predicted) == ()


def test_arrays_that_do_not_match_are_refused() -> None:
    _, labels, predicted = healthy(50)
    ann = make_annotations(labels)
    with pytest.raises(ValueError, match=r"\(50, 4\)"):
        diagnose(ann, np.zeros((49, K)))
    with pytest.raises(ValueError, match="not finite"):
        diagnose(ann, np.full((50, K), np.nan))
    with pytest.raises(ValueError, match="one integer per item"):
        diagnose(ann, ann.vote_shares(), predicted=predicted[:9])
    with pytest.raises(ValueError, match=r"gold\[0\] is 7"):
        diagnose(ann, ann.vote_shares(), gold=np.full(50, 7))


@pytest.mark.parametrize("n", [600, 2_000, 4_000])
def test_three_annotators_of_all_items_are_too_few_to_judge_a_pair_in_crowds_of_any_size(n: int) -> None:
    truth, labels, _ = healthy(n)
    assert examine_pair(make_crowd(truth, labels[:, :3]), (0, 1)) is None
    assert examine_pair(make_crowd(truth, labels[:, :4]), (0, 1)) is not None


def test_a_finding_on_a_sample_of_the_common_items_says_so() -> None:
    truth, labels, predicted = healthy(2_000)
    shared = np.random.default_rng(1).random(len(truth)) < 0.15
    labels[shared, 0] = labels[shared, 3] = (truth[shared] + 1) % K
    (finding,) = find(labels, predicted)
    assert "on 1,500 of the items that both labelled" in finding.message
    assert finding.n == 1_500
