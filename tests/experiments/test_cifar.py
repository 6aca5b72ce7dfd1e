from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.cli.options import parse_names
from crowdfuse.experiments.catalog import PAPER_EXPERIMENTS, SMALL_EXPERIMENTS
from crowdfuse.experiments.grid import Experiment
from crowdfuse.synthesis import SyntheticCrowd

N_CLASSES = 4


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write small files of features, labels and distances for the small scale."""
    X, y = make_blobs(260, centers=N_CLASSES, n_features=6, random_state=0)
    folder = tmp_path / "cifar100"
    folder.mkdir()
    far = np.stack([np.linalg.norm(X[:200] - X[row], axis=1) / 2 + 15 for row in (0, 1, 2)], axis=1)
    np.savez(folder / "features.npz", x_train=X[:200].astype(np.float16), x_test=X[200:].astype(np.float16))
    np.savez(folder / "labels.npz", y_train=y[:200].astype(np.uint8), y_test=y[200:].astype(np.uint8))
    np.savez(folder / "distances.npz", distances=far.astype(np.float32), weakness=np.arange(3))
    return tmp_path


def reproduce(name: str, data: Path, *arguments: str) -> Any:
    common = [
        "--epochs",
        "2",
        "--items",
        "80" if name == "supp3" else "160",
        "--data",
        str(data),
        "--out",
        str(data / "out"),
        "--quiet",
    ]
    return CliRunner().invoke(app, ["reproduce", name, *common, *arguments])


def test_table2_runs_at_the_small_scale(data: Path) -> None:
    result = reproduce("table2", data, "--values", "20")
    assert result.exit_code == 0, result.output
    for shown in ("majority-vote-soft", "annotator-3", "(70.0)", "so its accuracies are not comparable"):
        assert shown in result.output.replace("\n", " ")
    assert "points from the paper" not in result.output


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("supp2", "22", "fusion-weights-only"),
        ("supp3", "own,unseen", "(73.1)"),
        ("ablation-lambda", "0,1", "lambda 0"),
        ("ablation-bases", "1,5", "fusion-epsilon-23"),
    ],
)
def test_ablations(data: Path, name: str, values: str, shown: str) -> None:
    result = reproduce(name, data, "--values", values)
    assert result.exit_code == 0, result.output
    assert shown in result.output
    assert "items: a trial." in result.output
    assert ("Annotator accuracy" in result.output) is name.startswith("supp")  # else rows have their own annotators


@pytest.mark.parametrize("experiment", [*PAPER_EXPERIMENTS.values(), *SMALL_EXPERIMENTS.values()])
def test_every_row_can_be_selected_on_the_command_line(experiment: Experiment) -> None:
    for row in (*experiment.methods, *experiment.extra_rows):
        assert parse_names(row, "--methods") == [row]  # a comma in the name would split it


def test_the_parameter_reaches_the_method_and_the_row_its_annotators() -> None:
    cells = SMALL_EXPERIMENTS["ablation-lambda"].cells(values=[0.3])
    assert [cell.run["settings"]["penalty"] for cell in cells] == [0.3, 0.3]
    assert [cell.run["annotators"]["epsilon"] for cell in cells] == [22, 23]
    assert SMALL_EXPERIMENTS["ablation-bases"].cells(values=[5])[0].run["settings"]["n_bases"] == 5
    only = {cell.row: cell.run["settings"] for cell in SMALL_EXPERIMENTS["supp2"].cells(values=[22])}
    assert only["fusion-weights-only"]["n_bases"] == 1
    assert only["fusion-confusions-only"]["weights"] == "uniform"
    assert only["fusion"]["n_bases"] == 150


def test_missing_files_are_named(data: Path) -> None:
    (data / "cifar100" / "distances.npz").unlink()
    result = reproduce("table2", data)
    assert result.exit_code == 2
    assert "distances.npz is missing" in result.output


def test_rows_that_do_not_match_are_refused(data: Path) -> None:
    np.savez(data / "cifar100" / "labels.npz", y_train=np.zeros(3, int), y_test=np.zeros(60, int))
    result = reproduce("table2", data)
    assert result.exit_code == 2
    assert "x_train has 200 rows, but y_train has 3" in result.output


def test_an_unknown_protocol_is_refused(data: Path) -> None:
    result = reproduce("supp3", data, "--values", "onw")
    assert result.exit_code == 2
    assert "protocol must be one of own, unseen, got 'onw'; did you mean 'own'?" in result.output


def test_stored_distances_work_with_every_type_of_wrong_label(data: Path) -> None:
    run = SMALL_EXPERIMENTS["table2"].cells(values=[22], methods=["fusion"], data={"n_train": 160})[0].run
    work = SMALL_EXPERIMENTS["table2"].scale.executor(data)
    parts = work.load(run)

    def made_up(**changes: Any) -> SyntheticCrowd:
        return work.make_annotators({**run, "annotators": run["annotators"] | changes}, parts)

    inside = ~made_up().is_correct
    assert inside.any(0).all()
    for wrong in ("any", "shift", "copy"):
        assert (inside | made_up(wrong=wrong).is_correct).all()
    # the most confusable class is looked for in the features
    means = np.stack([parts.X.values[parts.y == k].mean(0, dtype=np.float64) for k in range(N_CLASSES)])
    apart = np.linalg.norm(means[:, None] - means, axis=2) + np.diag(np.full(N_CLASSES, np.inf))
    expected = np.where(inside, apart.argmin(1)[parts.y][:, None], parts.y[:, None])
    np.testing.assert_array_equal(made_up(wrong="neighbour").annotations.to_matrix(), expected)
    expected = np.where(inside, parts.y[[0, 1, 2]], parts.y[:, None])
    np.testing.assert_array_equal(made_up(wrong="looks", weakness=[0, 1, 2]).annotations.to_matrix(), expected)
    with pytest.raises(ValueError, match=r"also pass weakness="):
        made_up(wrong="looks")
    habits = made_up(rule="habit", share=0.25, missing=0.5)
    assert habits.habit is not None
    assert 0.4 < habits.annotations.n_labels / (3 * 160) < 0.6
