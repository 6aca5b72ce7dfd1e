from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from crowdfuse import Annotations, FusionClassifier
from crowdfuse.cli import app
from crowdfuse.datasets import mnist as dataset
from crowdfuse.datasets.mnist import ImageData
from crowdfuse.experiments import mnist
from crowdfuse.experiments.run_executor import correctness_auroc
from crowdfuse.io.inputs import Inputs
from crowdfuse.synthesis import SyntheticCrowd, habit_annotators, weakness_annotators
from crowdfuse.synthesis.wrong_label_kinds import WRONG_LABEL_KINDS

N_TRAIN = 400
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> ImageData:
    """Replace MNIST by scikit-learn's digits, enlarged to 28 x 28."""
    X, y = load_digits(return_X_y=True)
    images = np.pad(np.kron(X.reshape(-1, 8, 8), np.ones((3, 3))), ((0, 0), (2, 2), (2, 2)))
    images = ((images / 16 - 0.3) / 0.37).astype(np.float32)
    data = ImageData(images[:500], y[:500].astype(np.int64), images[500:700], y[500:700].astype(np.int64))
    for module in (mnist, dataset):
        monkeypatch.setattr(module, "load_mnist", lambda *_, **__: data)
    return data


def reproduce(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", *arguments, "--items", str(N_TRAIN)])


def test_table1_runs_missing_cells_and_shows_the_paper(tmp_path: Path) -> None:
    folder = tmp_path / "table1"
    common = ("table1", "--epochs", "2", "--values", "30,34", "--out", str(folder), "--quiet")
    result = reproduce(*common, "--methods", "fusion")
    assert result.exit_code == 0, result.output
    lines = (folder / "runs.jsonl").read_text()
    result = reproduce(*common, "--methods", "fusion,majority-vote,single-annotator,true-label")
    assert result.exit_code == 0, result.output
    assert (folder / "runs.jsonl").read_text().startswith(lines)
    assert (folder / "runs.jsonl").read_text().count("\n") == 2 + 2 + 6 + 1  # gold is trained on once
    text = (folder / "table.md").read_text()
    for shown in ("(92.5)", "(61.2)", "annotator-3", "## Ranks", "Fusion minus each method", "AUROC", "--values 30,34"):
        assert shown in text
    assert text in result.output
    assert {path.name for path in folder.glob("*.png")} == {"accuracy.png", "epochs.png"}
    shown = reproduce("table1", "--epochs", "2", "--out", str(folder), "--show")  # all values, all methods
    assert shown.exit_code == 0, shown.output
    assert "| annotator-3 |" in shown.output
    assert (folder / "runs.jsonl").read_text().count("\n") == 11


def test_supp1_summarizes_single_annotators(tmp_path: Path) -> None:
    result = reproduce(
        "supp1", "--epochs", "1", "--methods", "single-annotator,majority-vote", "--out", str(tmp_path / "s"), "--quiet"
    )
    assert result.exit_code == 0, result.output
    assert "annotator-max" in result.output
    assert "(40.7)" in result.output


def test_the_number_of_annotators_can_vary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist, "EIGHT_WEAKNESS_ROWS", tuple(range(8)))
    result = reproduce("crowd", "--epochs", "1", "--values", "1,2", "--out", str(tmp_path / "c"), "--quiet")
    assert result.exit_code == 0, result.output
    assert "annotators 2" in result.output


