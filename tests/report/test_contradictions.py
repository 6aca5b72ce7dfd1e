"""Annotators whose weight or accuracy contradicts their agreement with the others: found, and reported in words."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdfuse import Annotations, MajorityVoteClassifier
from crowdfuse.report import Report
from crowdfuse.report.annotator_facts import annotator_facts
from crowdfuse.report.contradictions import agreement_with_others, find_contradictions
from crowdfuse.report.report_data import ReportData, report_data_from_labels
from tests.report.crowd import HOSTILE

N, R, K = 200, 5, 3


def labels(seed: int = 0) -> Any:
    """Return labels of four mostly right annotators and a last one who is always wrong; some are missing."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, K, N)[:, None].repeat(R, 1)
    Y = np.where(generator.random((N, R)) < 0.9, truth, (truth + 1) % K)
    Y[:, 4] = (truth[:, 4] + 2) % K
    Y[generator.random((N, R)) < 0.2] = -1
    return Y


def weighed(scores: Any, Y: Any) -> ReportData:
    """Return report data in which the weight of each label is proportional to its annotator's score."""
    data = report_data_from_labels(Annotations.from_matrix(Y))
    score = np.array(scores, float)[data.ann.annotator]
    return replace(data, weights=(score / np.bincount(data.ann.item, score)[data.ann.item]).astype(np.float32))


def test_agreement_with_others_equals_a_loop() -> None:
    Y = labels()
    mean, compared = agreement_with_others(report_data_from_labels(Annotations.from_matrix(Y)))
    for r in range(R):
        shares = []
        for row in Y:
            others = [y for s, y in enumerate(row) if s != r and y >= 0]
            if row[r] >= 0 and others:
                shares.append(np.mean([y == row[r] for y in others]))
        assert compared[r] == len(shares)
        assert mean[r] == pytest.approx(np.mean(shares))


def test_highest_weight_with_low_agreement_is_found() -> None:
    facts = annotator_facts(weighed([1, 1, 1, 1, 20], labels()), np.full(N, -1))
    (found,) = facts["contradictions"]
    row = next(row for row in facts["rows"] if row["annotator"] == "4")
    assert (found["annotator"], found["is_highest"], found["mean_weight"]) == ("4", True, row["mean_weight"])
    assert found["accuracy"] is None  # estimated from the labels, this annotator is the worst
    assert found["agreement"] < 0.1 < 0.5 < found["median_agreement"]


def test_lowest_weight_with_high_agreement_is_found() -> None:
    generator = np.random.default_rng(1)
    truth = generator.integers(0, K, (N, 1))
    Y = np.where(generator.random((N, R)) < [1, 0.7, 0.7, 0.7, 0.7], truth, generator.integers(0, K, (N, R)))
    weight, accuracy = np.array([0.1, 1.1, 1, 1, 1]), np.array([0.9, 0.5, 0.6, 0.6, 0.7])
    (found,) = find_contradictions(weighed([1] * R, Y), weight, accuracy)
    assert (found["annotator"], found["is_highest"], found["mean_weight"]) == ("0", False, 0.1)


def test_weight_and_accuracy_of_one_annotator_make_one_entry() -> None:
    data = weighed([1] * R, labels())
    (found,) = find_contradictions(data, np.array([1, 1, 1, 0.9, 2]), np.array([0.5, 0.5, 0.5, 0.4, 0.99]))
    assert (found["mean_weight"], found["accuracy"]) == (2, 0.99)


@pytest.mark.parametrize(
    ("scores", "rows", "annotators"),
    [
        ([5, 4, 4, 4, 1], N, R),  # the worst annotator has the lowest weight
        ([1, 1, 1, 1, 20], 15, R),  # too few labels to tell
        ([1, 20], N, 2),  # two annotators agree with each other equally often
    ],
)
def test_healthy_or_small_data_gives_no_contradiction(scores: list[int], rows: int, annotators: int) -> None:
    Y = labels()[:rows, R - annotators :]
    Y = Y[(Y >= 0).any(1)]
    assert annotator_facts(weighed(scores, Y), np.full(len(Y), -1))["contradictions"] == []


def test_contradictions_are_written_in_words_and_names_are_escaped() -> None:
    X, Y = np.eye(3).repeat(20, 0), np.arange(3).repeat(20)[:, None].repeat(3, 1)
    report = MajorityVoteClassifier(epochs=1).fit(X, Y).report(X, Y)
    heading = "The model contradicts the other annotators"
    assert report.facts["annotators"]["contradictions"] == []
    assert heading not in report.to_html()
    facts = json.loads(report.to_json())
    facts["annotators"]["contradictions"] = [
        {"annotator": HOSTILE[1], "position": 0, "is_highest": True, "mean_weight": 1.5, "accuracy": 0.98}
        | {"agreement": 0.25, "median_agreement": 0.75},
        {"annotator": "bob", "position": 1, "is_highest": False, "mean_weight": 0.1, "accuracy": None}
        | {"agreement": 0.8, "median_agreement": 0.7},
    ]
    shown = Report(facts, report.previews)
    page, text = shown.to_html(), shown.to_markdown()
    assert heading in page
    assert f"<bdi>{html.escape(HOSTILE[1], quote=True).replace('&quot;', '&#34;')}</bdi> has the highest" in page
    for sentence in (
        " has the highest mean weight (1.50) and the highest estimated accuracy (98.0 %), but agrees with the other "
        "annotators less than most: 25.0 % of the time, where the median is 75.0 %.",
        " has the lowest mean weight (0.10), but agrees with the other annotators more than most",
    ):
        assert sentence.replace(" %", "\u00a0%") in page
        assert sentence in text
    assert "<img" not in text
