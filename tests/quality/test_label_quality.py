"""`quality`: the posterior against brute force, known answers, invariances, and bad input."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import Annotations, LabelQuality, MajorityVoteClassifier, TrueLabelClassifier, label_quality

MODULE = sys.modules["crowdfuse.quality.label_quality"]


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


def posterior_by_hand(found: LabelQuality, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the posterior of the docstring's formula with the fitted parameters, by a loop over labels."""
    assert found.confusion_matrices is not None
    floor, K = MODULE.UNIFORM_MIXTURE_WEIGHT, len(found.classes)
    ann = found.annotations
    soft = np.empty((len(probs), K))
    for n, row in enumerate(probs):
        for k in range(K):
            p = row[k] * (1 - floor) + floor / K
            soft[n, k] = p ** float(found.parameters["sharpness"]) * np.exp(found.parameters["class_bias"][k])
            for place in range(ann.indptr[n], ann.indptr[n + 1]):
                soft[n, k] *= found.confusion_matrices[ann.annotator[place], k, ann.label[place]]
        soft[n] /= soft[n].sum()
    return soft


@pytest.fixture(scope="module")
def crowd() -> dict[str, Any]:
    return make_crowd()


def test_soft_labels_are_the_posterior_that_the_docstring_states(
    crowd: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MODULE, "CONVERGENCE_TOLERANCE", 1e-6
    )  # the parameters are one step ahead of the posterior: iterate to convergence
    monkeypatch.setattr(MODULE, "MAX_EM_ITERATIONS", 2000)
    found = label_quality(crowd["ann"], crowd["probs"])
    assert found.converged
    by_hand = posterior_by_hand(found, crowd["probs"])
    np.testing.assert_allclose(found.class_probabilities, by_hand, atol=1e-4)
    ann = found.annotations
    np.testing.assert_allclose(found.suspicion, 1 - by_hand[ann.item, ann.label], atol=1e-4)


def test_confusions_are_shrunk_counts(crowd: dict[str, Any]) -> None:
    found = label_quality(crowd["ann"], crowd["probs"])
    assert found.confusion_matrices is not None
    K, soft, said = 3, found.class_probabilities.astype(float), crowd["said"]
    counts = np.zeros((4, K, K))
    for n, r in zip(*np.nonzero(said >= 0), strict=True):
        counts[r, :, said[n, r]] += soft[n]
    right = counts.trace(axis1=1, axis2=2)
    n_labels = (said >= 0).sum(0)
    everyone = (right.sum() / n_labels.sum() + 0.5 * 0.9) / 1.5
    accuracy = (right + 10 * everyone) / (n_labels + 10)
    wrong = (counts.sum(0) + 1) * (1 - np.eye(K))
    wrong /= wrong.sum(1, keepdims=True)
    for r in range(4):
        prior = accuracy[r] * np.eye(K) + (1 - accuracy[r]) * wrong
        expected = (counts[r] + 10 * prior) / (counts[r].sum(1, keepdims=True) + 10)
        np.testing.assert_allclose(found.confusion_matrices[r], expected, atol=1e-5)
    np.testing.assert_allclose(found.confusion_matrices.sum(2), 1)
    np.testing.assert_allclose(found.annotator_accuracy, right / n_labels, atol=1e-5)


def test_it_finds_wrong_labels_and_bad_annotators(crowd: dict[str, Any]) -> None:
    found = label_quality(crowd["ann"], crowd["probs"])
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
    honest = label_quality(crowd["ann"], crowd["probs"])
    dull = crowd["probs"] ** 0.4
    found = label_quality(crowd["ann"], dull / dull.sum(1, keepdims=True))
    ratio = float(found.parameters["sharpness"] / honest.parameters["sharpness"])
    assert ratio == pytest.approx(1 / 0.4, rel=0.05)
    np.testing.assert_allclose(found.suspicion, honest.suspicion, atol=0.03)


def test_a_classifier_that_learned_the_labels_is_not_sharpened(crowd: dict[str, Any]) -> None:
    dull = crowd["probs"] ** 0.4
    found = label_quality(crowd["ann"], dull / dull.sum(1, keepdims=True), out_of_fold=False)
    assert float(found.parameters["sharpness"]) == 1


def test_single_labels_are_the_consensus_if_the_classifier_is_uninformative() -> None:
    generator = np.random.default_rng(3)
    said = np.full((300, 30), -1)
    said[np.arange(300), generator.integers(0, 30, 300)] = generator.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    found = label_quality(Annotations.from_matrix(said), np.full((300, 4), 0.25))
    assert (found.consensus_codes == said.max(1)).all()


def test_an_item_without_labels_gets_the_calibrated_classifier(crowd: dict[str, Any]) -> None:
    found = label_quality(crowd["ann"], crowd["probs"])
    empty = np.flatnonzero(found.labels_per_item == 0)
    assert len(empty)
    sharper = np.log(crowd["probs"][empty] * 0.999 + 0.001 / 3) * float(found.parameters["sharpness"])
    expected = np.exp(sharper + found.parameters["class_bias"])
    np.testing.assert_allclose(found.class_probabilities[empty], expected / expected.sum(1, keepdims=True), atol=1e-5)
    assert not set(found.review_items()["item"].to_pylist()) & set(empty.tolist())


