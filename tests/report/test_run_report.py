"""The report in its three formats, and the report on a run whose files are missing or have changed."""

from __future__ import annotations

import csv
import html
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import sparse
from typer.testing import CliRunner

from crowdfuse import Annotations, ConsensusTrainingClassifier, FusionClassifier, MajorityVoteClassifier
from crowdfuse.cli import app
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import estimator_class
from crowdfuse.quality.consensus_file import load_consensus, save_consensus
from crowdfuse.quality.findings import Finding
from crowdfuse.report import Report
from crowdfuse.report.item_previews import image_file_of
from crowdfuse.runs.reporting import report_run
from tests.estimators.estimator_list import ALL
from tests.report.crowd import HOSTILE, HOSTILE_CLASSES, Crowd, assert_equals_consensus


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    return Crowd(tmp_path_factory.mktemp("crowd"))


@pytest.fixture
def run(crowd: Crowd, tmp_path: Path) -> Path:
    """A run of its own for each test, trained in a moment."""
    own = Crowd(tmp_path)
    return own.fit(own.features(), settings={"epochs": 3})


@pytest.fixture(scope="module")
def hostile() -> Report:
    generator = np.random.default_rng(0)
    X, said = generator.normal(size=(40, 3)), generator.integers(0, 2, (40, 5))
    ann = Annotations.from_table(
        {
            "item": [f"<svg onload=alert({n})>" for n in range(40) for _ in HOSTILE],
            "annotator": list(HOSTILE) * 40,
            "label": np.array(HOSTILE_CLASSES)[said.ravel()],
        }
    )
    items = np.array([f"<svg onload=alert({n})>" for n in range(40)])
    return (
        MajorityVoteClassifier(epochs=1).fit(X, ann, items=items).report(X, ann, folds=0, items=items, title=HOSTILE[0])
    )


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(part) for part in arguments])


def said(result: Any) -> str:
    return " ".join(result.output.split())


# ---- formats -------------------------------------------------------------------------------------


def test_hostile_names_are_escaped_in_every_format(hostile: Report) -> None:
    page, text = hostile.to_html(), hostile.to_markdown()
    assert len(re.findall("<script", page)) == 1
    for sign in ("<svg onload", "<img src=x", "<b>\n", "alert(4)</script>"):
        assert sign not in page
        assert sign not in text
    assert html.escape(HOSTILE[0]) in page
    assert "[click]" not in text
    assert "{{ 7 * 7 }}" in page
    assert ">49<" not in page
    facts = json.loads(hostile.to_json())
    assert {row["annotator"] for row in facts["annotators"]["rows"]} == set(HOSTILE)  # whole, however long
    assert "<script" not in hostile._repr_html_()
    assert hostile._repr_html_().startswith("<iframe")


def test_sentences_in_markdown_keep_their_spaces() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 2))
    truth = (X[:, 0] > 0).astype(int)
    ann = Annotations.from_matrix(
        np.stack([truth, truth, truth, generator.integers(0, 2, 200)], 1), annotators=["ada", "bob", "cy", "<dan>"]
    )
    text = MajorityVoteClassifier(epochs=5).fit(X, ann).report(X, ann, folds=0).to_markdown()
    assert re.search(
        r"^- Most clearly accurate is annotator \w+ \(estimated accuracy [\d.]+ %, at least", text, re.MULTILINE
    )
    assert re.search(
        r"most clearly inaccurate &lt;dan&gt; \([\d.]+ %, at most [\d.]+ %; 200 labels\)\.$", text, re.MULTILINE
    )


def test_page_loads_nothing_and_allows_only_its_own_script(hostile: Report) -> None:
    page = hostile.to_html()
    outside = re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", outside)
    assert "url(" not in outside
    assert "@import" not in outside
    assert "default-src 'none'" in page
    assert "script-src 'sha256-" in page


def test_save_replaces_only_earlier_reports(hostile: Report, tmp_path: Path) -> None:
    page = hostile.save(tmp_path / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "report.md"]
    assert page.read_text(encoding="utf-8") == hostile.to_html()
    hostile.save(page)
    page.with_suffix(".md").write_text("my own notes")
    with pytest.raises(FileExistsError, match="not an earlier report"):
        hostile.save(page)
    assert page.with_suffix(".md").read_text() == "my own notes"
    hostile.save(page, overwrite=True)
    assert page.with_suffix(".md").read_text(encoding="utf-8") == hostile.to_markdown()
    with pytest.raises(ValueError, match=r"must end in \.html"):
        hostile.save(tmp_path / "report.pdf")


