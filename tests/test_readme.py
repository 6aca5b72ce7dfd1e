"""The commands and the Python examples of the README run, and links of the docs lead to files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from crowdfuse.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def crowd_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`labels.csv` and `features.npz` as in the README, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    items = np.array([f"img-{i}" for i in range(40)])
    X = generator.normal(size=(40, 3))
    np.savez("features.npz", X=X, items=items)
    np.savez("new_features.npz", X=X[:5], items=items[:5])
    rows = [
        f"{item},{annotator},{'cat' if x > 0 else 'dog'}"
        for item, x in zip(items, X[:, 0], strict=True)
        for annotator in ("ada", "bob", "cy")
    ]
    Path("labels.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    return tmp_path


def test_the_python_examples_run_as_written_from_top_to_bottom(crowd_folder: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 2
    done = subprocess.run([sys.executable, "-c", "\n".join(examples)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "40 items, 3 annotators, 2 classes, 120 labels" in done.stdout
    assert (crowd_folder / "model" / "model.json").exists()


def test_fit_and_predict_run(crowd_folder: Path) -> None:
    commands = re.search(r"```\n(crowdfuse fit .*?)\n(crowdfuse predict .*?)\n```", README)
    assert commands is not None
    for command in commands.groups():
        result = CliRunner().invoke(app, command.split()[1:])
        assert result.exit_code == 0, result.output
    lines = (crowd_folder / "predictions.csv").read_text().splitlines()
    assert lines[0] == "item,label,confidence"
    assert len(lines) == 6


def test_fit_and_predict_run_on_texts(crowd_folder: Path) -> None:
    commands = re.search(
        r"```\n(crowdfuse fit .*? texts.csv .*?)\n(crowdfuse predict .*? new_texts.csv .*?)\n```", README
    )
    assert commands is not None
    items = np.load("features.npz")["items"]
    Path("texts.csv").write_text("\n".join(["item,text", *(f"{item},the picture {item}" for item in items)]))
    Path("new_texts.csv").write_text("text\na new picture\n")
    for command in commands.groups():
        result = CliRunner().invoke(
            app, [*command.split()[1:], *(["--epochs", "3", "--folds", "0"] if " fit " in command else [])]
        )
        assert result.exit_code == 0, result.output
    assert len((crowd_folder / "predictions.csv").read_text().splitlines()) == 2


def test_aggregate_runs(crowd_folder: Path) -> None:
    command = re.search(r"```\n(crowdfuse aggregate .*?)\n```", README)
    assert command is not None
    result = CliRunner().invoke(app, command[1].split()[1:])
    assert result.exit_code == 0, result.output
    assert len((crowd_folder / "consensus.csv").read_text().splitlines()) == 41
    assert len((crowd_folder / "annotators.csv").read_text().splitlines()) == 4


def test_report_of_labels_runs(crowd_folder: Path) -> None:
    command = re.search(r"```\n(crowdfuse report labels.csv)\n```\n\nwrites [^`]*`([^`]*)`", README)
    assert command is not None
    result = CliRunner().invoke(app, command[1].split()[1:])
    assert result.exit_code == 0, result.output
    assert (crowd_folder / command[2]).exists()


def test_embed_and_fit_run(crowd_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = re.search(r"```\n(crowdfuse embed .*?)\n(crowdfuse fit .*?)\n```", README)
    assert commands is not None
    monkeypatch.setattr(sys, "path", sys.path.copy())
    Path("images").mkdir()
    for item in np.load("features.npz")["items"]:
        Image.new("RGB", (20, 20)).save(f"images/{item}.png")
    Path("features.npz").unlink()
    Path("mynets.py").write_text("from torch import nn\n\ndef resnet50():\n    return nn.Conv2d(3, 4, 5)\n")
    for command in commands.groups():
        options = ["--epochs", "2", "--folds", "2"] if " fit " in command else []
        result = CliRunner().invoke(app, [*command.split()[1:], *options])
        assert result.exit_code == 0, result.output
    assert len((crowd_folder / "run" / "consensus.csv").read_text().splitlines()) == 41


def test_every_linked_file_exists() -> None:
    root = Path(__file__).parent.parent
    for page in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(root)} links to {target}"
