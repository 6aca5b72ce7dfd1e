"""The report on labels alone: it equals the aggregation's result, and says what it cannot show."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

import crowdfuse
from crowdfuse import Annotations
from crowdfuse.aggregation import AGGREGATORS, dawid_skene
from crowdfuse.labels.intervals import wilson_interval
from tests.browser import opened, scrolls_sideways, serious_problems
from tests.report.crowd import HOSTILE, HOSTILE_CLASSES, Crowd
from tests.report.test_run_report import command, said


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path, classes=("cat", "dog", "owl"))


def facts_of(folder: Path) -> Any:
    return json.loads((folder / "labels-report.json").read_text(encoding="utf-8"))


# ---- the command -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", AGGREGATORS)
def test_report_equals_the_result_of_the_aggregation(crowd: Crowd, method: str) -> None:
    result = command("report", crowd.labels, *([] if method == "dawid-skene" else ["--method", method]))
    assert result.exit_code == 0, result.output
    facts = facts_of(crowd.folder)
    found = AGGREGATORS[method](Annotations.read(crowd.labels))
    skills = {row["annotator"]: row["accuracy"]["value"] for row in facts["annotators"]["rows"]}
    assert skills == pytest.approx(dict(zip(found.annotators, found.annotator_accuracy, strict=True)))
    assert facts["aggregation"]["method"] == method
    fused = dict(zip(found.items, zip(found.consensus, found.confidence, strict=True), strict=True))
    answers: dict[str, set[str]] = {}
    for item, _, label in crowd.triples:
        answers.setdefault(item, set()).add(label)
    assert facts["disputed"]["total"] == sum(len(given) > 1 for given in answers.values()) > 3
    for item in facts["disputed"]["items"]:
        label, sure = fused[item["item"]]
        assert item["consensus"] == {"class": label, "confidence": float(sure)}
        assert item["predicted"] is None  # there is no model to predict
    by_item = dict(zip(found.items, found.class_probabilities, strict=True))
    for wrong in facts["suspicious"]["rows"]:
        k = found.classes.tolist().index(wrong["label"])
        assert wrong["suspicion"] == pytest.approx(1 - by_item[wrong["item"]][k], abs=1e-6)
        assert (wrong["item"], wrong["annotator"], wrong["label"]) in crowd.triples
    for row in facts["annotators"]["rows"]:
        own = [fused[item][0] == label for item, who, label in crowd.triples if who == row["annotator"]]
        assert row["n_labels"] == len(own)
        low, high = wilson_interval(row["accuracy"]["value"] * len(own), len(own))
        assert (row["accuracy"]["low"], row["accuracy"]["high"]) == (float(low), float(high))


def test_the_summary_does_not_name_annotators_with_few_labels(tmp_path: Path) -> None:
    """Three annotators have 60 labels each; of two with 8 labels, one is always right and one always wrong."""
    generator = np.random.default_rng(0)
    lines = ["item,annotator,label"]
    for item in range(60):
        truth = item % 3
        for name, accuracy in (("ada", 0.9), ("bob", 0.8), ("cem", 0.7), ("deb", 0.5)):
            label = truth if generator.random() < accuracy else (truth + 1) % 3
            lines.append(f"{item},{name},{label}")
        if item < 8:
            lines += [f"{item},perfect,{truth}", f"{item},hopeless,{(truth + 2) % 3}"]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    assert command("report", tmp_path / "labels.csv").exit_code == 0
    (sentence,) = re.findall(r"Most clearly accurate.*", (tmp_path / "labels-report.md").read_text(encoding="utf-8"))
    assert "ada" in sentence
    assert "deb" in sentence


def test_all_parts_list_annotators_in_the_same_order(crowd: Crowd) -> None:
    command("report", crowd.labels)
    facts = facts_of(crowd.folder)
    names = [row["annotator"] for row in facts["annotators"]["rows"]]
    high = [row["accuracy"]["high"] for row in facts["annotators"]["rows"]]
    assert high == sorted(high)
    assert [detail["annotator"] for detail in facts["annotator_details"]] == names


def test_confusion_matrices_equal_those_of_the_aggregation(crowd: Crowd) -> None:
    command("report", crowd.labels)
    found = dawid_skene(Annotations.read(crowd.labels))
    assert found.confusion_matrices is not None
    for detail in facts_of(crowd.folder)["annotator_details"]:
        r = found.annotators.tolist().index(detail["annotator"])
        np.testing.assert_allclose(detail["confusion"]["matrix"], found.confusion_matrices[r], atol=1e-4)


def test_three_files_next_to_the_labels_say_what_is_missing(crowd: Crowd) -> None:
    result = command("report", crowd.labels, "--json", crowd.folder / "figures.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"report: {crowd.folder / 'labels-report.html'}\n")
    assert "note: There are no inputs. The report has no map" in result.stdout
    assert "crowdfuse review" not in result.output  # it takes a run
    facts = facts_of(crowd.folder)
    assert facts == json.loads((crowd.folder / "figures.json").read_text(encoding="utf-8"))
    assert (facts["training"], facts["map"], facts["accuracy"]) == (None, None, [])
    page = (crowd.folder / "labels-report.html").read_text(encoding="utf-8")
    text = (crowd.folder / "labels-report.md").read_text(encoding="utf-8")
    for rendered in (html.unescape(page), text):
        assert "Limitations" in rendered
        assert "no weights of annotators per item" in rendered
        assert "There is no model. The report has no training curves and no predictions" in rendered
        for title in ("Data", "Annotators", "Confused classes", "Disputed items", "Labels most likely to be wrong"):
            assert title in rendered
        for name in ("## Training", ">Training</h2>", "Prediction:", "| prediction |", "used label"):
            assert name not in rendered
    assert command("report", crowd.labels).exit_code == 0  # an earlier report is replaced
    assert sorted(path.name for path in crowd.folder.iterdir()) == [
        "figures.json",
        "labels-report.html",
        "labels-report.json",
        "labels-report.md",
        "labels.csv",
    ]


def test_gold_measures_accuracy_and_changes_nothing_else(crowd: Crowd) -> None:
    command("report", crowd.labels)
    before = facts_of(crowd.folder)
    gold = crowd.gold("gold.csv", slice(40))
    with gold.open("a", encoding="utf-8") as file:
        file.write("nobody,cat\n")
    assert command("report", crowd.labels, "--gold", gold).exit_code == 0
    facts = facts_of(crowd.folder)
    fused = dawid_skene(Annotations.read(crowd.labels).align(np.array(crowd.names, object))).consensus
    truth = np.array(crowd.classes)[crowd.truth]
    (known,) = facts["accuracy"]
    assert (known["n_items"], known["consensus"]["n"], known["predicted"]["n"]) == (40, 40, 0)
    assert known["consensus"]["value"] == pytest.approx(np.mean((fused == truth)[:40]))
    assert facts["calibration"]["consensus"]["accuracy"] == known["consensus"]["value"]
    assert f"1 item of {gold} was left out because it has no labels." in facts["notes"]
    for part in ("data", "class_confusion", "suspicious"):
        assert facts[part] == before[part]
    text = (crowd.folder / "labels-report.md").read_text(encoding="utf-8")
    assert f"is right on {100 * known['consensus']['value']:.1f} % of 40 items with gold" in text


def test_two_classes_have_an_operating_point(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    gold = crowd.gold("gold.csv", slice(None))
    result = command("report", crowd.labels, "--gold", gold, "--positive", "cat", "--sensitivity", "0.9")
    assert result.exit_code == 0, result.output
    point = facts_of(tmp_path)["operating_point"]
    assert (point["positive"], point["target_sensitivity"]) == ("cat", 0.9)
    assert point["sensitivity"]["value"] >= 0.9


def test_reading_options_are_used(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    rows = [("a", "x", "0"), ("a", "x", "1"), ("a", "y", "1"), ("b", "y", "1"), ("b", "x", ""), ("c", "x", "")]
    labels = crowd.write("labels.csv", ("pic", "who", "what"), rows)
    columns = ("--item", "pic", "--annotator", "who", "--label", "what", "--classes", "0,1,2")
    assert "two different labels" in said(command("report", labels, *columns))
    result = command("report", labels, *columns, "--on-conflict", "last", "--out", tmp_path / "own.html")
    assert result.exit_code == 0, result.output
    facts = json.loads((tmp_path / "own.json").read_text(encoding="utf-8"))
    assert (facts["data"]["n_items"], facts["data"]["n_labels"], facts["data"]["n_classes"]) == (3, 3, 3)
    assert "1 item has no label." in facts["notes"]
    assert "1 label was dropped because its annotator gave the item a different label." in facts["notes"]


def test_wrong_arguments_are_refused_before_any_work(crowd: Crowd, tmp_path: Path) -> None:
    labels = crowd.labels
    gold = crowd.write("gold.csv", ("item", "label"), [("i1", "horse")])
    other = crowd.write("other.csv", ("item", "label"), [("nobody", "cat")])
    (tmp_path / "run").mkdir()
    for arguments, complaint in (
        ((tmp_path / "none.csv",), "there is no such run folder or file of labels"),
        ((labels, "--method", "dawid"), "--method must be one of majority-vote"),
        ((labels, "--format", "x"), "--format must be one of"),
        ((labels, "--on-conflict", "x"), "--on-conflict must be one of"),
        ((labels, "--item", "pic"), "'pic'"),
        ((labels, "--gold", gold), "'horse', which is not one of the 3 classes"),
        ((labels, "--gold", other), "no item of"),
        ((labels, "--positive", "cat"), "exactly two classes"),
        ((labels, "--out", tmp_path / "page.pdf"), "must end in .html"),
        ((labels, "--json", labels, "--force"), "is an input and would be overwritten"),
        ((tmp_path / "run", "--method", "mace"), "--method cannot be used"),
        ((tmp_path / "run", "--on-conflict", "last"), "--on-conflict cannot be used"),
        ((tmp_path / "run",), "it is not a run folder"),
    ):
        result = command("report", *arguments)
        assert result.exit_code == 2, arguments
        assert complaint in said(result)
    assert not list(tmp_path.glob("*.html"))


def test_files_of_the_user_are_not_overwritten(crowd: Crowd) -> None:
    own = crowd.folder / "labels-report.md"
    own.write_text("my own notes")
    assert "not an earlier report" in said(command("report", crowd.labels))
    assert own.read_text() == "my own notes"
    assert command("report", crowd.labels, "--force").exit_code == 0
    export = crowd.folder / "export.json"
    before = '[{"text": "a", "answer": "accept", "accept": ["x"], "_annotator_id": "ada"}]'
    export.write_text(before)
    result = command("report", export, "--out", crowd.folder / "export.html", "--force")
    assert "is an input and would be overwritten" in said(result)
    assert export.read_text() == before


def test_empty_or_single_class_labels_are_refused(crowd: Crowd) -> None:
    crowd.write("labels.csv", ("item", "annotator", "label"), [("a", "ada", "")])
    result = command("report", crowd.labels)
    assert result.exit_code == 2
    assert "no label" in said(result)
    crowd.write("labels.csv", ("item", "annotator", "label"), [("a", "ada", "cat")])
    assert "so there is nothing to aggregate" in said(command("report", crowd.labels))
    result = command("report", crowd.labels, "--classes", "cat,dog")  # one label is enough
    assert result.exit_code == 0, result.output


# ---- Python, and the page ----------------------------------------------------------------------


def test_python_function_gives_the_same_report(crowd: Crowd) -> None:
    command("report", crowd.labels, "--method", "wawa", "--gold", crowd.gold("gold.csv", slice(None)))
    ann = Annotations.read(crowd.labels)
    truth = dict(zip(crowd.names, np.array(crowd.classes)[crowd.truth], strict=True))
    report = crowdfuse.report_labels(
        ann, method="wawa", gold=[truth[item] for item in ann.items], title="labels.csv: wawa"
    )
    assert json.loads(report.to_json()) == facts_of(crowd.folder)
    assert report._repr_html_().startswith("<iframe")
    with pytest.raises(ValueError, match="method must be one of majority-vote"):
        crowdfuse.report_labels(ann, method="vote")
    with pytest.raises(ValueError, match="gold contains 'horse'"):
        crowdfuse.report_labels(ann, gold=["horse"] * len(ann))


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report on labels in which every name is hostile, with gold."""
    crowd = Crowd(
        tmp_path_factory.mktemp("hostile"),
        annotators=HOSTILE,
        classes=HOSTILE_CLASSES,
        items="<svg onload=alert({})> '\"" + "y" * 200,
    )
    labels = crowd.labels.rename(crowd.folder / "<img src=x onerror=alert(5)>.csv")
    out = crowd.folder / "report.html"
    result = command("report", labels, "--gold", crowd.gold("gold.csv", slice(30)), "--items", 8, "--out", out)
    assert result.exit_code == 0, result.output
    return out


