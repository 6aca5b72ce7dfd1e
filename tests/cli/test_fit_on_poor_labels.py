"""`crowdfuse fit` and Python on labels that show little: both work, and say what cannot be estimated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfuse import Annotations, MajorityVoteClassifier
from crowdfuse.cli import app
from crowdfuse.quality.consensus_file import load_consensus

N = 40


def labels_of(kind: str) -> tuple[Any, Any, Any]:
    """Return inputs, labels as names (None: missing) and gold (None: unknown) of a crowd of this kind."""
    generator = np.random.default_rng(0)
    n = 3 if kind == "fewer items than folds" else N
    truth = np.arange(n) % 2
    X = (truth[:, None] * 4 + generator.normal(size=(n, 2))).astype(np.float32)
    Y = np.array(["cat", "dog"], object)[truth][:, None].repeat(3, 1)
    Y[::9, 1] = "cat"
    gold = np.full(n, None)
    if kind == "one annotator":
        Y[:, 1:] = None
    elif kind == "one label per item":
        Y[np.arange(3) != (np.arange(n) % 3)[:, None]] = None
    elif kind == "one uninformative label per item":
        X[:] = generator.normal(size=X.shape)
        Y[np.arange(3) != (np.arange(n) % 3)[:, None]] = None
    elif kind == "a class with one item":
        Y[7] = "owl"
    elif kind == "contradicting gold":
        gold[:30] = np.where(truth[:30] == 0, "dog", "cat")
    return X, Y, gold


CASES = {
    "fewer items than folds": (3, ["too few items", "classes 'cat', 'dog'", "fewer than 3 items"]),
    "a class with one item": (5, ["too few items", "class 'owl': it is the consensus of 1 item, but at least 5"]),
    "one annotator": (5, ["All labels come from one annotator"]),
    "one label per item": (5, ["No item has more than one label"]),
    "one uninformative label per item": (5, ["accuracy of the annotators cannot be estimated", "Collect a second"]),
    "contradicting gold": (5, ["Gold contradicts the consensus on 30 of 30 items"]),
}


@pytest.mark.parametrize("kind", CASES)
def test_poor_labels_work_and_the_result_says_what_they_cannot_show(tmp_path: Path, kind: str) -> None:
    X, Y, gold = labels_of(kind)
    n_folds, messages = CASES[kind]
    rows = [f"{n},ann{r},{Y[n, r]}" for n in range(len(Y)) for r in range(3) if Y[n, r] is not None]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    np.save(tmp_path / "X.npy", X)
    arguments = ["fit", tmp_path / "labels.csv", "--inputs", tmp_path / "X.npy", "--out", tmp_path / "run"]
    arguments += ["--method", "majority-vote", "--epochs", 3, "--quiet"]
    if (gold != None).any():  # noqa: E711 (an array of objects)
        known = [f"{n},{name}" for n, name in enumerate(gold) if name is not None]
        (tmp_path / "gold.csv").write_text("\n".join(["item,label", *known]) + "\n")
        arguments += ["--gold", tmp_path / "gold.csv"]
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["n_folds"] == n_folds
    told = [*summary["notes"], *summary["warnings"]]
    for message in messages:
        assert any(message in line for line in told), told
        assert message in result.output

    ann = Annotations.from_matrix(Y, annotators=["ann0", "ann1", "ann2"])
    clf = MajorityVoteClassifier(epochs=3, random_state=0).fit(X, ann, gold=gold)
    found = clf.consensus(X, ann, gold=gold)
    stored = load_consensus(tmp_path / "run" / "posterior.safetensors")
    assert (found.limitations, found.findings) == (stored.limitations, stored.findings)
    np.testing.assert_array_equal(found.class_probabilities, stored.class_probabilities)
    if kind == "one uninformative label per item":
        assert np.isnan(found.annotator_accuracy).all()
    elif kind != "fewer items than folds":
        has_labels = found.labels_per_annotator > 0
        assert not np.isnan(found.annotator_accuracy[has_labels]).any()
