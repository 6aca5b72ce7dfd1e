"""An annotator whom the model believes against the others: found where it is so, nowhere else, and said in words."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdfuse import Annotations, MajorityVoteClassifier
from crowdfuse.report.annotator_facts import annotator_facts
from crowdfuse.report.contradictions import agreement_with_others, contradictions
from crowdfuse.report.report_data import ReportData, report_data_from_labels
from crowdfuse.report.run_report import Report
from tests.report.crowd import HOSTILE

N, R, K = 200, 5, 3


def labels(seed: int = 0) -> Any:
    """Four annotators who are mostly right, and the last who never is; some labels are missing."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, K, N)[:, None].repeat(R, 1)
    Y = np.where(generator.random((N, R)) < 0.9, truth, (truth + 1) % K)
    Y[:, 4] = (truth[:, 4] + 2) % K
    Y[generator.random((N, R)) < 0.2] = -1
    return Y


def weighed(scores: Any, Y: Any) -> ReportData:
    """The labels, each counting by its annotator's score."""
    look = report_data_from_labels(Annotations.from_matrix(Y))
    score = np.array(scores, float)[look.ann.annotator]
    return replace(look, weights=(score / np.bincount(look.ann.item, score)[look.ann.item]).astype(np.float32))


def test_agreement_with_others_is_that_of_a_loop() -> None:
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


def test_who_is_believed_most_and_agrees_least_is_found() -> None:
    facts = annotator_facts(weighed([1, 1, 1, 1, 20], labels()), np.full(N, -1))
    (found,) = facts["contradictions"]
    row = next(row for row in facts["rows"] if row["annotator"] == "4")
    assert (found["annotator"], found["most"], found["weight"]) == ("4", True, row["weight"])
    assert found["accuracy"] is None  # the labels are not taken in: estimated, this annotator is the worst
    assert found["agreement"] < 0.1 < 0.5 < found["usual"]


def test_who_is_believed_least_and_agrees_most_is_found() -> None:
    generator = np.random.default_rng(1)
    truth = generator.integers(0, K, (N, 1))
    Y = np.where(generator.random((N, R)) < [1, 0.7, 0.7, 0.7, 0.7], truth, generator.integers(0, K, (N, R)))
    weight, accuracy = np.array([0.1, 1.1, 1, 1, 1]), np.array([0.9, 0.5, 0.6, 0.6, 0.7])
    (found,) = contradictions(weighed([1] * R, Y), weight, accuracy)
    assert (found["annotator"], found["most"], found["weight"]) == ("0", False, 0.1)


def test_both_figures_of_one_annotator_are_one_entry() -> None:
    look = weighed([1] * R, labels())
    (found,) = contradictions(look, np.array([1, 1, 1, 0.9, 2]), np.array([0.5, 0.5, 0.5, 0.4, 0.99]))
    assert (found["weight"], found["accuracy"]) == (2, 0.99)


@pytest.mark.parametrize(
    ("scores", "rows", "annotators"),
    [
        ([5, 4, 4, 4, 1], N, R),  # as it should be
        ([1, 1, 1, 1, 20], 15, R),  # too few labels to tell
        ([1, 20], N, 2),  # two agree with one another as much as the other way round
    ],
)
def test_nothing_is_said_without_reason(scores: list[int], rows: int, annotators: int) -> None:
    Y = labels()[:rows, R - annotators :]
    Y = Y[(Y >= 0).any(1)]
    assert annotator_facts(weighed(scores, Y), np.full(len(Y), -1))["contradictions"] == []


def test_it_is_said_in_words_and_names_stay_text() -> None:
    X, Y = np.eye(3).repeat(20, 0), np.arange(3).repeat(20)[:, None].repeat(3, 1)
    report = MajorityVoteClassifier(epochs=1).fit(X, Y).report(X, Y)
    heading = "Model and annotators contradict one another"
    assert report.facts["annotators"]["contradictions"] == []
    assert heading not in report.to_html()
    facts = json.loads(report.to_json())
    facts["annotators"]["contradictions"] = [
        {"annotator": HOSTILE[1], "position": 0, "most": True, "weight": 1.5, "accuracy": 0.98}
        | {"agreement": 0.25, "usual": 0.75},
        {"annotator": "bob", "position": 1, "most": False, "weight": 0.1, "accuracy": None}
        | {"agreement": 0.8, "usual": 0.7},
    ]
    said = Report(facts, report.pictures)
    page, text = said.to_html(), said.to_markdown()
    assert heading in page
    assert f"<bdi>{html.escape(HOSTILE[1], quote=True).replace('&quot;', '&#34;')}</bdi> has the highest" in page
    for sentence in (
        " has the highest mean weight (1.50) and the highest estimated accuracy (98.0 %), but agrees less than usual "
        "with the other annotators: the others say the same 25.0 % of the time, usual is 75.0 %.",
        " has the lowest mean weight (0.10), but agrees more than usual with the other annotators",
    ):
        assert sentence.replace(" %", "\u00a0%") in page
        assert sentence in text
    assert "<img" not in text
