"""What people type: every command, its help, its run folder, and one clear message for every bad input."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from crowdfuse import load
from crowdfuse.cli import app
from crowdfuse.estimators.registry import DEFAULT_METHOD
from tests import exports

N = 30
FUSION = ("--method", "fusion")
COMMANDS = (
    ["aggregate"],
    ["demo"],
    ["embed"],
    ["fit"],
    ["methods"],
    ["predict"],
    ["report"],
    ["reproduce", "twomoon"],
    ["review"],
)


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(part) for part in arguments])


def said(result: Any) -> str:
    """Everything that was printed, in one line, however it was wrapped."""
    return " ".join(result.output.replace("│", " ").split())


def ok(*arguments: Any) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return said(result)


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def write_rows(path: Path, header: str, rows: Any) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return path


class Crowd:
    """Files of a small crowd in a folder: N items, two classes, three annotators, gold for all."""

    def __init__(self, folder: Path) -> None:
        generator = np.random.default_rng(3)
        self.folder = folder
        self.X = generator.normal(size=(N, 3)).astype(np.float32)
        self.items = [f"[b]item, {n}" if n == 1 else f"i{n}" for n in range(N)]
        self.truth = np.where(self.X[:, 0] > 0, "cat", "Zoë's dog")
        self.triples = [
            (f'"{item}"', name, gold if generator.random() < 0.8 else "cat")
            for item, gold in zip(self.items, self.truth, strict=True)
            for name in ("ada", "bob", "007")
            if name == "ada" or generator.random() < 0.7
        ]
        self.labels = write_rows(folder / "labels.csv", "item,annotator,label", self.triples)
        self.inputs = folder / "f.npz"
        np.savez(self.inputs, X=self.X, items=np.array(self.items))
        self.out = folder / "run"

    def gold(self, name: str, rows: slice) -> Path:
        pairs = [(f'"{item}"', gold) for item, gold in zip(self.items[rows], self.truth[rows], strict=True)]
        return write_rows(self.folder / name, "item,label", pairs)

    def fit(self, *more: Any, labels: Any = None, inputs: Any = None) -> list[Any]:
        where = [labels or self.labels, "--inputs", inputs or self.inputs, "--out", self.out]
        return ["fit", *where, "--epochs", 2, "--quiet", *more]


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path)


# ---- help, and what it does not load ---------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["reproduce"], *COMMANDS])
def test_every_help_has_an_example(command: list[str]) -> None:
    assert f"Example: {' '.join(['crowdfuse', *command])}" in ok(*command, "--help")


def test_help_import_and_reading_labels_leave_torch_unloaded(crowd: Crowd) -> None:
    code = f"""
import sys
import crowdfuse
assert "torch" not in sys.modules, "import"
crowdfuse.Annotations.read({str(crowd.labels)!r})
assert "torch" not in sys.modules, "read"
from crowdfuse.cli import app
for command in ([], ["fit"], ["predict"], ["report"], ["review"], ["demo"], ["reproduce", "twomoon"]):
    try:
        app([*command, "--help"])
    except SystemExit as end:
        assert end.code == 0
assert "torch" not in sys.modules and "lightning_fabric" not in sys.modules, "help"
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_version_is_said() -> None:
    assert ok("--version") == "crowdfuse 0.1.0"


# ---- what labelling tools write ------------------------------------------------------------------


def test_an_export_trains_and_its_ground_truth_judges(crowd: Crowd) -> None:
    labels: exports.Crowd = {item: {} for item in crowd.items}
    for item, name, label in crowd.triples:
        labels[item.strip('"')][name] = label
    tasks = exports.label_studio(labels)
    for done, gold in zip(tasks[:9], crowd.truth[:9], strict=True):
        done["annotations"].append(exports.annotation(3, exports.choice(str(gold)), ground_truth=True))
    tasks[20]["annotations"].append(exports.annotation(None, exports.choice("cat")))
    export = exports.write(crowd.folder / "export.json", tasks)
    asked = crowd.fit("--item", "image", "--test", export, labels=export)
    assert "record 21 (item 'i20'): the annotator is empty" in said(run(*asked))

    output = ok(*asked, "--on-bad", "drop")
    assert "note: left out: ground-truth annotations, which are gold labels (9)" in output
    assert f"note: 1 of {len(crowd.triples) + 1} answers could not be used and was left out" in output
    assert "% of 9 items" in output
    from_table = ok(*crowd.fit("--test", crowd.gold("gold.csv", slice(9)), "--force"))
    assert output[output.index("gated: ") :] == from_table[from_table.index("gated: ") :]


