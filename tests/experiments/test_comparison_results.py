"""The shipped comparison results, the default method, and the page on methods."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from crowdfuse.cli import app
from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.comparison_results import (
    DEFAULTS,
    HELD_OUT_EPOCH,
    METRIC_TITLES,
    TUNED_BY_CROWD,
    ComparisonResults,
    best_overall_method,
    datasets_won_and_tied,
    describe_alternatives,
    describe_rank,
    load_comparison_results,
    mean_ranks,
)
from crowdfuse.experiments.methods_page import method_facts, render_methods_page
from crowdfuse.experiments.protocols import best_and_tied

DOCS = Path(__file__).parents[2] / "docs"


def made_up() -> ComparisonResults:
    """Two groups of one data set: a is first in accuracy on one, b everywhere else."""
    rank = {quality: {"a": 2.0, "b": 1.0} for quality in METRIC_TITLES}
    groups = {}
    for name, first in (("mnist-kinds", ["a", "b"]), ("crowds", ["b"])):
        of_accuracy = {row: float(1 + (row != first[0])) for row in ("a", "b")}
        protocol = {
            "rank": rank | {"accuracy": of_accuracy},
            "accuracy": {name: {"a": 0.9, "b": 0.8}},
            "leaders": {name: first},
            "n_datasets": 1,
            "n_seeds": 5,
        }
        groups[name] = {
            "command": "",
            DEFAULTS: protocol,
            TUNED_BY_CROWD: {},
            "relative_time": {"a": 2.0},
            "relative_memory": {"a": 3.0},
        }
    return groups


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "300"})


def evidence_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_script", DOCS / "comparison_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- how it is counted ---------------------------------------------------------------------------


def test_groups_and_metrics_have_the_same_weight() -> None:
    found = made_up()
    assert mean_ranks(found, metrics=["accuracy"]) == {"a": 1.5, "b": 1.5}
    assert mean_ranks(found)["a"] == pytest.approx((4 * 2 + 1.5) / 5)
    assert best_overall_method(found, ["a", "b"]) == "b"
    assert best_overall_method(found, ["a", "never compared"]) == "a"
    assert datasets_won_and_tied(found, DEFAULTS, "a") == (["mnist-kinds"], [])
    assert datasets_won_and_tied(found, DEFAULTS, "b") == (["crowds"], ["mnist-kinds"])


def test_alternatives_to_the_method_are_named() -> None:
    found = made_up()
    assert describe_alternatives(found, "b") == ""  # equal accuracy is not an advantage
    for group in found.values():
        group[DEFAULTS]["rank"]["suspicion_average_precision"] = {"a": 1.0, "b": 2.0}
    assert describe_alternatives(found, "b") == (
        "This is an average: by finding wrong labels alone a (1.0 against 2.0) would be first."
    )
    found["crowds"][DEFAULTS]["n_datasets"] = 9  # where accuracy speaks for b
    assert "with the same weight for every data set b" in describe_alternatives(found, "a")


def test_only_the_best_method_is_called_best() -> None:
    assert "it has the best mean rank, 1.1," in describe_rank(made_up(), "b")
    assert "it has mean rank number 2, 1.9," in describe_rank(made_up(), "a")


def test_leaders_are_not_significantly_worse_than_the_best() -> None:
    generator = np.random.default_rng(0)
    noise = generator.normal(size=5)
    by_seed = {
        "best": {seed: 0.9 + 0.01 * noise[seed] for seed in range(5)},
        "close": {seed: 0.899 + 0.01 * noise[-seed] for seed in range(5)},
        "surely behind": {seed: 0.895 + 0.01 * noise[seed] for seed in range(5)},  # always by as much
        "far, if not surely": {seed: 0.5 + 0.3 * seed * (seed < 2) for seed in range(5)},
        "true-label": dict.fromkeys(range(5), 1.0),
    }
    assert best_and_tied({"one": by_seed}) == {"one": ["best", "close"]}
    assert best_and_tied({"one": {"true-label": {0: 1.0}}}) == {}
    assert best_and_tied({"one": {"a": {0: 0.5}, "b": {0: 0.6}}}) == {"one": ["b"]}  # one seed tells no interval


# ---- shipped results ------------------------------------------------------------------------------


def test_the_default_has_the_best_mean_rank_of_methods_for_any_labels() -> None:
    anywhere = [method for method in ESTIMATORS if not estimator_class(method).needs]
    assert best_overall_method(load_comparison_results(), anywhere) == DEFAULT_METHOD


def test_every_method_was_compared_in_both_protocols() -> None:
    for protocol in (DEFAULTS, HELD_OUT_EPOCH, TUNED_BY_CROWD):
        assert set(mean_ranks(load_comparison_results(), protocol)) >= set(ESTIMATORS) - {
            "single-annotator",
            "true-label",
            "consensus-training",
        }


def test_the_shipped_results_are_those_of_the_stored_tables() -> None:
    assert evidence_script().collect_results() == load_comparison_results()
    assert render_methods_page(load_comparison_results()) == (DOCS / "methods.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("group", "folder"), [("mnist-kinds", "mnist-kinds"), ("crowds", "crowds-tuned")])
def test_stored_tables_follow_from_stored_runs(group: str, folder: str, tmp_path: Path) -> None:
    stored = DOCS / "results" / folder
    shutil.copy(stored / "runs.jsonl", tmp_path)
    _, _, _, *options = shlex.split(load_comparison_results()[group]["command"])
    shown = run("reproduce", group, *options, "--out", str(tmp_path), "--show")
    assert shown.exit_code == 0, shown.output
    for name in ("table.json", "table.md"):
        assert (tmp_path / name).read_text() == (stored / name).read_text()


def test_methods_with_requirements_state_them() -> None:
    assert {method for method in ESTIMATORS if estimator_class(method).needs} == {"max-mig", "coin-net", "true-label"}


# ---- the command -----------------------------------------------------------------------------------


def test_the_command_describes_every_method(tmp_path: Path) -> None:
    shown = run("methods", "--json", str(tmp_path / "methods.json"))
    assert shown.exit_code == 0, shown.output
    said = shown.stdout.splitlines()
    ranks = mean_ranks(load_comparison_results())
    for method in ESTIMATORS:
        (at,) = [i for i, line in enumerate(said) if line.split()[:1] == [method]]
        assert (f" {ranks[method]:.1f} " in said[at]) if method in ranks else (len(said[at]) < 60)
        assert estimator_class(method).assumes in said[at + 1]
        assert estimator_class(method).needs in said[at + 1]
    assert f"Without --method, crowdfuse fit uses {DEFAULT_METHOD}: " in shown.stdout
    facts = json.loads((tmp_path / "methods.json").read_text())
    assert {fact["method"] for fact in facts} == set(ESTIMATORS)
    assert [fact["method"] for fact in facts if fact["default"]] == [DEFAULT_METHOD]
    assert run("methods", "--json", str(tmp_path / "methods.json")).exit_code == 2  # not overwritten


def test_selected_methods_are_sorted_by_rank() -> None:
    shown = run("methods", "majority-vote", "gated", "gated")
    for said in ("assumes", "defaults: ", "tuned by crowd labels: "):
        assert shown.stdout.count(said) == (2 if said == "assumes" else 4)  # ranks, and where it is first
    ranks = mean_ranks(load_comparison_results())
    first = min(("gated", "majority-vote"), key=lambda row: ranks[row])
    assert shown.stdout.startswith(first)
    order = [fact["method"] for fact in method_facts(load_comparison_results(), ["true-label", "robust-vote", "gated"])]
    assert order == ["gated", "robust-vote", "true-label"]  # without a rank last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["gatd"], "did you mean 'gated'?"), (["--page", "gated"], "leave out gated")],
)
def test_bad_requests_are_refused(arguments: list[str], said: str) -> None:
    shown = run("methods", *arguments)
    assert shown.exit_code == 2
    assert said in shown.output
