"""Runs whose inputs are the texts or images that the file of labels holds: one file is enough."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from crowdfuse import load
from crowdfuse.cli import app
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.refit import job_with_gold
from crowdfuse.review.run_folder import read_run
from crowdfuse.runs import Job, report_run, resume, start
from tests.exports import Crowd, annotation, choice, write
from tests.text_exports import TEXT_FORMS, text_of

NAMES = ("ada", "bob", "cy")
CROWD: Crowd = {
    str(item): {who: "pos" if (item + at) % 3 else "neg" for at, who in enumerate(NAMES) if item % 4 != at}
    for item in range(1, 21)
}
QUICK = ["--method", "majority-vote", "--epochs", "1", "--folds", "0", "--quiet"]
SETTINGS = {"epochs": 1}


def fit(path: Path, out: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["fit", str(path), "--out", str(out), *QUICK, *options])
    return result.output


def test_one_command_on_the_export_of_each_tool_gives_the_same_consensus(tmp_path: Path) -> None:
    consensus = set()
    for form in ("Label Studio", "Argilla 2", "Prodigy", "doccano"):
        folder = tmp_path / form
        folder.mkdir()
        output = fit(TEXT_FORMS[form](folder, CROWD), folder / "run")
        assert "the inputs are the texts in 'text' of" in output
        consensus.add((folder / "run" / "consensus.csv").read_text())
    assert len(consensus) == 1


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the texts of a CSV file; do not change it."""
    folder = tmp_path_factory.mktemp("texts")
    job = Job(str(TEXT_FORMS["CSV"](folder, CROWD)), method="majority-vote", settings=SETTINGS, folds=0)
    start(job, folder / "run", force=False, verbose=0)
    return folder / "run"


def predicted(run: Path, inputs: Path, out: Path) -> dict[str, list[str]]:
    """Return what `predict` writes, by item."""
    result = CliRunner().invoke(app, ["predict", str(run), str(inputs), "--out", str(out), "--proba"])
    assert result.exit_code == 0, result.output
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_predict_reads_every_file_that_fit_reads(tmp_path: Path, text_run: Path, form: str) -> None:
    inputs = TEXT_FORMS[form](tmp_path, CROWD)
    found = predicted(text_run, inputs, tmp_path / "p.csv")
    probabilities = load(text_run).predict_proba([text_of(item) for item in CROWD])
    assert found == {
        item: [str(load(text_run).classes_[row.argmax()]), f"{row.max():.6f}", *(f"{p:.6f}" for p in row)]
        for item, row in zip(CROWD, probabilities, strict=True)
    }


def test_predict_reads_new_items_of_an_export_without_labels(tmp_path: Path, text_run: Path) -> None:
    prodigy = write(tmp_path / "a.jsonl", [{"text": "all new", "_input_hash": -7}, {"text": "", "_input_hash": 8}])
    assert list(predicted(text_run, prodigy, tmp_path / "a.csv")) == ["-7", "8"]
    tasks = [{"id": 5, "data": {"text": "all new"}, "annotations": []}]
    assert list(predicted(text_run, write(tmp_path / "b.json", tasks), tmp_path / "b.csv")) == ["5"]
    plain = write(tmp_path / "c.jsonl", [{"text": "all new"}, {"text": "all new"}])
    assert list(predicted(text_run, plain, tmp_path / "c.csv")) == ["0", "1"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"id": 1, "n": 5}], "found no texts or images; choose the field that holds them with text= (--text"),
        ([{"id": 1, "text": "one"}, {"text": "two"}], "record 2: no id, although other records have one"),
        ([{"id": 1, "text": "one"}, {"id": 1, "text": "two"}], "'text' has two different values for item '1'"),
        (
            [{"id": 1, "body": "one two three", "title": "four"}],
            "several fields that may hold the inputs",
        ),
        ([], "is empty"),
    ],
)
def test_exports_that_predict_cannot_read(
    tmp_path: Path, text_run: Path, records: list[dict[str, Any]], message: str
) -> None:
    path = write(tmp_path / "new.jsonl", records)
    result = CliRunner().invoke(app, ["predict", str(text_run), str(path), "--out", str(tmp_path / "p.csv")])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "p.csv").exists()


