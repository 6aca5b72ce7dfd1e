"""The comparison on real crowds, here with generated files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfuse.aggregation import dawid_skene
from crowdfuse.cli import app
from crowdfuse.datasets.label_only import LABEL_ONLY_DATASETS, load_label_only
from crowdfuse.estimators import TrueLabelClassifier
from crowdfuse.experiments.correct_items import decode_correct
from crowdfuse.experiments.crowds import DATASETS, CrowdsExecutor, crowd_cells
from tests.crowd_files import write_crowds


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_crowds(tmp_path)


def reproduce(data: Path, *arguments: str) -> Any:
    common = ["--data", str(data), "--out", str(data / "out"), "--quiet"]
    return CliRunner().invoke(app, ["reproduce", "crowds", *common, *arguments])


def test_the_whole_grid_has_every_method_on_every_data_set() -> None:
    found = crowd_cells()
    seeds = {value: {cell.seed for cell in found if cell.value == value} for value in DATASETS}
    assert {value: len(of) for value, of in seeds.items()} == {
        name: 3 if name == "cifar10n" else 10 for name in DATASETS
    }
    rows = {value: [cell.row for cell in found if (cell.value, cell.seed) == (value, 0)] for value in DATASETS}
    alike = [row for row in rows["labelme"] if "gold" not in row]
    assert rows["labelme"] == rows["sentiment"]
    assert alike == rows["cifar10n"][: len(alike)]
    assert "gated 50 gold" in rows["labelme"]
    assert not any("single" in row for row in [*rows["labelme"], *rows["cifar10n"]])
    for name in LABEL_ONLY_DATASETS:
        assert rows[name] == ["majority-vote", "wawa", "dawid-skene", "one-coin", "glad", "mace"]


def test_all_methods_on_a_data_set_share_network_and_training() -> None:
    for value in ("labelme", "sentiment", "cifar10n"):
        own = ("annotator", "vote", "aggregator")
        trainings = [
            {name: setting for name, setting in cell.run["settings"].items() if name not in own}
            for cell in crowd_cells([value], seeds=[0])
        ]
        assert all(one == trainings[0] for one in trainings)


def test_part_of_a_grid_has_the_same_runs_as_the_whole() -> None:
    whole = [cell.run for cell in crowd_cells()]
    assert all(cell.run in whole for cell in crowd_cells(["dog", "labelme"], ["majority-vote"], [4]))
    assert [cell.value for cell in crowd_cells(["dog", "labelme"], ["mace"], [4])] == ["dog"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'labelme'"):
        crowd_cells(["labelm"])
    with pytest.raises(ValueError, match="did you mean 'fusion'"):
        crowd_cells(methods=["fusoin"])
    with pytest.raises(ValueError, match="none of mace runs on labelme"):
        crowd_cells(["labelme"], ["mace"])


def test_runs_equal_direct_calls_of_the_library(data: Path, tmp_path: Path) -> None:
    work = CrowdsExecutor(data)
    (cell,) = crowd_cells(["labelme"], ["true-label"], [3], epochs=2)
    crowd = work.crowd("labelme", 3)
    by_hand = TrueLabelClassifier(**cell.run["settings"], random_state=3, classes=[0, 1, 2]).fit(crowd.X, crowd.y)
    result = work(cell.run, tmp_path / "checkpoint")
    assert result["accuracy"] == by_hand.score(crowd.X_test, crowd.y_test)
    assert result["n_evaluated"] == 30
    right = crowd.annotations.label == crowd.y[crowd.annotations.item]
    assert result["crowd_summary"] == {
        "n_items": 60,
        "n_annotators": 6,
        "n_labels": 300,
        "n_classes": 3,
        "label_accuracy": pytest.approx(right.mean()),
    }


def test_aggregations_are_evaluated_per_item(data: Path, tmp_path: Path) -> None:
    (cell,) = crowd_cells(["zencrowd"], ["dawid-skene"], [1])
    result = CrowdsExecutor(data)(cell.run, tmp_path / "checkpoint")
    ann = load_label_only("zencrowd", data).annotations
    truth = np.random.default_rng(7).integers(0, 3, 30)[:25]
    right = dawid_skene(ann, seed=1).consensus[:25] == truth
    assert decode_correct(result).tolist() == right.tolist()
    assert result["accuracy"] == right.mean()
    said, of = ann.classes[ann.label], ann.item
    assert result["crowd_summary"]["label_accuracy"] == pytest.approx(
        (said == np.append(truth, [9] * 5)[of])[of < 25].mean()
    )


def test_one_report_has_aggregation_and_networks(data: Path) -> None:
    methods = "fusion,majority-vote,two-stage,glad"
    asked = ["--values", "sentiment,cifar10n,dog", "--methods", methods, "--seeds", "0,1", "--epochs", "2"]
    result = reproduce(data, *asked, "--json", str(data / "all.json"))
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    for part in (
        "Made by `crowdfuse reproduce crowds --values sentiment,cifar10n,dog --methods fusion,",
        "--seeds 0,1 --epochs 2`",
        "Gold is used for evaluation and to train true-label",
        "| method | Sentiment Polarity | Sentiment Polarity, external test | CIFAR-10N |",
        "the annotators are the workers",
        "minus soft vote",
        "minus two-stage Dawid-Skene",
        "Against soft vote, fusion is",
        "| method | dog |",
        "2 (a trial: its own is",
    ):
        assert part in shown, part
    numbers = json.loads((data / "all.json").read_text())
    table = {(one["dataset"], one["method"]): one for one in numbers["table"]}
    assert set(table["dog", "glad"]["accuracy_by_seed"]) == {"0", "1"}
    assert numbers["datasets"]["Sentiment Polarity"]["n_evaluated"] == 10
    assert numbers["datasets"]["Sentiment Polarity, external test"]["n_evaluated"] == 3
    assert sorted(path.name for path in (data / "out").iterdir() if not path.name.startswith(".")) == [
        "differences.png",
        "runs.jsonl",
        "table.json",
        "table.md",
    ]
    assert ", 0 missing" in reproduce(data, *asked, "--plan").output
    shutil.rmtree(data / "cifar10n")
    assert reproduce(data, *asked, "--show").output == result.output  # of the store alone


def test_a_plan_names_method_data_set_and_seed(data: Path) -> None:
    result = reproduce(
        data, "--values", "labelme,dog", "--methods", "majority-vote,true-label", "--seeds", "5", "--plan"
    )
    assert result.output.splitlines() == [
        "Real crowds: 0 runs finished, 3 missing",
        "  majority-vote, labelme, seed 5",
        "  true-label, labelme, seed 5",
        "  majority-vote, dog, seed 5",
    ]
    assert not (data / "out").exists()
    assert "contains no finished run" in reproduce(data, "--show").output


def test_a_method_of_another_comparison_is_refused_with_its_command(data: Path) -> None:
    result = reproduce(data, "--values", "labelme", "--methods", "madl")
    assert result.exit_code == 2
    assert "to compare all methods, run 'crowdfuse reproduce crowds --tune 1'" in " ".join(result.output.split())


def test_a_missing_data_set_is_reported_before_any_work(data: Path) -> None:
    (data / "cifar10n" / "labels.npz").unlink()
    result = reproduce(data, "--values", "dog,cifar10n")
    assert result.exit_code == 2
    assert "labels.npz is missing" in result.output
    assert "or leave out cifar10n: pass the names of the other data sets" in " ".join(result.output.split())
    assert not (data / "out").exists()


def test_rows_with_gold_train_on_gold_of_some_items(data: Path) -> None:
    for row in ("gated", "gated 10 gold"):
        assert reproduce(data, "--values", "labelme", "--methods", row, "--seeds", "0", "--epochs", "3").exit_code == 0
    runs = [json.loads(line) for line in (data / "out" / "runs.jsonl").read_text().splitlines()]
    assert [one["run"].get("n_gold") for one in runs] == [None, 10]
    assert all(len(decode_correct(one["result"])) == one["result"]["n_evaluated"] for one in runs)
