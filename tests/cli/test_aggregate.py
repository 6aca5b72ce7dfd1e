"""`crowdfuse aggregate`: its files, its output, and bad requests, which are refused before any work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse import Annotations
from crowdfuse.aggregation import AGGREGATORS
from tests.cli.test_cli import output_of, read_rows, run, run_ok, write_rows


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Labels of 40 items by five annotators, one item with an empty label, gold for half of the items and one other."""
    generator = np.random.default_rng(0)
    truth = generator.choice(["cat", "Zoë's dog"], 40)
    rows: list[tuple[Any, ...]] = [
        (f"i{n}", annotator, truth[n] if generator.random() < accuracy else "cat")
        for n in range(40)
        for annotator, accuracy in (("ada", 1.0), ("bob", 0.9), ("007", 0.8), ("eve", 0.2), ("d", 0.7))
    ]
    write_rows(tmp_path / "labels.csv", "item,annotator,label", [*rows, ("bare", "ada", "")])
    write_rows(tmp_path / "gold.csv", "item,label", [(f"i{n}", truth[n]) for n in range(20)] + [("x", "cow")])
    return tmp_path


@pytest.mark.parametrize("method", AGGREGATORS)
def test_every_method_writes_the_result_of_its_python_function(files: Path, method: str) -> None:
    out, accuracies = files / "consensus.csv", files / "annotators.csv"
    output = run_ok(
        "aggregate", files / "labels.csv", "--method", method, "--out", out, "--annotators", accuracies, "--proba"
    )
    assert f"{method}: 41 items, 5 annotators, 200 labels, 2 classes" in output
    result = AGGREGATORS[method](Annotations.read(files / "labels.csv"))
    rows = {row["item"]: row for row in read_rows(out)}
    assert list(rows["i0"]) == ["item", "label", "confidence", "n_labels", "p_Zoë's dog", "p_cat"]
    for item, label, soft in zip(result.items, result.consensus, result.class_probabilities, strict=True):
        row = rows[item]
        if item == "bare":
            assert list(row.values()) == ["bare", "", "", "0", "", ""]
        else:
            assert (row["label"], row["n_labels"]) == (label, "5")
            np.testing.assert_allclose([float(row["p_Zoë's dog"]), float(row["p_cat"])], soft, atol=1e-6)
            assert float(row["confidence"]) == pytest.approx(soft.max(), abs=1e-6)
    written = read_rows(accuracies)
    assert list(written[0]) == ["annotator", "n_labels", "accuracy", "accuracy_low", "accuracy_high"]
    high = [float(row["accuracy_high"]) for row in written]
    assert high == sorted(high)  # the surely least accurate first, as in the files of a run
    assert all(float(row["accuracy_low"]) < float(row["accuracy"]) <= float(row["accuracy_high"]) for row in written)
    assert {row["annotator"]: float(row["accuracy"]) for row in written} == pytest.approx(
        dict(zip(result.annotators, result.annotator_accuracy, strict=True)), abs=1e-6
    )


def test_gold_gives_the_accuracy_and_does_not_change_the_consensus(files: Path) -> None:
    labels, figures = files / "labels.csv", files / "figures.json"
    run_ok("aggregate", labels, "--out", files / "without.csv")
    output = run_ok("aggregate", labels, "--out", files / "with.csv", "--gold", files / "gold.csv", "--json", figures)
    assert (files / "with.csv").read_bytes() == (files / "without.csv").read_bytes()
    found = {row["item"]: row["label"] for row in read_rows(files / "with.csv")}
    share = np.mean([found[row["item"]] == row["label"] for row in read_rows(files / "gold.csv")[:20]])
    assert f"accuracy: {100 * share:.1f} % of 20 items with gold; 1 more item with gold but no" in output
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert (written["accuracy"], written["gold_items"], written["method"]) == (share, 20, "dawid-skene")
    assert len(written["log_likelihood"]) == written["iterations"]


def test_iterations_limits_the_iterations_and_is_reported(files: Path) -> None:
    output = run_ok("aggregate", files / "labels.csv", "--out", files / "c.csv", "--iterations", 1)
    assert "stopped after 1 iteration before convergence" in output