def test_unprintable_characters_in_names_are_replaced(tmp_path: Path) -> None:
    ann = Annotations.from_matrix([[0, 1], [1, 1], [0, 0]] * 5, annotators=["a\x9bb", "a\x00b"])
    X = np.arange(15.0)[:, None]
    report = MajorityVoteClassifier(epochs=1).fit(X, ann).report(X, ann, folds=0)
    report.save(tmp_path / "report.html")
    assert {row["annotator"] for row in report.facts["annotators"]["rows"]} == {"a\ufffdb"}


def test_ten_thousand_images_fit_in_two_megabytes() -> None:
    generator = np.random.default_rng(0)
    X = generator.integers(0, 256, (10_000, 3, 12, 12), dtype=np.uint8)
    said = generator.integers(0, 10, (10_000, 3))
    clf = MajorityVoteClassifier(epochs=1, backbone="mlp", hidden=(4,), batch_size=1_000).fit(X, said)
    report = clf.report(X, said, folds=0, gold=said[:, 0], n_items=200)
    page = report.to_html()
    assert len(page.encode()) < 2_000_000
    assert page.count("data:image/jpeg") > 200


def test_bad_settings_are_refused(hostile: Report) -> None:
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    clf = MajorityVoteClassifier(epochs=1).fit(X, y)
    for settings, complaint in (
        ({"n_items": 0}, "from 1 to 200, got 0"),
        ({"sensitivity": 0}, "above 0 and at most 1"),
        ({"positive": "x"}, "'x' is not one of the classes"),
        ({"gold": [0, 1, 7, 1]}, "gold contains 7"),
        ({"folds": 1}, "folds must be"),
    ):
        with pytest.raises(ValueError, match=complaint):
            clf.report(X, y, **({"folds": 0} | settings))


def test_markdown_has_what_the_page_has(run: Path) -> None:
    gold = Crowd(run.parent).gold("gold.csv", slice(40))
    report = report_run(run, gold=gold)
    text, facts = report.to_markdown(), report.facts
    row, detail, item = facts["annotators"]["rows"][0], facts["annotator_details"][0], facts["disputed"]["items"][0]
    line = next(line for line in text.splitlines() if line.startswith(f"| {row['annotator']} | {row['n_labels']} |"))
    assert f"| {100 * row['accuracy_on_gold']['value']:.1f} % of {row['accuracy_on_gold']['n']} |" in line
    assert f"| {row['mean_weight']:.2f} |" in line
    part = text.partition(f"### {detail['annotator']}\n")[2]
    for name, shares in zip(detail["confusion"]["classes"], detail["confusion"]["matrix"], strict=True):
        assert f"| {name} | {' | '.join(f'{100 * share:.0f}' for share in shares)} |" in part
    (line,) = (line for line in text.partition("## Disputed items")[2].partition("## A")[0].splitlines()
               if line.startswith(f"| {item['item']} |"))  # fmt: skip
    assert f"| {item['predicted']['class']} ({100 * item['predicted']['confidence']:.0f} %) |" in line


def test_gold_is_separate_for_items_with_and_without_labels() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    truth = (X[:, 0] > 0).astype(int)
    Y = np.where(np.arange(60)[:, None] < 40, truth[:, None], -1).repeat(2, 1)
    report = MajorityVoteClassifier(epochs=30).fit(X, Y).report(X, Y, folds=0, gold=truth)
    assert [(known["gold"], known["n_items"]) for known in report.facts["accuracy"]] == [
        ("gold, items with labels", 40),
        ("gold, items without labels", 20),
    ]
    assert report.facts["accuracy"][1]["consensus"]["value"] is None
    assert report.facts["operating_point"]["target_sensitivity"] == 0.95


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: str(kind.method_name))
def test_every_method_has_a_report(kind: type[CrowdClassifier]) -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(50, 2))
    truth = np.where(X[:, 0] > 0, "yes", "no")
    Y = np.array([np.where(generator.random(50) < 0.8, truth, "no") for _ in range(3)]).T
    needed = next(iter(kind.variants([0, 1, 2]).values()))  # which annotator, where one must be chosen
    clf = kind(epochs=2, batch_size=16, **needed).fit(X, Annotations.from_matrix(Y), gold=truth)
    report = clf.report(X, Y, folds=0, gold=truth)
    assert report.facts["training"]["method"] == kind.method_name
    assert len(report.facts["annotator_details"]) == 3
    assert report.facts["map"]["n_items"] == 50
    assert "Summary" in report.to_html()
    assert "## Annotators" in report.to_markdown()
    json.loads(report.to_json())