def test_gold_is_certain_and_shows_which_annotators_are_right() -> None:
    generator = np.random.default_rng(0)
    gold = generator.integers(0, 2, 300)
    said = np.where(generator.random((300, 3)) < [0.1, 0.1, 0.95], gold[:, None], 1 - gold[:, None])
    said[0] = -1
    ann, unsure = Annotations.from_matrix(said), np.full((300, 2), 0.5)
    some = np.where(np.arange(300) < 60, gold, np.nan)
    misled, found = label_quality(ann, unsure), label_quality(ann, unsure, gold=some)
    assert (misled.consensus[60:] == gold[60:]).mean() < 0.2  # two mostly wrong annotators outvote a mostly right one
    assert (found.consensus[60:] == gold[60:]).mean() > 0.9
    assert found.consensus[:60].tolist() == gold[:60].tolist()  # the first has no labels
    assert (found.confidence[:60] == 1).all()
    of_gold = ann.item < 60
    np.testing.assert_array_equal(found.suspicion[of_gold], (ann.label != gold[ann.item])[of_gold])
    nothing = label_quality(ann, unsure, gold=[None] * 300)
    np.testing.assert_array_equal(nothing.suspicion, misled.suspicion)
    with pytest.raises(ValueError, match="gold contains 7"):
        label_quality(ann, unsure, gold=[7] * 300)