def test_hostile_names_are_escaped_in_every_format(page_file: Path) -> None:
    page, text = (page_file.with_suffix(ending).read_text(encoding="utf-8") for ending in (".html", ".md"))
    assert len(re.findall("<script", page)) == 1
    for sign in ("<svg onload", "<img src=x", "alert(4)</script>"):
        assert sign not in page
        assert sign not in text
    assert html.escape(HOSTILE[0]) in page
    assert "[click]" not in text
    facts = json.loads(page_file.with_suffix(".json").read_text(encoding="utf-8"))
    assert {row["annotator"] for row in facts["annotators"]["rows"]} == set(HOSTILE)


@pytest.mark.parametrize(("width", "dark"), [(1180, False), (375, True)])
def test_page_works_in_a_browser(browser: Browser, page_file: Path, width: int, dark: bool) -> None:
    with opened(browser, page_file, width=width, dark=dark) as page:
        targets = page.locator("nav a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        assert all(page.locator(target).count() == 1 for target in targets)
        page.get_by_label("Search annotators").fill("ONERROR")
        page.locator("#annotator-table tbody tr:not([hidden]) a").click()
        part = page.locator("#details details[open]")
        assert HOSTILE[1] in part.locator("summary").inner_text()
        assert part.locator("table.matrix").count() == 1
        assert page.locator("svg.map").count() == 0
        assert "Limitations" in page.locator("main").inner_text()
        assert serious_problems(page) == []
        assert not scrolls_sideways(page)
