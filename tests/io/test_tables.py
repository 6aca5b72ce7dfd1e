"""Tables from files and from memory: which column, which line, which types."""

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

from crowdfuse.io import tables
from crowdfuse.io.column_encoding import encode_column
from crowdfuse.io.tables import TableError, TableFile, as_table, choose_columns


def write(folder: Path, content: str | bytes, name: str = "labels.csv") -> TableFile:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return TableFile(path)


# ---- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("A.TAB", "\t"), ("A.CSV", ",")])
def test_text_files(tmp_path: Path, name: str, delimiter: str, bom: bytes, ending: str) -> None:
    rows = [["item", "label"], ["007", "NA"], ["", "null"], ["häß", "1.0"], ["1", "nan"]]
    text = ending.join(delimiter.join(row) for row in rows) + ending
    file = write(tmp_path, bom + text.encode(), name)
    assert file.is_text
    assert file.columns == ["item", "label"]
    table = file.read(text=True, dictionary=["label"])
    assert [list(row.values()) for row in table.to_pylist()] == rows[1:]  # values are unchanged, none becomes null
    assert table.schema.types == [pa.string(), pa.dictionary(pa.int32(), pa.string())]


def test_some_columns_and_numbers(tmp_path: Path) -> None:
    file = write(tmp_path, "item,a,b\nx,1,2\ny,3,0.5\n")
    assert file.read(["b", "item"], text=True).to_pydict() == {"b": ["2", "0.5"], "item": ["x", "y"]}
    assert file.read(["a", "b"]).to_pydict() == {"a": [1, 3], "b": [2.0, 0.5]}


def test_a_column_that_turns_to_fractions_late_is_read_as_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 64)
    file = write(tmp_path, "item,a\n" + "x,1\n" * 100 + "y,0.5\n")
    assert file.read(["a"])["a"].to_pylist()[-2:] == [1.0, 0.5]


def test_quoted_values(tmp_path: Path) -> None:
    file = write(tmp_path, '"item",label\n"a,b","say ""hi"""\n"two\nlines",x"y\n"",z\n')
    assert file.columns == ["item", "label"]
    assert file.read(text=True).to_pydict() == {"item": ["a,b", "two\nlines", ""], "label": ['say "hi"', 'x"y', "z"]}


def test_quoted_line_breaks_where_blocks_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 32)
    names = [f"{i}\n\nend" for i in range(50)]
    file = write(tmp_path, "item,label\n" + "".join(f'"{name}",x\n' for name in names))
    assert file.read(text=True)["item"].to_pylist() == names
    assert file.describe_row(20).endswith(f"line {2 + 3 * 20}")


def test_a_row_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 16)
    file = write(tmp_path, f"item,text\nx,{'long ' * 1000}\ny,short\n")
    assert file.read(["item"], text=True)["item"].to_pylist() == ["x", "y"]


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    pyarrow.parquet.write_table(pa.table({"item": ["007", None], "label": [1, 2], "other": [0.5, 1.5]}), path)
    file = TableFile(path)
    assert not file.is_text
    assert file.columns == ["item", "label", "other"]
    assert file.read(["label", "item"], text=True).to_pydict() == {"label": [1, 2], "item": ["007", None]}
    assert file.describe_row(1) == f"{path}, row 1"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.csv", b"", "labels.csv is empty; expected a header and at least one row"),
        ("labels.csv", b"\n\r\n", "labels.csv has no header; expected column names"),
        ("labels.ods", b"PK", "unknown file type '.ods'; expected a .csv, .tsv, .xlsx or .parquet file"),
        ("labels.parquet.gz", b"", "unknown file type '.gz'"),
        ("labels.parquet", b"item,label\na,b\n", "labels.parquet: not a readable Parquet file"),
        (
            "labels.csv",
            "item,größe\n".encode("latin-1"),
            "labels.csv, line 1: not UTF-8 text. It is probably Windows-1252 (Western European): '",
        ),
    ],
)
def test_files_that_are_not_tables_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(TableError) as caught:
        write(tmp_path, content, name)
    assert message in str(caught.value)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"labels\.csv: no such file"):
        TableFile(tmp_path / "labels.csv")
    with pytest.raises(TableError, match="is a folder"):
        TableFile(tmp_path)


