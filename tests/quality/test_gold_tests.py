"""Gold against the consensus and against the accuracies of annotators: false alarms, power, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from crowdfuse import Annotations, Consensus, consensus, report_labels
from crowdfuse.cli import app
from crowdfuse.quality.gold_tests import gold_contradictions

K, R = 3, 5


def labels_of(truth: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return labels of independent annotators, of whom the first is the most accurate; a third is missing."""
    n = len(truth)
    right = generator.random((n, R)) < np.linspace(0.95, 0.8, R)
    labels = np.where(right, truth[:, None], (truth[:, None] + generator.integers(1, K, (n, R))) % K)
    labels[generator.random((n, R)) < 1 / 3] = -1
    return labels


def independent_crowd(seed: int, n: int = 400) -> tuple[Consensus, NDArray[np.int64]]:
    """Return the consensus of independent annotators, and gold of a random half of the items."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, K, n)
    ann = Annotations.from_matrix(labels_of(truth, generator), classes=range(K))
    scores = generator.normal(size=(n, K)) + 1.5 * np.eye(K)[truth]
    result = consensus(ann, np.exp(scores) / np.exp(scores).sum(1, keepdims=True), seed=seed)
    return result, np.where(generator.random(n) < 0.5, truth, -1)


def misled_crowd(n: int = 600) -> tuple[Annotations, NDArray[np.int64]]:
    """Return annotators who all take a quarter of the items for another class, and the true classes."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, K, n)
    looks_like = np.where(generator.random(n) < 0.25, (truth + 1) % K, truth)
    return Annotations.from_matrix(labels_of(looks_like, generator), classes=range(K)), truth


def test_gold_of_independent_annotators_contradicts_nothing() -> None:
    n_alarms = sum(len(gold_contradictions(*independent_crowd(seed))) > 0 for seed in range(20))
    assert n_alarms <= 1


def test_annotators_who_are_wrong_together_are_reported_with_the_counts() -> None:
    ann, truth = misled_crowd()
    result = consensus(ann)
    gold = np.where(np.arange(len(truth)) < 300, truth, -1)
    of_consensus, of_annotators = gold_contradictions(result, gold)
    assert of_consensus.kind == "gold_contradicts_consensus"
    n_wrong = int((result.consensus_codes[:300] != truth[:300]).sum())
    assert f"on {n_wrong} of 300 items" in of_consensus.message
    assert of_annotators.kind == "gold_contradicts_accuracy"
    known = ann.item < 300
    for r in range(R):  # every count that the message names is right
        own = known & (ann.annotator == r)
        n_right = int((ann.label[own] == truth[ann.item[own]]).sum())
        if f"annotator {r} is" in of_annotators.message:
            assert f"annotator {r} is right on {n_right} of {own.sum()} items with gold" in of_annotators.message
    assert "more annotators not listed" in of_annotators.message or "of 5 annotators" in of_annotators.message


def test_too_little_gold_is_not_tested() -> None:
    ann, truth = misled_crowd()
    assert gold_contradictions(consensus(ann), np.where(np.arange(len(truth)) < 19, truth, -1)) == ()


def test_gold_that_the_consensus_has_used_is_compared_with_annotators_only() -> None:
    ann, truth = misled_crowd()
    names = np.array([int(k) if n < 300 else None for n, k in enumerate(truth)], dtype=object)
    result = consensus(ann, gold=names)
    found = gold_contradictions(result, np.where(np.arange(len(truth)) < 300, truth, -1))
    assert "gold_contradicts_consensus" not in [finding.kind for finding in found]
    assert "gold_contradicts_consensus" in [finding.kind for finding in result.findings]  # computed without gold


def test_reports_and_aggregate_warn_of_contradictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, truth = misled_crowd()
    report: Any = report_labels(ann, gold=truth)
    assert any("Gold contradicts the estimated accuracy" in line for line in report.facts["warnings"])
    monkeypatch.chdir(tmp_path)
    rows = [f"{n},a{r},{k}" for n, r, k in zip(ann.item, ann.annotator, ann.label, strict=True)]
    Path("labels.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    Path("gold.csv").write_text("\n".join(["item,label", *(f"{n},{k}" for n, k in enumerate(truth))]) + "\n")
    arguments = ["aggregate", "labels.csv", "--gold", "gold.csv", "--out", "consensus.csv", "--quiet"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "warning: Gold contradicts the consensus on" in result.output
    assert "warning: Gold contradicts the estimated accuracy of" in result.output
