"""Labels in blocks, limits of memory, and checks of settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from crowdfuse import Annotations
from crowdfuse.aggregation import AGGREGATORS, votes
from crowdfuse.aggregation.em import check_settings
from crowdfuse.aggregation.votes import Votes
from tests.aggregation.crowds import crowds, labels_of, planted


@pytest.mark.parametrize("block", [1, 40, 1 << 22])
@given(ann=crowds())
def test_blocks_hold_every_label_once(block: int, ann: Annotations) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "FLOATS_PER_BLOCK", block)
        found = Votes(ann)
    expected = [sorted(labels) for labels in labels_of(ann) if labels]
    assert found.n_items == len(expected)
    seen: list[list[tuple[int, int]]] = [[] for _ in expected]
    for part in found.blocks:
        assert part.n_items == part.rows.stop - part.rows.start > 0
        dense = part.incidence.toarray().reshape(part.n_items, ann.n_annotators, ann.n_classes)
        counts = np.zeros((part.n_items, ann.n_classes))
        for item, annotator, label in zip(part.item, part.annotator, part.label, strict=True):
            seen[part.rows.start + item].append((annotator, label))
            assert dense[item, annotator, label] == 1
            counts[item, label] += 1
        assert dense.sum() == len(part.label)
        assert (part.vote_counts() == counts).all()
        assert (part.label_confidence(counts) == counts[part.item, part.label]).all()
    assert seen == expected


@pytest.mark.parametrize("method", AGGREGATORS)
def test_the_result_does_not_depend_on_the_size_of_blocks(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, _, _ = planted(n_items=200)
    whole = AGGREGATORS[method](ann)
    monkeypatch.setattr(votes, "FLOATS_PER_BLOCK", 500)
    assert len(Votes(ann).blocks) > 5
    parts = AGGREGATORS[method](ann)
    np.testing.assert_allclose(parts.class_probabilities, whole.class_probabilities, atol=1e-5)
    np.testing.assert_allclose(parts.annotator_accuracy, whole.annotator_accuracy, atol=1e-5)


def test_arrays_that_are_too_large_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ann, _, _ = planted(n_items=50)
    monkeypatch.setattr(votes, "MAX_DENSE_BYTES", 50 * 4 * 4 - 1)
    with pytest.raises(ValueError, match=r"class probabilities of 50 items with 4 classes would take .* GB"):
        AGGREGATORS["majority-vote"](ann)
    monkeypatch.setattr(votes, "MAX_DENSE_BYTES", 50 * 4 * 4)
    AGGREGATORS["one-coin"](ann)
    monkeypatch.setattr(votes, "MAX_DENSE_BYTES", 6 * 4 * 4 * 8 - 1)
    few = ann[:5]
    with pytest.raises(ValueError, match=r"confusion matrices of 6 annotators .* one-coin"):
        AGGREGATORS["dawid-skene"](few)


@pytest.mark.parametrize(
    ("setting", "value"), [("max_iter", 0), ("max_iter", 1.5), ("max_iter", True), ("tol", -1.0), ("tol", float("nan"))]
)
def test_invalid_settings_are_named_with_their_value(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be .*{value}"):
        check_settings(**({"max_iter": 1, "tol": 0.0} | {setting: value}))