def test_many_annotators_share_their_confusions(crowd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    own = label_quality(crowd["ann"], crowd["probs"])
    monkeypatch.setattr(MODULE, "MAX_CONFUSION_BYTES", 0)
    shared = label_quality(crowd["ann"], crowd["probs"])
    assert shared.confusion_matrices is None
    np.testing.assert_allclose(shared.annotator_accuracy, own.annotator_accuracy, atol=0.05)
    monkeypatch.setattr(MODULE, "MAX_CONFUSION_BYTES", 1 << 28)
    monkeypatch.setattr(MODULE, "ANNOTATOR_PRIOR_LABELS", 1e9)  # so that all annotators share one confusion matrix
    no_own = label_quality(crowd["ann"], crowd["probs"])
    monkeypatch.setattr(MODULE, "MAX_CONFUSION_BYTES", 0)
    np.testing.assert_allclose(label_quality(crowd["ann"], crowd["probs"]).suspicion, no_own.suspicion, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_items_annotators_and_classes_does_not_matter(seed: int) -> None:
    crowd = make_crowd(seed, N=80)
    generator = np.random.default_rng(seed)
    found = label_quality(crowd["ann"], crowd["probs"])
    rows, people, kinds = generator.permutation(80), generator.permutation(4), generator.permutation(3)
    said = np.where(crowd["said"] < 0, -1, np.argsort(kinds)[crowd["said"]])[np.ix_(rows, people)]
    other = label_quality(Annotations.from_matrix(said, classes=range(3)), crowd["probs"][np.ix_(rows, kinds)])
    np.testing.assert_allclose(other.class_probabilities, found.class_probabilities[np.ix_(rows, kinds)], atol=1e-4)
    np.testing.assert_allclose(other.annotator_accuracy, found.annotator_accuracy[people], atol=1e-4)


def test_the_block_size_does_not_matter(crowd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = label_quality(crowd["ann"], crowd["probs"])
    monkeypatch.setattr("crowdfuse.aggregation.votes.FLOATS_PER_BLOCK", 64)
    np.testing.assert_allclose(label_quality(crowd["ann"], crowd["probs"]).suspicion, whole.suspicion, atol=1e-5)


def test_rows_are_matched_to_items_by_id() -> None:
    table = {"item": ["b", "a", "a", "c"], "annotator": ["x", "x", "y", "y"], "label": ["no", "yes", "yes", "no"]}
    ann = Annotations.from_table(table)
    probs = {"a": [0.1, 0.9], "b": [0.8, 0.2], "c": [0.7, 0.3], "d": [0.2, 0.8]}
    order = ["d", "c", "a", "b"]
    found = label_quality(ann, [probs[item] for item in order], items=order)
    assert found.items.tolist() == order
    assert found.consensus.tolist() == ["yes", "no", "yes", "no"]
    with pytest.raises(ValueError, match="items="):
        label_quality(ann, [probs[item] for item in "abc"])


def test_columns_are_matched_to_classes_by_name() -> None:
    ann = Annotations.from_matrix([["cat", "cat"], ["dog", "dog"], ["cow", "dog"], ["cat", "cat"]])
    probs = np.array([[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    found = label_quality(ann, probs, classes=["dog", "cat"])  # the classifier was not trained on class cow
    assert found.classes.tolist() == ["dog", "cat", "cow"]
    assert found.consensus.tolist() == ["cat", "dog", "dog", "cat"]
    assert found.review_labels()["label"][0].as_py() == "cow"


def test_review_tables_are_sorted_and_use_names() -> None:
    table = {
        "item": ["a", "a", "a", "b", "b", "c"],
        "annotator": ["ada", "bob", "cy", "ada", "cy", "bob"],
        "label": ["cat", "cat", "dog", "dog", "dog", "cat"],
    }
    found = label_quality(Annotations.from_table(table), [[0.9, 0.1], [0.2, 0.8], [0.45, 0.55]], items=["a", "b", "c"])
    labels = found.review_labels().to_pylist()
    assert labels[0] == {
        "item": "a", "annotator": "cy", "label": "dog", "consensus": "cat", "suspicion": found.suspicion.max(),
    }  # fmt: skip
    assert [row["suspicion"] for row in labels] == sorted(found.suspicion, reverse=True)
    items = {row["item"]: row for row in found.review_items().to_pylist()}
    assert (items["a"]["labels"], items["a"]["disagreeing"]) == ("cat x2; dog x1", "cy")
    assert (items["b"]["labels"], items["b"]["disagreeing"], items["b"]["n_labels"]) == ("dog x2", "", 2)
    confidence = found.review_items()["confidence"].to_pylist()
    assert confidence == sorted(confidence) == sorted(found.confidence.tolist())


def test_review_tables_accept_numbers_as_names() -> None:
    found = label_quality(Annotations.from_matrix([[3, 3, 5]], classes=[3, 5]), [[0.6, 0.4]])
    row = found.review_items().to_pylist()[0]
    assert (row["item"], row["consensus"], row["labels"], row["disagreeing"]) == (0, 3, "3 x2; 5 x1", "2")


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (np.full((2, 3), 1 / 3), "2 classes"),
        (np.full(2, 0.5), "column_stack"),
        (np.full((3, 2), 0.5), "X has 3 rows, but y has 2"),
        ([[0.5, 0.5], [0.5, np.nan]], r"pred_probs\[1, 1\] is nan"),
        ([[0.5, 0.5], [1.5, -0.5]], r"pred_probs\[1, 0\] is 1.5"),
        ([[0.5, 0.5], [0.2, 0.2]], r"pred_probs\[1\] sums to 0.4"),
        ([["a", "b"], ["c", "d"]], "array of probabilities"),
    ],
)
def test_invalid_probabilities_are_refused(probs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label_quality(Annotations.from_matrix([[0, 1], [1, 1]]), probs)


def test_other_types_than_annotations_are_refused() -> None:
    with pytest.raises(TypeError, match="got list"):
        label_quality([[0, 1]], [[0.5, 0.5]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no label"):
        label_quality(Annotations.from_matrix([[-1, -1]], classes=[0, 1]), [[0.5, 0.5]])


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, crowdfuse; from crowdfuse import Annotations, label_quality, next_labels; "
        "found = label_quality(Annotations.from_matrix([[0, 1], [1, -1]]), [[.9, .1], [.2, .8]]); "
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
    quick = clf.label_quality(X, ann)
    expected = label_quality(ann, clf.predict_proba(X), out_of_fold=False)
    np.testing.assert_array_equal(quick.suspicion, expected.suspicion)
    honest = clf.label_quality(X, ann, folds=3)
    wrong = ann.label != gold[ann.item]
    for found in (quick, honest):
        assert found.suspicion[wrong].mean() > found.suspicion[~wrong].mean() + 0.4
    assert not np.array_equal(honest.suspicion, quick.suspicion)
    np.testing.assert_array_equal(clf.label_quality(X, ann, folds=3).suspicion, honest.suspicion)


def test_a_fitted_classifier_takes_gold_for_certain() -> None:
    X, gold, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=3).fit(X, ann)
    some = np.where(np.arange(len(gold)) < 50, gold, np.nan)
    for folds in (None, 2):
        found = clf.label_quality(X, ann, gold=some, folds=folds)
        assert found.consensus[:50].tolist() == gold[:50].tolist()
        assert (found.confidence[:50] == 1).all()
    truth = TrueLabelClassifier(epochs=3).fit(X, ann, gold=some)
    assert len(truth.label_quality(X, ann, gold=some, folds=2).suspicion) == ann.n_labels


def test_labels_of_new_annotators_are_judged() -> None:
    X, _, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=1).fit(X, ann)
    new = Annotations.from_matrix([[0, 1], [1, 1]], items=["p", "q"], annotators=["new", "newer"])
    found = clf.label_quality(X[:2], new, items=["q", "p"])
    assert found.items.tolist() == ["q", "p"]
    assert found.annotators.tolist() == ["new", "newer"]


@pytest.mark.parametrize("folds", [1, 0, True, 2.5, 1000])
def test_invalid_folds_are_refused(folds: Any) -> None:
    X, _, ann = fitted_crowd()
    clf = MajorityVoteClassifier(epochs=1).fit(X, ann)
    with pytest.raises(ValueError, match="folds must be"):
        clf.label_quality(X, ann, folds=folds)


def test_a_classifier_of_gold_has_no_folds_of_labels() -> None:
    X, gold, ann = fitted_crowd()
    clf = TrueLabelClassifier(epochs=1).fit(X, ann, gold=gold)
    with pytest.raises(ValueError, match="gold"):
        clf.label_quality(X, ann, folds=2)
