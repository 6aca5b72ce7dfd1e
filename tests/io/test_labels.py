"""Labels and gold from files and tables: results, refused input, and error messages."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse import Annotations
from crowdfuse.io import dictionary_encoding as encoding
from crowdfuse.io import labels, tables
from crowdfuse.io.gold import read_gold
from crowdfuse.io.tables import TableError


def write(folder: Path, text: str, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def labels_by_item(ann: Annotations) -> dict[Any, dict[Any, Any]]:
    """Item -> annotator -> label, by name."""
    found: dict[Any, dict[Any, Any]] = {name: {} for name in ann.items.tolist()}
    for item, annotator, label in zip(ann.item, ann.annotator, ann.label, strict=True):
        name = ann.items.tolist()[item]
        found[name][ann.annotators.tolist()[annotator]] = ann.classes.tolist()[label]
    return found


ROWS = [("b", "y", "dog"), ("a", "x", "cat"), ("b", "x", "cat"), ("c", "y", "")]
COLUMNS = dict(zip(("item", "annotator", "label"), map(list, zip(*ROWS, strict=True)), strict=True))


def check(ann: Annotations) -> None:
    assert labels_by_item(ann) == {"b": {"x": "cat", "y": "dog"}, "a": {"x": "cat"}, "c": {}}
    assert ann.items.tolist() == ["b", "a", "c"]  # as they appear
    assert ann.annotators.tolist() == ["x", "y"]
    assert ann.classes.tolist() == ["cat", "dog"]
    assert ann.indptr.tolist() == [0, 2, 3, 3]
    assert [a.dtype.name for a in (ann.indptr, ann.annotator, ann.label)] == ["int64", "int32", "int32"]
    assert (ann.dropped_missing, ann.dropped_duplicates, ann.dropped_conflicts) == (1, 0, 0)
    assert not ann.by_row


@pytest.mark.parametrize(
    ("name", "delimiter", "quote", "ending"),
    [
        ("labels.csv", ",", "", "\n"),
        ("labels.csv", ",", '"', "\r\n"),
        ("labels.tsv", "\t", "", "\r\n"),
        ("labels.tsv", "\t", '"', "\n"),
    ],
)
def test_text_files(tmp_path: Path, name: str, delimiter: str, quote: str, ending: str) -> None:
    lines = [delimiter.join(f"{quote}{value}{quote}" for value in row) for row in [tuple(COLUMNS), *ROWS]]
    check(Annotations.read(write(tmp_path, ending.join(lines), name)))
    check(Annotations.read(str(tmp_path / name)))


@pytest.mark.parametrize(
    "table",
    [
        COLUMNS,
        {name: np.array(values) for name, values in COLUMNS.items()},
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).replace({"": None}),
        pd.DataFrame(COLUMNS, index=[5, 3, 9, 1]),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).cast({"annotator": pl.Categorical, "label": pl.Enum(["dog", "", "cat", "cow"])}),
        pa.table(COLUMNS),
    ],
    ids=range(8),
)
def test_tables_in_memory(table: Any) -> None:
    check(Annotations.from_table(table))


def test_categorical_items_come_in_the_order_of_their_categories() -> None:
    ann = Annotations.from_table(pd.DataFrame(COLUMNS).astype("category"))
    assert ann.items.tolist() == ["a", "b", "c"]
    assert labels_by_item(ann) == {"a": {"x": "cat"}, "b": {"x": "cat", "y": "dog"}, "c": {}}


def test_parquet(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table(COLUMNS), tmp_path / "labels.parquet")
    check(Annotations.read(tmp_path / "labels.parquet"))


def test_columns_by_other_names(tmp_path: Path) -> None:
    path = write(tmp_path, "when,who,what,sentiment\n1,y,b,dog\n2,x,a,cat\n3,x,b,cat\n4,y,c,\n")
    check(Annotations.read(path, item="what", annotator="who", label="sentiment"))
    renamed = pa.table(COLUMNS).rename_columns(["what", "who", "label"])
    check(Annotations.from_table(renamed, item="what", annotator="who"))
    check(Annotations.read(write(tmp_path, "Task,worker_id,Answer\n" + "\n".join(map(",".join, ROWS)))))


def test_integers_and_leading_zeros(tmp_path: Path) -> None:
    ann = Annotations.read(write(tmp_path, "item,annotator,label\n10,007,9\n9,7,10\n10,7,10\n"))
    assert ann.items.tolist() == [10, 9]
    assert ann.annotators.tolist() == ["007", "7"]
    assert ann.classes.tolist() == [9, 10]  # as numbers, not by alphabet
    assert labels_by_item(ann) == {10: {"007": 9, "7": 10}, 9: {"7": 10}}
    strings = Annotations.from_table({"item": ["10"], "annotator": ["7"], "label": ["9"]})
    assert strings.items.tolist() == ["10"]  # a table's strings are strings


def test_values_are_not_changed(tmp_path: Path) -> None:
    text = '\ufeffitem,annotator,label\n"two\nlines",NA,null\n" x","a,b",none\n"say ""hi""",NA,1.0\n'
    assert labels_by_item(Annotations.read(write(tmp_path, text))) == {
        "two\nlines": {"NA": "null"},
        " x": {"a,b": "none"},
        'say "hi"': {"NA": "1.0"},
    }


