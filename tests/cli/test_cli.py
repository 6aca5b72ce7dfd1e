"""Commands: help, run folders, predictions, and one clear message for every bad input."""

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
from crowdfuse.labels.number_format import format_confidence
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
    """Run a command in this process and return its result."""
    return CliRunner().invoke(app, [str(part) for part in arguments])


def output_of(result: Any) -> str:
    """Return the whole output on one line, without line wrapping."""
    return " ".join(result.output.replace("│", " ").split())


def run_ok(*arguments: Any) -> str:
    """Run a command that must succeed, and return its output on one line."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return output_of(result)


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
        """Return the arguments of a short training of gated."""
        return [*self.fit_default("--method", "gated", labels=labels, inputs=inputs), *more]

    def fit_default(self, *more: Any, labels: Any = None, inputs: Any = None) -> list[Any]:
        """Return the arguments of a short training of the default method."""
        files = [labels or self.labels, "--inputs", inputs or self.inputs, "--out", self.out]
        return ["fit", *files, "--epochs", 2, "--folds", 0, "--quiet", *more]


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path)


# ---- help and imports -------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["reproduce"], *COMMANDS])
def test_every_help_has_an_example(command: list[str]) -> None:
    assert f"Example: {' '.join(['crowdfuse', *command])}" in run_ok(*command, "--help")


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


def test_version_is_printed() -> None:
    assert run_ok("--version") == "crowdfuse 0.1.0"


# ---- exports of labelling tools -----------------------------------------------------------------


def test_fit_reads_an_export_and_its_ground_truth_as_test_gold(crowd: Crowd) -> None:
    labels: exports.Crowd = {item: {} for item in crowd.items}
    for item, name, label in crowd.triples:
        labels[item.strip('"')][name] = label
    tasks = exports.label_studio(labels)
    for done, gold in zip(tasks[:9], crowd.truth[:9], strict=True):
        done["annotations"].append(exports.annotation(3, exports.choice(str(gold)), ground_truth=True))
    tasks[20]["annotations"].append(exports.annotation(None, exports.choice("cat")))
    export = exports.write(crowd.folder / "export.json", tasks)
    asked = crowd.fit("--item", "image", "--test", export, labels=export)
    assert "record 21 (item 'i20'): the annotator is empty" in output_of(run(*asked))

    output = run_ok(*asked, "--on-bad", "drop")
    assert "note: left out: ground-truth annotations, which are gold labels (9)" in output
    assert f"note: 1 of {len(crowd.triples) + 1} answers could not be used and was left out" in output
    assert "% of 9 items" in output
    from_table = run_ok(*crowd.fit("--test", crowd.gold("gold.csv", slice(9)), "--force"))
    for start, end in (("data: ", " note: "), ("test accuracy: ", " run folder: ")):
        assert _between(output, start, end) == _between(from_table, start, end)


def _between(text: str, start: str, end: str) -> str:
    """Return the part of a text from `start` to the next `end`."""
    return text[text.index(start) :].split(end)[0]


def test_unknown_format_and_on_bad_are_refused(crowd: Crowd) -> None:
    result = run(*crowd.fit("--format", "label_studio"))
    assert "--format must be one of auto, table, wide, label-studio, argilla, prodigy" in output_of(result)
    assert "--on-bad must be one of error, drop, got 'skip'" in output_of(run(*crowd.fit("--on-bad", "skip")))


# ---- choice of the method --------------------------------------------------------------------------


def test_default_method_is_printed(crowd: Crowd) -> None:
    assert f"method: {DEFAULT_METHOD} (default; see 'crowdfuse methods')" in run_ok(*crowd.fit_default())
    assert json.loads((crowd.out / "settings.json").read_text())["job"]["method"] == DEFAULT_METHOD
    output = run_ok(*crowd.fit(*FUSION, "--force"))
    assert "method: fusion network: " in output
    assert "(default" not in output


# ---- cross-fitting ---------------------------------------------------------------------------------


def test_folds_and_jobs_reach_the_run(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdfuse import runs

    n_jobs = []

    def note_jobs(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, jobs: int, **options: Any) -> Any:
            n_jobs.append(jobs)
            return function(*arguments, jobs=1, **options)  # tests/runs has the test with two processes

        return call

    monkeypatch.setattr(runs, "start", note_jobs(runs.start))
    monkeypatch.setattr(runs, "resume", note_jobs(runs.resume))
    run_ok(*crowd.fit("--folds", 2, "--method", "majority-vote", "--jobs", 2))
    assert json.loads((crowd.out / "settings.json").read_text())["job"]["folds"] == 2
    assert json.loads((crowd.out / "summary.json").read_text())["n_folds"] == 2
    assert "already finished" in run_ok("fit", "--resume", crowd.out, "--jobs", 3)
    assert n_jobs == [2, 3]


def test_cross_fitting_is_the_default(crowd: Crowd) -> None:
    shown = run_ok("fit", "--help")
    assert "--folds" in shown
    assert "Default: 5" in shown


def test_jobs_are_refused_in_launched_processes(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowdfuse.cli.fit.launched_processes", lambda: (2, 1))
    assert_refused(crowd, crowd.fit("--jobs", 2), "--jobs 2", "torchrun", "leave out --jobs")
    assert_refused(crowd, ["fit", "--resume", crowd.out, "--jobs", 2], "--jobs 2", "torchrun")


# ---- what fit prints -------------------------------------------------------------------------------


def test_fit_prints_data_network_and_results_in_few_lines(crowd: Crowd) -> None:
    lines = run(*crowd.fit("--method", "majority-vote", "--set", "hidden=[16,8]", "--folds", "2")).stdout.splitlines()
    n_labels = len(crowd.triples)
    assert lines[:4] == [
        f"data: {N} items, 3 annotators, {n_labels} labels, classes \"Zoë's dog\", 'cat'",
        "method: majority-vote",
        f"network: mlp (16, 8) on {crowd.X.shape[1]} features",
        "effort: normal (3 training runs: the model, and 2 on folds, for the consensus; --effort low trains once, "
        "--max-time limits the time)",
    ]
    assert all(line.startswith(("note: ", "warning: ", "result: ", "run folder: ", "next: ")) for line in lines[4:])
    summary = json.loads((crowd.out / "summary.json").read_text())
    found = f"consensus for {N} items, mean confidence {format_confidence(summary['mean_confidence'])}; "
    assert (
        f"result: {found}{summary['n_inaccurate_annotators']} of 3 annotators with an estimated accuracy below 60 %"
        in lines
    )
    assert "run folder: " + str(crowd.out) in lines


def test_fit_prints_each_warning_of_the_summary(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdfuse import runs

    def start(*arguments: Any, **options: Any) -> dict[str, Any]:
        return original(*arguments, **options) | {"notes": ["a remark"], "warnings": ["class 'b' is never predicted"]}

    original = runs.start
    monkeypatch.setattr(runs, "start", start)
    lines = run(*crowd.fit()).output.splitlines()
    assert "note: a remark" in lines
    assert "warning: class 'b' is never predicted" in lines


def test_low_effort_trains_once_and_says_what_is_missing(crowd: Crowd) -> None:
    lines = run(*crowd.fit("--method", "majority-vote", "--effort", "low")).stdout.splitlines()
    assert "effort: low (1 training; no cross-fitting, so the confidence may be too high)" in lines
    summary = json.loads((crowd.out / "summary.json").read_text())
    assert (summary["effort"], summary["n_folds"]) == ("low", 0)
    assert any("no cross-fitting" in note for note in summary["notes"])
    assert json.loads((crowd.out / "settings.json").read_text())["job"]["effort"] == "low"


def test_low_effort_uses_the_cheapest_settings_of_the_method_unless_others_are_given() -> None:
    from crowdfuse.runs import Job, make_classifier

    job = Job("labels.csv", method="consensus-training", effort="low")
    assert make_classifier(job).get_params()["folds"] == 0
    other = Job("labels.csv", method="consensus-training", effort="low", settings={"epochs": 3})
    assert make_classifier(other).get_params()["epochs"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--effort", "none"], "--effort"),
        (["--effort", "low", "--folds", "3"], "--effort low trains no folds"),
        (["--max-time", "soon"], "--max-time must be a duration above 0 such as 90s, 10m or 2h, got 'soon'"),
        (["--max-time", "3m", "--set", "max_time=7"], "--max-time and --set max_time set the same parameter"),
    ],
)
def test_wrong_efforts_and_time_limits_are_refused(crowd: Crowd, options: list[str], message: str) -> None:
    result = run(*crowd.fit(*options))
    assert result.exit_code == 2
    assert message in output_of(result)
    assert not crowd.out.exists()


def test_the_time_limit_is_shared_by_all_trainings_and_the_result_says_that_it_was_reached(crowd: Crowd) -> None:
    options = [*crowd.fit("--method", "mbem", "--max-time", "0.003s", "--folds", "2")]
    options[options.index("--epochs") + 1] = "50"
    lines = run(*options).stdout.splitlines()
    assert any(line.startswith("effort: normal (3 training runs") and "at most 0 s" in line for line in lines)
    assert any(line.startswith("note: The time limit (--max-time; max_time in Python)") for line in lines)
    assert any(line.startswith("note: The time limit also shortened the training runs on the folds") for line in lines)
    stored = json.loads((crowd.out / "settings.json").read_text())["job"]["settings"]["max_time"]
    assert stored == pytest.approx(0.001)
    assert json.loads((crowd.out / "summary.json").read_text())["cut_short"] is True


# ---- fit and predict -------------------------------------------------------------------------------


def test_fit_in_a_new_process_writes_the_whole_run_folder(crowd: Crowd) -> None:
    arguments = [str(part) for part in crowd.fit("--folds", "2") if part != "--quiet"]
    program = Path(sys.executable).with_name("crowdfuse")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"run folder: {crowd.out}"
    assert done.stderr.splitlines()[-1] == f"next: crowdfuse report {crowd.out}"
    finished = [line for line in done.stderr.splitlines() if " finished: " in line]
    assert [line.split(" finished")[0] for line in finished] == [f"training {k} of 3" for k in (1, 2, 3)]
    assert "Warning" not in done.stderr
    tables = ["annotators.csv", "consensus.csv", "suspicious_labels.csv"]
    names = [*tables, "log.jsonl", "model", "posterior.safetensors", "settings.json", "summary.json"]
    assert sorted(path.name for path in crowd.out.iterdir()) == sorted(names)

    consensus = read_rows(crowd.out / "consensus.csv")
    assert sorted(row["item"] for row in consensus) == sorted(crowd.items)
    assert {row["label"] for row in consensus} <= {"cat", "Zoë's dog"}
    assert all(0.5 <= float(row["confidence"]) <= 1 for row in consensus)
    assert sum(int(row["n_labels"]) for row in consensus) == len(crowd.triples)
    assert {row["annotator"] for row in read_rows(crowd.out / "annotators.csv")} == {"ada", "bob", "007"}
    settings = json.loads((crowd.out / "settings.json").read_text())
    assert settings["job"]["settings"] == {"epochs": 2, "random_state": 0}
    assert set(settings["hashes"]) == {"labels", "inputs"}
    log = [json.loads(line) for line in (crowd.out / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2]
    summary = json.loads((crowd.out / "summary.json").read_text())
    assert summary["method"] == "gated"
    assert summary["classes"] == ["Zoë's dog", "cat"]
    assert load(crowd.out / "model").classes_.tolist() == ["Zoë's dog", "cat"]

    # the same command in this process gives the same bits
    weights = (crowd.out / "model" / "weights.safetensors").read_bytes()
    run_ok(*crowd.fit("--force"))
    assert (crowd.out / "model" / "weights.safetensors").read_bytes() == weights


def test_predict_says_in_one_line_what_speaks_against_the_predictions(crowd: Crowd) -> None:
    run_ok(*crowd.fit("--folds", "0", "--max-time", "0.001s", "--epochs", "50"))
    note, written = run("predict", crowd.out, crowd.inputs, "--out", crowd.folder / "p.csv").stdout.splitlines()
    assert note.startswith("note: It is unknown how far to trust the predictions")
    assert "The time limit" in note
    assert written.startswith("30 predictions")


def test_predictions_have_the_names_of_items_and_classes(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    file = crowd.folder / "new" / "p.csv"
    assert run_ok("predict", crowd.out, crowd.inputs, "--out", file).endswith(f" 30 predictions: {file}")
    rows = read_rows(file)
    model = load(crowd.out / "model")
    probabilities = model.predict_proba(crowd.X)
    assert list(rows[0]) == ["item", "label", "confidence"]
    assert [row["item"] for row in rows] == crowd.items
    assert [row["label"] for row in rows] == model.predict(crowd.X).tolist()
    assert [row["confidence"] for row in rows] == [f"{p:.6f}" for p in probabilities.max(1)]

    run_ok("predict", crowd.out / "model", crowd.inputs, "--out", file, "--proba", "--force")
    rows = read_rows(file)
    assert list(rows[0]) == ["item", "label", "confidence", "p_Zoë's dog", "p_cat"]
    assert [row["p_cat"] for row in rows] == [f"{p:.6f}" for p in probabilities[:, 1]]


def test_validation_and_test_gold_are_reported_in_the_summary(crowd: Crowd) -> None:
    held = ["--validation", crowd.gold("v.csv", slice(0, 5)), "--test", crowd.gold("t.csv", slice(5, 10))]
    text = run_ok(*crowd.fit(*held, "--json", crowd.folder / "s.json"))
    summary = json.loads((crowd.folder / "s.json").read_text())
    assert summary == json.loads((crowd.out / "summary.json").read_text())
    assert f"test accuracy: {100 * summary['test_accuracy']:.1f} % of 5 items" in text
    assert "5 labelled items are used for validation, so their labels are not used for training" in text
    assert "gold labels were used for choosing the epoch" in text
    assert summary["best_epoch"] in (1, 2)


def test_true_label_trains_on_gold(crowd: Crowd) -> None:
    gold = crowd.gold("g.csv", slice(0, N))
    text = run_ok(*crowd.fit("--method", "true-label", "--gold", gold, "--epochs", 30, "--set", "learning_rate=0.02"))
    assert "gold labels were used for training" in text
    assert load(crowd.out / "model").score(crowd.X, crowd.truth) > 0.9


def test_settings_reach_the_classifier(crowd: Crowd) -> None:
    options = ["--batch-size", 8, "--backbone", "identity", "--seed", 5, "--device", "cpu"]
    more = [*FUSION, "--set", "penalty=0.5", "--set", "hidden=[6]", "--set", "weights=uniform", "--set", "n-bases=1"]
    run_ok(*crowd.fit(*options, *more))
    found = load(crowd.out / "model").get_params()
    expected = {"batch_size": 8, "backbone": "identity", "random_state": 5, "device": "cpu", "epochs": 2}
    expected |= {"penalty": 0.5, "hidden": (6,), "weights": "uniform", "n_bases": 1}
    assert {name: found[name] for name in expected} == expected


def test_column_names_and_classes_can_be_given(crowd: Crowd) -> None:
    rows = [(item, "x", annotator, label) for item, annotator, label in crowd.triples]
    labels = write_rows(crowd.folder / "odd.csv", "photo,task,by,tag", rows)
    names = ["--item", "photo", "--annotator", "by", "--label", "tag", "--classes", "cat, Zoë's dog,bird"]
    run_ok(*crowd.fit(*names, "--test", crowd.gold("t.csv", slice(0, 5)), labels=labels))
    assert load(crowd.out / "model").classes_.tolist() == ["cat", "Zoë's dog", "bird"]
    assert len(read_rows(crowd.out / "consensus.csv")) == N


def test_integer_classes_stay_integers(crowd: Crowd) -> None:
    rows = [(item, annotator, 10 if label == "cat" else 9) for item, annotator, label in crowd.triples]
    run_ok(*crowd.fit("--classes", "9,10,11", labels=write_rows(crowd.folder / "n.csv", "item,annotator,label", rows)))
    assert load(crowd.out / "model").classes_.tolist() == [9, 10, 11]


@pytest.mark.parametrize(("choice", "label"), [("first", "cat"), ("last", "Zoë's dog"), ("drop", None)])
def test_on_conflict_decides_contradictory_labels(crowd: Crowd, choice: str, label: str | None) -> None:
    rows = [row for row in crowd.triples if row[0] != '"i0"'] + [("i0", "ada", "cat"), ("i0", "ada", "Zoë's dog")]
    labels = write_rows(crowd.folder / "twice.csv", "item,annotator,label", rows)
    text = run_ok(*crowd.fit("--on-conflict", choice, "--method", "majority-vote", labels=labels))
    assert "gave the item a different label" in text
    rows_of_run = {row["item"]: row for row in read_rows(crowd.out / "consensus.csv")}
    assert rows_of_run["i0"]["n_labels"] == str(int(label is not None))
    labels_of_run = read_rows(crowd.out / "suspicious_labels.csv")
    assert [row["label"] for row in labels_of_run if row["item"] == "i0"] == ([] if label is None else [label])


def test_on_missing_drop_leaves_out_items_without_inputs_or_labels(crowd: Crowd) -> None:
    rows = [row for row in crowd.triples if row[0] != '"i2"'] + [("stranger", "ada", "cat")]
    labels = write_rows(crowd.folder / "part.csv", "item,annotator,label", rows)
    text = run_ok(*crowd.fit("--on-missing", "drop", labels=labels))
    assert "1 labelled items have no inputs and were left out" in text
    assert "not used for training: 1 item with inputs but no labels" in text
    n_labels = {row["item"]: int(row["n_labels"]) for row in read_rows(crowd.out / "consensus.csv")}
    assert set(n_labels) == {*crowd.items}
    assert [item for item, count in n_labels.items() if count == 0] == ["i2"]


def test_empty_and_repeated_labels_are_counted(crowd: Crowd) -> None:
    rows = [*crowd.triples, crowd.triples[0], ("i5", "new", ""), ("i6", "new", "")]
    labels = write_rows(crowd.folder / "gaps.csv", "item,annotator,label", rows)
    run_ok(*crowd.fit(labels=labels))
    notes = json.loads((crowd.out / "summary.json").read_text())["notes"]
    assert any(note.startswith("2 ") and "empty" in note for note in notes)
    assert any(note.startswith("1 ") and "repeated" in note for note in notes)


def test_predict_matches_the_columns_of_a_table_by_name(crowd: Crowd) -> None:
    def table(name: str, order: list[int], extra: str = "") -> Path:
        header = ",".join(["item", *("abc"[k] for k in order), *(["note"] if extra else [])])
        rows = [
            (f'"{i}"', *(x[k] for k in order), *([extra] if extra else []))
            for i, x in zip(crowd.items, crowd.X, strict=True)
        ]
        return write_rows(crowd.folder / name, header, rows)

    run_ok(*crowd.fit(inputs=table("train.csv", [0, 1, 2])))
    run_ok("predict", crowd.out, table("same.csv", [0, 1, 2]), "--out", crowd.folder / "1.csv", "--proba")
    run_ok(
        "predict", crowd.out, table("turned.csv", [2, 0, 1], "some words"), "--out", crowd.folder / "2.csv", "--proba"
    )
    assert (crowd.folder / "1.csv").read_bytes() == (crowd.folder / "2.csv").read_bytes()
    result = run("predict", crowd.out, table("less.csv", [0, 2]), "--out", crowd.folder / "3.csv")
    assert result.exit_code == 2
    assert "no column 'b', but the model was trained with it" in output_of(result)


def test_predict_converts_images_to_the_size_and_channels_of_training(crowd: Crowd) -> None:
    generator = np.random.default_rng(0)

    def folder(name: str, size: tuple[int, int], mode: str = "L") -> Path:
        (crowd.folder / name / "sub").mkdir(parents=True)
        for n in range(6):
            pixels = generator.integers(0, 255, (*size, 3) if mode == "RGB" else size, np.uint8)
            Image.fromarray(pixels).save(crowd.folder / name / "sub" / f"{n}.png")
        return crowd.folder / name

    rows = [(f"sub/{n}", "ada", n % 2) for n in range(6)]
    labels = write_rows(crowd.folder / "images.csv", "item,annotator,label", rows)
    run_ok(*crowd.fit(labels=labels, inputs=folder("train", (24, 18))))
    assert load(crowd.out / "model").input_shape_ == (1, 24, 18)
    for other in (folder("same", (24, 18)), folder("large", (200, 120), "RGB")):
        run_ok("predict", crowd.out, other, "--out", crowd.folder / f"{other.name}.csv")
        assert len(read_rows(crowd.folder / f"{other.name}.csv")) == 6
    crowd.out = crowd.folder / "second"
    run_ok(*crowd.fit("--image-size", 20, labels=labels, inputs=crowd.folder / "large"))
    assert load(crowd.out / "model").input_shape_ == (3, 20, 20)
    run_ok("predict", crowd.out, crowd.folder / "train", "--out", crowd.folder / "3.csv")


@pytest.mark.parametrize("ending", ["", ".png"])
def test_an_image_has_the_same_id_in_all_files(crowd: Crowd, ending: str) -> None:
    images = crowd.folder / "images"
    (images / "sub").mkdir(parents=True)
    for n in range(8):
        Image.new("L", (20, 20), color=20 * n).save(images / "sub" / f"{n}.png")
    rows = [(f"sub/{n}{ending}", "ada", n % 2) for n in range(6)]  # two images have no labels
    labels = write_rows(crowd.folder / "images.csv", "item,annotator,label", rows)
    run_ok(*crowd.fit("--on-missing", "drop", labels=labels, inputs=images))
    consensus = {row["item"]: row for row in read_rows(crowd.out / "consensus.csv")}
    Image.new("L", (20, 20)).save(images / "new.png")
    for model in (crowd.out, crowd.out / "model"):
        run_ok("predict", model, images, "--out", crowd.folder / "predictions.csv", "--force")
        predictions = {row["item"]: row for row in read_rows(crowd.folder / "predictions.csv")}
        assert set(predictions) == {"new.png", *(f"sub/{n}{ending if n < 6 else '.png'}" for n in range(8))}
        joined = [(consensus[item], predictions[item]) for item in consensus.keys() & predictions.keys()]
        assert len(joined) == len(consensus) >= 6
        assert all(one["predicted"] == other["label"] for one, other in joined)


# ---- bad input: one message, exit code 2, and nothing written --------------------------------------


def read_tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def assert_refused(crowd: Crowd, arguments: list[Any], *words: str) -> None:
    before = read_tree(crowd.folder)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    for word in words:
        assert word in output_of(result), result.output
    assert read_tree(crowd.folder) == before


def fit_with_rows(crowd: Crowd, header: str, rows: Any) -> list[Any]:
    return crowd.fit(labels=write_rows(crowd.folder / "bad.csv", header, rows))


def fit_with_inputs(crowd: Crowd, **arrays: Any) -> list[Any]:
    np.savez(crowd.folder / "bad.npz", **arrays)
    return crowd.fit(inputs=crowd.folder / "bad.npz")


def fit_with_value(crowd: Crowd, value: float) -> list[Any]:
    X = crowd.X.copy()
    X[4, 1] = value
    return fit_with_inputs(crowd, X=X, items=np.array(crowd.items))


def fit_with_images(crowd: Crowd, rows: Any, *damaged: str) -> list[Any]:
    folder = crowd.folder / "images"
    folder.mkdir()
    for name in ("a.png", "a.jpg", "b.png"):
        Image.new("L", (20, 20)).save(folder / name)
    for name in damaged:
        (folder / name).write_bytes(b"no image")
    return crowd.fit(labels=write_rows(crowd.folder / "l.csv", "item,annotator,label", rows), inputs=folder)


HEADER = "item,annotator,label"
BAD_INPUTS: dict[str, tuple[Callable[[Crowd], list[Any]], tuple[str, ...]]] = {
    "no labels file": (lambda c: c.fit(labels=c.folder / "no.csv"), ("no.csv", "no such file")),
    "no inputs file": (lambda c: c.fit(inputs=c.folder / "no.npz"), ("no.npz", "no such file")),
    "no arguments": (lambda c: ["fit"], ("LABELS and --out", "--help")),
    "missing column": (
        lambda c: fit_with_rows(c, "item,annotator,colour", c.triples),
        ("bad.csv", "no column for the label", "'colour'", "--label"),
    ),
    "wrong column": (lambda c: c.fit("--label", "tag"), ("labels.csv", "no column 'tag'", "'label'")),
    "ambiguous columns": (
        lambda c: fit_with_rows(c, "item,annotator,label,answer", [(*row, "x") for row in c.triples]),
        ("bad.csv", "several columns that may be the label: 'label', 'answer'", "--label"),
    ),
    "an empty file": (lambda c: fit_with_rows(c, "", []) and fit_empty_labels(c), ("empty.csv", "is empty")),
    "only a header": (lambda c: fit_with_rows(c, HEADER, []), ("bad.csv", "no rows")),
    "a label outside the classes": (
        lambda c: c.fit("--classes", "cat,dog"),
        ("labels.csv, line ", "Zoë's dog", "not one of the 2 classes ('cat', 'dog')"),
    ),
    "classes twice": (lambda c: c.fit("--classes", "cat,dog,cat"), ("--classes", "more than once: 'cat'")),
    "classes empty": (lambda c: c.fit("--classes", "cat,,dog"), ("--classes", "'cat,,dog'")),
    "labelled items without inputs": (
        lambda c: fit_with_rows(c, HEADER, [*c.triples, ("x1", "ada", "cat"), ("x2", "ada", "cat")]),
        ("2 items are in", "bad.csv but not in", "f.npz: 'x1', 'x2'", "'i0'", "--on-missing drop"),
    ),
    "inputs without labels": (
        lambda c: fit_with_rows(c, HEADER, [row for row in c.triples if row[0] not in ('"i3"', '"i4"')]),
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
    "no item in common": (
        lambda c: [*fit_with_inputs(c, X=c.X), "--on-missing", "drop"],
        ("no labels", "left for training"),
    ),
    "NaN": (lambda c: fit_with_value(c, np.nan), ("bad.npz, X contains NaN at row 4, column 1", "fill or drop")),
    "infinity": (lambda c: fit_with_value(c, np.inf), ("bad.npz, X contains infinity", "at row 4, column 1")),
    "text in a table of numbers": (
        lambda c: c.fit(inputs=write_rows(c.folder / "f.csv", "item,x", [("i0", 1), ("i2", "tall")])),
        ("f.csv, line 3: column 'x' holds 'tall'",),
    ),
    "more items than rows": (
        lambda c: fit_with_inputs(c, X=c.X[:9], items=np.array(c.items)),
        ("bad.npz: X has 9 rows, but items has 30 ids",),
    ),
    "one-dimensional inputs": (lambda c: fit_with_inputs(c, X=c.X[:, 0]), ("bad.npz", "shape (30,)")),
    "no X": (lambda c: fit_with_inputs(c, features=c.X), ("bad.npz", "no array 'X', only 'features'", "np.savez")),
    "an item twice": (
        lambda c: fit_with_inputs(c, X=c.X, items=np.array([*c.items[:-1], "i0"])),
        ("bad.npz", "more than once: 'i0'"),
    ),
    "one class": (
        lambda c: fit_with_rows(c, HEADER, [(item, who, "cat") for item, who, _ in c.triples]),
        ("at least two classes", "'cat'", "--classes"),
    ),
    "two labels of one annotator on one item": (
        lambda c: fit_with_rows(c, HEADER, [*c.triples, ("i2", "eve", "cat"), ("i2", "eve", "Zoë's dog")]),
        ("bad.csv", "'i2'", "'eve'", "--on-conflict"),
    ),
    "an unreadable image": (
        lambda c: fit_with_images(c, [("b", "x", 0), ("c", "x", 1)], "c.png"),
        ("c.png: not a readable image", "remove"),
    ),
    "id that matches two images": (
        lambda c: fit_with_images(c, [("a", "x", 0), ("b", "x", 1)]),
        ("the id 'a' matches two images: 'a.jpg', 'a.png'", "full names"),
    ),
    "one image with two names": (
        lambda c: fit_with_images(c, [("b", "x", 0), ("b.png", "y", 1), ("a.png", "x", 0), ("a.jpg", "x", 0)]),
        ("l.csv uses several ids for the same input: 'b', 'b.png'",),
    ),
    "image paths relative to another folder": (
        lambda c: fit_with_images(c, [("in/photos/b.png", "x", 0), ("in/photos/a.jpg", "x", 1)]),
        ("2 items are in", "Without the prefix 'in/photos/', these ids match", "remove the prefix from the ids"),
    ),
    "missing image": (
        lambda c: fit_with_images(c, [("photos/b.png", "x", 0), ("photos/z.png", "x", 1)]),
        ("2 items are in", "--on-missing drop"),
    ),
    "images too small for the network": (
        lambda c: c.fit(
            inputs=make_tiny_images(c), labels=write_rows(c.folder / "l.csv", HEADER, [("a", "x", 0), ("b", "x", 1)])
        ),
        ("reads images of at least 16 x 16 pixels, got 9 x 9", "--image-size 32", "--backbone mlp"),
    ),
    "a folder without images": (lambda c: c.fit(inputs=make_empty_folder(c)), ("nothing has no images",)),
    "inputs of an unknown kind": (lambda c: c.fit(inputs=write_rows(c.folder / "f.txt", "", [])), ("f.txt", ".npz")),
    "unknown method": (lambda c: c.fit("--method", "fusoin"), ("'fusoin'", "did you mean 'fusion'", "true-label")),
    "unknown setting": (
        lambda c: c.fit(*FUSION, "--set", "penlty=1"),
        ("--set penlty", "fusion has no such setting", "penalty"),
    ),
    "a setting without a value": (
        lambda c: c.fit("--set", "penalty"),
        ("--set must have the form name=value, got 'penalty'",),
    ),
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
    "json over the labels": (
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
    "a custom checkpoint": (lambda c: c.fit("--set", "checkpoint=x"), ("--set checkpoint", "--out")),
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
    "unknown on-missing": (
        lambda c: c.fit("--on-missing", "ignore"),
        ("--on-missing must be one of error, drop, got 'ignore'",),
    ),
    "unknown on-conflict": (
        lambda c: c.fit("--on-conflict", "both"),
        ("--on-conflict must be one of error, first", "'both'"),
    ),
    "negative seed": (lambda c: c.fit("--seed", -1), ("--seed",)),
    "json over a folder": (lambda c: c.fit("--json", c.folder), ("--json", "is a folder")),
    "json over a file": (lambda c: c.fit("--json", c.labels), ("labels.csv exists already", "--force")),
    "resume without a run": (lambda c: ["fit", "--resume", c.folder], ("settings.json", "cannot be resumed")),
    "resume with other options": (
        lambda c: ["fit", c.labels, "--resume", c.out, "--epochs", 5, "--set", "penalty=1"],
        ("--resume uses the options", "labels", "--epochs", "--set"),
    ),
    "predict with a missing folder": (lambda c: ["predict", c.out, c.inputs], ("run: no such run folder",)),
    "predict with a folder that is not a run": (
        lambda c: ["predict", c.folder, c.inputs, "--out", c.out],
        ("model.json is missing",),
    ),
    "predict over a file": (
        lambda c: ["predict", c.out, c.inputs, "--out", c.labels],
        ("labels.csv exists already", "--force"),
    ),
    "predict over a folder": (
        lambda c: ["predict", c.out, c.inputs, "--out", c.folder, "--force"],
        ("is a folder; give the name of a file",),
    ),
    "invalid seeds": (lambda c: ["reproduce", "twomoon", "--seeds", "0,x", "--out", c.out], ("--seeds", "'0,x'")),
    "negative seeds": (lambda c: ["reproduce", "twomoon", "--seeds=-1", "--out", c.out], ("--seeds", "'-1'")),
    "unknown split": (lambda c: ["reproduce", "twomoon", "--split", "half", "--out", c.out], ("--split", "'half'")),
    "demo over a folder": (lambda c: ["demo", "--out", c.folder], ("exists already", "--force")),
    "demo over a folder with other files": (
        lambda c: ["demo", "--out", c.folder, "--force"],
        ("report.md", "will not be replaced"),
    ),
    "twomoon over a folder with other files": (
        lambda c: ["reproduce", "twomoon", "--out", c.folder, "--force"],
        ("twomoon.json", "will not be replaced"),
    ),
}


def fit_empty_labels(crowd: Crowd) -> list[Any]:
    (crowd.folder / "empty.csv").touch()
    return crowd.fit(labels=crowd.folder / "empty.csv")


def make_empty_folder(crowd: Crowd) -> Path:
    (crowd.folder / "nothing").mkdir()
    return crowd.folder / "nothing"


def make_tiny_images(crowd: Crowd) -> Path:
    for name in ("a.png", "b.png"):
        (crowd.folder / "tiny").mkdir(exist_ok=True)
        Image.new("L", (9, 9)).save(crowd.folder / "tiny" / name)
    return crowd.folder / "tiny"


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_refused_before_anything_is_written(crowd: Crowd, case: str) -> None:
    make, words = BAD_INPUTS[case]
    assert_refused(crowd, make(crowd), *words)


def test_existing_run_is_replaced_only_with_force(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    assert_refused(crowd, crowd.fit("--seed", 1), f"{crowd.out} exists already", "--force")
    assert_refused(
        crowd, crowd.fit("--force", *FUSION, "--set", "penalty=-1"), "penalty must be a number of at least 0"
    )
    assert_refused(crowd, crowd.fit("--force", labels=crowd.folder / "no.csv"), "no such file")
    before = (crowd.out / "model" / "weights.safetensors").read_bytes()
    run_ok(*crowd.fit("--seed", 1, "--force"))
    assert (crowd.out / "model" / "weights.safetensors").read_bytes() != before
    assert sorted(path.name for path in crowd.folder.iterdir()) == ["f.npz", "labels.csv", "run"]


def test_force_does_not_replace_a_folder_that_is_not_a_run(crowd: Crowd) -> None:
    crowd.out.mkdir()
    (crowd.out / "thesis.tex").write_text("years of work")
    assert_refused(crowd, crowd.fit("--force"), "no settings.json", "will not be replaced")
    (crowd.out / "settings.json").write_text('{"editor.fontSize": 12}')  # settings of another program
    assert_refused(crowd, crowd.fit("--force"), "is not a run folder", "will not be replaced")
    file = crowd.folder / "file"
    file.write_text("x")
    crowd.out = file
    assert_refused(crowd, crowd.fit("--force"), "is a file")


def test_force_does_not_replace_a_folder_that_contains_its_input(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    inside = crowd.out / "labels.csv"
    inside.write_bytes(crowd.labels.read_bytes())
    assert_refused(crowd, crowd.fit("--force", labels=inside), "labels.csv is inside", "choose another name")


def test_fit_writes_into_an_empty_folder(crowd: Crowd) -> None:
    crowd.out.mkdir()
    run_ok(*crowd.fit())
    assert (crowd.out / "summary.json").exists()


def test_resuming_a_finished_run_changes_nothing(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    before = read_tree(crowd.folder)
    text = run_ok("fit", "--resume", crowd.out)
    assert f"{crowd.out} is already finished" in text
    assert read_tree(crowd.folder) == before


def test_predict_refuses_a_damaged_model(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    weights = crowd.out / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    arguments = ["predict", crowd.out, crowd.inputs, "--out", crowd.folder / "p.csv"]
    assert_refused(crowd, arguments, "weights.safetensors is damaged")
    (crowd.out / "model" / "model.json").unlink()
    assert_refused(crowd, arguments, "model.json is missing")


def test_predict_refuses_inputs_with_another_number_of_features(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    np.save(crowd.folder / "wide.npy", np.zeros((4, 7)))
    assert_refused(
        crowd, ["predict", crowd.out, crowd.folder / "wide.npy", "--out", crowd.folder / "p.csv"], "7", "3 features"
    )


def test_predict_with_an_unfinished_run_suggests_resume(crowd: Crowd) -> None:
    run_ok(*crowd.fit())
    (crowd.out / "model").rename(crowd.folder / "elsewhere")
    arguments = ["predict", crowd.out, crowd.inputs, "--out", crowd.folder / "p.csv"]
    assert_refused(crowd, arguments, "no model yet", f"crowdfuse fit --resume {crowd.out}")


# ---- the other commands on small data ---------------------------------------------------------------------


def test_demo_prints_both_tables_and_ends_with_the_report(tmp_path: Path) -> None:
    text = run_ok("demo", "--out", tmp_path / "report", "--epochs", 1, "--quiet", "--json", tmp_path / "d.json")
    assert text.endswith(f"report: {tmp_path / 'report' / 'report.md'}")
    for word in ("majority vote", "fusion", "true labels", "Ada", "estimated accuracy"):
        assert word in text
    assert (tmp_path / "report" / "report.md").exists()
    assert set(json.loads((tmp_path / "d.json").read_text())) >= {"held_out_accuracy", "annotators"}


def test_twomoon_prints_the_table_and_writes_the_figures(tmp_path: Path) -> None:
    options = ["--seeds", "0", "--epochs", 2, "--quiet", "--json", tmp_path / "t.json"]
    text = run_ok("reproduce", "twomoon", *options, "--out", tmp_path / "twomoon")
    assert "66.51" in text
    assert text.endswith(f"figures: {tmp_path / 'twomoon'}")
    assert (tmp_path / "twomoon" / "setup.png").exists()
    assert json.loads((tmp_path / "t.json").read_text())["n_steps"] == 2
