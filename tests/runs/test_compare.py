from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.estimators.registry import ESTIMATORS

N_LABELLED, N_ITEMS = 150, 200


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return 200 items, of which 150 have labels of two good annotators and one who guesses."""
    monkeypatch.chdir(tmp_path)
    X, y = make_blobs(N_ITEMS, centers=3, n_features=4, random_state=0)
    guess = np.random.default_rng(0).integers(0, 3, N_ITEMS)
    np.save("features.npy", X)
    said = [("ann", y), ("bob", y), ("guesser", guess)]
    rows = [f"{i},{name},{labels[i]}\n" for i in range(N_LABELLED) for name, labels in said]
    Path("labels.csv").write_text("item,annotator,label\n" + "".join(rows))
    for name, items in (("labelled", range(N_LABELLED)), ("others", range(N_LABELLED, N_ITEMS))):
        Path(f"{name}.csv").write_text("item,label\n" + "".join(f"{i},{y[i]}\n" for i in items))
    return tmp_path


def compare(*arguments: str) -> Any:
    files = ("labels.csv", "--inputs", "features.npy", "--on-missing", "drop", "--epochs", "4", "--quiet")
    return CliRunner().invoke(app, ["compare", *files, *arguments])


def numbers(folder: str = "comparison") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "table.json").read_text())
    return found


def test_every_method_is_compared_on_gold_items_without_labels(crowd: Path) -> None:
    result = compare("--gold", "others.csv", "--seeds", "0", "--json", "out.json")
    assert result.exit_code == 0, result.output
    rows = {row["method"]: row for row in numbers()["methods"]}
    single = {f"single-annotator {name}" for name in ("ann", "bob", "guesser")}
    assert set(rows) == ({*ESTIMATORS} - {"single-annotator", "true-label"}) | single
    assert "true-label is left out: all gold labels are used for testing" in result.output
    assert rows["single-annotator guesser"]["mean"] < rows["majority-vote"]["mean"]
    assert (
        "tested on 50 items with gold but no annotator labels; gold labels are not used to choose epochs or settings"
        in result.output
    )
    assert "only 50 items to test on" in result.output
    assert json.loads(Path("out.json").read_text()) == numbers()


def test_a_share_of_the_gold_is_used_for_evaluation_if_all_gold_items_are_labelled(crowd: Path) -> None:
    result = compare("--gold", "labelled.csv", "--methods", "majority-vote,true-label", "--seeds", "0")
    assert result.exit_code == 0, result.output
    assert "tested on 45 items with gold and annotator labels, drawn anew for each seed and kept out" in result.output
    assert "true-label is trained on the gold labels of 105 other items" in result.output
    rows = {row["method"]: row for row in numbers()["methods"]}
    assert rows["majority-vote"]["fused_label_accuracy"] > 0.9
    assert rows["true-label"]["fused_label_accuracy"] is None


def test_methods_that_cannot_learn_from_such_labels_are_left_out(crowd: Path) -> None:
    of_one = [line for line in Path("labels.csv").read_text().splitlines() if ",bob," not in line and ",gu" not in line]
    Path("labels.csv").write_text("\n".join(of_one) + "\n")
    result = compare("--gold", "others.csv", "--methods", "majority-vote,max-mig,coin-net", "--seeds", "0")
    assert result.exit_code == 0, result.output
    assert [row["method"] for row in numbers()["methods"]] == ["majority-vote"]
    for said in ("max-mig is left out: max-mig learns from", "coin-net is left out: coin-net finds outliers"):
        assert said in result.output
    result = compare("--gold", "others.csv", "--methods", "max-mig", "--seeds", "0", "--out", "none")
    assert result.exit_code == 2
    assert "nothing is left to compare: max-mig learns from" in " ".join(result.output.split())
    assert not Path("none").exists()


def test_evaluation_items_are_not_trained_on(crowd: Path) -> None:
    """No method's score depends on the labels of the evaluation items."""
    compare("--gold", "labelled.csv", "--methods", "majority-vote", "--seeds", "0", "--out", "first")
    from crowdfuse.runs import Job
    from crowdfuse.runs.comparison import make_comparison

    job = Job(labels="labels.csv", inputs="features.npy", gold="labelled.csv", on_missing="drop")
    test = set(make_comparison(job, 0.3).split(0).test.tolist())
    lines = Path("labels.csv").read_text().splitlines()
    poisoned = [
        line if i == 0 or int(line.split(",")[0]) not in test else line[:-1] + "0" for i, line in enumerate(lines)
    ]
    assert poisoned != lines
    Path("labels.csv").write_text("\n".join(poisoned) + "\n")
    compare("--gold", "labelled.csv", "--methods", "majority-vote", "--seeds", "0", "--out", "second")
    predicted = [
        json.loads(Path(name, "runs.jsonl").read_text())["result"]["predicted"] for name in ("first", "second")
    ]
    assert predicted[0] == predicted[1]


