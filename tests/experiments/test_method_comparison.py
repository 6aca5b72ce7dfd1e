"""All methods under the same rules: the grid, the metrics of a run, the protocols, the ranks, and the page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.experiments import method_comparison as fair
from crowdfuse.experiments.method_comparison import (
    COMPARED_ROWS,
    CROWD_DATASETS,
    MNIST_DATASETS,
    ComparisonCell,
    MethodComparisonExecutor,
    comparison_cells,
    split_rows,
)
from crowdfuse.experiments.method_comparison_tables import relative_costs
from crowdfuse.experiments.protocols import gains_over, nemenyi_critical_difference, rank_methods, select_runs
from crowdfuse.experiments.search_space import COMMON_SEARCH_SPACE, draw_settings, search_space_of
from crowdfuse.experiments.store import Record, RunSpec
from crowdfuse.labels.annotations import Annotations

N, K = 150, 3


def small_crowd(seed: int) -> CrowdDataset:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(2 * N, 4)).astype(np.float32)
    y = X[:, :K].argmax(1)
    said = np.where(generator.random((N, 4)) < 0.75, y[:N, None], generator.integers(0, K, (N, 4)))
    return CrowdDataset(X[:N], Annotations.from_matrix(said), y[:N], X[N:], y[N:])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data in place of every data set's, and few epochs."""
    monkeypatch.setattr(MethodComparisonExecutor, "_load", lambda _, run: small_crowd(run["seed"]))
    monkeypatch.setattr(fair, "NETWORK_SETTINGS", fair.NETWORK_SETTINGS | {"epochs": 4, "batch_size": 32})
    short = {name: dataclasses.replace(dataset, training={}) for name, dataset in CROWD_DATASETS.items()}
    monkeypatch.setitem(fair.DATASET_GROUPS, "crowds", short)


# ---- the grid ---------------------------------------------------------------------------------


def test_every_method_is_compared_and_the_upper_bound_is_not_tuned() -> None:
    grid = comparison_cells(MNIST_DATASETS, 3, seeds=(0, 1))
    assert {cell.run["method"] for cell in grid} == set(ESTIMATORS) - {"single-annotator", "consensus-training"}
    assert len(grid) == len(MNIST_DATASETS) * 2 * (4 * (len(COMPARED_ROWS) - 1) + 1)
    assert {(cell.draw, cell.uses_held_out_epoch) for cell in grid if cell.row == "true-label"} == {(0, False)}
    at_defaults = [cell.draw == 0 for cell in grid]
    assert at_defaults.index(False) == sum(at_defaults)  # first all methods at defaults, then the tuning runs


def test_one_protocol_chooses_all_epochs_by_held_out_labels() -> None:
    grid = comparison_cells(MNIST_DATASETS, 1, ["uniform"])
    held_out = {cell.row: cell.run for cell in grid if cell.uses_held_out_epoch}
    assert set(held_out) == set(COMPARED_ROWS) - {"true-label"}
    assert {row for row, run in held_out.items() if "validation" not in run} == {"gated"}  # it always holds out labels
    (as_it_comes,) = (cell.run for cell in grid if cell.row == "gated" and not cell.uses_held_out_epoch)
    assert held_out["gated"] == as_it_comes  # so that it is run once


