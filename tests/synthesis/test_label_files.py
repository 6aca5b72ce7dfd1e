from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from crowdfuse import Annotations
from crowdfuse.cli import app
from crowdfuse.datasets import mnist
from crowdfuse.datasets.mnist import ImageData
from crowdfuse.synthesis import habit_annotators, hammer_spammer_annotators, weakness_annotators
from crowdfuse.synthesis.label_files import write_labels
from crowdfuse.synthesis.wrong_label_kinds import WRONG_LABEL_KINDS

X, Y = load_digits(return_X_y=True)


def test_files_hold_the_labels_of_the_rule(tmp_path: Path) -> None:
    out, gold = tmp_path / "labels.csv", tmp_path / "new" / "gold.csv"
    result = write_labels("digits", epsilon=46, missing=0.2, seed=3, out=out, gold=gold)
    names = ["annotator-1", "annotator-2", "annotator-3"]
    made = weakness_annotators(X, Y, weakness=[4, 2, 3], epsilon=46, missing=0.2, annotators=names, seed=3)
    assert out.read_text().startswith("item,annotator,label\n0,annotator-")
    read = Annotations.read(out)
    np.testing.assert_array_equal(read.align(np.arange(len(X))).to_matrix(), made.annotations.to_matrix())
    with gold.open() as file:
        assert list(csv.reader(file)) == [["item", "label"], *([str(i), str(k)] for i, k in enumerate(Y))]
    assert {name: result[name] for name in ("dataset", "rule", "seed", "items", "classes", "labels")} == {
        "dataset": "digits",
        "rule": "weakness",
        "seed": 3,
        "items": 1797,
        "classes": 10,
        "labels": made.annotations.n_labels,
    }
    assert [one["annotator"] for one in result["annotators"]] == names
    assert [one["weakness"] for one in result["annotators"]] == [4, 2, 3]
    np.testing.assert_allclose([one["right"] for one in result["annotators"]], made.accuracy)
    assert sum(one["labels"] for one in result["annotators"]) == result["labels"]


def test_hammer_spammer_has_the_defaults_of_the_paper(tmp_path: Path) -> None:
    result = write_labels("digits", rule="hammer-spammer", out=tmp_path / "a.csv", seed=2)
    made = hammer_spammer_annotators(Y, n_annotators=5, n_correct=3, seed=2)
    assert [len(one["hammer"]) for one in result["annotators"]] == [3] * 5
    np.testing.assert_allclose([one["right"] for one in result["annotators"]], made.accuracy)
    result = write_labels(
        "digits", rule="hammer-spammer", by="annotator", n_hammers=1, n_annotators=2, items=500, out=tmp_path / "b.csv"
    )
    assert sorted(len(one["hammer"]) for one in result["annotators"]) == [0, 10]
    assert result["labels"] == 1000


@pytest.mark.parametrize("wrong", WRONG_LABEL_KINDS)
def test_every_kind_of_wrong_label_is_written_with_its_share_of_all_wrong_items(tmp_path: Path, wrong: Any) -> None:
    out = tmp_path / "labels.csv"
    result = write_labels("digits", wrong=wrong, missing=0.3, seed=5, out=out)
    made = weakness_annotators(X, Y, weakness=[4, 2, 3], epsilon=48, wrong=wrong, missing=0.3, seed=5)
    said = made.annotations.to_matrix()
    np.testing.assert_array_equal(Annotations.read(out).align(np.arange(len(X))).to_matrix(), said)
    assert result["nobody_right"] == made.all_wrong_share == (said != Y[:, None]).all(1).mean()


def test_habits_are_written_drawn_or_given(tmp_path: Path) -> None:
    given = [[(5, 6), (3, 8)], [(1, 2)]]
    result = write_labels("digits", rule="habit", habits=given, share=[0.3, 0.6], out=tmp_path / "a.csv")
    made = habit_annotators(X, Y, habits=given, share=[0.3, 0.6])
    assert [one["habits"] for one in result["annotators"]] == [[[3, 8], [5, 6]], [[1, 2]]]
    np.testing.assert_allclose([one["right"] for one in result["annotators"]], made.accuracy)
    assert result["nobody_right"] == 0
    result = write_labels("digits", rule="habit", n_habits=4, n_annotators=2, out=tmp_path / "b.csv", seed=1)
    assert [len(one["habits"]) for one in result["annotators"]] == [4, 4]
    assert len(write_labels("digits", rule="habit", out=tmp_path / "c.csv")["annotators"]) == 3


def synthesize(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["synthesize", "digits", *arguments])


def test_the_command_prints_accuracies_and_the_share_of_all_wrong_items(tmp_path: Path) -> None:
    out, figures = tmp_path / "labels.csv", tmp_path / "figures.json"
    result = synthesize("--wrong", "copy", "--out", str(out), "--json", str(figures))
    assert result.exit_code == 0, result.output
    made = weakness_annotators(X, Y, weakness=[4, 2, 3], epsilon=48, wrong="copy")
    assert f"on {100 * made.all_wrong_share:.1f} % of the items, no annotator is right" in result.output
    assert json.loads(figures.read_text())["nobody_right"] == made.all_wrong_share
    np.testing.assert_array_equal(
        Annotations.read(out).align(np.arange(len(X))).to_matrix(), made.annotations.to_matrix()
    )