def test_without_gold_the_limits_of_the_comparison_are_stated(crowd: Path) -> None:
    result = compare("--methods", "fusion,majority-vote", "--seeds", "0,1")
    assert result.exit_code == 0, result.output
    table = Path("comparison", "table.md").read_text()
    assert "held-out likelihood (%)" in table
    assert "held-out agreement (%)" in table
    assert "majority vote of the labels" not in result.output  # the vote would be scored by the same labels
    assert "mistakes that all annotators make together cannot be detected" in result.output
    assert numbers()["metric"] == "held_out_likelihood"


def test_the_best_method_is_shown_with_its_uncertainty(crowd: Path) -> None:
    alone = compare("--methods", "majority-vote", "--seeds", "0", "--out", "alone").output
    assert "Only majority-vote was compared, so there is no choice." in alone
    one_seed = compare("--methods", "trace-reg,majority-vote", "--seeds", "0", "--out", "two").output  # no interval
    assert re.search(
        r"The best method is \S+; over seeds, it is not significantly better than (trace-reg|majority-vote)\.",
        one_seed,
    )


def table_lines(output: str) -> list[str]:
    """Return the lines of the printed table, without header and rule."""
    lines = output.splitlines()
    return lines[3 : lines.index("")]


def test_the_table_fits_a_screen_and_has_the_baselines(crowd: Path) -> None:
    output = compare("--gold", "labelled.csv", "--methods", "majority-vote,fusion,true-label", "--seeds", "0,1").output
    assert all(len(line) <= 80 for line in output.splitlines()[: len(table_lines(output)) + 3])
    first, second = (re.split(r" {2,}", line.strip()) for line in output.splitlines()[:2])
    assert first == ["balanced", "macro", "log"]
    assert second == ["method", "accuracy (%)", "accuracy (%)", "F1 (%)", "loss"]
    rows = {line[:36].split("  ")[0].strip(): re.split(r" {2,}", line)[1:] for line in table_lines(output)}
    assert set(rows) == {
        "fusion",
        "majority-vote",
        "true-label (trained on gold)",
        "always the most frequent class",
        "majority vote of the labels",
    }
    means = [float(line[0].split(" ")[0]) for line in rows.values()]
    assert means == sorted(means, reverse=True)
    assert rows["majority vote of the labels"][-1] == "—"  # no log loss
    assert " ± " in rows["fusion"][0]
    assert "minus" not in output
    assert "No method" not in output