def test_gold_affects_only_the_metrics_that_use_it(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = comparison_cells(MNIST_DATASETS, 1, ["uniform"], ["trace-reg"])[0].run
    result = MethodComparisonExecutor(None)(run, Path())
    honest = small_crowd(0)
    other = dataclasses.replace(honest, y=(honest.y + 1) % K, y_test=(honest.y_test + 1) % K)
    monkeypatch.setattr(MethodComparisonExecutor, "_load", lambda _, run: other)
    without = MethodComparisonExecutor(None)(run, Path())
    for name in ("held_out_log_likelihood", "failed_checks", "peak_step_bytes"):
        assert without[name] == result[name]
    assert without["held_out_accuracy"] < 0.5 < result["held_out_accuracy"]
    assert without["accuracy"] < 0.5 < result["accuracy"]


def test_a_diverged_run_is_stored_as_a_result(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = comparison_cells(MNIST_DATASETS, 1, ["uniform"], ["majority-vote"])[0].run
    run["settings"] = run["settings"] | {"optimizer": "sgd", "learning_rate": 1e30}
    assert "diverged" in MethodComparisonExecutor(None)(run, Path())["diverged"]


def test_common_settings_are_drawn_alike_for_all_methods() -> None:
    for draw in (1, 2):
        for seed in (0, 1):
            of = {method: draw_settings(method, draw, seed) for method in ESTIMATORS}
            assert len({tuple(settings[name] for name in COMMON_SEARCH_SPACE) for settings in of.values()}) == 1
    assert draw_settings("fusion", 1, 0) != draw_settings("fusion", 1, 1) != draw_settings("fusion", 2, 1)
    assert draw_settings("fusion", 1, 0) == draw_settings("fusion", 1, 0)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_search_spaces_name_existing_settings(method: str) -> None:
    kind = estimator_class(method)
    for name, values in search_space_of(method).items():
        assert name in kind._get_param_names()
        assert isinstance(values, list) or 0 < values[0] < values[1]
    for draw in range(1, 30):
        for name, value in draw_settings(method, draw, seed=0).items():
            values = search_space_of(method)[name]
            assert value in values if isinstance(values, list) else values[0] <= value <= values[1]


def test_held_out_items_are_not_trained_on(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    kind = estimator_class("majority-vote")
    fit = kind.fit

    def noting(self: Any, X: Any, y: Any, **given: Any) -> Any:
        seen.append((X, y))
        return fit(self, X, y, **given)

    monkeypatch.setattr(kind, "fit", noting)
    crowd = small_crowd(0)
    train, held_out = split_rows(crowd, 0)
    assert not set(train) & set(held_out)
    assert sorted([*train, *held_out]) == list(range(N))
    MethodComparisonExecutor(None)(comparison_cells(MNIST_DATASETS, 1, ["uniform"], ["majority-vote"])[0].run, Path())
    np.testing.assert_array_equal(seen[0][0], crowd.X[train])
    np.testing.assert_array_equal(seen[0][1].label, crowd.annotations[train].label)


def test_a_run_returns_all_metrics(small: None) -> None:
    result = MethodComparisonExecutor(None)(
        comparison_cells(MNIST_DATASETS, 1, ["uniform"], ["trace-reg"])[0].run, Path()
    )
    assert 0.5 < result["accuracy"] <= 1
    assert 0.5 < result["held_out_accuracy"] <= 1
    assert result["held_out_log_likelihood"] < 0
    assert 0 < result["log_loss"] < 2
    assert 0 <= result["calibration_error"] < 0.5
    assert 4_000 < result["peak_step_bytes"] < 200_000  # 128 hidden units on 4 inputs, 32 items
    assert 0.6 < result["fused_label_accuracy"] <= 1
    assert 0.3 < result["suspicion_average_precision"] <= 1  # a quarter of two thirds is wrong
    bound = MethodComparisonExecutor(None)(
        comparison_cells(MNIST_DATASETS, 1, ["uniform"], ["true-label"])[0].run, Path()
    )
    assert "suspicion_average_precision" not in bound


# ---- stored results -----------------------------------------------------------------------------


def records(figures: dict[tuple[str, int], dict[str, Any]]) -> tuple[list[ComparisonCell], list[Record]]:
    """A grid of one data set and seed, with these results by row and draw; draw -1 is that with held-out labels."""
    made, found = [], []
    for (row, draw), result in figures.items():
        run: RunSpec = {"method": row, "draw": draw}
        made.append(ComparisonCell(row, "uniform", 0, run, draw=max(0, draw), uses_held_out_epoch=draw < 0))
        if result:
            found.append(Record(run, {"failed_checks": [], **result}, 1.0))
    return made, found


def test_each_protocol_selects_its_own_run() -> None:
    made, found = records(
        {
            ("a", 0): {"accuracy": 0.5, "held_out_log_likelihood": -1.0, "held_out_accuracy": 0.5},
            ("a", 1): {"accuracy": 0.6, "held_out_log_likelihood": -0.5, "held_out_accuracy": 0.6},
            ("a", 2): {"accuracy": 0.7, "held_out_log_likelihood": -0.8, "held_out_accuracy": 0.9},
            ("a", 3): {
                "accuracy": 0.1,
                "held_out_log_likelihood": -0.1,
                "held_out_accuracy": 0.1,
                "failed_checks": ["collapsed"],
            },
            ("a", 4): {"diverged": "the loss is nan"},
            ("a", -1): {"accuracy": 0.9, "held_out_log_likelihood": -0.01, "held_out_accuracy": 0.99},
        }
    )
    kept = select_runs(made, found)
    accuracy = {protocol: runs["a", "uniform", 0].result["accuracy"] for protocol, runs in kept.items()}
    assert accuracy == {
        "defaults": 0.5,
        "held_out_epoch": 0.9,
        "tuned_by_crowd": 0.6,
        "tuned_by_gold": 0.7,
    }


def test_tuning_needs_all_draws() -> None:
    one = {"accuracy": 0.5, "held_out_log_likelihood": -1.0, "held_out_accuracy": 0.5}
    made, found = records({("a", 0): one, ("a", 1): {}, ("b", 0): {}, ("b", 1): one, ("c", 0): one, ("c", 1): one})
    kept = select_runs(made, found)
    assert {row for row, _, _ in kept["defaults"]} == {"a", "c"}
    assert {row for row, _, _ in kept["tuned_by_crowd"]} == {"c"}


def test_ranks_of_a_known_order() -> None:
    by_dataset = {
        name: {
            "good": {0: 0.9, 1: 0.8},
            "bad": {0: 0.5, 1: 0.4},
            "same": {0: 0.5, 1: 0.4},
            "true-label": {0: 1.0, 1: 1.0},
        }
        for name in ("one", "two", "three")
    }
    found = rank_methods(by_dataset)
    assert found is not None
    assert found.mean == {"good": 1.0, "bad": 2.5, "same": 2.5}
    assert found.interval["good"] == (1.0, 1.0)
    assert (found.n_datasets, found.n_seeds) == (3, 2)
    assert found.critical_difference == nemenyi_critical_difference(3, 3)
    assert rank_methods({"one": {"good": {0: 1.0}}}) is None
    assert rank_methods({"one": {"good": {0: 1.0}, "bad": {1: 1.0}}}) is None  # no common data set and seed


def test_intervals_of_ranks_are_students_over_data_sets() -> None:
    by_dataset = {f"dataset {i}": {"a": {0: 1.0}, "b": {0: 2.0 if i == 0 else 0.0}} for i in range(4)}
    found = rank_methods(by_dataset)  # a has the ranks 2, 1, 1, 1: mean 1.25, standard error 0.25
    assert found is not None
    assert found.mean == {"a": 1.25, "b": 1.75}
    assert found.interval["b"] == pytest.approx((1.0, 2.0))  # 1.75 - 3.182 * 0.25 = 0.95 and 2.55, cut at both ends
    wide = rank_methods({"one": {"a": {0: 1.0, 1: 0.0}, "b": {0: 0.0, 1: 1.0}}})
    assert wide is not None
    assert wide.interval["a"] == (1.0, 2.0)


def test_gains_are_paired() -> None:
    made = {
        (row, dataset, seed): Record({}, {"accuracy": base + 0.1 * seed + (0.02 if row == "a" else 0)}, 1.0)
        for dataset, base in (("one", 0.1), ("two", 0.7))
        for seed in (0, 1)
        for row in ("a", "majority-vote")
    }
    mean, low, high, n_datasets = gains_over(made, "majority-vote")["a"]
    assert (round(mean, 6), round(low, 6), round(high, 6), n_datasets) == (2.0, 2.0, 2.0, 2)


def test_costs_are_relative_to_the_reference() -> None:
    made = {
        (row, dataset, seed): Record({}, {"training_cpu_seconds": times * (1 + seed)}, 1.0)
        for dataset, factor in (("one", 2.0), ("two", 4.0))
        for row, times in (("majority-vote", 1.0), ("a", factor))
        for seed in (0, 1)
    }
    assert relative_costs(made, "training_cpu_seconds") == {"majority-vote": 1.0, "a": 3.0}


# ---- the command -------------------------------------------------------------------------------


def test_the_command_makes_tables_and_continues(small: None, tmp_path: Path) -> None:
    asked = ["--tune", "2", "--methods", "majority-vote,trace-reg,true-label", "--seeds", "0,1"]
    command = ["reproduce", "crowds", *asked, "--out", str(tmp_path / "fair")]
    shown = CliRunner().invoke(app, [*command, "--json", str(tmp_path / "figures.json")], env={"COLUMNS": "300"})
    assert shown.exit_code == 0, shown.output
    for said in (
        "## Defaults",
        "## Tuned by crowd labels",
        "## Tuned by gold",
        "LabelMe",
        "| trace-reg |",
        "not ranked",
        "memory over",
    ):
        assert said in shown.output
    numbers = json.loads((tmp_path / "figures.json").read_text())
    assert set(numbers["defaults"]["accuracy"]) == set(CROWD_DATASETS)
    assert set(numbers["defaults"]["ranks"]["mean"]) == {"majority-vote", "trace-reg"}
    assert (tmp_path / "fair" / "ranks-defaults.png").stat().st_size > 5_000
    lines = (tmp_path / "fair" / "runs.jsonl").read_text().count("\n")
    assert lines == 3 * 2 * (2 * 2 + 1 + 2)  # draws, the bound, and held-out labels
    again = CliRunner().invoke(app, [*command, "--show"], env={"COLUMNS": "300"})
    assert again.stdout == shown.stdout
    assert (tmp_path / "fair" / "runs.jsonl").read_text().count("\n") == lines


def test_a_long_plan_lists_the_first_runs(tmp_path: Path) -> None:
    shown = CliRunner().invoke(
        app, ["reproduce", "mnist-kinds", "--tune", "10", "--plan", "--out", str(tmp_path / "new")]
    )
    assert shown.exit_code == 0, shown.output
    first, *named, last = shown.output.splitlines()
    assert "7480 missing" in first
    assert len(named) == 100
    assert named[0] == "  fusion, uniform, seed 0, defaults"
    assert last == "  and 7380 more"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["crowds", "--tune", "2", "--epochs", "3"], "--epochs cannot be used with --tune"),
        (["mnist-kinds", "--values", "unifrom"], "uniform"),
        (["mnist-kinds", "--methods", "fusoin"], "fusion"),
    ],
)
def test_bad_requests_are_refused(options: list[str], said: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["reproduce", *options, "--out", str(tmp_path / "fair")])
    assert shown.exit_code == 2
    assert said in shown.output
    assert not (tmp_path / "fair").exists()