@pytest.mark.parametrize("rows_before", [0, 5000])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"a,b\n", "it has 2 values, but the header has 3 columns ('item', 'annotator', 'label')"),
        (b"a,b,c,d\n", "it has 4 values, but the header has 3 columns"),
        (
            b"a,b,caf\xe9\n",
            "not UTF-8 text. It is probably Windows-1252 (Western European): 'a b café'",
        ),
    ],
)
def test_broken_lines_are_named(
    tmp_path: Path, bad: bytes, message: str, rows_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CSV_BLOCK_BYTES", 1 << 12)
    good = b'\nx,y,z\n"q\nq",y,z\n' * rows_before  # each four lines, a blank one and a quoted break among them
    file = write(tmp_path, b"item,annotator,label\n" + good + bad + b"x,y,z\n")
    with pytest.raises(TableError) as caught:
        file.read(text=True, dictionary=["label"])
    assert f"labels.csv, line {2 + 4 * rows_before}: {message}" in str(caught.value)


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    pyarrow.parquet.write_table(pa.table({"item": [str(i) for i in range(1000)]}), path)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(TableError, match=r"labels\.parquet: "):
        TableFile(path).read()


RECORD = st.tuples(
    st.sampled_from(["a", '"b"', '"one\ntwo"', '"\n\n"', '"x""y"', '""']), st.sampled_from(["", "\n", "\n\n"])
)


@settings(deadline=None)
@given(st.sampled_from(["", "\n"]), st.lists(RECORD, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_line_numbers(
    tmp_path_factory: pytest.TempPathFactory, before: str, records: list[tuple[str, str]], ending: str
) -> None:
    text, lines = before + "item,label\n", []
    for value, blank_lines in records:
        text += blank_lines
        lines.append(text.count("\n") + 1)
        text += f"{value},l\n"
    file = write(tmp_path_factory.mktemp("lines"), text.replace("\n", ending))
    assert file.read(text=True).num_rows == len(records)
    rows = list(range(len(records)))[::-1]
    assert file.describe_rows(rows) == [f"{file.path}, line {lines[row]}" for row in rows]
    assert file.describe_row(0) == f"{file.path}, line {lines[0]}"


def test_a_value_too_long_for_line_numbers_still_has_a_row_number(tmp_path: Path) -> None:
    file = write(tmp_path, f"item,label\n{'x' * 200_000},a\ny,b\n")
    assert file.describe_row(1) == f"{file.path}, row 1"
    assert file.read(text=True).num_rows == 2


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    file = write(tmp_path, "item,label,label\na,b,c\n")
    assert file.read(["item"], text=True).num_rows == 1
    with pytest.raises(TableError, match=r"labels\.csv has two columns called 'label'; rename one"):
        file.read()


# ---- columns -------------------------------------------------------------------------------

ROLES = {"item": None, "annotator": None, "label": None}


@pytest.mark.parametrize(
    "found",
    [
        ["item", "annotator", "label"],
        ["task", "worker", "answer"],
        ["example", "rater", "response"],
        ["Item_ID", " Worker_id ", "LABELS"],
        ["image", "annotator", "label"],
        ["File", "rater", "label"],
        ["filename", "worker", "label"],
        ["id", "labeller", "class"],
    ],
)
def test_usual_names(found: list[str]) -> None:
    assert choose_columns([*found, "time"], ROLES, "the table") == dict(zip(ROLES, found, strict=True))


def test_image_column_beside_an_item_column_is_not_the_item() -> None:
    assert choose_columns(["image", "item", "rater", "label"], ROLES, "the table")["item"] == "item"


def test_class_column_beside_a_label_column_is_not_the_label() -> None:
    assert choose_columns(["item", "rater", "class", "label"], ROLES, "the table")["label"] == "label"


def test_given_names_take_precedence() -> None:
    given = {"item": "task", "annotator": None, "label": "x"}
    chosen = choose_columns(["item", "task", "rater", "label", "x"], given, "the table")
    assert chosen == {"item": "task", "annotator": "rater", "label": "x"}


@pytest.mark.parametrize(
    ("found", "given", "message"),
    [
        (
            ["item", "who", "label"],
            ROLES,
            "labels.csv has no column for the annotator: expected one of annotator, worker, rater, labeller, "
            "labeler; its columns are 'item', 'who', 'label'. Choose one with annotator= (--annotator on the command "
            "line)",
        ),
        (
            ["photo", "who", "label"],
            ROLES,
            "no column for the item: expected one of item, task, example, image, file, filename, file_name, id; no "
            "column for the annotator: expected one of annotator, worker, rater, labeller, labeler; its columns are "
            "'photo', 'who', 'label'. Choose them with item= (--item on the command line) and annotator= (--annotator",
        ),
        (
            ["item", "task", "rater", "label"],
            ROLES,
            "labels.csv has several columns that may be the item: 'item', 'task'. "
            "Choose one with item= (--item on the command line)",
        ),
        (
            ["image", "file", "rater", "label"],
            ROLES,
            "labels.csv has several columns that may be the item: 'image', 'file'. "
            "Choose one with item= (--item on the command line)",
        ),
        (
            ["thing", "rater", "label"],
            ROLES,
            "labels.csv has no column for the item: expected one of item, task, example, image, file,",
        ),
        (
            ["item", "rater", "label"],
            {**ROLES, "label": "lable"},
            "labels.csv has no column 'lable'; its columns are 'item', 'rater', 'label'",
        ),
        (
            ["item", "rater", "label"],
            {**ROLES, "label": "item"},
            "labels.csv: the same column was chosen twice (item='item'",
        ),
        (["item", "rater", "x", "x"], {**ROLES, "label": "x"}, "labels.csv has two columns called 'x'; rename one"),
    ],
)
def test_missing_and_ambiguous_columns(found: list[str], given: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError) as caught:
        choose_columns(found, given, "labels.csv")
    assert message in str(caught.value)


# ---- tables in memory ----------------------------------------------------------------------

DATA: dict[str, list[Any]] = {"item": ["b", "a", "b"], "n": [3, 1, 2]}


@pytest.mark.parametrize(
    "table",
    [
        DATA,
        {"item": np.array(DATA["item"]), "n": np.array(DATA["n"])},
        {"item": pd.Series(DATA["item"]), "n": pl.Series(DATA["n"])},
        {"item": tuple(DATA["item"]), "n": pa.array(DATA["n"])},
        pd.DataFrame(DATA),
        pl.DataFrame(DATA),
        pa.table(DATA),
        pa.table(DATA).to_reader(),
    ],
    ids=lambda table: type(table).__name__,
)
def test_tables_in_memory(table: Any) -> None:
    found = as_table(table)
    assert {name: found[name].to_pylist() for name in found.column_names} == DATA


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"item": ["a"], "n": [1, 2]}, TableError, "the columns must have the same length, got {'item': 1, 'n': 2}"),
        ({"item": ["a", 1]}, TableError, "column 'item' must be an array of strings or of integers"),
        ({"item": 5}, TableError, "column 'item' must be an array"),
        ({"item": np.zeros((2, 2))}, TableError, "column 'item' must be an array"),
        (pd.DataFrame({"item": ["a", 1]}, dtype=object), TableError, "item"),
        (pd.Series(["a"]), TableError, "the Series is not a table"),
        ("labels.csv", TypeError, "any object with __arrow_c_stream__), got str"),
        (np.zeros((2, 3)), TypeError, "a table of pandas, polars or pyarrow"),
    ],
)
def test_objects_that_are_not_tables_are_refused(table: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        as_table(table)
    assert message in str(caught.value)


# ---- encoding ------------------------------------------------------------------------------


def column(values: Any, kind: Any = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "names", "codes"),
    [
        (column(["b", "a", "b", None, ""]), ["b", "a"], [0, 1, 0, -1, -1]),
        (column(["", "b", "", "a"]), ["b", "a"], [-1, 0, -1, 1]),
        (column(["", None]), [], [-1, -1]),
        (column([None, None]), [], [-1, -1]),
        (column(["b", "a"], pa.large_string()), ["b", "a"], [0, 1]),
        (column(["b", "a"], pa.string_view()), ["b", "a"], [0, 1]),
        (column([10, 9, None], pa.int8()), [10, 9], [0, 1, -1]),
        (column([10, 9, None], pa.uint64()), [10, 9], [0, 1, -1]),
        (column([2.0, NAN, -1.0, None]), [2, -1], [0, -1, 1, -1]),
        (column([True, False, None]), [1, 0], [0, 1, -1]),
        (column(["1", "2"]), ["1", "2"], [0, 1]),  # strings of a table stay strings
        (pa.chunked_array([["a"], [], ["b", "a"]]), ["a", "b"], [0, 1, 0]),
        (pa.chunked_array([], pa.string()), [], []),
    ],
)
def test_columns_of_every_kind(values: pa.ChunkedArray, names: list[Any], codes: list[int]) -> None:
    found, rows = encode_column(values, "label", "the table", text=False)
    assert (found.tolist(), rows.tolist()) == (names, codes)
    assert rows.dtype == np.int32
    assert found.dtype == (np.int64 if names and isinstance(names[0], int) else object)