@pytest.mark.parametrize("label", [[3.0, float("nan"), 1.0], [3, None, 1], pd.array([3, None, 1], "Int64")])
def test_integers_with_missing_values(label: Any) -> None:
    ann = Annotations.from_table({"item": [5, 5, 6], "annotator": [True, False, True], "label": label})
    assert labels_by_item(ann) == {5: {1: 3}, 6: {1: 1}}
    assert (ann.classes.dtype.name, ann.dropped_missing) == ("int64", 1)


def test_given_classes_fix_list_and_order(tmp_path: Path) -> None:
    path = write(tmp_path, "item,annotator,label\na,x,2\nb,x,0\n")
    assert Annotations.read(path, classes=[2, 1, 0]).label.tolist() == [0, 2]
    ann = Annotations.read(path, classes=["0", "1", "2"])  # the integer 2 matches the text "2"
    assert (ann.classes.tolist(), ann.label.tolist()) == (["0", "1", "2"], [2, 0])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.sampled_from(["", "p", "q"])), min_size=1)
)
def test_csr_arrays_equal_a_dictionary_of_dictionaries(rows: list[tuple[str, str, str]]) -> None:
    labels: dict[tuple[str, str], list[str]] = defaultdict(list)
    expected: dict[str, dict[str, str]] = {item: {} for item, _, _ in rows}
    for item, annotator, label in rows:
        if label:
            labels[item, annotator].append(label)
            expected[item].setdefault(annotator, label)
    repeats = sum(found.count(found[0]) - 1 for found in labels.values())
    contradictions = sum(len(found) - found.count(found[0]) for found in labels.values())
    table = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    ann = Annotations.from_table(table, on_conflict="first")
    assert labels_by_item(ann) == expected
    assert ann.items.tolist() == list(expected)
    missing = sum(not label for _, _, label in rows)
    dropped = (ann.dropped_missing, ann.dropped_duplicates, ann.dropped_conflicts)
    assert dropped == (missing, repeats, contradictions)
    assert all((np.diff(ann.annotator[a:b]) > 0).all() for a, b in zip(ann.indptr, ann.indptr[1:], strict=False))