def test_a_format_that_is_none(crowd: Crowd) -> None:
    result = run(*crowd.fit("--format", "label_studio"))
    assert "--format must be one of auto, table, wide, label-studio, argilla, prodigy" in said(result)
    assert "--on-bad must be one of error, drop, got 'skip'" in said(run(*crowd.fit("--on-bad", "skip")))


# ---- which method ---


def test_without_a_method_it_says_which_it_takes_and_why(crowd: Crowd) -> None:
    output = ok(*crowd.fit())
    assert f"method: {DEFAULT_METHOD} (the default): of " in output
    assert "best mean rank" in output
    assert json.loads((crowd.out / "settings.json").read_text())["job"]["method"] == DEFAULT_METHOD
    assert "(the default)" not in ok(*crowd.fit(*FUSION, "--force"))


# ---- fit and predict -------------------------------------------------------------------------------


def test_a_run_in_a_process_of_its_own_writes_the_whole_folder(crowd: Crowd) -> None:
    arguments = [str(part) for part in crowd.fit() if part != "--quiet"]
    program = Path(sys.executable).with_name("crowdfuse")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"run folder: {crowd.out}"
    assert done.stderr.splitlines()[-1] == f"next: crowdfuse report {crowd.out}"
    assert "epoch 2/2" in done.stderr
    assert "Warning" not in done.stderr
    reviews = ["review_items.csv", "review_labels.csv"]
    names = ["annotators.csv", "fused.csv", "log.jsonl", "model", *reviews, "settings.json", "summary.json"]
    assert sorted(path.name for path in crowd.out.iterdir()) == names

    fused = read_rows(crowd.out / "fused.csv")
    assert list(fused[0]) == ["item", "fused", "fused_confidence", "n_labels", "predicted", "predicted_confidence"]
    assert [row["item"] for row in fused] == crowd.items
    assert {row["fused"] for row in fused} <= {"cat", "Zoë's dog"}
    assert all(0.5 <= float(row["fused_confidence"]) <= 1 for row in fused)
    assert sum(int(row["n_labels"]) for row in fused) == len(crowd.triples)
    assert {row["annotator"] for row in read_rows(crowd.out / "annotators.csv")} == {"ada", "bob", "007"}
    settings = json.loads((crowd.out / "settings.json").read_text())
    assert settings["job"]["settings"] == {"epochs": 2, "random_state": 0}
    assert set(settings["hashes"]) == {"labels", "inputs"}
    log = [json.loads(line) for line in (crowd.out / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2]
    summary = json.loads((crowd.out / "summary.json").read_text())
    assert summary["method"] == DEFAULT_METHOD
    assert summary["classes"] == ["Zoë's dog", "cat"]
    assert load(crowd.out / "model").classes_.tolist() == ["Zoë's dog", "cat"]

    # the same again, in this process, gives the same bits
    weights = (crowd.out / "model" / "weights.safetensors").read_bytes()
    ok(*crowd.fit("--force"))
    assert (crowd.out / "model" / "weights.safetensors").read_bytes() == weights


def test_predictions_carry_the_names_of_items_and_classes(crowd: Crowd) -> None:
    ok(*crowd.fit())
    file = crowd.folder / "new" / "p.csv"
    assert ok("predict", crowd.out, crowd.inputs, "--out", file) == f"30 predictions: {file}"
    rows = read_rows(file)
    model = load(crowd.out / "model")
    probabilities = model.predict_proba(crowd.X)
    assert list(rows[0]) == ["item", "label", "confidence"]
    assert [row["item"] for row in rows] == crowd.items
    assert [row["label"] for row in rows] == model.predict(crowd.X).tolist()
    assert [row["confidence"] for row in rows] == [f"{p:.6f}" for p in probabilities.max(1)]

    ok("predict", crowd.out / "model", crowd.inputs, "--out", file, "--proba", "--force")
    rows = read_rows(file)
    assert list(rows[0]) == ["item", "label", "confidence", "p_Zoë's dog", "p_cat"]
    assert [row["p_cat"] for row in rows] == [f"{p:.6f}" for p in probabilities[:, 1]]


def test_validation_chooses_test_judges_and_json_has_it_all(crowd: Crowd) -> None:
    held = ["--validation", crowd.gold("v.csv", slice(0, 5)), "--test", crowd.gold("t.csv", slice(5, 10))]
    text = ok(*crowd.fit(*held, "--json", crowd.folder / "s.json"))
    summary = json.loads((crowd.folder / "s.json").read_text())
    assert summary == json.loads((crowd.out / "summary.json").read_text())
    assert f"test accuracy: {100 * summary['test_accuracy']:.2f} % of 5 items" in text
    assert "5 labelled items with validation gold are kept out of training" in text
    assert "gold labels were used for choosing the epoch" in text
    assert summary["best_epoch"] in (1, 2)


def test_true_label_trains_on_gold(crowd: Crowd) -> None:
    gold = crowd.gold("g.csv", slice(0, N))
    text = ok(*crowd.fit("--method", "true-label", "--gold", gold, "--epochs", 30, "--set", "learning_rate=0.02"))
    assert "gold labels were used for training" in text
    assert load(crowd.out / "model").score(crowd.X, crowd.truth) > 0.9


def test_settings_reach_the_classifier(crowd: Crowd) -> None:
    options = ["--batch-size", 8, "--backbone", "identity", "--seed", 5, "--device", "cpu"]
    more = [*FUSION, "--set", "penalty=0.5", "--set", "hidden=[6]", "--set", "weights=uniform", "--set", "n-bases=1"]
    ok(*crowd.fit(*options, *more))
    found = load(crowd.out / "model").get_params()
    expected = {"batch_size": 8, "backbone": "identity", "random_state": 5, "device": "cpu", "epochs": 2}
    expected |= {"penalty": 0.5, "hidden": (6,), "weights": "uniform", "n_bases": 1}
    assert {name: found[name] for name in expected} == expected


def test_columns_may_be_named_and_classes_given(crowd: Crowd) -> None:
    rows = [(item, "x", who, what) for item, who, what in crowd.triples]
    labels = write_rows(crowd.folder / "odd.csv", "photo,task,by,tag", rows)
    names = ["--item", "photo", "--annotator", "by", "--label", "tag", "--classes", "cat, Zoë's dog,bird"]
    ok(*crowd.fit(*names, "--test", crowd.gold("t.csv", slice(0, 5)), labels=labels))
    assert load(crowd.out / "model").classes_.tolist() == ["cat", "Zoë's dog", "bird"]
    assert len(read_rows(crowd.out / "fused.csv")) == N


def test_classes_that_are_integers_stay_integers(crowd: Crowd) -> None:
    rows = [(item, who, 10 if what == "cat" else 9) for item, who, what in crowd.triples]
    ok(*crowd.fit("--classes", "9,10,11", labels=write_rows(crowd.folder / "n.csv", "item,annotator,label", rows)))
    assert load(crowd.out / "model").classes_.tolist() == [9, 10, 11]


@pytest.mark.parametrize(("choice", "label"), [("first", "cat"), ("last", "Zoë's dog"), ("drop", None)])
def test_contradictions_are_settled_as_asked(crowd: Crowd, choice: str, label: str | None) -> None:
    rows = [row for row in crowd.triples if row[0] != '"i0"'] + [("i0", "ada", "cat"), ("i0", "ada", "Zoë's dog")]
    labels = write_rows(crowd.folder / "twice.csv", "item,annotator,label", rows)
    text = ok(*crowd.fit("--on-conflict", choice, "--method", "majority-vote", labels=labels))
    assert "contradicted" in text
    fused = {row["item"]: row["fused"] for row in read_rows(crowd.out / "fused.csv")}
    assert fused.get("i0") == label


def test_items_on_one_side_only_are_dropped_if_asked(crowd: Crowd) -> None:
    rows = [row for row in crowd.triples if row[0] != '"i2"'] + [("stranger", "ada", "cat")]
    labels = write_rows(crowd.folder / "part.csv", "item,annotator,label", rows)
    text = ok(*crowd.fit("--on-missing", "drop", labels=labels))
    assert "1 labelled items have no inputs and were left out" in text
    assert "1 items have inputs but no labels: not trained on" in text
    assert {row["item"] for row in read_rows(crowd.out / "fused.csv")} == {*crowd.items} - {"i2"}


def test_empty_and_repeated_labels_are_counted(crowd: Crowd) -> None:
    rows = [*crowd.triples, crowd.triples[0], ("i5", "new", ""), ("i6", "new", "")]
    labels = write_rows(crowd.folder / "gaps.csv", "item,annotator,label", rows)
    ok(*crowd.fit(labels=labels))
    notes = json.loads((crowd.out / "summary.json").read_text())["notes"]
    assert any(note.startswith("2 ") and "empty" in note for note in notes)
    assert any(note.startswith("1 ") and "repeated" in note for note in notes)


def test_a_table_is_predicted_by_column_name(crowd: Crowd) -> None:
    def table(name: str, order: list[int], extra: str = "") -> Path:
        header = ",".join(["item", *("abc"[k] for k in order), *(["note"] if extra else [])])
        rows = [
            (f'"{i}"', *(x[k] for k in order), *([extra] if extra else []))
            for i, x in zip(crowd.items, crowd.X, strict=True)
        ]
        return write_rows(crowd.folder / name, header, rows)

    ok(*crowd.fit(inputs=table("train.csv", [0, 1, 2])))
    ok("predict", crowd.out, table("same.csv", [0, 1, 2]), "--out", crowd.folder / "1.csv", "--proba")
    ok("predict", crowd.out, table("turned.csv", [2, 0, 1], "some words"), "--out", crowd.folder / "2.csv", "--proba")
    assert (crowd.folder / "1.csv").read_bytes() == (crowd.folder / "2.csv").read_bytes()
    result = run("predict", crowd.out, table("less.csv", [0, 2]), "--out", crowd.folder / "3.csv")
    assert result.exit_code == 2
    assert "no column 'b', which the model was trained on" in said(result)


def test_images_are_predicted_at_the_size_and_colours_of_training(crowd: Crowd) -> None:
    generator = np.random.default_rng(0)

    def folder(name: str, size: tuple[int, int], mode: str = "L") -> Path:
        (crowd.folder / name / "sub").mkdir(parents=True)
        for n in range(6):
            pixels = generator.integers(0, 255, (*size, 3) if mode == "RGB" else size, np.uint8)
            Image.fromarray(pixels).save(crowd.folder / name / "sub" / f"{n}.png")
        return crowd.folder / name

    rows = [(f"sub/{n}", "ada", n % 2) for n in range(6)]
    labels = write_rows(crowd.folder / "images.csv", "item,annotator,label", rows)
    ok(*crowd.fit(labels=labels, inputs=folder("train", (24, 18))))
    assert load(crowd.out / "model").input_shape_ == (1, 24, 18)
    for other in (folder("same", (24, 18)), folder("large", (200, 120), "RGB")):
        ok("predict", crowd.out, other, "--out", crowd.folder / f"{other.name}.csv")
        assert [row["item"] for row in read_rows(crowd.folder / f"{other.name}.csv")] == [
            f"sub/{n}.png" for n in range(6)
        ]
    crowd.out = crowd.folder / "second"
    ok(*crowd.fit("--image-size", 20, labels=labels, inputs=crowd.folder / "large"))
    assert load(crowd.out / "model").input_shape_ == (3, 20, 20)
    ok("predict", crowd.out, crowd.folder / "train", "--out", crowd.folder / "3.csv")


# ---- bad input: one message, exit code 2, and nothing written --------------------------------------


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def refused(crowd: Crowd, arguments: list[Any], *words: str) -> None:
    before = tree(crowd.folder)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    for word in words:
        assert word in said(result), result.output
    assert tree(crowd.folder) == before


def with_rows(crowd: Crowd, header: str, rows: Any) -> list[Any]:
    return crowd.fit(labels=write_rows(crowd.folder / "bad.csv", header, rows))


def with_inputs(crowd: Crowd, **arrays: Any) -> list[Any]:
    np.savez(crowd.folder / "bad.npz", **arrays)
    return crowd.fit(inputs=crowd.folder / "bad.npz")


def with_value(crowd: Crowd, value: float) -> list[Any]:
    X = crowd.X.copy()
    X[4, 1] = value
    return with_inputs(crowd, X=X, items=np.array(crowd.items))


def with_images(crowd: Crowd, rows: Any, *damaged: str) -> list[Any]:
    folder = crowd.folder / "images"
    folder.mkdir()
    for name in ("a.png", "a.jpg", "b.png"):
        Image.new("L", (20, 20)).save(folder / name)
    for name in damaged:
        (folder / name).write_bytes(b"no image")
    return crowd.fit(labels=write_rows(crowd.folder / "l.csv", "item,annotator,label", rows), inputs=folder)


HEADER = "item,annotator,label"
BAD: dict[str, tuple[Callable[[Crowd], list[Any]], tuple[str, ...]]] = {
    "no labels file": (lambda c: c.fit(labels=c.folder / "no.csv"), ("no.csv", "no such file")),
    "no inputs file": (lambda c: c.fit(inputs=c.folder / "no.npz"), ("no.npz", "no such file")),
    "nothing given": (lambda c: ["fit"], ("LABELS, --inputs, --out", "--help")),
    "missing column": (
        lambda c: with_rows(c, "item,annotator,colour", c.triples),
        ("bad.csv", "no column for the label", "'colour'", "--label"),
    ),
    "wrong column": (lambda c: c.fit("--label", "tag"), ("labels.csv", "no column 'tag'", "'label'")),
    "ambiguous columns": (
        lambda c: with_rows(c, "item,annotator,label,answer", [(*row, "x") for row in c.triples]),
        ("bad.csv", "several columns that may be the label: 'label', 'answer'", "--label"),
    ),
    "an empty file": (lambda c: with_rows(c, "", []) and empty(c), ("empty.csv", "is empty")),
    "a header alone": (lambda c: with_rows(c, HEADER, []), ("bad.csv", "no rows")),
    "a label outside the classes": (
        lambda c: c.fit("--classes", "cat,dog"),
        ("labels.csv, line ", "Zoë's dog", "not one of the 2 classes ('cat', 'dog')"),
    ),
    "classes twice": (lambda c: c.fit("--classes", "cat,dog,cat"), ("--classes", "more than once: 'cat'")),
    "classes empty": (lambda c: c.fit("--classes", "cat,,dog"), ("--classes", "'cat,,dog'")),
    "labelled but without inputs": (
        lambda c: with_rows(c, HEADER, [*c.triples, ("x1", "ada", "cat"), ("x2", "ada", "cat")]),
        ("2 items are in", "bad.csv but not in", "f.npz: 'x1', 'x2'", "'i0'", "--on-missing drop"),
    ),
    "inputs without labels": (
        lambda c: with_rows(c, HEADER, [row for row in c.triples if row[0] not in ('"i3"', '"i4"')]),
        ("2 items are in", "f.npz but not in", "bad.csv: 'i3', 'i4'", "--on-missing drop"),
    ),
    "gold without inputs": (
        lambda c: c.fit("--test", write_rows(c.folder / "t.csv", "item,label", [("x1", "cat"), ("i1", "cat")])),
        ("2 items are in", "t.csv but not in", "'x1'", "--on-missing drop"),
    ),
    "gold outside the classes": (
        lambda c: c.fit("--test", write_rows(c.folder / "t.csv", "item,label", [("i2", "cow")])),
        ("t.csv", "'i2'", "'cow'", "not one of the classes", "--classes"),
    ),
    "nothing in common": (
        lambda c: [*with_inputs(c, X=c.X), "--on-missing", "drop"],
        ("no labels", "left to train on"),
    ),
    "NaN": (lambda c: with_value(c, np.nan), ("bad.npz, X contains NaN at row 4, column 1", "fill or drop")),
    "infinity": (lambda c: with_value(c, np.inf), ("bad.npz, X contains infinity", "at row 4, column 1")),
    "words in a table": (
        lambda c: c.fit(inputs=write_rows(c.folder / "f.csv", "item,x", [("i0", 1), ("i2", "tall")])),
        ("f.csv, line 3: column 'x' holds 'tall'",),
    ),
    "more items than rows": (
        lambda c: with_inputs(c, X=c.X[:9], items=np.array(c.items)),
        ("bad.npz: X has 9 rows, but there are 30 items",),
    ),
    "one-dimensional inputs": (lambda c: with_inputs(c, X=c.X[:, 0]), ("bad.npz", "shape (30,)")),
    "no X": (lambda c: with_inputs(c, features=c.X), ("bad.npz", "no array 'X', only 'features'", "np.savez")),
    "an item twice": (
        lambda c: with_inputs(c, X=c.X, items=np.array([*c.items[:-1], "i0"])),
        ("bad.npz", "more than once: 'i0'"),
    ),
    "one class": (
        lambda c: with_rows(c, HEADER, [(item, who, "cat") for item, who, _ in c.triples]),
        ("at least two classes", "'cat'", "--classes"),
    ),
    "two labels of one annotator on one item": (
        lambda c: with_rows(c, HEADER, [*c.triples, ("i2", "eve", "cat"), ("i2", "eve", "Zoë's dog")]),
        ("bad.csv", "'i2'", "'eve'", "--on-conflict"),
    ),
    "an unreadable image": (
        lambda c: with_images(c, [("b", "x", 0), ("c", "x", 1)], "c.png"),
        ("c.png: not a readable image", "remove"),
    ),
    "two images that answer to one id": (
        lambda c: with_images(c, [("a", "x", 0), ("b", "x", 1)]),
        ("the id 'a' fits two images: 'a.jpg', 'a.png'", "full names"),
    ),
    "one image by two names": (
        lambda c: with_images(c, [("b", "x", 0), ("b.png", "y", 1), ("a.png", "x", 0), ("a.jpg", "x", 0)]),
        ("l.csv calls one input by several names: 'b', 'b.png'",),
    ),
    "images by paths from another folder": (
        lambda c: with_images(c, [("in/photos/b.png", "x", 0), ("in/photos/a.jpg", "x", 1)]),
        ("2 items are in", "Without 'in/photos/' they are there", "pass the folder that they start from as --inputs"),
    ),
    "images of which one is not there": (
        lambda c: with_images(c, [("photos/b.png", "x", 0), ("photos/z.png", "x", 1)]),
        ("2 items are in", "--on-missing drop"),
    ),
    "images too small for the network": (
        lambda c: c.fit(inputs=tiny(c), labels=write_rows(c.folder / "l.csv", HEADER, [("a", "x", 0), ("b", "x", 1)])),
        ("reads images of at least 16 x 16 pixels, got 9 x 9", "--image-size 32", "--backbone mlp"),
    ),
    "a folder without images": (lambda c: c.fit(inputs=nothing(c)), ("nothing has no images",)),
    "inputs of an unknown kind": (lambda c: c.fit(inputs=write_rows(c.folder / "f.txt", "", [])), ("f.txt", ".npz")),
    "unknown method": (lambda c: c.fit("--method", "fusoin"), ("'fusoin'", "did you mean 'fusion'", "true-label")),
    "unknown setting": (
        lambda c: c.fit(*FUSION, "--set", "penlty=1"),
        ("--set penlty", "fusion has no such setting", "penalty"),
    ),
    "a setting without a value": (lambda c: c.fit("--set", "penalty"), ("--set takes name=value, got 'penalty'",)),
    "batch_size=abc": (
        lambda c: c.fit("--set", "batch_size=abc"),
        ("--set batch_size: a whole number was expected, got 'abc'",),
    ),
    "batch_size=0": (lambda c: c.fit("--set", "batch_size=0"), ("batch_size must be", "0")),
    "epochs twice": (lambda c: c.fit("--set", "epochs=3"), ("--epochs and --set epochs", "keep one")),
    "a setting twice": (lambda c: c.fit("--set", "penalty=1", "--set", "penalty=2"), ("--set penalty is given twice",)),
    "labels as a feature": (
        lambda c: c.fit(inputs=write_rows(c.folder / "x.csv", "item,a,label", [(f'"{i}"', 1, 0) for i in c.items])),
        ("x.csv: column 'label' looks like labels", "rename it"),
    ),
    "figures over the labels": (
        lambda c: [*c.fit(), "--json", c.labels, "--force"],
        ("is an input and would be overwritten",),
    ),
    "--epochs 0": (lambda c: c.fit("--epochs", 0), ("--epochs",)),
    "learning_rate=-1": (
        lambda c: c.fit("--set", "learning_rate=-1"),
        ("learning_rate must be a number of at least 0, got -1",),
    ),
    'penalty="x"': (
        lambda c: c.fit(*FUSION, "--set", 'penalty="x"'),
        ("--set penalty: a number was expected",),
    ),
    "penalty=-1": (
        lambda c: c.fit(*FUSION, "--set", "penalty=-1"),
        ("penalty must be a number of at least 0",),
    ),
    "weight_decay=-1": (lambda c: c.fit("--set", "weight_decay=-1"), ("weight_decay", "-1")),
    "dropout=2": (lambda c: c.fit("--set", "dropout=2"), ("dropout", "2")),
    "hidden=[-1]": (lambda c: c.fit("--set", "hidden=[-1]"), ("widths of hidden layers", "got -1")),
    "schedule=fast": (lambda c: c.fit("--set", "schedule=fast"), ("unknown schedule 'fast'", "one-cycle")),
    "precision=8": (lambda c: c.fit("--set", 'precision="8"'), ("recision '8'",)),
    "a checkpoint of one's own": (lambda c: c.fit("--set", "checkpoint=x"), ("--set checkpoint", "--out")),
    "an unknown backbone": (lambda c: c.fit("--backbone", "vgg"), ("unknown backbone 'vgg'", "lenet")),
    "an unknown device": (lambda c: c.fit("--device", "gpuu"), ("gpuu",)),
    "an absent device": (lambda c: c.fit("--device", "mps"), ("cannot train with these settings",)),
    "no gold for true-label": (lambda c: c.fit("--method", "true-label"), ("true-label trains on gold", "--gold")),
    "no annotator for single-annotator": (
        lambda c: c.fit("--method", "single-annotator"),
        ("choose one annotator", "'ada'"),
    ),
    "an unknown annotator": (
        lambda c: c.fit("--method", "single-annotator", "--set", "annotator=eve"),
        ("'eve'", "not one of the annotators", "'ada'"),
    ),
    "on-missing": (
        lambda c: c.fit("--on-missing", "ignore"),
        ("--on-missing must be one of error, drop, got 'ignore'",),
    ),
    "on-conflict": (lambda c: c.fit("--on-conflict", "both"), ("--on-conflict must be one of error, first", "'both'")),
    "negative seed": (lambda c: c.fit("--seed", -1), ("--seed",)),
    "json over a folder": (lambda c: c.fit("--json", c.folder), ("--json", "is a folder")),
    "json over a file": (lambda c: c.fit("--json", c.labels), ("labels.csv exists already", "--force")),
    "resume of nothing": (lambda c: ["fit", "--resume", c.folder], ("settings.json", "nothing to resume")),
    "resume and more": (
        lambda c: ["fit", c.labels, "--resume", c.out, "--epochs", 5, "--set", "penalty=1"],
        ("--resume takes all options", "labels", "--epochs", "--set"),
    ),
    "predict without a run": (lambda c: ["predict", c.out, c.inputs], ("run: no such run folder",)),
    "predict of no run": (lambda c: ["predict", c.folder, c.inputs, "--out", c.out], ("model.json is missing",)),
    "predict over a file": (
        lambda c: ["predict", c.out, c.inputs, "--out", c.labels],
        ("labels.csv exists already", "--force"),
    ),
    "predict over a folder": (
        lambda c: ["predict", c.out, c.inputs, "--out", c.folder, "--force"],
        ("is a folder; name a file",),
    ),
    "seeds": (lambda c: ["reproduce", "twomoon", "--seeds", "0,x", "--out", c.out], ("--seeds", "'0,x'")),
    "negative seeds": (lambda c: ["reproduce", "twomoon", "--seeds=-1", "--out", c.out], ("--seeds", "'-1'")),
    "split": (lambda c: ["reproduce", "twomoon", "--split", "half", "--out", c.out], ("--split", "'half'")),
    "demo over a folder": (lambda c: ["demo", "--out", c.folder], ("exists already", "--force")),
    "demo over the user's own": (
        lambda c: ["demo", "--out", c.folder, "--force"],
        ("report.md", "will not replace it"),
    ),
    "twomoon over the user's own": (
        lambda c: ["reproduce", "twomoon", "--out", c.folder, "--force"],
        ("twomoon.json", "will not replace it"),
    ),
}


def empty(crowd: Crowd) -> list[Any]:
    (crowd.folder / "empty.csv").touch()
    return crowd.fit(labels=crowd.folder / "empty.csv")


def nothing(crowd: Crowd) -> Path:
    (crowd.folder / "nothing").mkdir()
    return crowd.folder / "nothing"


def tiny(crowd: Crowd) -> Path:
    for name in ("a.png", "b.png"):
        (crowd.folder / "tiny").mkdir(exist_ok=True)
        Image.new("L", (9, 9)).save(crowd.folder / "tiny" / name)
    return crowd.folder / "tiny"


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_anything_is_written(crowd: Crowd, case: str) -> None:
    make, words = BAD[case]
    refused(crowd, make(crowd), *words)


def test_an_existing_run_is_replaced_by_force_alone(crowd: Crowd) -> None:
    ok(*crowd.fit())
    refused(crowd, crowd.fit("--seed", 1), f"{crowd.out} exists already", "--force")
    refused(crowd, crowd.fit("--force", *FUSION, "--set", "penalty=-1"), "penalty must be a number of at least 0")
    refused(crowd, crowd.fit("--force", labels=crowd.folder / "no.csv"), "no such file")
    before = (crowd.out / "model" / "weights.safetensors").read_bytes()
    ok(*crowd.fit("--seed", 1, "--force"))
    assert (crowd.out / "model" / "weights.safetensors").read_bytes() != before
    assert sorted(path.name for path in crowd.folder.iterdir()) == ["f.npz", "labels.csv", "run"]


def test_force_takes_no_folder_of_something_else(crowd: Crowd) -> None:
    crowd.out.mkdir()
    (crowd.out / "thesis.tex").write_text("years of work")
    refused(crowd, crowd.fit("--force"), "no settings.json", "will not replace it")
    (crowd.out / "settings.json").write_text('{"editor.fontSize": 12}')  # of another program
    refused(crowd, crowd.fit("--force"), "is not a run folder", "will not replace it")
    file = crowd.folder / "file"
    file.write_text("x")
    crowd.out = file
    refused(crowd, crowd.fit("--force"), "is a file")


def test_force_never_takes_what_it_reads(crowd: Crowd) -> None:
    ok(*crowd.fit())
    inside = crowd.out / "labels.csv"
    inside.write_bytes(crowd.labels.read_bytes())
    refused(crowd, crowd.fit("--force", labels=inside), "labels.csv is inside", "choose another name")


def test_an_empty_folder_is_as_good_as_none(crowd: Crowd) -> None:
    crowd.out.mkdir()
    ok(*crowd.fit())
    assert (crowd.out / "summary.json").exists()


def test_a_finished_run_says_so_when_it_is_resumed(crowd: Crowd) -> None:
    ok(*crowd.fit())
    before = tree(crowd.folder)
    text = ok("fit", "--resume", crowd.out)
    assert f"{crowd.out} is already finished" in text
    assert tree(crowd.folder) == before


def test_a_damaged_model_is_named_to_whoever_predicts(crowd: Crowd) -> None:
    ok(*crowd.fit())
    weights = crowd.out / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    arguments = ["predict", crowd.out, crowd.inputs, "--out", crowd.folder / "p.csv"]
    refused(crowd, arguments, "weights.safetensors is damaged")
    (crowd.out / "model" / "model.json").unlink()
    refused(crowd, arguments, "model.json is missing")


def test_inputs_that_do_not_fit_the_model_are_refused(crowd: Crowd) -> None:
    ok(*crowd.fit())
    np.save(crowd.folder / "wide.npy", np.zeros((4, 7)))
    refused(
        crowd, ["predict", crowd.out, crowd.folder / "wide.npy", "--out", crowd.folder / "p.csv"], "7", "3 features"
    )


def test_a_run_without_a_model_is_to_be_finished_first(crowd: Crowd) -> None:
    ok(*crowd.fit())
    (crowd.out / "model").rename(crowd.folder / "elsewhere")
    arguments = ["predict", crowd.out, crowd.inputs, "--out", crowd.folder / "p.csv"]
    refused(crowd, arguments, "no model yet", f"crowdfuse fit --resume {crowd.out}")


# ---- the other commands, small ---------------------------------------------------------------------


def test_demo_prints_both_tables_and_ends_with_the_report(tmp_path: Path) -> None:
    text = ok("demo", "--out", tmp_path / "report", "--epochs", 1, "--quiet", "--json", tmp_path / "d.json")
    assert text.endswith(f"report: {tmp_path / 'report' / 'report.md'}")
    for word in ("majority vote", "fusion", "true labels", "Ada", "agreement with predictions"):
        assert word in text
    assert (tmp_path / "report" / "report.md").exists()
    assert set(json.loads((tmp_path / "d.json").read_text())) >= {"held_out_accuracy", "annotators"}


def test_twomoon_prints_the_table_and_writes_the_figures(tmp_path: Path) -> None:
    options = ["--seeds", "0", "--epochs", 2, "--quiet", "--json", tmp_path / "t.json"]
    text = ok("reproduce", "twomoon", *options, "--out", tmp_path / "twomoon")
    assert "66.51" in text
    assert text.endswith(f"figures: {tmp_path / 'twomoon'}")
    assert (tmp_path / "twomoon" / "setup.png").exists()
    assert json.loads((tmp_path / "t.json").read_text())["n_steps"] == 2