def test_predictions_have_the_ids_of_the_run_if_its_items_are_the_texts(tmp_path: Path) -> None:
    rows = [f"{text_of(item)},{who},{what}" for item, labels in CROWD.items() for who, what in labels.items()]
    path = write(tmp_path / "labels.csv", "\n".join(["text,annotator,label", *rows]) + "\n")
    assert "run folder:" in fit(path, tmp_path / "run")
    texts = [text_of(item) for item in CROWD]
    assert list(predicted(tmp_path / "run", path, tmp_path / "a.csv")) == texts
    new = write(tmp_path / "new.csv", "text\nall new\nabout 3\n")
    assert list(predicted(tmp_path / "run", new, tmp_path / "b.csv")) == ["all new", "about 3"]


def test_predict_uses_the_item_column_that_fit_was_given(tmp_path: Path) -> None:
    rows = [f"p{n},about {n},{who},{what}" for n in CROWD for who, what in CROWD[n].items()]
    path = write(tmp_path / "labels.csv", "\n".join(["page,text,annotator,label", *rows]) + "\n")
    assert "run folder:" in fit(path, tmp_path / "run", "--item", "page")
    new = write(tmp_path / "new.csv", "page,text\nx1,all new\n")
    assert list(predicted(tmp_path / "run", new, tmp_path / "p.csv")) == ["x1"]


def gold_files(folder: Path) -> dict[str, Path]:
    """Gold labels of items 1 and 2, which name the items in different ways."""
    single = {item: {"expert": "pos"} for item in ("1", "2")}
    (folder / "expert").mkdir()
    return {
        "ids": write(folder / "ids.csv", "item,label\n1,pos\n2,pos\n"),
        "texts": write(folder / "texts.csv", f"text,label\n{text_of('1')},pos\n{text_of('2')},pos\n"),
        "ids of Prodigy": write(folder / "hashes.csv", "text,_input_hash,label\nx,1,pos\ny,2,pos\n"),
        "export of one person": TEXT_FORMS["Prodigy"](folder / "expert", single),
    }


@pytest.mark.parametrize("form", ["ids", "texts", "ids of Prodigy", "export of one person"])
def test_gold_by_text_by_the_ids_of_a_tool_or_as_an_export(tmp_path: Path, text_run: Path, form: str) -> None:
    gold = gold_files(tmp_path)[form]
    accuracy = report_run(text_run, gold=gold).facts["accuracy"]
    assert [entry["n_items"] for entry in accuracy] == [2]
    if form == "texts":
        for use in ("--gold", "--test"):
            out = tmp_path / f"run{use}"
            assert "run folder:" in fit(TEXT_FORMS["Prodigy"](tmp_path, CROWD), out, use, str(gold))
            assert not {"1", "2"} & set(read_run(out).items)  # they need no review
        job_with_gold(read_run(tmp_path / "run--gold"), [("3", "neg")], tmp_path / "refit")
        assert (tmp_path / "refit-gold.csv").read_text() == "item,label\n1,pos\n2,pos\n3,neg\n"


def test_gold_that_cannot_be_matched(tmp_path: Path, text_run: Path) -> None:
    disagreeing = TEXT_FORMS["Prodigy"](tmp_path, {"1": {"ada": "pos", "bob": "neg"}})
    with pytest.raises(
        ValueError, match="item 1 has two different labels, 'pos', 'neg', so the labels cannot be used as gold"
    ):
        report_run(text_run, gold=disagreeing)
    unknown = write(tmp_path / "unknown.csv", "text,label\nnot there,pos\n")
    with pytest.raises(ValueError, match=r"no item of .* is in this run, whose item ids are 1, 2, 3"):
        report_run(text_run, gold=unknown)
    rows = "1,same,ada,pos\n2,same,ada,neg\n3,other,bob,pos\n"
    path = write(tmp_path / "labels.csv", "item,text,annotator,label\n" + rows)
    gold = write(tmp_path / "gold.csv", "text,label\nsame,pos\n")
    assert "the items 1, 2 have the same text; use item ids" in fit(path, tmp_path / "run", "--gold", str(gold))