def test_figures_of_methods_and_baselines_are_correct(crowd: Path) -> None:
    from crowdfuse.runs import Job
    from crowdfuse.runs.comparison import make_comparison

    compare("--gold", "labelled.csv", "--methods", "majority-vote", "--seeds", "0")
    comparison = make_comparison(
        Job(labels="labels.csv", inputs="features.npy", gold="labelled.csv", on_missing="drop"), 0.3
    )
    split = comparison.split(0)
    gold = np.array([int(line.split(",")[1]) for line in Path("labelled.csv").read_text().splitlines()[1:]])
    stored = json.loads(Path("comparison/runs.jsonl").read_text())["result"]
    predicted = np.array(stored["predicted"])
    assert stored["test_accuracy"] == accuracy_score(gold[split.test], predicted)
    assert stored["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(gold[split.test], predicted))
    assert stored["macro_f1"] == pytest.approx(f1_score(gold[split.test], predicted, average="macro"))
    assert 0 < stored["log_loss"] < np.log(3)

    ann = comparison.data.train_annotations
    labels = np.bincount(ann[split.train].label, minlength=3)
    frequent, vote = (one["scores"] for one in numbers()["baselines"])
    assert frequent["test_accuracy"] == (gold[split.test] == labels.argmax()).mean()
    assert frequent["balanced_accuracy"] == pytest.approx(1 / 3)
    shares = (labels + 1) / (labels + 1).sum()
    assert frequent["log_loss"] == pytest.approx(-np.log(shares[gold[split.test]]).mean())
    assert vote["test_accuracy"] == 1  # two of the three annotators are always right


def test_the_vote_has_no_figures_if_the_test_items_have_no_labels(crowd: Path) -> None:
    output = compare("--gold", "others.csv", "--methods", "majority-vote", "--seeds", "0").output
    assert re.split(r" {2,}", table_lines(output)[-1]) == ["majority vote of the labels", "—", "—", "—", "—"]


@pytest.mark.parametrize("gold", [(), ("--gold", "others.csv")])
def test_it_is_said_when_no_method_beats_the_most_frequent_class(crowd: Path, gold: tuple[str, ...]) -> None:
    np.save("features.npy", np.random.default_rng(5).normal(size=(N_ITEMS, 4)))  # not related to the classes
    lines = Path("labels.csv").read_text().splitlines()
    random = np.random.default_rng(1).choice(3, len(lines), p=[0.8, 0.1, 0.1])
    rows = [line[:-1] + str(label) for line, label in zip(lines[1:], random, strict=False)]
    Path("labels.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    Path("others.csv").write_text("item,label\n" + "".join(f"{i},{int(i % 5 == 0)}\n" for i in range(150, 200)))
    output = compare(*gold, "--methods", "majority-vote", "--seeds", "0,1").output
    assert re.search(r"No method (beats|is clearly better than) the trivial baseline", output), output


def test_differences_of_all_pairs_are_shown_on_request(crowd: Path) -> None:
    asked = ("--gold", "others.csv", "--methods", "majority-vote,fusion,trace-reg", "--seeds", "0,1")
    assert "| minus |" not in compare(*asked).output
    shown = compare(*asked, "--show", "--pairs").output
    assert "| method | minus | difference (95 % interval) | same prediction (%) |" in shown
    for one, other in (("majority-vote", "fusion"), ("majority-vote", "trace-reg"), ("fusion", "trace-reg")):
        assert re.search(rf"\| ({one} \| {other}|{other} \| {one}) \| [+-]", shown)
    assert "| minus |" in Path("comparison/table.md").read_text()


def test_changed_labels_make_new_runs(crowd: Path) -> None:
    arguments = ("--methods", "majority-vote", "--seeds", "0")
    compare(*arguments)
    text = Path("labels.csv").read_text()
    Path("labels.csv").write_text(text.replace("0,ann,", "0,cleo,", 1))
    compare(*arguments)
    assert len(Path("comparison/runs.jsonl").read_text().splitlines()) == 2


def test_an_explicit_default_setting_is_the_same_run(crowd: Path) -> None:
    for given in ([], ["--set", "penalty=1"], ["--set", "penalty=1.0"]):
        compare("--methods", "fusion", "--seeds", "0", *given)
    assert len(Path("comparison/runs.jsonl").read_text().splitlines()) == 1


def test_labelled_gold_items_are_added_if_few_are_unlabelled(crowd: Path) -> None:
    gold = Path("labelled.csv").read_text() + Path("others.csv").read_text().splitlines()[1] + "\n"
    Path("gold.csv").write_text(gold)
    result = compare("--gold", "gold.csv", "--methods", "majority-vote", "--seeds", "0")
    assert (
        "tested on 1 item with gold but no annotator labels and 45 items with gold and annotator labels"
        in result.output
    )


def test_an_annotator_without_a_label_to_train_on_is_left_out(crowd: Path) -> None:
    from crowdfuse.runs import Job
    from crowdfuse.runs.comparison import make_comparison

    job = Job(labels="labels.csv", inputs="features.npy", on_missing="drop")
    judge = make_comparison(job, 0.3).split(0).test[0]
    with Path("labels.csv").open("a") as labels:
        labels.write(f"{judge},rare,0\n")
    result = compare("--methods", "majority-vote,single-annotator", "--seeds", "0")
    assert result.exit_code == 0, result.output
    assert "single-annotator rare is left out: rare has no label on the training items" in result.output


def test_a_wide_table_gives_the_same_comparison_as_a_long_one(crowd: Path) -> None:
    asked = ("--methods", "majority-vote", "--seeds", "0", "--gold", "others.csv")
    assert compare(*asked).exit_code == 0
    long = numbers()
    rows = [line.split(",") for line in Path("labels.csv").read_text().splitlines()[1:]]
    said = {(item, name): label for item, name, label in rows}
    wide = [",".join([str(i), *(said[str(i), name] for name in ("ann", "bob", "guesser"))]) for i in range(N_LABELLED)]
    Path("labels.csv").write_text("\n".join(["item,ann,bob,guesser", *wide]) + "\n")
    result = compare(*asked, "--format", "wide", "--out", "wide")
    assert result.exit_code == 0, result.output
    assert [row["mean"] for row in numbers("wide")["methods"]] == [row["mean"] for row in long["methods"]]


def test_names_of_annotators_are_escaped_in_html(crowd: Path) -> None:
    lines = [line.split(",") for line in Path("labels.csv").read_text().splitlines()]
    lines[1:] = [
        [item, "<img src=x>" if annotator == lines[1][1] else annotator, label] for item, annotator, label in lines[1:]
    ]
    Path("labels.csv").write_text("\n".join(map(",".join, lines)) + "\n")
    result = compare("--methods", "single-annotator", "--seeds", "0")
    assert result.exit_code == 0, result.output
    table = Path("comparison/table.md").read_text()
    assert "src=x" in table
    assert "<img" not in table


def test_single_annotators_are_not_compared_if_there_are_many(crowd: Path) -> None:
    rows = [f"{i},a{i % 7},{i % 3}\n" for i in range(N_LABELLED)]
    Path("labels.csv").write_text("item,annotator,label\n" + "".join(rows))
    result = compare("--seeds", "0", "--plan")
    assert result.exit_code == 0, result.output
    assert "single-annotator" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "fusoin"], "did you mean 'fusion'?"),
        (["--set", "epocs=3"], "did you mean 'epochs'?"),
        (["--set", "random_state=1"], "use --seeds"),
        (["--methods", "fusion,mbem", "--set", "n_bases=3"], "mbem has no such setting"),
        (["--set", "annotator=ann"], "single-annotator is trained once per annotator"),
        (["--methods", "true-label"], "pass a file of gold labels with --gold"),
        (["--methods", "true-label", "--gold", "others.csv"], "all gold labels are used for testing"),
        (["--json", "comparison/runs.jsonl"], "would be overwritten"),
        (["--seeds", "99999999999999999999"], "--seeds must be from 0"),
        (["--seeds", "a"], "--seeds must be integers"),
        (["--json", "labels.csv", "--force"], "would be overwritten"),
    ],
)
def test_bad_requests_are_refused_before_any_work(crowd: Path, arguments: list[str], said: str) -> None:
    labels = Path("labels.csv").read_text()
    result = compare(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not Path("comparison").exists()
    assert Path("labels.csv").read_text() == labels


def test_the_time_limit_is_shared_by_all_runs_and_the_notes_say_that_it_was_reached(crowd: Path) -> None:
    options = ("--methods", "majority-vote,mbem", "--seeds", "0,1", "--gold", "others.csv")
    result = compare(*options, "--max-time", "0.004s")
    assert result.exit_code == 0, result.output
    assert "the time limit cut 4 of 4 training runs short" in " ".join(result.output.split())
    stored = [json.loads(line) for line in Path("comparison", "runs.jsonl").read_text().splitlines()]
    assert [record["run"]["settings"]["max_time"] for record in stored] == [pytest.approx(0.001)] * 4
    assert "cut" not in compare(*options, "--max-time", "4d", "--out", "other").output
    assert "got 'soon'" in compare(*options, "--max-time", "soon").output


def test_folds_are_a_setting_of_the_methods_that_train_on_folds(crowd: Path) -> None:
    arguments = ("--gold", "others.csv", "--seeds", "0", "--set", "folds=2")
    result = compare("--methods", "consensus-training", *arguments)
    assert result.exit_code == 0, result.output
    (record,) = [json.loads(line) for line in Path("comparison", "runs.jsonl").read_text().splitlines()]
    assert record["run"]["settings"]["folds"] == 2
    result = compare("--methods", "majority-vote", *arguments, "--out", "other")
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "--set folds: in a comparison, majority-vote is trained once, without folds" in said
    assert "--folds" not in said  # compare has no such option
    result = compare("--methods", "consensus-training", *arguments[:-1], "folds=1", "--out", "other")
    assert result.exit_code == 2
    assert "folds must be an integer of at least 2, or 0" in " ".join(result.output.split())
