"""The stored comparison of all methods, the choice of the default method, and the page on methods."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crowdfuse.cli import app
from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.method_results import Dataset, MethodResults, collect_results, load_method_results
from crowdfuse.experiments.method_results_table import describe_default, render_results_table
from crowdfuse.experiments.methods_page import method_facts, render_methods_page
from crowdfuse.labels.intervals import t_interval_half_width
from tests.stored_results import PROJECT, load_benchmark

DATASETS = [Dataset(name, "real crowds", f"photographs of {name}") for name in ("dogs", "cats", "birds")]
ACCURACIES = {
    "gated": {"dogs": 90.0, "cats": 60.0},
    "madl": {"dogs": 80.0, "cats": 64.0},
    "majority-vote": {"dogs": 70.0, "cats": 50.0, "birds": 40.0},
    "true-label": {"dogs": 95.0, "cats": 95.0},
}


def run(arena: str, method: str, accuracy: float, seed: int = 0, **figures: float) -> dict[str, Any]:
    return {"arena": arena, "method": method, "seed": seed, "accuracy": accuracy, **figures}


def made_up(accuracies: dict[str, dict[str, float]] = ACCURACIES) -> MethodResults:
    """Return results with one seed per data set."""
    runs = [run(name, method, value) for method, of in accuracies.items() for name, value in of.items()]
    return collect_results(runs, DATASETS)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Return the script that runs the comparison."""
    return load_benchmark("default_method")


# ---- means, ranks and differences ------------------------------------------------------------------


def test_means_and_ranks_are_over_data_sets_that_all_compared_methods_have() -> None:
    results = made_up()
    assert [dataset.name for dataset in results.shared_datasets()] == ["dogs", "cats"]
    assert results.mean("accuracy") == {"gated": 75.0, "madl": 72.0, "majority-vote": 60.0, "true-label": 95.0}
    assert results.mean_rank() == {"gated": 1.5, "madl": 1.5, "majority-vote": 3.0}
    assert results.methods() == ["gated", "madl", "majority-vote", "true-label"]
    assert results.first_on("gated") == ["dogs"]
    assert results.first_on("majority-vote") == ["birds"]
    assert results.first_on("true-label") == []


def test_ties_share_their_rank_and_the_first_place() -> None:
    results = made_up({"gated": {"dogs": 90.0}, "madl": {"dogs": 90.0}, "fusion": {"dogs": 80.0}})
    assert results.mean_rank() == {"gated": 1.5, "madl": 1.5, "fusion": 3.0}
    assert results.first_on("gated") == results.first_on("madl") == ["dogs"]


def test_all_methods_have_the_same_seeds() -> None:
    runs = [run("dogs", "gated", 90.0), run("dogs", "gated", 10.0, seed=1), run("dogs", "madl", 80.0)]
    (dataset,) = collect_results(runs, DATASETS).datasets
    assert dataset.n_seeds == 1
    assert dataset.accuracy == {"gated": 90.0, "madl": 80.0}
    (dataset,) = collect_results([*runs, run("dogs", "madl", 70.0, seed=1)], DATASETS).datasets
    assert dataset.n_seeds == 2
    assert dataset.accuracy == {"gated": 50.0, "madl": 75.0}


def test_a_method_with_few_data_sets_is_shown_but_not_compared() -> None:
    results = made_up(ACCURACIES | {"wdn": {"dogs": 99.0}})  # on one data set of three
    assert "wdn" not in results.compared
    assert "wdn" not in results.mean_rank()
    assert results.mean("accuracy")["gated"] == 75.0
    table = render_results_table(results)
    assert "| wdn | **99.0** | — | — |" in table
    assert "Not compared, because they have run on less than 50 % of the data sets: wdn." in table


def test_of_two_runs_of_a_cell_the_last_counts() -> None:
    assert collect_results([run("dogs", "gated", 1.0), run("dogs", "gated", 2.0)], DATASETS).mean("accuracy") == {
        "gated": 2.0
    }


def test_figures_are_means_only_if_all_seeds_have_them() -> None:
    runs = [
        run("dogs", "gated", 90.0, seconds=8.0, log_loss=0.5),
        run("dogs", "gated", 90.0, seed=1, seconds=4.0),
        run("dogs", "majority-vote", 80.0, seconds=2.0, log_loss=0.7),
        run("dogs", "majority-vote", 80.0, seed=1, seconds=1.0, log_loss=0.9),
    ]
    results = collect_results(runs, DATASETS)
    assert results.mean("log_loss") == {"majority-vote": 0.8}
    assert results.relative_time() == {"gated": 4.0, "majority-vote": 1.0}


def test_differences_are_paired_over_data_sets() -> None:
    found = made_up().difference("gated", "madl")
    assert found is not None
    assert (found.mean, found.n_datasets) == (3.0, 2)
    assert found.half_width == pytest.approx(t_interval_half_width([10.0, -4.0]))
    assert (found.smallest, found.smallest_on) == (-4.0, "cats")
    assert made_up().difference("gated", "fusion") is None
    with_one = made_up({"gated": {"dogs": 90.0}, "madl": {"dogs": 80.0}}).difference("gated", "madl")
    assert with_one is not None
    assert with_one.half_width is None


