"""Wide tables: detection, labels, and refused input; and class names of Hugging Face."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from crowdfuse import Annotations
from crowdfuse.io.gold import read_gold
from crowdfuse.io.hugging_face import with_class_names
from crowdfuse.io.tables import TableError
from tests.exports import CROWD, labels_by_item, wide_table


def write(folder: Path, text: str) -> Path:
    path = folder / "labels.csv"
    path.write_text(text)
    return path


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is looked at)
        Annotations.read(path, **options)
    return str(caught.value)


def test_columns_with_values_in_common_are_annotators(tmp_path: Path) -> None:
    ann = Annotations.read(write(tmp_path, "item,ada,007\n2,cat,dog\n1,,cat\n9,,\n"))
    assert labels_by_item(ann) == {2: {"ada": "cat", "007": "dog"}, 1: {"007": "cat"}, 9: {}}
    assert (ann.dropped_missing, ann.ids_may_be_row_numbers) == (0, True)
    assert labels_by_item(Annotations.read(write(tmp_path, "page,3,4\nx,1,2\ny,2,1\n"), item="page")) == {
        "x": {3: 1, 4: 2},
        "y": {3: 2, 4: 1},
    }


@pytest.mark.parametrize(
    "text",
    [
        "item,ada,bob\n1,cat,dog\n2,cat,cow\n",  # no value in common
        "item,ada\n1,cat\n2,dog\n",  # one column
        "page,ada,bob\n1,cat,cat\n",  # which is the item?
    ],
)
def test_ambiguous_tables_are_wide_only_on_request(tmp_path: Path, text: str) -> None:
    assert "has no column for the" in complaint(write(tmp_path, text))


def test_error_suggests_the_wide_format(tmp_path: Path) -> None:
    path = write(tmp_path, "item,ada,bob\n1,cat,dog\n")
    assert "if there is one column per annotator, use format='wide' (--format wide)" in complaint(path)
    assert labels_by_item(Annotations.read(path, format="wide")) == {1: {"ada": "cat", "bob": "dog"}}
    assert "has no column for the annotator" in complaint(write(tmp_path, "item,ada,bob\n1,x,x\n"), format="table")


def test_one_row_per_label_is_not_wide(tmp_path: Path) -> None:
    """Even where annotators and labels have a name in common."""
    path = write(tmp_path, "item,annotator,label\n1,a,a\n2,b,a\n")
    assert labels_by_item(Annotations.read(path)) == {1: {"a": "a"}, 2: {"b": "a"}}
    path = write(tmp_path, "item,who,what\n1,a,a\n2,b,a\n")
    assert labels_by_item(Annotations.read(path, annotator="who", label="what")) == {1: {"a": "a"}, 2: {"b": "a"}}


def test_wide_parquet_and_tables(tmp_path: Path) -> None:
    table = pa.table({"item": ["p", "q"], "x": pa.array([1.0, None]), "y": [2, 1], "z": pa.nulls(2)})
    pyarrow.parquet.write_table(table, tmp_path / "labels.parquet")
    expected = {"p": {"x": 1, "y": 2}, "q": {"y": 1}}
    assert labels_by_item(Annotations.read(tmp_path / "labels.parquet", format="wide")) == expected
    frame = pd.DataFrame({"item": ["p", "q"], "x": ["a", None], "y": ["b", "a"]})
    assert labels_by_item(Annotations.from_table(frame)) == {"p": {"x": "a", "y": "b"}, "q": {"y": "a"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item\n1\n", "has only the column 'item'; add one column per annotator"),
        ("item,,ada\n1,a,a\n", "a column has no name; give it the id of its annotator"),
        ("item,ada,ada\n1,a,a\n", "has two columns called 'ada'; rename one"),
        ("item,ada\n", "has a header but no rows"),
        ("page,ada\n1,a\n", "has no column for the item"),
    ],
)
def test_wide_tables_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    assert message in complaint(write(tmp_path, text), format="wide")


def test_places_in_a_wide_table(tmp_path: Path) -> None:
    path = write(tmp_path, "item,ada,bob\n1,cat,dog\n\n1,cat,cat\n,,cat\n,,\n")
    assert complaint(path, format="wide").startswith(f"{path}, line 5, column 'bob': the item is empty")
    path = write(tmp_path, "item,ada,bob\n1,cat,dog\n\n1,cat,cat\n")
    places = f"'dog' ({path}, line 2, column 'bob') and 'cat' ({path}, line 4, column 'bob')"
    assert f"item 1, annotator 'bob': {places}" in complaint(path, format="wide")
    message = complaint(path, format="wide", classes=["cat"])
    assert message.startswith(f"{path}, line 2, column 'bob': label 'dog' is not one of the 1 classes")
    assert "leave out annotator= and label=" in complaint(path, format="wide", label="bob")


def test_broken_lines_of_a_wide_table_can_be_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, "item,ada,bob\n1,cat,cat\n2,cat\n3,dog,cat\n")
    assert f"{path}, line 3: it has 2 values" in complaint(path)
    with pytest.warns(UserWarning, match="1 of 3 rows could not be used"):
        ann = Annotations.read(path, on_bad="drop")
    assert labels_by_item(ann) == {1: {"ada": "cat", "bob": "cat"}, 3: {"ada": "dog", "bob": "cat"}}


def test_wide_table_equals_from_matrix(tmp_path: Path) -> None:
    frame = pd.read_csv(write(tmp_path, wide_table(CROWD)), index_col="item").replace({np.nan: None})
    matrix = Annotations.from_matrix(frame)
    ann = Annotations.read(tmp_path / "labels.csv", format="wide")
    assert labels_by_item(ann) == labels_by_item(matrix)


# ---- Hugging Face --------------------------------------------------------------------------


def hugging_face(names: list[str], **columns: Any) -> pa.Table:
    """A table with the metadata that Hugging Face's datasets write into Parquet and Arrow files."""
    features = {name: {"dtype": "string", "_type": "Value"} for name in columns}
    features["label"] = {"names": names, "_type": "ClassLabel"}  # type: ignore[dict-item]
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