def test_report_review_and_resume_show_the_texts_of_the_export(tmp_path: Path) -> None:
    path = TEXT_FORMS["Label Studio CSV"](tmp_path, CROWD)
    start(Job(str(path), method="majority-vote", settings=SETTINGS, folds=0), tmp_path / "run", force=False, verbose=0)
    report = report_run(tmp_path / "run")
    assert not [line for line in report.facts["limitations"] if "inputs" in line]
    run = read_run(tmp_path / "run")
    inputs = ItemInputs(run)
    assert not inputs.notes
    described = inputs.describe(0)
    assert described["kind"] == "text"
    assert "".join(part for part, _ in described["parts"]) == text_of(run.items[0])
    assert resume(tmp_path / "run", verbose=0)["n_labels"] == sum(map(len, CROWD.values()))


@pytest.fixture
def image_export(tmp_path: Path) -> Path:
    """An export of Label Studio beside its images; the tool has put a prefix before the names of uploaded files."""
    (tmp_path / "pictures").mkdir()
    tasks = []
    for item, labels in CROWD.items():
        Image.fromarray(np.full((16, 16), 10 * int(item), np.uint8)).save(tmp_path / "pictures" / f"{item}.png")
        data = {"image": f"/data/local-files/?d=pictures/{item}.png"}
        given = [annotation(who, choice(what)) for who, what in labels.items()]
        tasks.append({"id": int(item), "data": data, "annotations": given})
    return write(tmp_path / "export.json", tasks)


def test_images_of_an_export(tmp_path: Path, image_export: Path) -> None:
    output = fit(image_export, tmp_path / "run")
    assert "the inputs are the images in 'image' of" in output
    inputs = ItemInputs(read_run(tmp_path / "run"))
    assert inputs.describe(0)["kind"] == "image"
    assert list(predicted(tmp_path / "run", image_export, tmp_path / "a.csv")) == list(CROWD)
    new = write(tmp_path / "new.csv", "name,image\nx,pictures/3.png\n")
    assert list(predicted(tmp_path / "run", new, tmp_path / "b.csv")) == ["pictures/3.png"]


def test_images_that_are_missing(tmp_path: Path, image_export: Path) -> None:
    (tmp_path / "pictures" / "3.png").unlink()
    output = fit(image_export, tmp_path / "run")
    assert "1 image of" in output
    assert "pictures/3.png" in output
    assert "--inputs" in output
    assert "run folder:" in fit(image_export, tmp_path / "run", "--on-missing", "drop")


def test_uploaded_images_are_found_by_their_name(tmp_path: Path, image_export: Path) -> None:
    tasks = json.loads(image_export.read_text())
    for task in tasks:
        task["data"]["image"] = f"/data/upload/1/0a1b2c3d-{task['id']}.png"
    path = write(tmp_path / "pictures" / "export.json", tasks)
    assert "run folder:" in fit(path, tmp_path / "run")


def test_labels_without_inputs_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,annotator,label\n1,ada,pos\n2,ada,neg\n")
    output = fit(path, tmp_path / "run")
    assert "found no texts or images in" in output
    assert "--inputs" in output
    assert "--text" in output
    assert not (tmp_path / "run").exists()


def test_items_without_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,text,annotator,label\n1,,ada,pos\n2,so good,ada,neg\n3,bad,bob,pos\n")
    output = fit(path, tmp_path / "run")
    assert "1 item of" in output
    assert "--on-missing drop" in output
    assert "run folder:" in fit(path, tmp_path / "run", "--on-missing", "drop")


def test_ids_with_another_ending_than_the_images(tmp_path: Path, image_export: Path) -> None:
    rows = [f"{item}.jpg,{who},{what}" for item, labels in CROWD.items() for who, what in labels.items()]
    path = write(tmp_path / "labels.csv", "\n".join(["image,annotator,label", *rows]) + "\n")
    output = fit(path, tmp_path / "run", "--inputs", str(tmp_path / "pictures"))
    assert "ids are matched with images of the same name but another extension, such as '1.jpg' with '1.png'" in output
