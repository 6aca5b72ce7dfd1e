"""`next_labels`: information and greedy choice against brute force, excluded pairs, and bad requests."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import Annotations, consensus
from crowdfuse.aggregation import Aggregate, dawid_skene, majority_vote, one_coin
from crowdfuse.quality import next_labels

MODULE = sys.modules["crowdfuse.quality.next_labels"]
NAMES = ["ada", "bob", "cy"]


def make(seed: int = 0, N: int = 6, K: int = 3, share: float = 0.5) -> tuple[Annotations, Aggregate]:
    generator = np.random.default_rng(seed)
    said = generator.integers(0, K, (N, 3))
    said[generator.random(said.shape) > share] = -1
    said[0] = [0, 0, -1]
    ann = Annotations.from_matrix(said, annotators=NAMES, classes=range(K))
    return ann, consensus(ann, generator.dirichlet(np.ones(K), N))


def information(prior: NDArray[Any], matrices: list[NDArray[Any]]) -> float:
    """Return the mutual information of true class and answers, by a sum over all of them."""
    total, K = 0.0, len(prior)
    for answers in product(range(K), repeat=len(matrices)):
        given = [np.prod([m[k, a] for m, a in zip(matrices, answers, strict=True)]) for k in range(K)]
        chance = sum(p * g for p, g in zip(prior, given, strict=True))
        total += sum(p * g * np.log2(g / chance) for p, g in zip(prior, given, strict=True) if p * g > 0)
    return float(total)


def by_brute_force(ann: Annotations, model: Aggregate, budget: int) -> list[tuple[int, str, float]]:
    """Return the greedy choice: at each step, the pair that adds most to the information of its item's proposals."""
    assert model.confusion_matrices is not None
    given = {(int(n), int(r)) for n, r in zip(ann.item, ann.annotator, strict=True)}
    asked: dict[int, list[int]] = {n: [] for n in range(ann.n_items)}
    chosen = []
    soft = model.class_probabilities.astype(float)
    soft /= soft.sum(1, keepdims=True)
    for _ in range(budget):
        options = {}
        for n, r in product(range(ann.n_items), range(3)):
            if (n, r) not in given and r not in asked[n]:
                told = [
                    information(soft[n], [model.confusion_matrices[i] for i in who])
                    for who in (asked[n], [*asked[n], r])
                ]
                options[n, r] = told[1] - told[0]
        if not options or max(options.values()) <= MODULE.MIN_INFORMATION_BITS:
            break
        n, r = max(options, key=lambda pair: options[pair])
        asked[n].append(r)
        chosen.append((n, NAMES[r], options[n, r]))
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_proposals_equal_brute_force(seed: int) -> None:
    ann, model = make(seed)
    found = next_labels(ann, model, budget=8).to_pylist()
    expected = by_brute_force(ann, model, 8)
    assert [(row["item"], row["annotator"]) for row in found] == [(n, name) for n, name, _ in expected]
    np.testing.assert_allclose([row["information"] for row in found], [bits for _, _, bits in expected], atol=1e-6)
    assert [row["cost"] for row in found] == [1] * len(found)


def test_a_perfect_annotator_gives_one_bit_and_a_random_one_none() -> None:
    ann = Annotations.from_matrix([[-1, -1, -1], [-1, -1, -1], [0, 1, 0]], annotators=NAMES)
    perfect, coin = np.eye(2), np.full((2, 2), 0.5)
    model = replace(
        consensus(ann, [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]),
        class_probabilities=np.array([[0.5, 0.5], [1, 0], [0.5, 0.5]], np.float32),
        confusion_matrices=np.stack([perfect, coin, coin]),
    )
    found = next_labels(ann, model, budget=5).to_pylist()
    # a perfect answer to an even question has one bit; after it, no label adds information
    assert found == [{"item": 0, "annotator": "ada", "information": 1.0, "cost": 1.0}]


def test_existing_labels_and_duplicates_are_not_proposed() -> None:
    ann, model = make(1, N=30)
    found = next_labels(ann, model, budget=1000)
    pairs = list(zip(found["item"].to_pylist(), found["annotator"].to_pylist(), strict=True))
    there = {(int(n), NAMES[r]) for n, r in zip(ann.item, ann.annotator, strict=True)}
    assert len(set(pairs)) == len(pairs)
    assert not there & set(pairs)
    assert len(pairs) == 30 * 3 - len(there)
    bits = np.array(found["information"].to_pylist())
    assert (np.diff(bits) < 1e-9).all()  # the information added by the greedy choice never increases


def test_dropping_unlikely_answers_keeps_the_number_of_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    ann, model = make(2)
    exact = next_labels(ann, model, budget=20)
    monkeypatch.setattr(MODULE, "MAX_ANSWER_BRANCHES", 4)
    rough = next_labels(ann, model, budget=20)
    assert len(rough) == len(exact)
    assert rough["information"][0] == exact["information"][0]


def test_the_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    ann, model = make(3, N=40)
    whole = next_labels(ann, model, budget=20)
    monkeypatch.setattr(MODULE, "FLOATS_PER_BLOCK", 30)
    assert next_labels(ann, model, budget=20).equals(whole)


def test_costs_are_respected_within_the_budget() -> None:
    ann, model = make(0, N=20)
    assert model.confusion_matrices is not None
    cost = {"ada": 5.0, "bob": 1.0, "cy": 2.5}
    found = next_labels(ann, model, budget=11, cost=cost).to_pylist()
    assert sum(row["cost"] for row in found) <= 11
    assert all(row["cost"] == cost[row["annotator"]] for row in found)
    first = found[0]
    rates = [
        information(model.class_probabilities[n].astype(float), [model.confusion_matrices[r]]) / cost[NAMES[r]]
        for n, r in product(range(20), range(3))
        if (n, r) not in set(zip(ann.item.tolist(), ann.annotator.tolist(), strict=True))
    ]
    assert first["information"] / first["cost"] == pytest.approx(max(rates), rel=1e-4)
    assert {row["annotator"] for row in next_labels(ann, model, budget=2, cost=cost).to_pylist()} == {"bob"}
    assert len(next_labels(ann, model, budget=0.5, cost=cost)) == 0


