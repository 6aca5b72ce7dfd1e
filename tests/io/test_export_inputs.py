"""The inputs that files of labels hold: the same in every format; which field is chosen; refused input."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse import Annotations
from crowdfuse.io import ExportInputs, Reading, TableError, read_export_inputs, read_labels, read_labels_and_inputs
from tests.exports import CROWD, Crowd, label_studio, labels_by_item, prodigy_task, table, write
from tests.text_exports import TEXT_CROWD, TEXT_FORMS, doccano_files, text_of, write_doccano

EXPECTED = {int(item): labels for item, labels in TEXT_CROWD.items()}


def inputs_by_item(inputs: ExportInputs | None) -> dict[Any, str]:
    assert inputs is not None
    return dict(zip(inputs.items.tolist(), inputs.values, strict=True))


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        read_export_inputs(path, Reading(**options))
    return str(caught.value)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_format_gives_the_same_labels_and_texts(tmp_path: Path, form: str) -> None:
    path = TEXT_FORMS[form](tmp_path, TEXT_CROWD)
    ann, inputs = read_labels_and_inputs(path, Reading())
    assert labels_by_item(ann) == EXPECTED
    assert ann == read_labels(path, Reading())
    assert ann.classes.tolist() == ["neg", "pos"]
    assert inputs_by_item(inputs) == {item: text_of(str(item)) for item in EXPECTED}
    assert inputs is not None
    assert (inputs.kind, inputs.field) == ("text", "text")
    assert inputs.items.dtype == ann.items.dtype


crowds = st.dictionaries(
    st.integers(0, 10**6).map(str),
    st.dictionaries(st.sampled_from(["ada", "bob", "cy"]), st.sampled_from(["neg", "pos"]), min_size=1),
    min_size=3,
    max_size=6,
)


@settings(deadline=None, max_examples=5)
@given(crowds)
def test_any_crowd_is_the_same_through_the_exports(crowd: Crowd) -> None:
    expected = {int(item): labels for item, labels in crowd.items()}
    exports = ("Label Studio", "Label Studio JSON_MIN", "Argilla 2", "Prodigy", "doccano")
    for form in (*exports, "UTF-16 with tabs"):
        reading = Reading(item="id") if form not in exports else Reading()  # the ids may differ in every row
        with tempfile.TemporaryDirectory() as folder:
            ann, inputs = read_labels_and_inputs(TEXT_FORMS[form](Path(folder), crowd), reading)
        assert labels_by_item(ann) == expected, form
        assert inputs_by_item(inputs) == {item: text_of(str(item)) for item in expected}, form


def test_images_of_an_export(tmp_path: Path) -> None:
    inputs = read_export_inputs(write(tmp_path / "export.json", label_studio(CROWD)), Reading())
    assert inputs is not None
    assert (inputs.kind, inputs.field, inputs.values) == ("image", "image", list(CROWD))
    assert inputs.items.tolist() == [40, 41, 42, 43]


def test_images_that_are_the_items_of_a_table(tmp_path: Path) -> None:
    path = write(
        tmp_path / "labels.csv",
        "image,annotator,label\nb/1.PNG,ada,cat\nb/1.PNG,bob,dog\nhttps://x/2.jpg?s=1,ada,cat\n",
    )
    inputs = read_export_inputs(path, Reading())
    assert inputs is not None
    assert (inputs.kind, inputs.values) == ("image", ["b/1.PNG", "https://x/2.jpg?s=1"])


def test_images_of_prodigy_have_a_file_name_as_text(tmp_path: Path) -> None:
    records = [prodigy_task(name, "ada", image=f"data:image/png;base64,{name}", text=name) for name in ("a", "b")]
    inputs = read_export_inputs(write(tmp_path / "tasks.jsonl", records), Reading(item="name"))
    assert inputs is not None
    assert (inputs.kind, inputs.field) == ("image", "image")


def test_a_table_without_ids_is_identified_by_its_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "text,annotator,label\nso good,ada,pos\nso good,bob,neg\ndull,ada,neg\n")
    ann, inputs = read_labels_and_inputs(path, Reading())
    assert labels_by_item(ann) == {"so good": {"ada": "pos", "bob": "neg"}, "dull": {"ada": "neg"}}
    assert inputs_by_item(inputs) == {"so good": "so good", "dull": "dull"}


def test_a_column_of_prose_without_a_usual_name(tmp_path: Path) -> None:
    rows = "1,what a fine film,ada,pos,web\n2,dull from start to end,ada,neg,web\n"
    path = write(tmp_path / "labels.csv", f"item,blurb,annotator,label,source\n{rows}")
    inputs = read_export_inputs(path, Reading())
    assert inputs is not None
    assert inputs.field == "blurb"


def test_remarks_of_annotators_are_not_the_texts_of_items(tmp_path: Path) -> None:
    rows = "1,a film,ada,pos,I am sure\n1,a film,bob,neg,not so sure\n"
    path = write(tmp_path / "labels.csv", f"item,text,annotator,label,comment\n{rows}")
    assert inputs_by_item(read_export_inputs(path, Reading())) == {1: "a film"}


@pytest.mark.parametrize("names", [("title", "body"), ("text", "review")])
def test_two_fields_that_may_be_texts(tmp_path: Path, names: tuple[str, str]) -> None:
    path = write(tmp_path / "labels.csv", f"item,{names[0]},{names[1]},annotator,label\n1,one,two,ada,pos\n")
    message = complaint(path)
    assert f"{names[0]!r}, {names[1]!r}" in message
    assert "text= (--text" in message
    assert inputs_by_item(read_export_inputs(path, Reading(text=names[1]))) == {1: "two"}
    assert read_labels(path, Reading()).n_labels == 1  # labels alone need no choice


def test_texts_and_images_together(tmp_path: Path) -> None:
    tasks = label_studio(CROWD)
    for task in tasks:
        task["data"]["caption"] = "a picture of an animal number " + str(task["id"])
    path = write(tmp_path / "export.json", tasks)
    assert "'caption', 'image'" in complaint(path)
    inputs = read_export_inputs(path, Reading(text="caption"))
    assert inputs is not None
    assert inputs.kind == "text"


def test_a_field_that_does_not_exist(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,blurb,annotator,label\n1,one,ada,pos\n")
    message = complaint(path, text="text")
    assert "no field 'text' with text" in message
    assert "'blurb'" in message


def test_two_different_texts_of_one_item(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,text,annotator,label\n1,one,ada,pos\n1,two,bob,pos\n")
    assert f"'text' has two different values for item 1 ({path}, line 2 and {path}, line 3)" in complaint(path)
    records = [prodigy_task("x", who, accept=["a"]) | {"text": who} for who in ("ada", "bob")]
    path = write(tmp_path / "tasks.jsonl", records)
    assert f"item 'x' ({path}, line 1 and {path}, line 2)" in complaint(path, item="name")


def test_texts_that_are_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,text,annotator,label\n1,1.5,ada,pos\n2,3,ada,neg\n")
    assert "'text' holds only numbers, such as '1.5'" in complaint(path)


def test_files_without_inputs(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,annotator,label\na b,ada,pos\n2,ada,neg\n")
    assert read_export_inputs(path, Reading()) is None


def test_empty_texts_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,text,annotator,label\n1, ,ada,pos\n2,so good,ada,neg\n")
    assert inputs_by_item(read_export_inputs(path, Reading())) == {2: "so good"}


def test_an_export_without_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "export.jsonl", [{"text": "so good", "label": ["pos"]}])
    message = complaint(path)
    assert "the item is empty" in message
    assert "item= (--item" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert inputs_by_item(read_export_inputs(path, Reading(item="text"))) == {"so good": "so good"}


def test_an_id_that_numbers_the_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "id,text,annotator,label\n1,so good,ada,pos\n2,so good,bob,neg\n")
    assert "'id' has a different value in every row" in complaint(path)
    assert read_labels(path, Reading(item="text")).n_items == 1
    assert read_labels(path, Reading(item="id")).n_items == 2


# ---- doccano -------------------------------------------------------------------------------


def test_who_labelled_is_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ada.lovelace.jsonl"
    path.write_text(doccano_files(TEXT_CROWD)["ada.jsonl"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # most documents of a file have no label of its annotator
        ann = Annotations.read(path)
    assert ann.annotators.tolist() == ["ada"]
    assert (ann.n_items, ann.n_labels) == (4, 2)


def test_older_records_name_the_annotator(tmp_path: Path) -> None:
    old = [{"doc_id": 20, "text": "a b", "labels": ["x"], "username": "ada"}]
    assert labels_by_item(Annotations.read(write(tmp_path / "export.jsonl", old))) == {20: {"ada": "x"}}
    notes = [{"label": 7, "user": 1}, {"label": 8, "user": 2}]
    old = [{"id": 15, "text": "EU", "annotations": notes, "meta": {}, "annotation_approver": None}]
    assert labels_by_item(Annotations.read(write(tmp_path / "old.jsonl", old))) == {15: {1: 7, 2: 8}}


def test_places_in_files_by_annotator(tmp_path: Path) -> None:
    path = write_doccano(tmp_path, TEXT_CROWD)
    with (path / "bob.jsonl").open("a") as file:
        file.write('oops\n{"id": 9, "text": "x", "label": ["pos", "neg"]}\n')
        file.write('{"id": 9, "text": "x", "label": [[0, 1, "PER"]]}\n')
    lines = complaint(path).splitlines()
    assert lines[0] == f"{path}: 3 of 10 answers cannot be used, such as"
    assert lines[1].startswith(f"  {path}/bob.jsonl, line 5: not JSON")
    assert lines[2] == f"  {path}/bob.jsonl, line 6 (item '9'): expected one choice, got 2 ('pos', 'neg')"
    assert lines[3].startswith(f"  {path}/bob.jsonl, line 7 (item '9'): expected a class, got the span")


def test_a_project_with_shared_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text(doccano_files(TEXT_CROWD)["ada.jsonl"])
    assert "does not say who gave which label" in complaint(path)


@pytest.mark.parametrize("name", ["empty", "broken.zip"])
def test_folders_and_archives_without_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "empty":
        path.mkdir()
        assert "without .json or .jsonl files; expected one file per annotator" in complaint(path)
    else:
        path.write_bytes(b"no zip")
        assert "not a readable zip file" in complaint(path)


def test_a_question_of_doccano_is_refused(tmp_path: Path) -> None:
    path = write_doccano(tmp_path, TEXT_CROWD)
    with pytest.raises(ValueError, match="question='x' does not apply to doccano"):
        read_labels(path, Reading(question="x"))


# ---- Hugging Face and Label Studio's CSV ------------------------------------------------------


def test_a_folder_with_splits(tmp_path: Path) -> None:
    write(tmp_path / "dataset_dict.json", {"splits": ["train", "test"]})
    assert f"holds the splits 'train', 'test'; pass the folder of one split, such as {tmp_path / 'train'}" in complaint(
        tmp_path
    )


@pytest.mark.parametrize("state", [{}, {"_data_files": []}, {"_data_files": [{"filename": "gone.arrow"}]}])
def test_damaged_dataset_folders(tmp_path: Path, state: Any) -> None:
    write(tmp_path / "state.json", state)
    assert "save the data set again" in complaint(tmp_path)


def label_studio_rows(folder: Path, *rows: dict[str, Any]) -> Path:
    return write(
        folder / "export.csv", table([list(rows[0]), *([str(value) for value in row.values()] for row in rows)])
    )


def csv_row(item: int, who: str, answer: str, **more: Any) -> dict[str, Any]:
    row = {"annotation_id": 1, "annotator": who, "id": item, "sentiment": answer, "text": text_of(str(item))}
    return row | {"was_cancelled": False} | more


def test_answers_in_label_studios_csv(tmp_path: Path) -> None:
    several = json.dumps({"choices": ["pos", "neg"]})
    path = label_studio_rows(
        tmp_path,
        csv_row(1, "ada", "pos"),
        csv_row(2, "ada", ""),
        csv_row(1, "bob", "neg", was_cancelled=True),
        csv_row(3, "cy", several),
    )
    assert f"{path}, line 5 (item '3'): expected one choice, got 2" in complaint(path)
    ann = read_labels(path, Reading(on_bad="drop"))
    assert labels_by_item(ann) == {1: {"ada": "pos"}, 2: {}, 3: {}}
    assert [note.split(" (")[0] for note in ann.notes[:2]] == [
        "left out: annotations without an answer",
        "left out: cancelled annotations",
    ]


def test_ambiguous_columns_of_label_studios_csv(tmp_path: Path) -> None:
    path = label_studio_rows(tmp_path, csv_row(1, "ada", "pos", source="web"), csv_row(2, "bob", "neg", source="mail"))
    message = complaint(path)
    assert "'sentiment', 'source'" in message
    assert "question= (--question" in message
    assert labels_by_item(read_labels(path, Reading(question="sentiment"))) == {1: {"ada": "pos"}, 2: {"bob": "neg"}}