BIG: dict[str, Callable[[int], tuple[str, str, str]]] = {
    "many items": lambda i: (f"item{i * 7919 % 3001}", f"w{i % 9}", f"c{i % 4}"),
    "integers": lambda i: (str(i * 7919 % 3001), str(i % 9), str(i % 4)),
    "few items, in order": lambda i: (f"item{i // 9}", f"w{i % 9}", f"c{i % 4}"),
    "empty labels": lambda i: (f"item{i * 7919 % 3001}", f"w{i % 9}", f"c{i % 4}" if i % 3 else ""),
    "quoted": lambda i: (f'"item{i * 7919 % 3001}"', f'"w{i % 9}"', f'"c{i % 4}"'),
    "many breaks": lambda i: (f'"item\n{i * 7919 % 3001}"', f"w{i % 9}", f'"c\n\n{i % 4}"'),
    "stray quotes": lambda i: (f'5" x {i * 7919 % 3001}', f'w"{i % 9}', '"1\na,b,c"' if i % 2 else 'c"'),
    "one late quote": lambda i: (f"item{i * 7919 % 3001}", f"w{i % 9}", '"quoted\nlabel"' if i == 2999 else "c"),
}


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r", "\n\n"])
@pytest.mark.parametrize("rows", BIG)
def test_big_files_are_read_in_blocks(tmp_path: Path, rows: str, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [BIG[rows](i) for i in range(3000)]
    expected: dict[Any, dict[Any, Any]] = defaultdict(dict)
    for row in values:
        item, annotator, label = (value[1:-1] if value.startswith('"') else value for value in row)
        expected[item] |= {annotator: label} if label else {}
    path = write(tmp_path, ending.join(["\ufeffitem,annotator,label", *map(",".join, values)]) + ending * 3)
    whole = Annotations.read(path)
    monkeypatch.setattr(labels, "MIN_BYTES_TO_READ_IN_BLOCKS", 0)
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(encoding, "CARDINALITY_SAMPLE_ROWS", 64)
    monkeypatch.setattr(encoding, "MIN_ROWS_TO_PARTITION", 100)
    if not any("\n" in value for row in values for value in row):
        monkeypatch.setattr(tables.TableFile, "read", None)  # there is no need to read the file as a whole
    blocks = Annotations.read(path)
    assert blocks == whole
    found = {
        str(item): {str(who): str(what) for who, what in known.items()}
        for item, known in labels_by_item(blocks).items()
    }
    assert found == expected
    assert list(found) == list(expected)  # items as they appear
    assert blocks.dropped_missing == sum(not label for *_, label in values)


@pytest.mark.parametrize(("line", "message"), [("a,b", "it has 2 values"), ("a,b,\udcff", "not UTF-8")])
def test_broken_lines_of_big_files_are_named(
    tmp_path: Path, line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MIN_BYTES_TO_READ_IN_BLOCKS", 0)
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 1 << 10)
    lines = ["item,annotator,label", *(f"item{i},w,c" for i in range(2000)), line, "item,w,c"]
    path = tmp_path / "labels.csv"
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    assert complaint(path).startswith(f"{path}, line 2002: {message}")


# ---- bad input -----------------------------------------------------------------------------


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        Annotations.read(path, **options)
    return str(caught.value)


def test_empty_tables(tmp_path: Path) -> None:
    path = write(tmp_path, "item,annotator,label\n")
    assert complaint(path) == f"{path} has a header but no rows; expected one row per label"
    with pytest.raises(TableError, match="the table has a header but no rows"):
        Annotations.from_table({"item": [], "annotator": [], "label": []})
    assert "is empty" in complaint(write(tmp_path, "", "empty.csv"))


def test_table_with_only_empty_labels_has_no_labels(tmp_path: Path) -> None:
    ann = Annotations.read(write(tmp_path, "item,annotator,label\na,x,\nb,y,\n"))
    assert (ann.n_items, ann.n_labels, ann.n_classes, ann.dropped_missing) == (2, 0, 0, 2)
    assert "2 labels are missing (empty, or a word such as NA)" in str(ann.summary())


def test_missing_and_ambiguous_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "item,worker,rater,label\na,x,y,z\n")
    message = complaint(path)
    assert message.startswith(f"{path} has several columns that may be the annotator: 'worker', 'rater'")
    assert "annotator=" in message
    path = write(tmp_path, "item,worker\na,x\n")
    assert complaint(path).startswith(f"{path} has no column for the label: expected one of label, answer, response")


def test_a_label_outside_the_classes(tmp_path: Path) -> None:
    path = write(tmp_path, 'item,annotator,label\n"a\nb",x,cat\n\n\nc,x,catt\nd,x,cot\n')
    assert complaint(path, classes=["cat", "dog"]) == (
        f"{path}, line 6: label 'catt' is not one of the 2 classes ('cat', 'dog'); correct it, or add it to classes="
    )
    with pytest.raises(TableError, match=r"^the table, row 1: label 3 is not one of the 2 classes \(1, 2\)"):
        Annotations.from_table({"item": [1, 2], "annotator": [1, 1], "label": [1, 3]}, classes=[1, 2])
    with pytest.raises(ValueError, match="classes must be distinct, but these occur more than once: 'cat'"):
        Annotations.read(path, classes=["cat", "cat"])


@pytest.mark.parametrize("role", ["item", "annotator"])
def test_empty_names_are_refused(tmp_path: Path, role: str) -> None:
    row = {"item": ",x,cat", "annotator": "a,,cat"}[role]
    path = write(tmp_path, f"item,annotator,label\na,x,cat\n,,\nb,x,\n{row}\n")
    assert complaint(path) == (
        f"{path}, line 5: the {role} is empty. "
        "To continue without it, use on_bad='drop' (--on-bad drop on the command line)"
    )


def test_rows_without_anything_are_missing_labels(tmp_path: Path) -> None:
    ann = Annotations.read(write(tmp_path, "item,annotator,label\na,x,cat\n,,\n,,\n"))
    assert labels_by_item(ann) == {"a": {"x": "cat"}}
    assert ann.dropped_missing == 2


