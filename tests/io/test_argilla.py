"""Argilla: which answers are final, who gave them, and which question is meant."""

from pathlib import Path
from typing import Any

import pytest

from crowdfuse import Annotations
from crowdfuse.io.tables import TableError
from tests.exports import CROWD, argilla1, argilla1_feedback, argilla2, argilla2_flat, labels_by_item, write


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        Annotations.read(path, **options)
    return str(caught.value)


def nested(item: str, **answers: list[Any]) -> dict[str, Any]:
    return argilla2({item: {}})[0] | {"responses": answers}


def answer(value: Any, user: Any = "u1", **more: Any) -> dict[str, Any]:
    return {"value": value, "user_id": user} | more


def test_records_by_id_and_columns_by_name(tmp_path: Path) -> None:
    """`to_dict` with orient="index" and with orient="names"."""
    records = argilla2(CROWD)
    by_id = {record["id"]: {name: value for name, value in record.items() if name != "id"} for record in records}
    by_name = {name: [record[name] for record in records] for name in records[0]}
    plain = Annotations.read(write(tmp_path / "list.json", records))
    assert Annotations.read(write(tmp_path / "id.json", by_id)) == plain
    assert Annotations.read(write(tmp_path / "name.json", by_name)) == plain


def test_only_submitted_answers_count(tmp_path: Path) -> None:
    answers = [answer("cat", "u1", status="submitted"), answer("dog", "u2", status="draft")]
    answers += [answer("cow", "u3", status="discarded"), answer(None, "u4", status="submitted"), answer("cat", "u5")]
    path = write(tmp_path / "records.json", [nested("a", animal=answers)])
    with pytest.warns(UserWarning, match="left out: "):
        ann = Annotations.read(path)
    assert labels_by_item(ann) == {"a": {"u1": "cat", "u5": "cat"}}
    assert ann.notes == (
        "left out: draft answers (1)",
        "left out: discarded answers (1)",
        "left out: answers without a value (1)",
    )


def test_only_submitted_answers_count_in_flat_records(tmp_path: Path) -> None:
    record = argilla2_flat({"a": {"u1": "cat", "u2": "dog"}})[0]
    record["animal.responses.status"] = ["submitted", "discarded"]
    with pytest.warns(UserWarning, match="discarded answers"):
        assert labels_by_item(Annotations.read(write(tmp_path / "r.jsonl", [record]))) == {"a": {"u1": "cat"}}


def test_only_validated_annotations_count(tmp_path: Path) -> None:
    records = [argilla1({item: {"ada": "cat"}})[0] for item in "abc"]
    records[1]["status"], records[2]["status"] = "Discarded", "Default"
    with pytest.warns(UserWarning, match="left out: "):
        ann = Annotations.read(write(tmp_path / "r.jsonl", records))
    assert labels_by_item(ann) == {"a": {"ada": "cat"}, "b": {}, "c": {}}
    assert ann.notes == ("left out: discarded answers (1)", "left out: default answers (1)")


def test_several_questions(tmp_path: Path) -> None:
    path = write(tmp_path / "records.json", [nested("a", animal=[answer("cat")], rating=[answer(4), answer(5, "u2")])])
    assert "has answers to several questions: 'animal', 'rating'. Choose one with question=" in complaint(path)
    assert labels_by_item(Annotations.read(path, question="animal")) == {"a": {"u1": "cat"}}
    assert labels_by_item(Annotations.read(path, question="rating")) == {"a": {"u1": 4, "u2": 5}}
    assert "has no question 'colour'; choose one of 'animal', 'rating'" in complaint(path, question="colour")


def test_the_lists_of_hugging_face(tmp_path: Path) -> None:
    """A sequence of objects comes back from a Hugging Face dataset as an object of lists."""
    records = argilla1_feedback(CROWD)
    for record in records:
        record["animal"] = {name: [one[name] for one in record["animal"]] for name in ("user_id", "value", "status")}
    assert labels_by_item(Annotations.read(write(tmp_path / "records.json", records))) == CROWD


def test_item_can_be_a_field(tmp_path: Path) -> None:
    records = [nested("a", animal=[answer("cat")]) | {"fields": {"text": "hi"}, "metadata": {"page": 7}}]
    path = write(tmp_path / "records.json", records)
    assert Annotations.read(path, item="text").items.tolist() == ["hi"]
    assert Annotations.read(path, item="page").items.tolist() == [7]
    assert f"{path}, record 1: the item is empty" in complaint(path, item="title")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (nested("b", animal=[answer("cat", None)]), "(item 'b'): the annotator is empty"),
        (nested("b", animal=[answer(["cat", "dog"])]), "(item 'b'): expected one choice, got 2 ('cat', 'dog')"),
        (
            nested("b", animal=[answer([{"value": "cat", "rank": 1}])]),
            "(item 'b'): the label is {'value': 'cat', 'rank'",
        ),
        (nested("b", animal=["cat"]), "an answer to 'animal' is 'cat'; expected an object with the keys 'value'"),
        (nested("b") | {"responses": ["cat"]}, "the response 'cat' has no 'values'"),
        (nested("b", animal=[answer("cat")]) | {"id": None}, "the item is empty"),
        ({"text": "b"}, "expected responses or an annotation, got the keys 'text'"),
        ("b", "expected responses or an annotation, got 'b'"),
    ],
)
def test_answers_that_cannot_be_used(tmp_path: Path, bad: Any, reason: str) -> None:
    path = write(tmp_path / "records.json", [nested("a", animal=[answer("cat")]), bad])
    message = complaint(path)
    assert message.startswith(f"{path}, record 2")
    assert reason in message
    with pytest.warns(UserWarning, match="1 of 2 answers could not be used"):
        assert labels_by_item(Annotations.read(path, on_bad="drop"))["a"] == {"u1": "cat"}


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    record = argilla2_flat({"a": {"u1": "cat", "u2": "dog"}})[0]
    record["animal.responses.users"] = ["u1"]
    path = write(tmp_path / "r.jsonl", [record])
    assert (
        f"{path}, line 1: the values, users and statuses of the question 'animal' are not lists of the same length"
        in complaint(path)
    )


def test_single_choice_of_a_multiple_choice_question(tmp_path: Path) -> None:
    path = write(tmp_path / "records.json", [nested("a", animal=[answer(["cat"]), answer([], "u2")])])
    with pytest.warns(UserWarning, match="answers without a choice"):
        assert labels_by_item(Annotations.read(path)) == {"a": {"u1": "cat"}}
