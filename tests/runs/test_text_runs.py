"""`fit`, `predict`, `report` and `compare` on a table of texts."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfuse import load
from crowdfuse.cli import app
from crowdfuse.io.files import write_csv
from tests.text_crowd import make_labels, make_texts

TEXTS, TRUTH = make_texts(40)
NEW_TEXTS, _ = make_texts(10, seed=1)
QUICK = ["--method", "majority-vote", "--epochs", "3", "--folds", "2", "--quiet"]


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`labels.csv`, `texts.csv` in another order than the labels, and `new_texts.csv`."""
    monkeypatch.chdir(tmp_path)
    table = make_labels(TRUTH).to_table()
    columns = [table[name].to_pylist() for name in table.column_names]
    write_csv(Path("labels.csv"), table.column_names, zip(*columns, strict=True))
    order = np.random.default_rng(0).permutation(len(TEXTS))
    write_csv(Path("texts.csv"), ["item", "text"], [(f"text-{i}", TEXTS[i]) for i in order])
    write_csv(Path("new_texts.csv"), ["text"], [(text,) for text in NEW_TEXTS])
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.output
    return result.output


def fail(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def predictions(path: str) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))[1:]


def test_one_command_trains_on_texts_and_the_run_remembers_the_encoder(crowd: Path) -> None:
    output = run("fit", "labels.csv", "--inputs", "texts.csv", "--out", "run", *QUICK)
    assert "encoder: tf-idf (" in output
    assert output.index("encoder: ") < output.index("run folder: ")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "crowdfuse", "predict", "run", "new_texts.csv", "--proba"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    found = predictions("predictions.csv")
    assert [row[0] for row in found] == [str(i) for i in range(10)]
    expected = load("run").predict_proba(NEW_TEXTS)
    assert [row[3:] for row in found] == [[f"{p:.6f}" for p in row] for row in expected]
    assert "report" in run("report", "run")


def test_folds_in_processes_give_the_same_bits(crowd: Path) -> None:
    run("fit", "labels.csv", "--inputs", "texts.csv", "--out", "one", *QUICK)
    run("fit", "labels.csv", "--inputs", "texts.csv", "--out", "two", "--jobs", "2", *QUICK)
    assert (crowd / "one/posterior.safetensors").read_bytes() == (crowd / "two/posterior.safetensors").read_bytes()


def test_test_items_are_not_in_the_vocabulary(crowd: Path) -> None:
    write_csv(Path("texts.csv"), ["item", "text"], [*((f"text-{i}", t) for i, t in enumerate(TEXTS)), ("new", "zebra")])
    write_csv(Path("test.csv"), ["item", "label"], [("new", "good")])
    run("fit", "labels.csv", "--inputs", "texts.csv", "--test", "test.csv", "--out", "run", *QUICK)
    terms = json.loads((crowd / "run/model/encoder.json").read_text())["settings"]["terms"]["word"]
    assert "good" in terms
    assert "zebra" not in terms


def test_an_encoder_of_ones_own_by_its_import_name(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    Path("letters.py").write_text(
        "def encode(texts):\n    return [[text.count(letter) for letter in 'abdfgloprtuw'] for text in texts]\n"
    )
    output = run("fit", "labels.csv", "--inputs", "texts.csv", "--encoder", "letters:encode", "--out", "run", *QUICK)
    assert "encoder: letters:encode, 12 features per item" in output
    run("predict", "run", "new_texts.csv", "--out", "p.csv")
    assert len(predictions("p.csv")) == 10


def test_methods_are_compared_on_texts(crowd: Path) -> None:
    options = ["--methods", "majority-vote,two-stage", "--seeds", "0", "--epochs", "1", "--quiet", "--jobs", "1"]
    assert "two-stage" in run("compare", "labels.csv", "--inputs", "texts.csv", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "tfdif"], "there is no encoder 'tfdif' for texts; did you mean 'tfidf'?"),
        (["--encoder", "timm/resnet50"], "there is no encoder 'timm/resnet50' for texts"),
        (["--text", "words"], "texts.csv has no column 'words'"),
        (["--encoder", "nothing_here:encode"], "there is no module 'nothing_here'"),
    ],
)
def test_mistakes_are_reported_before_any_work(crowd: Path, options: list[str], message: str) -> None:
    assert message in fail("fit", "labels.csv", "--inputs", "texts.csv", "--out", "run", *options)
    assert not Path("run").exists()


def test_predict_refuses_inputs_of_another_kind(crowd: Path) -> None:
    run("fit", "labels.csv", "--inputs", "texts.csv", "--out", "run", *QUICK)
    Path("numbers.csv").write_text("item,x\na,1\n")
    assert "numbers.csv has no column of texts" in fail("predict", "run", "numbers.csv", "--out", "p.csv")
    np.savez("X.npz", X=np.eye(40), items=[f"text-{i}" for i in range(40)])
    run("fit", "labels.csv", "--inputs", "X.npz", "--out", "run2", *QUICK)
    message = fail("predict", "run2", "texts.csv", "--out", "p.csv")
    assert "X holds texts, but this model was trained on numbers" in message