def test_column_names_conflicts_and_classes_can_be_given(files: Path) -> None:
    labels = write_rows(files / "l.csv", "pic,who,what", [("a", 1, 0), ("a", 1, 1), ("a", 2, 1), ("b", 2, 1)])
    gold = write_rows(files / "g.csv", "item,label", [("a", 1)])
    columns = ["--item", "pic", "--annotator", "who", "--label", "what", "--classes", "0,1,2"]
    out = files / "c.csv"
    assert "two different labels" in output_of(run("aggregate", labels, "--out", out, *columns))
    run_ok("aggregate", labels, "--out", out, *columns, "--on-conflict", "last", "--gold", gold, "--proba")
    assert [row["label"] for row in read_rows(out)] == ["1", "1"]
    assert "p_2" in read_rows(out)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "dawid-skeen"], "did you mean 'dawid-skene'?"),
        (["--method", "wawa", "--iterations", 3], "wawa, which is not iterative; leave out --iterations"),
        (["--on-conflict", "frist"], "did you mean 'first'?"),
        (["--out", "labels.csv", "--force"], "is an input and would be overwritten"),
        (["--out", "gold.csv"], "exists already"),
        (["--gold", "gold.csv", "--annotators", "gold.csv", "--force"], "is an input and would be overwritten"),
        (["--annotators", "c.csv"], "two outputs would be written to"),
        (["--json", "."], "is a folder"),
        (["--gold", "none.csv"], "none.csv"),
        (["--gold", "strange.csv"], "item 'i0' has gold 'cow', which is not one of the 2 classes"),
        (["--gold", "others.csv"], "no item of others.csv has labels"),
        (["--classes", "cat"], '"Zoë\'s dog" is not one of the 1 classes'),
    ],
)
def test_bad_requests_are_refused_before_any_work(
    files: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[Any], message: str
) -> None:
    monkeypatch.chdir(files)
    write_rows(files / "strange.csv", "item,label", [("i0", "cow")])
    write_rows(files / "others.csv", "item,label", [("x", "cat")])
    before = {path: path.read_bytes() for path in files.iterdir()}
    for method in AGGREGATORS:
        monkeypatch.setitem(AGGREGATORS, method, lambda *_, **__: pytest.fail("aggregated before refusing"))
    result = run("aggregate", "labels.csv", *([] if "--out" in arguments else ["--out", "c.csv"]), *arguments)
    assert result.exit_code == 2
    assert message in output_of(result)
    assert {path: path.read_bytes() for path in files.iterdir()} == before


def test_aggregate_does_not_import_torch(files: Path) -> None:
    code = f"""
import sys
from crowdfuse.cli import app
try:
    app(["aggregate", {str(files / "labels.csv")!r}, "--out", {str(files / "c.csv")!r}])
except SystemExit as end:
    assert end.code == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_wide_table_with_other_column_names_is_scored(files: Path) -> None:
    write_rows(files / "wide.csv", "picture,ada,bob", [("a", "cat", "dog"), ("b", "dog", "dog"), ("c", "cat", "cat")])
    write_rows(files / "truth.csv", "item,label", [("a", "cat"), ("b", "dog")])
    wide = ("aggregate", files / "wide.csv", "--format", "wide", "--item", "picture", "--method", "majority-vote")
    output = run_ok(*wide, "--out", files / "out.csv", "--gold", files / "truth.csv")
    assert "3 items, 2 annotators, 6 labels" in output
    assert "of 2 items with gold" in output
    assert "--format" in output_of(run("aggregate", files / "wide.csv", "--format", "narrow", "--out", files / "o.csv"))


@pytest.mark.filterwarnings("error")
def test_dropped_rows_are_reported_once(files: Path) -> None:
    write_rows(files / "gaps.csv", "item,annotator,label", [("a", "x", "cat"), ("b", " ", "dog"), ("c", "x", "dog")])
    output = run_ok("aggregate", files / "gaps.csv", "--on-bad", "drop", "--method", "wawa", "--out", files / "out.csv")
    assert output.count("1 of 3 rows could not be used") == 1