def test_repeats_are_dropped_and_counted(tmp_path: Path) -> None:
    ann = Annotations.read(write(tmp_path, "item,annotator,label\na,x,cat\na,y,cat\na,x,cat\na,x,cat\n"))
    assert (ann.n_labels, ann.dropped_duplicates, ann.dropped_conflicts) == (2, 2, 0)
    assert "2 repeated labels were dropped" in str(ann.summary())


CONFLICT = 'item,annotator,label\n7,x,cat\n\n8,x,\n"7",x,dog\n8,x,dog\n7,x,cat\n8,"x",cat\n9,x,cat\n'


def test_conflicts_are_listed_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path, CONFLICT)
    assert complaint(path) == (
        f"{path}: 2 (item, annotator) pairs have two different labels, such as\n"
        f"  item 7, annotator 'x': 'cat' ({path}, line 2) and 'dog' ({path}, line 5)\n"
        f"  item 8, annotator 'x': 'dog' ({path}, line 6) and 'cat' ({path}, line 8)\n"
        "Choose what to keep with on_conflict= (--on-conflict on the command line): 'first' keeps the "
        "first label, 'last' the last, 'drop' none"
    )


def test_only_a_few_conflicts_are_listed() -> None:
    n = 1200
    table = {"item": [*range(n)] * 2, "annotator": [5] * (2 * n), "label": ["a"] * n + ["b"] * n}
    with pytest.raises(TableError, match=r"the table: 1,200 \(item, annotator\) pairs") as caught:
        Annotations.from_table(table)
    lines = str(caught.value).splitlines()
    assert lines[1] == "  item 0, annotator 5: 'a' (the table, row 0) and 'b' (the table, row 1200)"
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("on_conflict", "kept", "dropped"),
    [
        ("first", {7: {"x": "cat"}, 8: {"x": "dog"}, 9: {"x": "cat"}}, (1, 1, 2)),
        ("last", {7: {"x": "cat"}, 8: {"x": "cat"}, 9: {"x": "cat"}}, (1, 1, 2)),
        ("drop", {7: {}, 8: {}, 9: {"x": "cat"}}, (1, 0, 5)),
    ],
)
def test_conflicts_follow_on_conflict(tmp_path: Path, on_conflict: Any, kept: Any, dropped: Any) -> None:
    ann = Annotations.read(write(tmp_path, CONFLICT), on_conflict=on_conflict)
    assert labels_by_item(ann) == kept
    assert (ann.dropped_missing, ann.dropped_duplicates, ann.dropped_conflicts) == dropped
    assert f"{dropped[2]} labels were dropped because their annotator" in str(ann.summary())


def test_unknown_on_conflict_is_refused() -> None:
    with pytest.raises(ValueError, match="on_conflict must be one of error, first, last, drop, got 'keep'"):
        Annotations.from_table(COLUMNS, on_conflict="keep")  # type: ignore[arg-type]


def test_fractions_are_refused_as_labels() -> None:
    with pytest.raises(
        TableError, match=r"^the table, row 1: label 0\.5 cannot be an id or a class name; use only strings"
    ):
        Annotations.from_table({"item": [1, 2], "annotator": [1, 2], "label": [1.0, 0.5]})


# ---- gold ----------------------------------------------------------------------------------


def test_gold(tmp_path: Path) -> None:
    items, truth = read_gold(write(tmp_path, "label,task\ncat,10\ndog,9\ncat,10\n"))
    assert (items.tolist(), truth.tolist()) == ([10, 9], ["cat", "dog"])
    items, truth = read_gold(write(tmp_path, "id,true,label\nx,2,0\ny,1,0\n"), item="id", label="true")
    assert (items.tolist(), truth.tolist()) == (["x", "y"], [2, 1])
    pyarrow.parquet.write_table(pa.table({"item": ["1"], "label": ["2"]}), tmp_path / "gold.parquet")
    assert [array.tolist() for array in read_gold(tmp_path / "gold.parquet")] == [["1"], ["2"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,label\n", "{path} has a header but no rows; expected one row per item"),
        ("item,label\na,1\n\nb,\n", "{path}, line 4: the label is empty; fill it in or remove the row"),
        ("item,label\na,1\n,1\n", "{path}, line 3: the item is empty; fill it in or remove the row"),
        (
            "item,label\na,1\nb,1\na,1\nb,1\n\na,2\nb,2\n",
            "item 'a' has two different gold labels, 1 ({path}, line 2) and 2 ({path}, line 7); remove one",
        ),
        ("item,worker\na,1\n", "{path} has no column for the label"),
    ],
)
def test_invalid_gold_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TableError) as caught:
        read_gold(path)
    assert str(caught.value).startswith(message.format(path=path))
