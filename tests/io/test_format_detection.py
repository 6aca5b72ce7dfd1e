"""The same crowd through every form; files in none of them; rows that cannot be used, whatever the form."""

import json
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse import Annotations
from crowdfuse.io.tables import TableError
from tests.exports import (
    CROWD,
    FORMS,
    Crowd,
    annotation,
    argilla2,
    choice,
    label_studio,
    labels_by_item,
    prodigy,
    task,
    write,
)

NAMES = ["a", "b c", "10", "9", "007", "é,x", '"', "x\ny"]
crowds = st.dictionaries(
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from([*NAMES[:5], "ada@x.org"]), st.sampled_from(["1", "2", "cat", "dög, wet"])),
    min_size=1,
).filter(lambda crowd: any(crowd.values()))


def texts(ann: Annotations) -> Crowd:
    return {
        str(item): {str(who): str(what) for who, what in known.items()} for item, known in labels_by_item(ann).items()
    }


def read(path: Path, **options: Any) -> Annotations:
    """Without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Annotations.read(path, **options)


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_labels(tmp_path: Path, form: str) -> None:
    make, name, options = FORMS[form]
    ann = read(write(tmp_path / name, make(CROWD)), **options)
    assert labels_by_item(ann) == CROWD
    assert ann.items.tolist() == list(CROWD)  # as they appear
    assert ann.annotators.tolist() == ["ada@x.org", "bob@x.org", "cy@x.org"]
    assert ann.classes.tolist() == ["cat", "cow", "dog"]
    assert not ann.by_row


@settings(deadline=None, max_examples=15)
@given(crowds)
def test_any_labels_are_the_same_through_every_format(crowd: Crowd) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {
            form: read(write(Path(folder) / name, make(crowd)), **options)
            for form, (make, name, options) in FORMS.items()
        }
    assert texts(found["table"]) == crowd
    for form, ann in found.items():
        assert ann == found["table"], form


@pytest.mark.parametrize("form", [form for form, (_, name, _) in FORMS.items() if name.endswith(".jsonl")])
@pytest.mark.parametrize("ending", [".json", ".ndjson", ".JSONL"])
def test_one_record_per_line_under_any_ending(tmp_path: Path, form: str, ending: str) -> None:
    make, name, options = FORMS[form]
    path = write(tmp_path / name, make(CROWD))
    assert labels_by_item(read(path.rename(path.with_suffix(ending)), **options)) == CROWD


@pytest.mark.parametrize("form", ["argilla 2, flat", "argilla 1", "argilla 1, feedback", "prodigy"])
def test_records_in_a_parquet_file_or_a_table(tmp_path: Path, form: str) -> None:
    make, _, options = FORMS[form]
    table = pa.Table.from_pylist(make(CROWD))
    pyarrow.parquet.write_table(table, tmp_path / "records.parquet")
    assert labels_by_item(read(tmp_path / "records.parquet", **options)) == CROWD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert labels_by_item(Annotations.from_table(table, **options)) == CROWD


def test_ids_of_a_tool_are_not_row_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "export.json", label_studio(CROWD))
    assert Annotations.read(path).items.tolist() == [40, 41, 42, 43]
    assert not Annotations.read(path).ids_may_be_row_numbers
    assert Annotations.read(path, item="image").ids_may_be_row_numbers


# ---- bad input -----------------------------------------------------------------------------


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is looked at)
        Annotations.read(path, **options)
    return str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.sampled_from(["", "a", "accept", "choices"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "value", "x", "type"]), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(["label-studio", "argilla", "prodigy"]), st.data())
def test_any_record_is_read_or_refused_with_a_message(form: Any, data: st.DataObject) -> None:
    good = {"label-studio": label_studio, "argilla": argilla2, "prodigy": prodigy}[form]({"a": {"x": "cat"}})[0]
    spoiled = json.loads(json.dumps(good))
    for _ in range(data.draw(st.integers(1, 3))):  # put anything somewhere in the record
        part: Any = spoiled
        while True:
            names = list(part) if isinstance(part, dict) else list(range(len(part)))
            name = data.draw(st.sampled_from(names))
            if not isinstance(part[name], (dict, list)) or not part[name] or data.draw(st.booleans()):
                break
            part = part[name]
        part[name] = data.draw(anything)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "export.jsonl", [good, spoiled])
        with suppress(TableError):
            assert read(path, format=form).n_labels


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([{"colour": "red", "size": 3}, {}], "Found 2 records, the first with the keys 'colour', 'size'"),
        ([1, 2], "Found 2 records, the first with 1"),
        ({"colour": "red"}, "Found 1 record, the first with the keys 'colour'"),
    ],
)
def test_unknown_format_lists_the_known_formats(tmp_path: Path, content: Any, found: str) -> None:
    path = write(tmp_path / "export.json", content)
    message = complaint(path)
    assert message.startswith(f"{path}: unknown format. Expected one of\n  Label Studio: tasks with")
    for tool in ("Argilla: records with 'responses'", "Prodigy: records with 'answer'"):
        assert tool in message
    assert found in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.json", "", "e.json is empty; expected an export of a labelling tool"),
        ("e.json", '[{"id": 1,', "e.json: not JSON (Expecting property name"),
        ("e.json", "[]", "e.json has no records; expected an export of a labelling tool"),
        ("e.json", "3", "e.json holds 3; expected a list of records"),
        ("e.json", "[" * 100_000, "e.json: not JSON ("),
        ("e.jsonl", "{\n", "Found no records, only 1 broken line, such as line 1: not JSON (Expecting property name"),
        ("e.xml", "<a/>", "unknown file type '.xml'"),
    ],
)
def test_files_that_are_not_exports_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    assert message in complaint(write(tmp_path / name, content))


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"export\.json: no such file"):
        Annotations.read(tmp_path / "export.json")
    (tmp_path / "export.json").write_bytes(b'[{"id": "\xff"}]')
    assert "not UTF-8 text" in complaint(tmp_path / "export.json")
    (tmp_path / "folder.json").mkdir()
    assert "is a folder" in complaint(tmp_path / "folder.json")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("labels.csv", {"format": "prodigy"}, "format='prodigy' needs a .json, .jsonl or .parquet file"),
        ("export.json", {"format": "wide"}, "format='wide' needs a .csv, .tsv, .xlsx or .parquet file"),
        ("export.json", {"format": "csv"}, "format must be one of auto, table, wide, label-studio, argilla, prodigy"),
        ("export.json", {"on_bad": "ignore"}, "on_bad must be one of error, drop, got 'ignore'"),
        ("export.json", {"label": "animal"}, "for an export of a labelling tool, use item= and question="),
        ("labels.csv", {"question": "animal"}, "question='animal' applies only to exports"),
    ],
)
def test_incompatible_options_are_refused(tmp_path: Path, name: str, options: Any, message: str) -> None:
    make = FORMS["table"][0] if name == "labels.csv" else label_studio
    assert message in complaint(write(tmp_path / name, make(CROWD)), **options)


def spoil(form: str, number: int) -> Any:
    """A record of a form that cannot be used."""
    return {
        "label studio": task(number, f"bad{number}", annotation("", choice("cat"))),
        "argilla 2": argilla2({f"bad{number}": {"": "cat"}})[0],
        "prodigy": prodigy({f"bad{number}": {"": "cat"}})[0],
    }[form]


@pytest.mark.parametrize("form", ["label studio", "argilla 2", "prodigy"])
def test_half_of_the_answers_cannot_be_used(tmp_path: Path, form: str) -> None:
    make, name, options = FORMS[form]
    good = make(CROWD)
    bad = [spoil(form, number) for number in range(6)]  # as many as there are labels
    path = write(tmp_path / name, [*bad, *good])
    unit = "line" if name.endswith("l") else "record"
    lines = complaint(path, **options).splitlines()
    assert lines[0] == f"{path}: 6 of 12 answers cannot be used, such as"
    assert [line.split(" (item")[0] for line in lines[1:4]] == [f"  {path}, {unit} {n}" for n in (1, 2, 3)]
    assert all(line.endswith(": the annotator is empty") for line in lines[1:4])
    assert lines[4:] == ["To continue without them, use on_bad='drop' (--on-bad drop on the command line)"]

    with pytest.warns(UserWarning, match="6 of 12 answers could not be used and were left out, such as"):
        ann = Annotations.read(path, on_bad="drop", **options)
    assert {item: known for item, known in labels_by_item(ann).items() if known} == {
        k: v for k, v in CROWD.items() if v
    }
    assert "note: 6 of 12 answers could not be used" in str(ann.summary())


def test_one_answer_that_cannot_be_used(tmp_path: Path) -> None:
    path = write(tmp_path / "export.json", [*label_studio(CROWD), spoil("label studio", 9)])
    assert complaint(path) == (
        f"{path}, record 5 (item '9'): the annotator is empty. "
        "To continue without it, use on_bad='drop' (--on-bad drop on the command line)"
    )


def test_dropping_everything_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "export.json", [spoil("label studio", number) for number in range(2)])
    assert "2 of 2 answers cannot be used" in complaint(path, on_bad="drop")
    assert complaint(path, on_bad="drop").endswith("would leave no answers; correct the file")


def test_lines_that_are_not_json_and_other_records(tmp_path: Path) -> None:
    good = [json.dumps(record) for record in prodigy(CROWD)]
    path = write(tmp_path / "a.jsonl", "\n".join([good[0], "{oops", '{"note": 1}', *good[1:], "7"]))
    lines = complaint(path, item="name").splitlines()
    assert lines[0] == f"{path}: 3 of 9 answers cannot be used, such as"
    assert lines[1].startswith(f"  {path}, line 2: not JSON (Expecting property name")
    assert lines[2] == f"  {path}, line 3: 'answer' must be accept, reject or ignore, got the keys 'note'"
    assert lines[3].startswith(f"  {path}, line {len(good) + 3}: 'answer' must be")
    assert labels_by_item(read(path, item="name", on_bad="drop")) == CROWD


@pytest.mark.parametrize("form", FORMS)
def test_classes_that_differ_only_by_case_or_space(tmp_path: Path, form: str) -> None:
    make, name, options = FORMS[form]
    crowd = CROWD | {"e.jpg": {"ada@x.org": "Dog "}}
    path = write(tmp_path / name, make(crowd))
    message = complaint(path, **options)
    assert "'dog' (2 labels) and 'Dog ' (1 label)" in message
    assert "merge_similar=True (--merge-similar" in message
    assert "classes= (--classes)" in message
    with pytest.warns(UserWarning, match="were merged: 'Dog ' as 'dog'"):
        merged = Annotations.read(path, merge_similar=True, **options)
    assert labels_by_item(merged) == CROWD | {"e.jpg": {"ada@x.org": "dog"}}
    assert "note: classes that differ only by case or spaces were merged: 'Dog ' as 'dog'" in str(merged.summary())
    given = read(path, merge_similar=True, classes=["DOG", "cow", "cat"], **options)
    assert given.classes.tolist() == ["DOG", "cow", "cat"]
    assert labels_by_item(given)["e.jpg"] == {"ada@x.org": "DOG"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Annotations.read(path, classes=["Dog ", "cat", "cow", "dog"], **options)  # the user knows
    assert not [warning for warning in caught if "differ only" in str(warning.message)]


def test_coco_annotations_are_not_label_studio_tasks(tmp_path: Path) -> None:
    coco = {"images": [{"id": 1}, {"id": 2}], "annotations": [{"image_id": 1, "category_id": 3}], "categories": []}
    message = complaint(write(tmp_path / "instances.json", coco))
    assert "unknown format" in message
    assert "Found 1 record, the first with the keys 'images', 'annotations', 'categories'" in message


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("table", "wide")])
def test_conflict_names_both_places(tmp_path: Path, form: str) -> None:
    make, name, options = FORMS[form]
    path = write(tmp_path / name, [*make({"x": {"ada": "cat"}}), *make({"x": {"ada": "dog"}})])
    unit = "line" if name.endswith("l") else "record"
    message = complaint(path, **options)
    assert f"item 'x', annotator 'ada': 'cat' ({path}, {unit} 1) and 'dog' ({path}, {unit} 2)" in message
    assert labels_by_item(read(path, on_conflict="last", **options)) == {"x": {"ada": "dog"}}


def test_broken_lines_of_a_table_are_counted_shown_and_dropped(tmp_path: Path) -> None:
    lines = ["item,annotator,label", "a,x,cat", "a,b", "b,x,dog", "b,y,cat,z", "c", "c,x,cat", "d,,cat", "d,y"]
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(lines) + "\n")
    message = complaint(path).splitlines()
    assert message[0] == f"{path}: 4 of 8 rows cannot be used, such as"
    assert [line.split(":")[0] for line in message[1:4]] == [f"  {path}, line {n}" for n in (3, 5, 6)]
    assert "on_bad='drop'" in message[4]
    with pytest.warns(UserWarning, match="could not be used"):
        ann = Annotations.read(path, on_bad="drop")
    assert labels_by_item(ann) == {"a": {"x": "cat"}, "b": {"x": "dog"}, "c": {"x": "cat"}, "d": {}}
    broken, empty = ann.notes
    assert broken.startswith(
        f"4 of 8 rows could not be used and were left out, such as {path}, line 3: it has 2 values"
    )
    # places are still those of the file
    assert empty == f"1 of 4 rows could not be used and was left out: {path}, line 8: the annotator is empty"


def test_lines_that_are_not_utf8_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(b"item,annotator,label\na,x,cat\nb,x,\xff\nc,x,dog\n")
    assert "line 3: not UTF-8 text" in complaint(path)
    assert labels_by_item(read(path, on_bad="drop")) == {"a": {"x": "cat"}, "c": {"x": "dog"}}


def test_dropping_lines_never_loses_other_lines_silently(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(f"item,annotator,label\na,x,cat\nb,x\n{'long' * 40_000},x,dog\nc,x,dog\n")
    assert "field larger than field limit" in complaint(path, on_bad="drop")


@pytest.mark.parametrize("blank", ["", " ", " \t"])
def test_empty_names_in_a_table_in_memory(blank: str) -> None:
    table = {"item": ["a", "b", "c"], "annotator": ["x", None, blank], "label": ["cat", "dog", "cat"]}
    with pytest.raises(TableError, match="2 of 3 rows cannot be used, such as\n  the table, row 1: the annotator is"):
        Annotations.from_table(table)
    with pytest.warns(UserWarning, match="2 of 3 rows could not be used"):
        ann = Annotations.from_table(table, on_bad="drop")
    assert labels_by_item(ann) == {"a": {"x": "cat"}, "b": {}, "c": {}}
