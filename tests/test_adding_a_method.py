"""Adding a method takes the two templates and lines in two files; every command then includes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import crowdfuse

TEMPLATE_NAMES = {
    "crowdfuse.methods._template": "crowdfuse.methods.toy",
    "crowdfuse.estimators._template": "crowdfuse.estimators.toy",
    "TemplateMethod": "Toy",
    "TemplateClassifier": "ToyClassifier",
    '"template"': '"toy"',
}
"""Names that are replaced in copies of the two templates."""


def copy_template(package: Path, folder: str) -> None:
    """Copy `_template.py` of a package to `toy.py`, with the names changed."""
    text = (package / folder / "_template.py").read_text(encoding="utf-8")
    for old, new in TEMPLATE_NAMES.items():
        text = text.replace(old, new)
    assert "TemplateMethod" not in text
    assert "TemplateClassifier" not in text
    (package / folder / "toy.py").write_text(text, encoding="utf-8")


def insert_after(path: Path, line: str, new: str) -> None:
    """Insert a line after another one that must occur exactly once."""
    text = path.read_text(encoding="utf-8")
    assert text.count(line) == 1, f"{path} has {text.count(line)} lines {line!r}"
    path.write_text(text.replace(line, line + new), encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package that has one more method, and a small crowd."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "crowdfuse"
    shutil.copytree(Path(crowdfuse.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    copy_template(package, "methods")
    copy_template(package, "estimators")
    insert_after(
        package / "estimators" / "registry.py", '    "fusion": "FusionClassifier",\n', '    "toy": "ToyClassifier",\n'
    )
    names = package / "estimators" / "__init__.py"
    line = "    from crowdfuse.estimators.true_label import TrueLabelClassifier\n"
    insert_after(names, line, "    from crowdfuse.estimators.toy import ToyClassifier\n")
    insert_after(names, '    "SingleAnnotatorClassifier",\n', '    "ToyClassifier",\n')
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 120)
    np.save(folder / "features.npy", generator.normal(size=(120, 2)) + 4 * y[:, None])
    rows = [f"{i},{r},{y[i]}\n" for i in range(120) for r in ("ann", "bob")]
    (folder / "labels.csv").write_text("item,annotator,label\n" + "".join(rows))
    (folder / "gold.csv").write_text("item,label\n" + "".join(f"{i},{k}\n" for i, k in enumerate(y)))
    return folder


def run(folder: Path, *arguments: str) -> str:
    """Run a command with the extended package and return its output."""
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-m", "crowdfuse", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", [["fit"], ["compare"], ["reproduce", "table1"]])
def test_the_new_method_is_in_the_help(extended: Path, command: list[str]) -> None:
    assert "toy," in run(extended, *command, "--help")


def test_compare_includes_the_new_method_by_default(extended: Path) -> None:
    files = ("labels.csv", "--inputs", "features.npy", "--gold", "gold.csv")
    shown = run(extended, "compare", *files, "--epochs", "2", "--seeds", "0", "--quiet")
    assert re.search(r"^toy +\d+\.\d\d", shown, re.M)


def test_the_new_method_can_be_fitted_and_loaded(extended: Path) -> None:
    settings = ("--method", "toy", "--epochs", "2", "--folds", "0")
    run(extended, "fit", "labels.csv", "--inputs", "features.npy", *settings, "--out", "run")
    assert "120 predictions" in run(extended, "predict", "run", "features.npy")


def test_the_new_method_can_be_run_in_the_papers_table(extended: Path) -> None:
    assert "toy, 30, seed 0" in run(extended, "reproduce", "table1", "--methods", "toy", "--values", "30", "--plan")