def test_weights_that_follow_the_truth_have_an_auroc_of_one(small_data: ImageData) -> None:
    X, y = small_data.X_train[:N_TRAIN], small_data.y_train[:N_TRAIN]
    made = weakness_annotators(X, y, weakness=[1, 2], epsilon=20)

    class Oracle:
        confusion_given_ = "said"

        def annotator_weights(self, X: Any) -> Any:
            return made.is_correct.astype(float)

        def fused_labels(self, X: Any, ann: Any) -> Any:
            right = made.is_correct[:, list(made.annotations.annotators).index(ann.annotators[ann.annotator[0]])]
            return np.where(right[:, None], 0.9, 0.1) * np.ones(10)

    found = correctness_auroc(Oracle(), Inputs(X), made)  # type: ignore[arg-type]
    assert found == {"auroc_weights": [1.0, 1.0], "auroc_diagonals": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table1", "--methods", "fusoin"], "did you mean 'fusion'?"),
        (["table1", "--methods", "fusion,,mbem"], "names separated by commas"),
        (["table1", "--values", "thirty"], "epsilon must be a number, got 'thirty'"),
        (["table1", "--values", "-1"], "epsilon must be at least 0"),
        (["table1", "--seeds", "0,0"], "contains a number twice"),
        (["table1", "--methods", "fusion-shared-head"], "did you mean 'fusion-shared-heads'?"),
        (["table1", "--methods", "mbem", "--epochs", "1"], "rounds=2 needs at least 2 epochs"),
        (["supp1", "--values", "3.5"], "n_correct must be a whole number from 0 to 10, got 3.5"),
        (["crowd", "--values", "9"], "annotators must be a whole number from 1 to 8, got 9"),
        (["missing", "--values", "1"], "the share of missing labels must be below 1, got 1"),
    ],
)
def test_bad_requests_are_refused_before_any_work(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = reproduce(*arguments, "--out", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "new").exists()


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = reproduce("table1", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "was not written by crowdfuse" in result.output


def test_the_plan_lists_runs_and_executes_none(tmp_path: Path) -> None:
    result = reproduce("table1", "--plan", "--methods", "fusion", "--values", "30,31", "--out", str(tmp_path / "new"))
    assert result.exit_code == 0
    assert "0 runs finished, 2 missing" in result.output
    assert not (tmp_path / "new").exists()


def test_a_single_label_is_fused_into_its_column_of_the_matrix(small_data: ImageData) -> None:
    X, y = small_data.X_train[:60], small_data.y_train[:60]
    ann = Annotations.from_matrix(np.stack([y, (y + 1) % 10], axis=1))
    classifier = FusionClassifier(epochs=1).fit(X, ann)
    alone = ann.select_annotator(1)
    columns = classifier.fused_labels(X, alone)
    matrices = classifier.confusion_matrices(X)[:, 1]
    np.testing.assert_allclose(columns, matrices[np.arange(60), :, (y + 1) % 10], atol=1e-6)


def test_missing_labels_are_random_and_the_others_unchanged() -> None:
    whole, part = (
        mnist.MISSING_LABELS.cells(values=[share], methods=["fusion"], data={"n_train": N_TRAIN})[0].run
        for share in (0, 0.7)
    )
    work = mnist.MnistExecutor(None)
    everything, some = (
        work.make_annotators(run, work.cached_split(run)).annotations.to_matrix() for run in (whole, part)
    )
    given = some != -1
    assert (everything != -1).all()
    assert 0.2 < given.mean() < 0.4
    assert (~given).all(1).any()  # some items have lost all
    np.testing.assert_array_equal(some[given], everything[given])


def declared(**changes: Any) -> dict[str, Any]:
    run = mnist.TABLE1.cells(values=[20], methods=["fusion"], data={"n_train": N_TRAIN})[0].run
    return {**run, "annotators": run["annotators"] | {"weakness": [11, 103, 364]} | changes}


def made_up(**changes: Any) -> SyntheticCrowd:
    run = declared(**changes)
    work = mnist.MnistExecutor(None)
    return work.make_annotators(run, work.cached_split(run))


def test_a_run_without_wrong_is_the_papers_and_keeps_its_key(small_data: ImageData) -> None:
    run = mnist.TABLE1.cells(values=[30], methods=["fusion"])[0].run
    assert "wrong" not in run["annotators"]
    recorded = json.loads((RESULTS / "table1" / "runs.jsonl").read_text().splitlines()[0])["run"]
    assert recorded["annotators"] == run["annotators"]
    X, y = small_data.X_train[:N_TRAIN], small_data.y_train[:N_TRAIN]
    direct = weakness_annotators(X, y, weakness=[11, 103, 364], epsilon=20, annotators=run["annotators"]["names"])
    assert made_up().annotations == made_up(wrong="uniform").annotations == direct.annotations


@pytest.mark.parametrize("wrong", WRONG_LABEL_KINDS)
def test_runs_declare_types_of_wrong_labels_and_missing_ones(small_data: ImageData, wrong: Any) -> None:
    X, y = small_data.X_train[:N_TRAIN], small_data.y_train[:N_TRAIN]
    direct = weakness_annotators(X, y, weakness=[11, 103, 364], epsilon=20, wrong=wrong)
    np.testing.assert_array_equal(made_up(wrong=wrong).annotations.to_matrix(), direct.annotations.to_matrix())
    some = made_up(wrong=wrong, missing=0.5).annotations.to_matrix()
    np.testing.assert_array_equal(some[some != -1], direct.annotations.to_matrix()[some != -1])
    assert 0.4 < (some != -1).mean() < 0.6


def test_runs_declare_habits_drawn_or_given(small_data: ImageData) -> None:
    X, y = small_data.X_train[:N_TRAIN], small_data.y_train[:N_TRAIN]
    habits = [[[5, 6]], [[1, 2], [3, 8]], [[4, 9]]]
    given, drawn = made_up(rule="habit", habits=habits, share=0.4), made_up(rule="habit", n_habits=2)
    for made, direct in (
        (given, habit_annotators(X, y, habits=[[tuple(p) for p in mine] for mine in habits], share=0.4)),  # type: ignore[misc]
        (drawn, habit_annotators(X, y, n_annotators=3, n_habits=2)),
    ):
        np.testing.assert_array_equal(made.annotations.to_matrix(), direct.annotations.to_matrix())


def test_unknown_rules_and_types_are_refused() -> None:
    with pytest.raises(ValueError, match="rule must be one of weakness, hammer-spammer, habit, got 'habits'; did you"):
        made_up(rule="habits")
    with pytest.raises(ValueError, match=r"wrong must be one of .* did you mean 'copy'"):
        made_up(wrong="copied")


def test_a_run_returns_the_share_of_items_with_nobody_right(tmp_path: Path) -> None:
    run = declared(wrong="copy")
    run["settings"] = run["settings"] | {"epochs": 1}
    result = mnist.MnistExecutor(None)(run, tmp_path / "checkpoint")
    assert result["nobody_right_share"] == made_up(wrong="copy").all_wrong_share
