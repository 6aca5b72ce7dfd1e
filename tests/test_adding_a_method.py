"""Adding a method takes the two templates and lines in two files; every command then includes it."""

from __future__ import annotations

import json
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


RUN_COMMANDS = """
import json, sys
from typer.testing import CliRunner
from crowdfuse.cli import app

results = [CliRunner().invoke(app, command) for command in json.loads(sys.argv[1])]
print(json.dumps([[result.exit_code, result.output] for result in results]))
"""
FILES = ["labels.csv", "--inputs", "features.npy"]
COMMANDS = {
    "fit --help": ["fit", "--help"],
    "compare --help": ["compare", "--help"],
    "reproduce table1 --help": ["reproduce", "table1", "--help"],
    "compare": ["compare", *FILES, "--gold", "gold.csv", "--epochs", "2", "--seeds", "0", "--quiet"],
    "fit": ["fit", *FILES, "--method", "toy", "--epochs", "2", "--folds", "0", "--out", "run"],
    "predict": ["predict", "run", "features.npy"],
    "reproduce table1": ["reproduce", "table1", "--methods", "toy", "--values", "30", "--plan"],
}


@pytest.fixture(scope="module")
def outputs(extended: Path) -> dict[str, str]:
    """Run all commands with the extended package, in one process of its own, and return the output of each."""
    environment = os.environ | {"PYTHONPATH": str(extended), "COLUMNS": "200"}
    command = [sys.executable, "-c", RUN_COMMANDS, json.dumps(list(COMMANDS.values()))]
    done = subprocess.run(command, cwd=extended, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for name, (exit_code, output) in zip(COMMANDS, json.loads(done.stdout), strict=True):
        assert exit_code == 0, output
        found[name] = output
    return found


@pytest.mark.parametrize("command", ["fit", "compare", "reproduce table1"])
def test_the_new_method_is_in_the_help(outputs: dict[str, str], command: str) -> None:
    assert "toy," in outputs[f"{command} --help"]


def test_compare_includes_the_new_method_by_default(outputs: dict[str, str]) -> None:
    assert re.search(r"^toy +\d+\.\d\d", outputs["compare"], re.M)


def test_the_new_method_can_be_fitted_and_loaded(outputs: dict[str, str]) -> None:
    assert "120 predictions" in outputs["predict"]


def test_the_new_method_can_be_run_in_the_papers_table(outputs: dict[str, str]) -> None:
    assert "toy, 30, seed 0" in outputs["reproduce table1"]