def test_results_survive_json() -> None:
    results = made_up()
    assert MethodResults.from_dict(json.loads(json.dumps(results.to_dict()))) == results


# ---- what is said about the default method ---------------------------------------------------------


def test_the_best_method_is_called_best_with_its_lead() -> None:
    said = describe_default(made_up(), "gated")
    assert "Of 3 methods compared, it has the highest mean accuracy, 75.0 % over 2 data sets" in said
    assert "madl is second with 72.0 % (difference +3.0 points, 95 % interval over data sets -85.9 to +91.9)" in said
    assert said.endswith("up to 4.0 points behind the best method (cats).")


def test_a_default_that_is_not_the_best_is_not_called_best() -> None:
    said = describe_default(made_up(), "madl")
    assert said.startswith("It is not the best method on average: of 3 methods compared, it is number 2")
    assert "gated is first with 75.0 % (difference -3.0 points" in said
    assert "up to 10.0 points behind the best method (dogs)." in said


def test_a_default_without_results_is_said_to_have_none() -> None:
    said = describe_default(made_up(), "fusion")
    assert said == "It is not part of the stored comparison, because it has run on 0 of 3 data sets."


# ---- stored results --------------------------------------------------------------------------------


def test_everything_follows_from_the_stored_runs(benchmark: ModuleType, tmp_path: Path) -> None:
    """The shipped results, the table, the page and the README are those that `--tables` writes."""
    written = (benchmark.SHIPPED_PATH, benchmark.TABLE_PATH, benchmark.PAGE_PATH, benchmark.README_PATH)
    for path in written:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROJECT / benchmark.README_PATH, tmp_path / benchmark.README_PATH)
    runs = benchmark.read_runs(PROJECT / benchmark.RUNS_PATH)
    benchmark.write_tables(collect_results(runs, list(benchmark.ARENAS.values())), tmp_path)
    for path in written:
        assert (tmp_path / path).read_text(encoding="utf-8") == (PROJECT / path).read_text(encoding="utf-8"), path
    assert describe_default(load_method_results()) in (PROJECT / "README.md").read_text(encoding="utf-8")


def test_finished_runs_are_kept(benchmark: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for methods in (["majority-vote"], ["majority-vote", "two-stage"]):
        benchmark.run_missing(path, [0], ["100 items, 2 classes"], methods)
    runs = benchmark.read_runs(path)
    assert [one["method"] for one in runs] == ["majority-vote", "two-stage"]
    for one in runs:
        assert 50 < one["accuracy"] < 100
        assert 0 < one["log_loss"] < 3
        assert one["n_steps"] >= 100


def test_methods_with_requirements_state_them() -> None:
    assert {method for method in ESTIMATORS if estimator_class(method).needs} == {"max-mig", "coin-net", "true-label"}


# ---- the page and the command ----------------------------------------------------------------------


def test_the_page_lists_the_best_method_first() -> None:
    page = render_methods_page(made_up())
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(ESTIMATORS)
    by_rank = [row[0].removeprefix("| ").removesuffix(" (the default)") for row in rows]
    assert by_rank[:4] == ["gated", "madl", "majority-vote", "true-label"]
    assert rows[1][1:5] == ["72.0", "1.5", "", "cats"]
    assert "(seeds per data set: 1)" in page
    assert "- *dogs*: photographs of dogs" in page


def test_the_command_describes_every_method(tmp_path: Path) -> None:
    shown = call("methods", "--json", str(tmp_path / "methods.json"))
    assert shown.exit_code == 0, shown.output
    said = shown.stdout.splitlines()
    mean = load_method_results().mean("accuracy")
    for method in ESTIMATORS:
        (at,) = [i for i, line in enumerate(said) if line.split()[:1] == [method]]
        assert method not in mean or said[at].split()[1] == f"{mean[method]:.1f}"
        assert estimator_class(method).assumes in said[at + 1]
        assert estimator_class(method).needs in said[at + 1]
    assert f"Without --method, 'crowdfuse fit' uses {DEFAULT_METHOD}. " in shown.stdout
    facts = json.loads((tmp_path / "methods.json").read_text())
    assert {fact["method"] for fact in facts} == set(ESTIMATORS)
    assert [fact["method"] for fact in facts if fact["default"]] == [DEFAULT_METHOD]
    assert call("methods", "--json", str(tmp_path / "methods.json")).exit_code == 2  # not overwritten


def test_selected_methods_are_sorted_by_accuracy() -> None:
    results = load_method_results()
    shown = call("methods", "majority-vote", "gated", "gated")
    assert shown.stdout.count("  assumes ") == 2
    assert shown.stdout.count("times that of soft vote") == 2
    assert f"{results.datasets[0].name} {results.datasets[0].accuracy['gated']:.1f}" in shown.stdout
    first = max(("gated", "majority-vote"), key=results.mean("accuracy").__getitem__)
    assert shown.stdout.startswith(first)
    order = [fact["method"] for fact in method_facts(results, ["single-annotator", "true-label", "gated"])]
    assert order == ["gated", "true-label", "single-annotator"]  # first those with a rank


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["gatd"], "did you mean 'gated'?"), (["--page", "gated"], "leave out gated")],
)
def test_bad_requests_are_refused(arguments: list[str], said: str) -> None:
    shown = call("methods", *arguments)
    assert shown.exit_code == 2
    assert said in shown.output
