"""Runs whose inputs are the texts or images that the file of labels holds: one file is enough."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.review.item_inputs import ItemInputs
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


def test_report_review_and_resume_show_the_texts_of_the_export(tmp_path: Path) -> None:
    path = TEXT_FORMS["Label Studio CSV"](tmp_path, CROWD)
    start(Job(str(path), method="majority-vote", settings=SETTINGS, folds=0), tmp_path / "run", force=False, verbose=0)
    report = report_run(tmp_path / "run")
    assert not [line for line in report.facts["limitations"] if "inputs" in line]
    run = read_run(tmp_path / "run")
    inputs = ItemInputs(run)
    assert not inputs.notes
    assert inputs.describe(0) == {"kind": "text", "text": text_of(run.items[0])}
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
    assert "holds no texts or images of its items" in output
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
    assert "20 ids are matched with images of the same name but another ending, such as '1.jpg' with '1.png'" in output