def test_the_command_takes_habits(tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    result = synthesize("--rule", "habit", "--habits", "5:6+3:8,1:2", "--share", "0.3,0.6", "--out", str(out))
    assert result.exit_code == 0, result.output
    made = habit_annotators(X, Y, habits=[[(5, 6), (3, 8)], [(1, 2)]], share=[0.3, 0.6])
    assert f"annotator-2: 1,797 labels, {100 * made.accuracy[1]:.1f} % correct" in result.output
    assert "on 0.0 % of the items, no annotator is right" in result.output
    np.testing.assert_array_equal(
        Annotations.read(out).align(np.arange(len(X))).to_matrix(), made.annotations.to_matrix()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wrong", "shfit"], "did you mean 'shift'?"),
        (["--rule", "habits"], "did you mean 'habit'?"),
        (["--rule", "habit", "--habits", "5-6"], "--habits must be pairs of classes such as 5:6"),
        (["--rule", "habit", "--habits", "5:6:7"], "a comma between annotators, got '5:6:7'"),
        (["--rule", "habit", "--share", "half"], "--share must be numbers"),
        (["--rule", "habit", "--habits", "5:6", "--n-habits", "2"], "leave out n_annotators and n_habits"),
    ],
)
def test_the_command_refuses_invalid_options_without_a_traceback(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = synthesize(*arguments, "--out", str(tmp_path / "labels.csv"))
    assert result.exit_code == 2
    assert message in result.output
    assert not list(tmp_path.iterdir())


def test_accuracies_choose_the_rows(tmp_path: Path) -> None:
    result = write_labels("digits", accuracies=[0.8, 0.5], items=1000, out=tmp_path / "labels.csv")
    np.testing.assert_allclose([one["right"] for one in result["annotators"]], [0.8, 0.5], atol=0.02)


@pytest.mark.parametrize(("name", "items"), [("mnist", None), ("fashion-mnist", 60)])
def test_images_come_from_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, items: int | None
) -> None:
    asked: list[Any] = []
    images = np.random.default_rng(0).normal(size=(55_010, 1, 2)).astype(np.float32)

    def load(folder: Path | None, *, name: str, download: bool) -> ImageData:
        asked.append((folder, name, download))
        return ImageData(images, np.arange(55_010) % 10, images, np.arange(55_010) % 10)

    monkeypatch.setattr(mnist, "load_mnist", load)
    result = write_labels(
        name, data=tmp_path, download=True, items=items, epsilon=1, out=tmp_path / "labels.csv", missing=0.9
    )
    assert asked == [(tmp_path, name, True)]
    assert result["items"] == (items or 55_000)
    rows = [one["weakness"] for one in result["annotators"]]
    assert rows == [11, 103, 364] if name == "mnist" else len(set(rows)) == 3
    with pytest.raises(ValueError, match="items must be at most 55,010, the number of rows of"):
        write_labels(name, data=tmp_path, items=55_011, out=tmp_path / "more.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"dataset": "minst"},
            "dataset must be one of mnist, fashion-mnist, digits, got 'minst'; did you mean 'mnist'",
        ),
        (
            {"rule": "hammer"},
            "rule must be one of weakness, hammer-spammer, habit, got 'hammer'; did you mean 'hammer-s",
        ),
        (
            {"n_correct": 3, "p": 0.5},
            "n_correct, p: not a setting of the rule weakness; its settings are epsilon, weakness",
        ),
        ({"rule": "hammer-spammer", "epsilon": 3.0}, "epsilon: not a setting of the rule hammer-spammer"),
        (
            {"wrong": "uniform", "rule": "habit"},
            "wrong: not a setting of the rule habit; its settings are habits, n_habits",
        ),
        ({"wrong": "neighbor"}, "wrong must be one of uniform, .*, got 'neighbor'; did you mean 'neighbour'"),
        ({"rule": "habit", "habits": [[(5, 10)]]}, r"habits\[0\]: 10 is not one of the 10 classes in y \(0, 1, 2"),
        ({"items": 0}, "items must be at least 1"),
        ({"items": 4}, "at least 5 items are needed, got items=4: .* rows 4, 2, 3; use more items, or give weakness="),
        ({"missing": 1.0}, "missing must be a share"),
        ({"data": Path("data")}, "digits is part of scikit-learn"),
        ({"rule": "hammer-spammer", "by": "annotator"}, "give exactly one of n_hammers and p"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"dataset": "digits", "out": tmp_path / "labels.csv"}
    with pytest.raises(ValueError, match=message):
        write_labels(**(good | change))
    assert not list(tmp_path.iterdir())


def test_existing_files_are_kept_and_refused_before_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist, "load_mnist", lambda *_args, **_kwargs: pytest.fail("read before it was refused"))
    out, old = tmp_path / "labels.csv", tmp_path / "old.csv"
    old.write_text("mine")
    with pytest.raises(FileExistsError, match=r"old\.csv exists already.*--force"):
        write_labels("mnist", out=old)
    with pytest.raises(FileExistsError, match=r"old\.csv exists already"):
        write_labels("mnist", out=out, gold=old)
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        write_labels("mnist", out=tmp_path, force=True)
    with pytest.raises(ValueError, match="both be written to"):
        write_labels("mnist", out=out, gold=tmp_path / "x" / ".." / "labels.csv")
    assert old.read_text() == "mine"
    write_labels("digits", out=old, force=True)
    assert old.read_text().startswith("item,")