def test_only_given_annotators_are_asked_and_new_ones_count_as_average() -> None:
    ann, model = make(0, N=20)
    found = next_labels(ann, model, budget=10, annotators=["cy", "new"])
    assert set(found["annotator"].to_pylist()) <= {"cy", "new"}
    weights = model.labels_per_annotator / model.labels_per_annotator.sum()
    assert model.confusion_matrices is not None
    average = np.einsum("r,rks->ks", weights, model.confusion_matrices)
    row = next_labels(ann, model, budget=1, annotators=["new"]).to_pylist()[0]
    expected = information(model.class_probabilities[row["item"]].astype(float), [average])
    assert row["information"] == pytest.approx(expected, abs=1e-5)


def test_only_given_pairs_are_proposed() -> None:
    ann, model = make(0, N=20)
    everything = next_labels(ann, model, budget=100).to_pylist()
    allowed = [(row["item"], row["annotator"]) for row in everything[::3]]
    taken = (int(ann.item[0]), NAMES[ann.annotator[0]])  # exists already
    items, people = zip(*[*allowed, taken], strict=True)
    found = next_labels(ann, model, budget=100, pairs=(items, people)).to_pylist()
    assert {(row["item"], row["annotator"]) for row in found} == set(allowed)


def test_items_are_matched_by_id() -> None:
    table = {"item": ["b", "a", "a", "c"], "annotator": ["x", "x", "y", "y"], "label": ["no", "yes", "yes", "no"]}
    ann = Annotations.from_table(table)
    probs = {"a": [0.1, 0.9], "b": [0.5, 0.5], "c": [0.9, 0.1]}
    model = consensus(ann, [probs[item] for item in "cab"], items=list("cab"))
    assert next_labels(ann, model, budget=1).select(["item", "annotator"]).to_pylist() == [
        {"item": "b", "annotator": "y"}
    ]


@pytest.mark.parametrize("method", [dawid_skene, one_coin, majority_vote])
def test_every_aggregation_method_can_be_the_model(method: Any) -> None:
    generator = np.random.default_rng(0)
    gold = generator.integers(0, 3, 60)
    said = np.where(generator.random((60, 3)) < [0.95, 0.6, 0.4], gold[:, None], generator.integers(0, 3, (60, 3)))
    said[40:, 1] = -1
    said[50:] = -1
    ann = Annotations.from_matrix(said, annotators=NAMES)
    found = next_labels(ann, method(ann), budget=5).to_pylist()
    assert {row["item"] for row in found} <= set(range(50, 60))  # these have no labels
    assert {row["annotator"] for row in found} == {"ada"}


def test_no_information_is_computed_once_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed, calls = MODULE._Gains.information, list[int]()

    def information(gains: Any, posterior: NDArray[np.float64]) -> Any:
        calls.append(len(posterior))
        return weighed(gains, posterior)

    monkeypatch.setattr(MODULE._Gains, "information", information)
    said = np.random.default_rng(0).integers(0, 2, (500, 3))
    said[np.arange(500), np.arange(500) % 3] = -1
    ann = Annotations.from_matrix(said, annotators=NAMES)
    assert len(next_labels(ann, one_coin(ann), budget=5)) == 5
    assert len(calls) <= 6  # once for all items, then once for the item of each choice


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"budget": 0}, "budget must be a number above 0, got 0"),
        ({"budget": float("nan")}, "budget"),
        ({"budget": True}, "budget"),
        ({"annotators": ["ada", "ada"]}, "more than once: 'ada'"),
        ({"cost": {"ada": 1.0}}, "no cost for 'bob', 'cy'"),
        ({"cost": {"ada": 1.0, "bob": 0.0, "cy": 1.0}}, "cost of 'bob' is 0"),
        ({"cost": {"ada": 1.0, "bob": "two", "cy": 1.0}}, "cost of 'bob' is 'two'; costs must be numbers above 0"),
        ({"annotators": []}, "annotators= is empty"),
        ({"pairs": ([0], ["dan"])}, "annotators who cannot be asked: 'dan'"),
        ({"pairs": ([99], ["ada"])}, "items that the annotations do not have: 99"),
        ({"pairs": ([0, 1], ["ada"])}, "same length, items and annotators; got 2 items and 1 annotator"),
    ],
)
def test_bad_requests_are_refused(changed: dict[str, Any], message: str) -> None:
    ann, model = make()
    with pytest.raises(ValueError, match=message):
        next_labels(ann, model, **{"budget": 3, **changed})


def test_other_models_are_refused_with_the_way_out() -> None:
    ann, model = make()
    with pytest.raises(TypeError, match=r"clf\.consensus\(X, annotations\) for a fitted"):
        next_labels(ann, np.full((6, 3), 1 / 3), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"cost must map each annotator to a number, such as .*, got float"):
        next_labels(ann, model, 1, cost=2.0)  # type: ignore[arg-type]
    more = Annotations.from_matrix(np.zeros((7, 3), int), annotators=NAMES)
    with pytest.raises(ValueError, match="does not know the items 6"):
        next_labels(more, model, 1)
    other = Annotations.from_matrix([["x"]], annotators=["ada"])
    with pytest.raises(ValueError, match="classes 'x'"):
        next_labels(other, model, 1)
