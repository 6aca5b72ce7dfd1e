"""Properties of every aggregation method."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from crowdfuse import Annotations
from crowdfuse.aggregation import AGGREGATORS, ITERATIVE, Aggregate, mace
from crowdfuse.synthesis import hammer_spammer_annotators
from tests.aggregation.crowds import crowds, planted

every_method = pytest.mark.parametrize("name", AGGREGATORS)


@every_method
@settings(deadline=None, max_examples=30)
@given(ann=crowds())
def test_any_annotations_give_probabilities_and_accuracies(name: str, ann: Annotations) -> None:
    result = AGGREGATORS[name](ann)
    labelled = np.diff(ann.indptr) > 0
    has_labels = np.bincount(ann.annotator, minlength=ann.n_annotators) > 0
    np.testing.assert_allclose(result.class_probabilities[labelled].sum(1), 1, atol=1e-5)
    assert np.isnan(result.class_probabilities[~labelled]).all()
    assert (result.consensus_codes[~labelled] == -1).all()
    best = result.class_probabilities[labelled, result.consensus_codes[labelled]]
    np.testing.assert_array_equal(result.confidence[labelled], best)
    likely = np.nan_to_num(result.class_probabilities)[ann.item, ann.label]
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(ann.annotator, likely, ann.n_annotators) / np.bincount(
            ann.annotator, minlength=ann.n_annotators
        )
    np.testing.assert_allclose(result.annotator_accuracy, accuracy)
    assert (np.isnan(result.annotator_accuracy) == ~has_labels).all()
    for what, values in result.parameters.items():
        if what == "class_prior":
            np.testing.assert_allclose(values.sum(), 1)
        else:
            known = labelled if what == "difficulty" else has_labels
            assert np.isfinite(values[known]).all()
            assert np.isnan(values[~known]).all()


@pytest.mark.parametrize("name", ITERATIVE)
@settings(deadline=None, max_examples=30)
@given(ann=crowds())
def test_the_log_likelihood_never_decreases(name: str, ann: Annotations) -> None:
    for chosen in [{}, {"smoothing": 0.0}] if name in ("dawid-skene", "one-coin") else [{}]:
        log_likelihoods = np.array(ITERATIVE[name](ann, max_iter=15, tol=0, **chosen).log_likelihood)
        assert len(log_likelihoods) == 15
        assert (np.diff(log_likelihoods) >= -1e-7 * np.abs(log_likelihoods[1:]) - 1e-7).all()


@every_method
def test_planted_accuracies_are_recovered(name: str) -> None:
    ann, truth, share = planted()
    result = AGGREGATORS[name](ann)
    assert (result.consensus == truth).mean() > (0.9 if name in ITERATIVE else 0.85)
    if name in ITERATIVE:
        np.testing.assert_allclose(result.annotator_accuracy, share, atol=0.05)
    else:  # votes rank annotators but underestimate their accuracy
        assert (np.argsort(-result.annotator_accuracy) == np.arange(len(share))).all()


@pytest.mark.parametrize("name", ITERATIVE)
def test_hammers_and_spammers_are_told_apart(name: str) -> None:
    truth = np.random.default_rng(0).integers(0, 3, 500)
    made = hammer_spammer_annotators(truth, n_annotators=7, by="annotator", n_hammers=2, missing=0.3, seed=1)
    result = ITERATIVE[name](made.annotations)
    assert (result.consensus == made.truth).mean() > 0.85
    hammer = made.hammer.all(1) if made.hammer is not None else np.zeros(7, bool)
    assert result.annotator_accuracy[hammer].min() > 0.9
    assert result.annotator_accuracy[~hammer].max() < 0.6


METHODS_WITHOUT_RANDOM_STARTS: dict[str, Callable[..., Aggregate]] = {
    **AGGREGATORS,
    "mace": partial(mace, n_restarts=1),
}


@pytest.mark.parametrize("name", METHODS_WITHOUT_RANDOM_STARTS)
@pytest.mark.parametrize("what", ["items", "annotators", "classes"])
def test_results_do_not_depend_on_the_order_of_items_annotators_or_classes(name: str, what: str) -> None:
    ann, _, _ = planted(n_items=60)
    generator = np.random.default_rng(5)
    order = {
        "items": generator.permutation(60) if what == "items" else np.arange(60),
        "annotators": generator.permutation(6) if what == "annotators" else np.arange(6),
        "classes": generator.permutation(4) if what == "classes" else np.arange(4),
    }
    matrix = ann.to_matrix()[order["items"]][:, order["annotators"]]
    shuffled = Annotations.from_matrix(matrix, classes=order["classes"].tolist())
    method = METHODS_WITHOUT_RANDOM_STARTS[name]
    one, other = method(ann), method(shuffled)
    expected = one.class_probabilities[order["items"]][:, order["classes"]]
    np.testing.assert_allclose(other.class_probabilities, expected, atol=1e-4)
    np.testing.assert_allclose(other.annotator_accuracy, one.annotator_accuracy[order["annotators"]], atol=1e-4)
    np.testing.assert_allclose(other.log_likelihood, one.log_likelihood, rtol=1e-6)


@every_method
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    ann, _, _ = planted(n_items=100)
    one, other = AGGREGATORS[name](ann, seed=3), AGGREGATORS[name](ann, seed=3)
    assert one.class_probabilities.tobytes() == other.class_probabilities.tobytes()
    assert one.consensus_codes.tobytes() == other.consensus_codes.tobytes()
    assert one.log_likelihood == other.log_likelihood


@every_method
def test_unanimous_labels_are_the_consensus(name: str) -> None:
    ann = Annotations.from_matrix([["a"] * 3, ["b"] * 3, ["a"] * 3, ["b"] * 3])
    result = AGGREGATORS[name](ann)
    assert result.consensus.tolist() == ["a", "b", "a", "b"]
    assert (result.annotator_accuracy > 0.9).all()


@every_method
@pytest.mark.parametrize("labels", [[["a", "b", "a"]], [["a"], ["b"], ["b"]] * 10])
def test_one_item_and_one_annotator(name: str, labels: list[list[str]]) -> None:
    result = AGGREGATORS[name](Annotations.from_matrix(labels))
    assert np.isfinite(result.class_probabilities).all()
    assert result.consensus.tolist() == (["a"] if len(labels) == 1 else ["a", "b", "b"] * 10)


@every_method
def test_annotations_that_cannot_be_aggregated_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"all labels are 'a', so there is nothing to aggregate.*--classes"):
        AGGREGATORS[name](Annotations.from_matrix([["a", "a"], ["a", None]]))
    with pytest.raises(ValueError, match="no label to aggregate"):
        AGGREGATORS[name](Annotations.from_matrix([[-1, -1]], classes=[0, 1]))
    with pytest.raises(TypeError, match=r"must be Annotations, got ndarray; create them with Annot.*from_matrix\(\)"):
        AGGREGATORS[name](np.zeros((2, 2)))


@pytest.mark.parametrize("name", ITERATIVE)
def test_invalid_settings_are_refused(name: str) -> None:
    chosen: Any
    for chosen in ({"max_iter": 0}, {"tol": -1}):
        with pytest.raises(ValueError, match="must be a"):
            ITERATIVE[name](planted(n_items=5)[0], **chosen)


@pytest.mark.parametrize("name", ITERATIVE)
def test_on_iteration_is_called_after_every_iteration(name: str) -> None:
    calls: list[tuple[int, float]] = []
    once = {"n_restarts": 1} if name == "mace" else {}
    result = ITERATIVE[name](planted()[0], on_iteration=lambda *call: calls.append(call), **once)
    assert result.converged
    assert calls == list(enumerate(result.log_likelihood, 1))
    assert not ITERATIVE[name](planted()[0], max_iter=1).converged


def test_the_table_and_the_consensus_of_items_without_labels() -> None:
    ann = Annotations.from_matrix([["a", "a"], [None, None], ["b", "b"]])
    result = AGGREGATORS["majority-vote"](ann)
    assert result.consensus.tolist() == ["a", None, "b"]
    assert result.to_table(proba=True).to_pydict() == {
        "item": [0, 1, 2],
        "label": ["a", None, "b"],
        "confidence": [1.0, None, 1.0],
        "n_labels": [2, 0, 2],
        "p_a": [1.0, None, 0.0],
        "p_b": [0.0, None, 1.0],
    }
    assert repr(result) == "Aggregate(majority-vote: 3 items, 2 annotators, 2 classes)"
    numbers = AGGREGATORS["majority-vote"](Annotations.from_matrix([[0, 0], [-1, -1], [1, 1]]))
    assert numbers.consensus.tolist() == [0, -1, 1]