TABLE = hugging_face(["neg", "pos"], item=["a", "a", "b"], annotator=["x", "y", "x"], label=[1, 0, -1])
NAMED = {"a": {"x": "pos", "y": "neg"}, "b": {}}


def test_class_labels_get_their_names(tmp_path: Path) -> None:
    assert labels_by_item(Annotations.from_table(TABLE)) == NAMED
    pyarrow.parquet.write_table(TABLE, tmp_path / "labels.parquet")
    assert labels_by_item(Annotations.read(tmp_path / "labels.parquet")) == NAMED
    gold = hugging_face(["neg", "pos"], item=["a", "b"], label=[1, 0])
    pyarrow.parquet.write_table(gold, tmp_path / "gold.parquet")
    assert read_gold(tmp_path / "gold.parquet")[1].tolist() == ["pos", "neg"]


def test_class_labels_without_a_name() -> None:
    table = hugging_face(["neg"], item=["a"], annotator=["x"], label=[3])
    with pytest.raises(TableError, match="'label' has names for the classes 0 to 0, but its values go from 3 to 3"):
        Annotations.from_table(table)


@pytest.mark.parametrize("metadata", [{}, {"huggingface": "{"}, {"huggingface": "[]"}, {"huggingface": '{"info": 3}'}])
def test_other_metadata_are_ignored(metadata: Any) -> None:
    table = pa.table({"label": [3]}).replace_schema_metadata(metadata)
    assert with_class_names(table)["label"].to_pylist() == [3]


class ClassLabel:
    names = ("neg", "pos")


class Dataset:
    """What a `datasets.Dataset` shows of itself, after `select`: its own table has other rows in another order."""

    def __init__(self, rows: list[int]) -> None:
        self.data = TABLE
        self.rows = rows
        self.features = {"item": object(), "annotator": object(), "label": ClassLabel()}

    def with_format(self, kind: str) -> Any:
        assert kind == "arrow"
        return TABLE.replace_schema_metadata(None).take(self.rows)


class DatasetDict(dict[str, Dataset]):
    def with_format(self, kind: str) -> Any:
        raise AssertionError


def test_datasets_of_hugging_face() -> None:
    for way_in in (Annotations.from_table, Annotations.read):
        assert labels_by_item(way_in(Dataset([2, 1]))) == {"b": {}, "a": {"y": "neg"}}
    with pytest.raises(TableError, match=r"the splits 'train', 'test'; pass one split, such as data\['train'\]"):
        Annotations.from_table(DatasetDict(train=Dataset([0]), test=Dataset([1])))