@pytest.mark.parametrize(
    ("table", "names", "codes"),
    [
        (pd.DataFrame({"x": pd.Categorical(["b", "a", None], ["c", "b", "", "a"])}), ["b", "a"], [0, 1, -1]),
        (pd.DataFrame({"x": pd.Categorical(["", "a"], ["a", ""])}), ["a"], [-1, 0]),
        (pd.DataFrame({"x": pd.Categorical([30, 4, 30])}), [30, 4], [0, 1, 0]),
        (pd.DataFrame({"x": pd.Categorical([2.0, 1.0])}), [2, 1], [0, 1]),
        (pd.DataFrame({"x": pd.array([3, None, 1], "Int64")}), [3, 1], [0, -1, 1]),
        (pd.DataFrame({"x": pd.array(["b", None], "string")}), ["b"], [0, -1]),
        (pd.DataFrame({"x": [3.0, None, 1.0]}), [3, 1], [0, -1, 1]),
        (pl.DataFrame({"x": ["b", None, "a"]}, {"x": pl.Categorical}), ["b", "a"], [0, -1, 1]),
        (pl.DataFrame({"x": ["b", None, "a"]}, {"x": pl.Enum(["a", "b", "c"])}), ["a", "b"], [1, -1, 0]),
        (pl.concat([pl.DataFrame({"x": ["b"]}), pl.DataFrame({"x": ["a", "b"]})]), ["b", "a"], [0, 1, 0]),
    ],
)
def test_columns_of_data_frames(table: Any, names: list[Any], codes: list[int]) -> None:
    found, rows = encode_column(as_table(table)["x"], "x", "the table", text=False)
    assert (found.tolist(), rows.tolist()) == (names, codes)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([None, "", "1", "2", "x"])), max_size=4), st.booleans())
