"""Experiments beyond the paper: what a run stores, its tasks, and training with gold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.datasets.mnist import ImageData
from crowdfuse.experiments import noise_types as kinds
from crowdfuse.experiments.correct_items import decode_correct, encode_correct
from crowdfuse.experiments.gold_sample import sample_gold
from crowdfuse.experiments.run_executor import DataSplit
from crowdfuse.io.inputs import Inputs

N_TRAIN = 400


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> ImageData:
    """Replace MNIST by scikit-learn's digits, enlarged to 28 x 28."""
    X, y = load_digits(return_X_y=True)
    images = np.pad(np.kron(X.reshape(-1, 8, 8), np.ones((3, 3))), ((0, 0), (2, 2), (2, 2)))
    images = ((images / 16 - 0.3) / 0.37).astype(np.float32)
    data = ImageData(images[:500], y[:500].astype(np.int64), images[500:700], y[500:700].astype(np.int64))
    monkeypatch.setattr(kinds, "load_mnist", lambda *_, **__: data)
    return data


@pytest.mark.parametrize("n_items", [1, 7, 8, 9, 1000])
def test_correct_items_survive_encoding(n_items: int) -> None:
    right = np.random.default_rng(n_items).random(n_items) < 0.7
    record = json.loads(json.dumps(encode_correct(right)))
    np.testing.assert_array_equal(decode_correct(record), right)


def test_calibration_error_equals_plain_loops() -> None:
    generator = np.random.default_rng(0)
    gates = generator.random((300, 3)).astype(np.float32)
    gates[:3] = [[0.0], [1.0], [0.1]]
    right = generator.random((300, 3)) < gates**2
    errors = []
    for r in range(3):
        error = 0.0
        for b in range(10):
            there = [n for n in range(300) if min(int(gates[n, r] * 10), 9) == b]
            if there:
                error += len(there) / 300 * abs(gates[there, r].mean() - right[there, r].mean())
        errors.append(error)
    assert kinds.gate_calibration_error(gates, right) == pytest.approx(np.mean(errors), rel=1e-5)
    assert kinds.gate_calibration_error(np.ones((5, 2)), np.ones((5, 2), bool)) == 0
    assert kinds.gate_calibration_error(np.ones((5, 2)), np.zeros((5, 2), bool)) == 1


def parts() -> DataSplit:
    y = np.repeat(np.arange(10), 30)
    X = Inputs(np.arange(300, dtype=np.float32)[:, None])
    return DataSplit(X, y, X, y, X, y)


def test_five_percent_of_the_rare_task_is_the_digit() -> None:
    rare = kinds.TASKS["rare"](parts())
    for X, y in ((rare.X, rare.y), (rare.X_validation, rare.y_validation), (rare.X_test, rare.y_test)):
        assert len(X) == len(y)
        assert y.mean() == pytest.approx(0.05, abs=0.003)
        rows = X.rows(np.arange(len(X)))[:, 0].astype(int)
        np.testing.assert_array_equal(parts().y[rows] == kinds.RARE_DIGIT, y == 1)


def test_the_odd_task_has_classes_odd_and_even() -> None:
    odd = kinds.TASKS["odd"](parts())
    np.testing.assert_array_equal(odd.y, parts().y % 2)
    np.testing.assert_array_equal(odd.y_test, parts().y % 2)


def test_sampled_gold_has_the_requested_count_and_depends_on_the_seed() -> None:
    y = parts().y
    some = [sample_gold(y, 50, seed) for seed in (0, 0, 1)]
    known = ~np.isnan(some[0])
    assert known.sum() == 50
    np.testing.assert_array_equal(some[0][known], y[known])
    np.testing.assert_array_equal(some[0], some[1])
    assert (known != ~np.isnan(some[2])).any()


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("name", "value"), [("kinds", "looks 30"), ("odd-even", "30"), ("hammer", "3")])
def test_runs_store_all_results(tmp_path: Path, name: str, value: str) -> None:
    rows = "gated,majority-vote" + ("" if name == "hammer" else ",gated 50 gold")
    arguments = [name, "--values", value, "--methods", rows, "--epochs", "3", "--items", str(N_TRAIN)]
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path), "--quiet"])
    assert result.exit_code == 0, result.output
    found = records(tmp_path)
    assert len(found) == rows.count(",") + 1
    for record in found:
        is_correct = decode_correct(record["result"])
        assert len(is_correct) == 200
        assert record["result"]["test_accuracy"] == pytest.approx(is_correct.mean())
        assert 0 <= record["result"]["nobody_right_share"] <= 1
        assert ("gate_calibration_error" in record["result"]) == (record["run"]["method"] == "gated")
        figures = {figure for epoch in record["result"]["history"] for figure in epoch}
        assert "validation_accuracy" not in figures  # no gold chooses
        assert ("held_out_log_likelihood" in figures) == (record["run"]["method"] == "gated")
        assert 0 <= record["result"]["balanced_accuracy"] <= 1
    assert "gated" in (tmp_path / "table.md").read_text()
