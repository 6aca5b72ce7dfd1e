"""Label Studio: who annotated, what counts as an answer, what is left out, and its ground truth."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from crowdfuse import Annotations
from crowdfuse.io.gold import read_gold
from crowdfuse.io.label_studio import label_studio_gold
from crowdfuse.io.tables import TableError
from tests.exports import CROWD, annotation, choice, label_studio_min, labels_by_item, task, write


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        Annotations.read(path, **options)
    return str(caught.value)


def export(folder: Path, *tasks: Any) -> Path:
    return write(folder / "export.json", list(tasks))


RECTANGLE = {
    "id": "Dx_aB91ISN",
    "type": "rectanglelabels",
    "value": {"x": 50.8, "y": 5.9, "width": 12.4, "height": 10.5, "rotation": 0, "rectanglelabels": ["cat"]},
    "from_name": "tag",
    "to_name": "image",
}
COMMENT = {"id": "c", "type": "textarea", "value": {"text": ["blurred"]}, "from_name": "comment", "to_name": "image"}


@pytest.mark.parametrize(
    ("completed_by", "who"),
    [(10, 10), ({"id": 10, "email": "ada@x.org"}, "ada@x.org"), ({"id": 10}, 10), ("ada", "ada")],
)
def test_annotator_is_completed_by(tmp_path: Path, completed_by: Any, who: Any) -> None:
    path = export(tmp_path, task(7, "a.jpg", annotation(completed_by, choice("cat"))))
    assert labels_by_item(Annotations.read(path)) == {7: {who: "cat"}}


@pytest.mark.parametrize("completed_by", [None, "", "  ", {}, {"id": None, "email": ""}])
def test_annotation_without_annotator_is_refused(tmp_path: Path, completed_by: Any) -> None:
    path = export(tmp_path, task(7, "a.jpg", annotation(completed_by, choice("cat"))))
    assert f"{path}, record 1 (item '7'): the annotator is empty" in complaint(path)


def test_cancelled_and_ground_truth_annotations_are_left_out_and_counted(tmp_path: Path) -> None:
    path = export(
        tmp_path,
        task(1, "a.jpg", annotation(10, choice("cat")), annotation(11, choice("dog"), was_cancelled=True)),
        task(2, "b.jpg", annotation(12, choice("cow"), ground_truth=True), annotation(11, was_cancelled=True)),
    )
    with pytest.warns(UserWarning, match="left out: "):
        ann = Annotations.read(path)
    assert labels_by_item(ann) == {1: {10: "cat"}, 2: {}}
    assert ann.classes.tolist() == ["cat"]
    assert ann.notes == (
        "left out: cancelled annotations (2)",
        "left out: ground-truth annotations, which are gold labels (1)",
    )


def test_drafts_and_predictions_are_ignored(tmp_path: Path) -> None:
    path = export(tmp_path, task(1, "a.jpg", annotation(10, choice("cat"))) | {"drafts": [annotation(9, choice("x"))]})
    assert Annotations.read(path).classes.tolist() == ["cat"]


def test_old_exports_call_annotations_completions(tmp_path: Path) -> None:
    old = task(1, "a.jpg", annotation(10, choice("cat")), annotation(11, choice("dog"), skipped=True))
    old["completions"] = old.pop("annotations")
    with pytest.warns(UserWarning, match=r"left out: cancelled annotations \(1\)"):
        assert labels_by_item(Annotations.read(export(tmp_path, old))) == {1: {10: "cat"}}


def test_a_single_task(tmp_path: Path) -> None:
    """What Label Studio writes into cloud storage."""
    path = write(tmp_path / "1.json", task(1, "a.jpg", annotation(10, choice("cat"))))
    assert labels_by_item(Annotations.read(path)) == {1: {10: "cat"}}


def test_other_answers_beside_the_choice(tmp_path: Path) -> None:
    path = export(tmp_path, task(1, "a.jpg", annotation(10, COMMENT, choice("cat"), RECTANGLE)))
    assert labels_by_item(Annotations.read(path)) == {1: {10: "cat"}}


def test_several_questions(tmp_path: Path) -> None:
    path = export(
        tmp_path,
        task(1, "a.jpg", annotation(10, choice("cat"), choice("yes", "sharp")), annotation(11, choice("no", "sharp"))),
    )
    message = complaint(path)
    assert f"{path} has answers to several questions: 'animal', 'sharp'. Choose one with question=" in message
    with pytest.warns(UserWarning, match="left out: annotations without an answer"):
        assert labels_by_item(Annotations.read(path, question="animal")) == {1: {10: "cat"}}
    assert labels_by_item(Annotations.read(path, question="sharp")) == {1: {10: "yes", 11: "no"}}
    assert f"{path} has no question 'colour'; choose one of 'animal', 'sharp'" in complaint(path, question="colour")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (annotation(10, RECTANGLE), "the result has the type 'rectanglelabels'; expected 'choices'"),
        (
            annotation(10, RECTANGLE, COMMENT),
            "the result has the type 'rectanglelabels', 'textarea'; expected 'choices'",
        ),
        (annotation(10, choice(["cat", "dog"])), "expected one choice, got 2 ('cat', 'dog')"),
        (annotation(10, choice("cat"), choice("dog")), "expected one answer to 'animal' per annotation, got 2"),
        (annotation(10, choice("")), "the label is empty"),
        (annotation(10, choice("cat") | {"value": {"choices": [True]}}), "the label is True; expected a string"),
        (annotation(10, choice("cat") | {"value": None}), "the label is empty"),
        (annotation(10, choice("cat"), result="cat"), "expected an annotation with a list 'result', got the keys 'id'"),
        (1001, "expected an annotation with a list 'result', got 1001"),
    ],
)
def test_annotations_that_cannot_be_used(tmp_path: Path, bad: Any, reason: str) -> None:
    path = export(tmp_path, task(1, "a.jpg", annotation(11, choice("cat"))), task(2, "b.jpg", bad))
    assert complaint(path).startswith(f"{path}, record 2 (item '2'): {reason}")
    with pytest.warns(UserWarning, match="1 of 2 answers could not be used"):
        assert labels_by_item(Annotations.read(path, on_bad="drop")) == {1: {11: "cat"}, 2: {}}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"id": 2, "data": {}}, "expected a list of 'annotations', got the keys 'id', 'data'"),
        ("task", "expected a list of 'annotations', got 'task'"),
        (task(2, "b.jpg") | {"id": None}, "the item is empty"),
    ],
)
def test_tasks_that_cannot_be_used(tmp_path: Path, bad: Any, reason: str) -> None:
    path = export(tmp_path, task(1, "a.jpg", annotation(11, choice("cat"))), bad)
    assert complaint(path).startswith(f"{path}, record 2: {reason}")


def test_missing_item_field_is_refused(tmp_path: Path) -> None:
    path = export(tmp_path, task(1, "a.jpg", annotation(11, choice("cat"))))
    assert labels_by_item(Annotations.read(path, item="image")) == {"a.jpg": {11: "cat"}}
    assert f"{path}, record 1: the item is empty" in complaint(path, item="picture")


def test_only_rectangles(tmp_path: Path) -> None:
    path = export(tmp_path, *(task(n, "a.jpg", annotation(10, RECTANGLE)) for n in range(4)))
    assert complaint(path).startswith(
        f"{path}: 4 of 4 answers cannot be used, such as\n  {path}, record 1 (item '0'): "
    )


def test_json_min_with_several_questions(tmp_path: Path) -> None:
    records = [record | {"sharp": "yes"} for record in label_studio_min(CROWD)]
    path = write(tmp_path / "min.json", records)  # after the annotator: no longer as the converter writes it
    assert Annotations.read(path, item="image", question="sharp").classes.tolist() == ["yes"]
    both = [{"image": "a", "id": 1, "animal": "cat", "sharp": "yes", "annotator": 4, "annotation_id": 9}]
    path = write(tmp_path / "min.json", both)
    assert "has answers to several questions: 'animal', 'sharp'" in complaint(path)
    assert labels_by_item(Annotations.read(path, question="animal")) == {1: {4: "cat"}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"choices": ["cat", "dog"]}, "expected one choice, got 2 ('cat', 'dog')"),
        (
            [{"x": 1, "rectanglelabels": ["cat"]}],
            "'animal' is [{'x': 1, 'rectanglelabels': ['cat']}]; expected a choice",
        ),
    ],
)
def test_json_min_with_answers_that_cannot_be_used(tmp_path: Path, answer: Any, reason: str) -> None:
    record = {"image": "a", "id": 1, "animal": answer, "annotator": 4, "annotation_id": 9}
    path = write(tmp_path / "min.json", [record, record | {"animal": "cat"}])
    assert complaint(path).startswith(f"{path}, record 1 (item '1'): {reason}")


# ---- gold ----------------------------------------------------------------------------------


def test_ground_truth_is_gold(tmp_path: Path) -> None:
    path = export(
        tmp_path,
        task(1, "a.jpg", annotation(10, choice("cat")), annotation(11, choice("dog"), ground_truth=True)),
        task(2, "b.jpg", annotation(10, choice("cat"))),
        task(3, "c.jpg", annotation(None, choice("cow"), ground_truth=True)),
    )
    assert label_studio_gold(path) == {"1": "dog", "3": "cow"}
    ids, truth = read_gold(path, item="image")
    assert dict(zip(ids.tolist(), truth.tolist(), strict=True)) == {"a.jpg": "dog", "c.jpg": "cow"}


def test_missing_and_contradictory_ground_truth_is_refused(tmp_path: Path) -> None:
    path = export(tmp_path, task(1, "a.jpg", annotation(10, choice("cat"))))
    with pytest.raises(TableError, match="has no ground-truth annotations; mark annotations with the star"):
        label_studio_gold(path)
    two = [annotation(10, choice(name), ground_truth=True) for name in ("cat", "dog")]
    with pytest.raises(TableError, match="record 1: item '1' has two different ground-truth labels, 'cat' and 'dog'"):
        label_studio_gold(export(tmp_path, task(1, "a.jpg", *two)))


def test_gold_from_exports_without_ground_truth_is_refused(tmp_path: Path) -> None:
    """JSON_MIN does not tell ground truth from answers: taking all of it for gold would be wrong."""
    path = write(tmp_path / "min.json", label_studio_min(CROWD))
    with pytest.raises(TableError, match="JSON_MIN does not mark ground-truth annotations; export the project as JSON"):
        label_studio_gold(path)


def test_gold_beside_tasks_that_cannot_be_used(tmp_path: Path) -> None:
    path = export(tmp_path, {"id": 4}, task(1, "a.jpg", annotation(10, choice("cat"), ground_truth=True)))
    with pytest.raises(
        TableError, match=r"record 1: expected a list of 'annotations', got the keys 'id'\. To continue without it"
    ):
        label_studio_gold(path)
    assert label_studio_gold(path, on_bad="drop") == {"1": "cat"}


def test_no_warning_if_nothing_is_left_out(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Annotations.read(export(tmp_path, task(1, "a.jpg", annotation(10, choice("cat")))))