@pytest.mark.parametrize(("method", "measure"), [("gated", "weight"), ("max-mig", "agreement"), ("conal", "agreement")])
def test_map_shows_agreement_if_weights_do_not_depend_on_the_item(method: str, measure: str) -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 2))
    Y = np.array([np.where(generator.random(120) < right, X[:, 0] > 0, X[:, 1] > 0) for right in (0.9, 0.7, 0.5)]).T
    Y = np.where(generator.random(Y.shape) < 0.3, -1, Y)  # so that weights beside the others' differ from item to item
    report = estimator_class(method)(epochs=10, batch_size=16).fit(X, Y).report(X, Y, folds=0)
    assert {detail["map"]["measure"] for detail in report.facts["annotator_details"]} == {measure}


@pytest.mark.parametrize("shape", [(1,), (6, 6), (3, 6, 6), (2, 6, 6), "sparse"])
def test_previews_of_inputs_of_every_shape(shape: Any) -> None:
    generator = np.random.default_rng(0)
    said = generator.integers(0, 2, (30, 2))
    X: Any = generator.random((30, 40) if shape == "sparse" else (30, *shape))
    if shape == "sparse":
        X = sparse.random_array((30, 40), density=0.2, rng=generator, format="csr")
    report = MajorityVoteClassifier(epochs=1, backbone="mlp").fit(X, said).report(X, said, folds=0)
    kinds = {kind for preview in report.previews.values() for kind in preview}
    assert kinds == {(1,): {"features"}, (2, 6, 6): set(), "sparse": {"features"}}.get(shape, {"image"})
    assert report.facts["map"]["n_items"] == 30
    report.to_html()


def test_one_label_per_item_is_enough() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int)
    clf = MajorityVoteClassifier(epochs=30, learning_rate=0.01).fit(X, y)
    report = clf.report(X, y, folds=0)
    assert report.facts["disputed"]["total"] == clf.consensus(X, y, folds=0).is_disputed.sum() == 0
    assert "no item has two labels" in report.to_html()


def test_annotators_not_seen_in_training_are_noted_and_shown(recwarn: pytest.WarningsRecorder) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    clf = FusionClassifier(epochs=2).fit(X, Annotations.from_matrix(np.stack([y, y], 1), annotators=["ada", "bob"]))
    report = clf.report(X, Annotations.from_matrix(np.stack([y, 1 - y], 1), annotators=["ada", "new"]), folds=0)
    assert report.facts["notes"] == ["1 annotator was not seen in training and is treated like the average annotator."]
    assert {row["annotator"] for row in report.facts["annotators"]["rows"]} == {"ada", "new"}
    assert not list(recwarn)


