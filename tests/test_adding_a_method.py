"""A method is one new file, its estimator and a line for its name: everything else picks it up by itself."""

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

METHOD = '''
from torch.nn.functional import cross_entropy

from crowdfuse.methods.base import Loss, Method


class Toy(Method):
    """Cross-entropy on every label."""

    def crowd_loss(self, h, batch):
        losses = cross_entropy(self.class_logits(h)[batch.item], batch.label, reduction="none")
        return Loss(losses.sum(), batch.weight.sum())
'''
ESTIMATOR = '''
from dataclasses import dataclass
from typing import ClassVar

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.methods.toy import Toy


@dataclass(kw_only=True, eq=False, repr=False)
class ToyClassifier(CrowdClassifier):
    """A toy."""

    method_name: ClassVar[str] = "toy"

    def _build(self, spec):
        return Toy(spec)
'''


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one more method, and a small crowd to try it on."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "crowdfuse"
    shutil.copytree(Path(crowdfuse.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "methods" / "toy.py").write_text(METHOD)
    (package / "estimators" / "toy.py").write_text(ESTIMATOR)
    with (package / "estimators" / "__init__.py").open("a") as names:
        names.write("from crowdfuse.estimators.toy import ToyClassifier as ToyClassifier\n")
    registry = package / "registry.py"
    line = '    "fusion": "FusionClassifier",\n'
    assert line in registry.read_text()
    registry.write_text(registry.read_text().replace(line, line + '    "toy": "ToyClassifier",\n'))
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 120)
    np.save(folder / "features.npy", generator.normal(size=(120, 2)) + 4 * y[:, None])
    rows = [f"{i},{r},{y[i]}\n" for i in range(120) for r in ("ann", "bob")]
    (folder / "labels.csv").write_text("item,annotator,label\n" + "".join(rows))
    (folder / "gold.csv").write_text("item,label\n" + "".join(f"{i},{k}\n" for i, k in enumerate(y)))
    return folder


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-m", "crowdfuse", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", [["fit"], ["compare"], ["reproduce", "table1"]])
def test_it_is_in_the_help(extended: Path, command: list[str]) -> None:
    assert "toy," in run(extended, *command, "--help")


def test_it_is_compared_without_being_named(extended: Path) -> None:
    files = ("labels.csv", "--inputs", "features.npy", "--gold", "gold.csv")
    shown = run(extended, "compare", *files, "--epochs", "2", "--seeds", "0", "--quiet")
    assert re.search(r"\| toy \| 1 \| \d+\.\d\d \|", shown)


def test_it_can_be_fitted_and_loaded(extended: Path) -> None:
    run(extended, "fit", "labels.csv", "--inputs", "features.npy", "--method", "toy", "--epochs", "2", "--out", "run")
    assert "120 predictions" in run(extended, "predict", "run", "features.npy")


def test_it_is_part_of_the_papers_table(extended: Path) -> None:
    assert "toy, 30, seed 0" in run(extended, "reproduce", "table1", "--methods", "toy", "--values", "30", "--plan")
