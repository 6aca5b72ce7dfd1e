"""Prodigy: choices, labels accepted or rejected, tasks ignored, and whose they are."""

from pathlib import Path
from typing import Any

import pytest

from crowdfuse import Annotations
from crowdfuse.io.tables import TableError
from tests.exports import labels_by_item, prodigy_task, write


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        Annotations.read(path, **options)
    return str(caught.value)


def lines(folder: Path, *records: Any) -> Path:
    return write(folder / "annotations.jsonl", list(records))


def test_the_input_hash_is_the_item(tmp_path: Path) -> None:
    path = lines(tmp_path, prodigy_task("a", "ada", accept=["cat"], _input_hash=-1530009927))
    assert labels_by_item(Annotations.read(path)) == {-1530009927: {"ada": "cat"}}
    assert labels_by_item(Annotations.read(path, item="text")) == {"about a": {"ada": "cat"}}
    assert labels_by_item(Annotations.read(path, item="name")) == {"a": {"ada": "cat"}}


def test_session_is_the_annotator_if_there_is_no_annotator_id(tmp_path: Path) -> None:
    record = prodigy_task("a", "ada", accept=["cat"], _session_id="animals-ada")
    del record["_annotator_id"]
    assert labels_by_item(Annotations.read(lines(tmp_path, record), item="name")) == {"a": {"animals-ada": "cat"}}


def test_the_annotator_counts_where_there_is_a_session_too(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        prodigy_task("a", "ada", accept=["cat"], _session_id="animals-morning"),
        prodigy_task("b", "ada", accept=["dog"], _session_id="animals-evening"),
    )
    assert labels_by_item(Annotations.read(path, item="name")) == {"a": {"ada": "cat"}, "b": {"ada": "dog"}}


def test_a_label_is_accepted_or_rejected(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        prodigy_task("a", "ada", label="SPAM", spans=[]),
        prodigy_task("a", "bob", label="SPAM", answer="reject"),
        prodigy_task("b", "ada", label="SPAM", answer="ignore"),
    )
    with pytest.warns(UserWarning, match=r"left out: ignored tasks \(1\)"):
        ann = Annotations.read(path, item="name")
    assert labels_by_item(ann) == {"a": {"ada": "SPAM", "bob": "not SPAM"}, "b": {}}


def test_several_labels_are_several_questions(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        prodigy_task("a", "ada", label="SPAM"),
        prodigy_task("a", "ada", label="RUDE", answer="reject"),
        prodigy_task("b", "ada", label="RUDE"),
    )
    assert "has answers to several questions: 'SPAM', 'RUDE'. Choose one with question=" in complaint(path)
    assert labels_by_item(Annotations.read(path, item="name", question="RUDE")) == {
        "a": {"ada": "not RUDE"},
        "b": {"ada": "RUDE"},
    }
    assert "has no question 'LONG'; choose one of 'SPAM', 'RUDE'" in complaint(path, question="LONG")


def test_tasks_without_a_label_are_accepted_or_rejected(tmp_path: Path) -> None:
    path = lines(tmp_path, prodigy_task("a", "ada"), prodigy_task("a", "bob", answer="reject"))
    assert labels_by_item(Annotations.read(path, item="name")) == {"a": {"ada": "accept", "bob": "reject"}}


def test_rejected_and_empty_choices_are_skipped(tmp_path: Path) -> None:
    options = [{"id": 1, "text": "yes"}, {"id": 2, "text": "no"}]
    path = lines(
        tmp_path,
        prodigy_task("a", "ada", options=options, accept=[2]),
        prodigy_task("b", "ada", options=options, accept=[]),
        prodigy_task("c", "ada", options=options, accept=[1], answer="reject"),
        prodigy_task("d", "ada", options=options),
    )
    with pytest.warns(UserWarning, match="left out: "):
        ann = Annotations.read(path, item="name")
    assert labels_by_item(ann) == {"a": {"ada": 2}, "b": {}, "c": {}, "d": {}}
    assert ann.notes == ("left out: answers without a choice (2)", "left out: rejected choice tasks (1)")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (prodigy_task("b", "", accept=["cat"]), "(item 'b'): the annotator is empty"),
        (
            prodigy_task("b", "bob", accept=["cat", "dog"]),
            "(item 'b'): expected one choice, got 2 ('cat', 'dog')",
        ),
        (prodigy_task("b", "bob", answer="skip"), "'answer' must be accept, reject or ignore, got 'skip'"),
        (
            prodigy_task("b", "bob", spans=[{"start": 0, "end": 1, "label": "X"}]),
            "(item 'b'): expected a choice or a label, got spans or relations",
        ),
        (prodigy_task("b", "bob", meta={}, accept=["cat"]), "the item is empty"),
        ({"text": "b"}, "'answer' must be accept, reject or ignore, got the keys 'text'"),
    ],
)
def test_answers_that_cannot_be_used(tmp_path: Path, bad: Any, reason: str) -> None:
    path = lines(tmp_path, prodigy_task("a", "ada", accept=["cat"]), bad)
    message = complaint(path, item="name")
    assert message.startswith(f"{path}, line 2")
    assert reason in message
    with pytest.warns(UserWarning, match="1 of 2 answers could not be used"):
        assert labels_by_item(Annotations.read(path, item="name", on_bad="drop"))["a"] == {"ada": "cat"}