def test_accuracy_on_items_of_the_training_is_marked_as_optimistic_without_folds(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    run = crowd.fit(crowd.features(), gold=str(crowd.gold("gold.csv", slice(30))), folds=0, settings={"epochs": 2})
    report = report_run(run)
    assert "All gold labels were used in training" in report.to_html()
    report = report_run(run, gold=crowd.gold("all.csv", slice(None)))
    assert [known["predicted"]["is_optimistic"] for known in report.facts["accuracy"]] == [True, True]
    assert [known["consensus"]["n"] for known in report.facts["accuracy"]] == [0, 30]
    for name in ("abstention", "operating_point"):
        assert report.facts[name]["is_optimistic"]
    assert report.facts["calibration"]["model"]["is_optimistic"]
    assert not report.facts["calibration"]["consensus"]["is_optimistic"]
    for text in (report.to_html(), report.to_markdown()):
        assert "optimistic" in text
        assert "The accuracy of the model on new items is unknown" in text


@pytest.mark.parametrize("method", ["gated", "consensus-training"])
def test_gold_evaluates_the_out_of_fold_predictions_of_a_run(tmp_path: Path, method: str) -> None:
    """Neither labels nor gold of an item may have trained the classifier that is evaluated on it."""
    crowd = Crowd(tmp_path)
    test, trained = crowd.gold("test.csv", slice(20)), crowd.gold("gold.csv", slice(20, 40))
    files = {"test": str(test), "gold": str(trained)}
    run = crowd.fit(crowd.features(), method=method, folds=2, settings={"epochs": 8}, **files)
    report, stored = report_run(run, gold=crowd.gold("all.csv", slice(None))), load_consensus(run)
    assert stored.out_of_fold_probabilities is not None
    assert stored.predicted_probabilities is not None
    evaluated = stored.out_of_fold_probabilities.copy()
    evaluated[:20] = stored.predicted_probabilities[:20]
    truth = np.array([list(stored.classes).index(crowd.classes[k]) for k in crowd.truth])
    is_right, confidence = evaluated.argmax(1) == truth, evaluated.max(1)
    facts = report.facts
    for known, part in zip(facts["accuracy"], (slice(20), slice(20, 40), slice(40, None)), strict=True):
        assert known["predicted"]["value"] == is_right[part].mean()
        assert not known["predicted"]["is_optimistic"]
    model = facts["calibration"]["model"]
    assert (model["accuracy"], model["mean_confidence"]) == (is_right.mean(), pytest.approx(confidence.mean()))
    assert facts["abstention"]["points"][0]["value"] == is_right.mean()
    point = facts["operating_point"]
    is_predicted = evaluated[:, 1] >= point["threshold"] - 1e-6
    assert point["sensitivity"]["value"] == is_predicted[truth == 1].mean()
    assert point["specificity"]["value"] == (~is_predicted[truth == 0]).mean()
    for text in (report.to_html(), report.to_markdown()):
        assert "out-of-fold predictions: each item was predicted by a classifier trained without it" in text


def test_confidence_of_the_consensus_is_compared_with_gold(run: Path) -> None:
    """Gold contradicts half of the labels, so that the confidence of the consensus is too high."""
    crowd = Crowd(run.parent)
    rows = [(name, crowd.classes[crowd.truth[n] ^ n % 2]) for n, name in enumerate(crowd.names)]
    report = report_run(run, gold=crowd.write("half.csv", ("item", "label"), rows))
    (known,), found = report.facts["accuracy"], report.facts["calibration"]["consensus"]
    assert found["accuracy"] == known["consensus"]["value"]
    assert found["mean_confidence"] == pytest.approx(load_consensus(run).confidence.mean())
    assert found["is_overconfident"]
    too_high = "The confidence of the consensus is too high on these items"
    figures = f"Mean confidence of the consensus on 60 items: {100 * found['mean_confidence']:.1f} %"
    for text in (report.to_html().replace("\u00a0", " "), report.to_markdown()):
        assert too_high in text
        assert figures in text
    right = report_run(run, gold=crowd.gold("gold.csv", slice(None)))
    assert too_high not in right.to_markdown()


def test_calibration_of_the_consensus_leaves_out_gold_used_in_training(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    run = crowd.fit(crowd.features(), gold=str(crowd.gold("gold.csv", slice(30))), settings={"epochs": 2})
    assert report_run(run).facts["calibration"]["consensus"] is None
    facts = report_run(run, gold=crowd.gold("all.csv", slice(None))).facts
    assert facts["calibration"]["consensus"]["n_items"] == 30


@pytest.mark.parametrize("gone", [(), ("labels.csv", "features.csv", "settled.csv")])
def test_items_with_training_gold_are_not_disputed(tmp_path: Path, gone: tuple[str, ...]) -> None:
    crowd = Crowd(tmp_path)
    features = crowd.features()
    before = report_run(crowd.fit(features, "before", settings={"epochs": 2}), n_items=30).facts
    settled = {
        item["item"]: item["label_counts"][-1][0] for item in before["disputed"]["items"][:10]
    }  # as the fewest say
    gold = crowd.write("settled.csv", ("item", "label"), settled.items())
    run = crowd.fit(features, gold=str(gold), settings={"epochs": 2})
    for name in gone:
        (tmp_path / name).unlink()
    facts = report_run(run, n_items=200).facts
    assert facts["disputed"]["total"] == len(facts["disputed"]["items"])
    for name in ("disputed", "ambiguous", "mislabelled"):
        assert not settled.keys() & {item["item"] for item in facts[name]["items"]}
    assert not settled.keys() & {label["item"] for label in facts["suspicious"]["rows"]}
    (known,) = facts["accuracy"]
    assert (known["n_items"], known["predicted"]["n"]) == (10, 10)
    assert known["consensus"]["value"] is None  # gold is right by definition
    assert any(note.startswith("Training used the gold labels of 10 items") for note in facts["notes"])


# ---- run folders -------------------------------------------------------------------------------


def test_command_writes_the_report_into_the_run_folder(run: Path) -> None:
    gold = Crowd(run.parent).gold("gold.csv", slice(40))
    result = command("report", run, "--gold", gold, "--items", 5, "--json", run / "figures.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"report: {run / 'report.html'}\n")
    assert result.stderr.endswith(f"settle the disputed items with: crowdfuse review {run}\n")
    facts = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert facts == json.loads((run / "figures.json").read_text(encoding="utf-8"))
    assert facts["limitations"] == []
    assert len(facts["disputed"]["items"]) == 5
    assert facts["accuracy"][0]["training_use"] == "the model was trained on their labels, not on this gold"
    assert facts["data"]["n_labels"] == len(Crowd(run.parent).triples)
    assert (run / "report.md").read_text(encoding="utf-8").startswith("<!-- crowdfuse report -->")
    assert command("report", run).exit_code == 0  # an earlier report is replaced
    assert "exists" in said(command("report", run, "--json", run / "figures.json"))


def test_command_prints_findings_as_warnings(run: Path) -> None:
    stored = load_consensus(run / "posterior.safetensors")
    finding = Finding("shared_mistakes", "bob and cy share mistakes.", 0.001, 120)
    save_consensus(
        replace(stored, findings=(finding,), limitations=("Too few labels.",)), run / "posterior.safetensors"
    )
    lines = command("report", run).output.splitlines()
    assert "warning: bob and cy share mistakes." in lines
    assert "note: Too few labels." in lines


def test_files_of_the_run_are_never_overwritten(run: Path) -> None:
    before = (run / "summary.json").read_text()
    for out in (run / "summary.html", run / "settings.html"):
        result = command("report", run, "--out", out, "--force")
        assert result.exit_code == 2
        assert "is an input and would be overwritten" in said(result)
    assert (run / "summary.json").read_text() == before
    (run / "report.json").write_text("{}")
    assert "not an earlier report" in said(command("report", run))
    assert command("report", run, "--force").exit_code == 0


def test_gold_of_the_run_says_what_training_saw(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    test, trained = crowd.gold("test.csv", slice(20)), crowd.gold("gold.csv", slice(20, 40))
    run = crowd.fit(crowd.features(), test=str(test), gold=str(trained), settings={"epochs": 2})
    facts = report_run(run).facts
    assert {known["gold"]: (known["n_items"], known["consensus"]["n"]) for known in facts["accuracy"]} == {
        "test": (20, 20),
        "gold": (20, 0),
    }
    given = report_run(run, gold=crowd.gold("all.csv", slice(None))).facts["accuracy"]
    assert [(known["n_items"], known["consensus"]["n"]) for known in given] == [(20, 20), (20, 0), (20, 20)]
    assert [known["predicted"]["is_out_of_fold"] for known in given] == [False, True, True]
    assert given[2]["gold"] == "all.csv, items with labels"
    test.unlink()
    facts = report_run(run).facts
    assert "test.csv (test) does not exist any more" in facts["limitations"][-1]
    assert [known["gold"] for known in facts["accuracy"]] == ["gold"]


def test_relative_paths_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(tmp_path)
    run = crowd.fit(crowd.features(), test=str(crowd.gold("test.csv", slice(20))), settings={"epochs": 3})
    settings = run / "settings.json"
    settings.write_text(settings.read_text().replace(f"{tmp_path}{os.sep}", ""))  # as if fitted from there
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    facts = report_run(run).facts
    assert facts["limitations"] == []
    assert facts["accuracy"][0]["n_items"] == 20


def test_labels_come_from_the_run(run: Path) -> None:
    before = report_run(run).facts
    labels = run.parent / "labels.csv"
    labels.write_text("item,annotator,label\n")
    assert report_run(run).facts == before
    labels.unlink()
    assert report_run(run).facts == before


def test_report_without_inputs_uses_the_stored_consensus(run: Path) -> None:
    before = report_run(run)
    inputs = run.parent / "features.csv"
    other = Crowd(run.parent)
    other.X += 1
    other.features()
    gold = other.gold("gold.csv", slice(30))
    report = report_run(run)
    assert "features.csv, have changed since the run was fitted" in report.facts["limitations"][-1]
    assert report.facts["map"] is None
    assert not any(report.previews.values())
    inputs.unlink()
    (run.parent / "labels.csv").unlink()
    report = report_run(run, gold=gold)
    assert "do not exist any more" in report.facts["limitations"][-1]
    for part in ("data", "class_confusion", "suspicious"):
        assert report.facts[part] == before.facts[part]
    for name in ("disputed", "ambiguous", "mislabelled"):
        for item, expected in zip(report.facts[name]["items"], before.facts[name]["items"], strict=True):
            assert item["fused"] is None
            for key in ("item", "consensus", "predicted", "explanation"):
                assert item[key] == expected[key]
    assert [row["accuracy"] for row in report.facts["annotators"]["rows"]] == [
        row["accuracy"] for row in before.facts["annotators"]["rows"]
    ]
    (known,) = report.facts["accuracy"]
    assert (known["predicted"]["n"], known["consensus"]["n"]) == (30, 30)
    page = report.to_html()
    assert "Limitations" in page
    assert "There is no map" in page
    assert "own fused label:" not in page


def test_figures_of_a_run_equal_its_stored_consensus(run: Path) -> None:
    stored = load_consensus(run / "posterior.safetensors")
    facts = json.loads(report_run(run, n_items=60).to_json())
    assert assert_equals_consensus(facts, stored)
    with (run / "annotators.csv").open(newline="", encoding="utf-8") as file:
        table = {row["annotator"]: row for row in csv.DictReader(file)}
    for row in facts["annotators"]["rows"]:
        assert float(table[row["annotator"]]["accuracy"]) == pytest.approx(row["accuracy"]["value"], abs=1e-6)
        assert float(table[row["annotator"]]["mean_weight"]) == pytest.approx(row["mean_weight"], abs=1e-5)


def test_damaged_or_missing_consensus_is_refused(run: Path) -> None:
    (run / "posterior.safetensors").unlink()
    assert "posterior.safetensors does not exist" in said(command("report", run))


def test_missing_image_is_named(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, n=24)
    folder = crowd.images()
    run = crowd.fit(folder, settings={"epochs": 2})
    report = report_run(run)
    assert all("image" in preview for preview in report.previews.values())
    row = report.facts["disputed"]["items"][0]["row"]
    name = report.facts["disputed"]["items"][0]["item"]
    (folder / f"{name}.png").unlink()
    report = report_run(run)
    assert "have changed since the run was fitted" in report.facts["limitations"][-1]
    shown = {item["item"]: report.previews[item["row"]] for item in report.facts["disputed"]["items"]}
    assert shown.pop(name) == {"missing": str(folder / name)}, row
    assert all("image" in preview for preview in shown.values())


def test_remaining_images_keep_weights_and_map(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, n=40)
    folder = crowd.images()
    run = crowd.fit(folder, settings={"epochs": 3})
    before = report_run(run, n_items=40).facts
    gone, changed = (item["item"] for item in before["disputed"]["items"][:2])
    (folder / f"{gone}.png").unlink()
    Image.fromarray(255 - np.asarray(Image.open(folder / f"{changed}.png"))).save(folder / f"{changed}.png")
    report = report_run(run, n_items=40)
    facts = report.facts
    assert "annotator weights and the fused labels cover only 38 of the 40 items" in facts["limitations"][-1]
    assert facts["map"]["n_items"] == 38
    weights = {item["item"]: {label["annotator"]: label["weight"] for label in item["listed_labels"]}
               for item in before["disputed"]["items"]}  # fmt: skip
    for item in facts["disputed"]["items"]:
        for label in item["listed_labels"]:
            expected = None if item["item"] in (gone, changed) else weights[item["item"]][label["annotator"]]
            assert label["weight"] == (None if expected is None else pytest.approx(expected, abs=1e-5))
        assert (item["fused"] is None) == (item["item"] in (gone, changed))
    assert {item["item"] for item in facts["disputed"]["items"]} == set(weights)
    for name in ("n_labels", "position", "annotator"):
        assert {row[name] for row in facts["annotators"]["rows"]} == {row[name] for row in before["annotators"]["rows"]}
    page = report.to_html()
    assert "Mean weight" in page
    assert "There is no map" not in page
    report.to_markdown()
    for path in folder.iterdir():
        path.unlink()
    facts = report_run(run).facts
    assert facts["map"] is None
    assert "the report has no map of the items" in facts["limitations"][-1]


def test_annotator_without_remaining_images_has_no_weight(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, n=40)
    of_efe = {item for item, who, _ in crowd.triples if who == "efe"}
    kept = [row for row in crowd.triples if row[0] not in of_efe or row[1] != "efe" or row[0] == min(of_efe)]
    crowd.write("labels.csv", ("item", "annotator", "label"), kept)
    folder = crowd.images()
    run = crowd.fit(folder, settings={"epochs": 3})
    (folder / f"{min(of_efe)}.png").unlink()
    report = report_run(run)
    weights = {row["annotator"]: row["mean_weight"] for row in report.facts["annotators"]["rows"]}
    assert [who for who, weight in weights.items() if weight is None] == ["efe"]
    (detail,) = (detail for detail in report.facts["annotator_details"] if detail["annotator"] == "efe")
    assert detail["map"] is None
    assert "Mean weight" in report.to_html()
    report.to_markdown()


def test_item_id_outside_the_folder_is_refused_as_an_image(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "secret.png")
    (tmp_path / "images").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "images" / "a.PNG")
    folder = tmp_path / "images"
    assert image_file_of(folder, "../secret.png") is None
    assert image_file_of(folder, str(tmp_path / "secret.png")) is None
    assert image_file_of(folder, "a") == folder / "a.PNG"
    assert image_file_of(folder, "a.PNG") == folder / "a.PNG"
    assert image_file_of(folder, "b") == folder / "b"


def test_folders_that_are_not_runs_and_wrong_gold_are_refused(tmp_path: Path, run: Path) -> None:
    assert "no such run folder" in said(command("report", tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "it is not a run folder" in said(command("report", tmp_path / "empty"))
    gold = Crowd(run.parent).write("other.csv", ("item", "label"), [("nobody", "cat")])
    assert "no item of" in said(command("report", run, "--gold", gold))
    gold = Crowd(run.parent).write("other.csv", ("item", "label"), [("i1", "horse")])
    assert "'horse', which is not one of the classes" in said(command("report", run, "--gold", gold))
    assert "not one of the classes" in said(command("report", run, "--positive", "horse"))
    assert not (run / "report.html").exists()


def test_interrupted_run_is_noted(run: Path) -> None:
    (run / "summary.json").rename(run / "interrupted.json")
    assert "interrupted" in report_run(run).facts["notes"][0]


def test_file_name_at_the_start_of_a_note_keeps_its_letters(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    run = crowd.fit(crowd.features(), settings={"epochs": 2})
    summary = json.loads((run / "summary.json").read_text())
    summary["notes"] = ["features.npy has no item ids", "two items have no labels"]
    (run / "summary.json").write_text(json.dumps(summary))
    assert report_run(run).facts["notes"][:2] == ["features.npy has no item ids.", "Two items have no labels."]


def test_the_default_method_can_report_on_images() -> None:
    generator = np.random.default_rng(0)
    said = generator.integers(0, 2, (12, 3))
    X = generator.random((12, 1, 28, 28)).astype(np.float32)
    report = ConsensusTrainingClassifier(epochs=2, folds=0).fit(X, said).report(X, said)
    assert report.facts["map"]["n_items"] == 12