def test_dictionary_columns_equal_plain_columns(chunks: list[list[str | None]], text: bool) -> None:
    """Each chunk has its own dictionary, in its own order."""
    plain = pa.chunked_array(chunks, pa.string())
    dictionary = pa.chunked_array(
        [pa.array(chunk, pa.string()).dictionary_encode() for chunk in chunks],
        pa.dictionary(pa.int32(), pa.string()),
    )
    expected = encode_column(plain, "x", "the table", text=text)
    found = encode_column(dictionary, "x", "the table", text=text)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["10", "9", ""], [10, 9]),
        (["007", "7"], ["007", "7"]),
        (["1", "x"], ["1", "x"]),
        (["1.0", "2.00", "-3"], [1, 2, -3]),
        (["1.0", "2", "1"], [1, 2]),
        (["1.0", "1.5"], ["1.0", "1.5"]),
        (["1.0", "-0.0"], ["1.0", "-0.0"]),
        ([str(2**63)], [str(2**63)]),
    ],
)
def test_text_means_integers_if_all_are_whole_numbers(values: list[str], names: list[Any]) -> None:
    assert encode_column(column(values), "x", "labels.csv", text=True)[0].tolist() == names


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (column([1.0, 0.5]), "labels.parquet, row 1: score 0.5 cannot be an id or a class name; use only strings"),
        (column([1.0, None, float("inf")]), "labels.parquet, row 2: score inf cannot be"),
        (column([2.0**60]), "labels.parquet, row 0: score 1.152921504606847e+18 cannot be"),
        (column([1, 2**63], pa.uint64()), "labels.parquet, row 1: score 9223372036854775808 cannot be"),
        (
            column([[1], [2]]),
            "labels.parquet: column 'score' holds list<item: int64> values; expected strings or integers",
        ),
        (column([b"a"]), "labels.parquet: column 'score' holds binary values; expected strings or integers"),
    ],
)
def test_columns_that_cannot_be_names_are_refused(values: pa.ChunkedArray, message: str) -> None:
    with pytest.raises(TableError) as caught:
        encode_column(values, "score", "labels.parquet", text=False)
    assert message in str(caught.value)
