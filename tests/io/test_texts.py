"""Tables of texts: which column holds them, what is refused, and what is noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy import sparse

from crowdfuse.io import LoadedInputs, Texts, read_features, read_texts
from crowdfuse.io.texts import as_texts


def read(folder: Path, content: str, text: str | None = None) -> LoadedInputs:
    (folder / "texts.csv").write_text(content, encoding="utf-8")
    return read_features(folder / "texts.csv", text=text)


def texts_of(loaded: LoadedInputs) -> list[str]:
    assert isinstance(loaded.inputs, Texts)
    return list(loaded.inputs.texts)


@pytest.mark.parametrize(
    "content",
    [
        "item,text\na,good\nb,bad\n",
        "item,Review,stars\na,good,5\nb,bad,1\n",
        "item,remark\na,good\nb,bad\n",
        'item,length,words\na,4,"good film"\nb,3,"bad film"\n',
        "item,文\na,これはとても良い映画だったと思います\nb,これはあまり良くない映画だったと思います\n",
    ],
)
def test_the_column_of_texts_is_found_by_name_or_content(tmp_path: Path, content: str) -> None:
    text = "remark" if "remark" in content else None  # single words do not look like texts
    loaded = read(tmp_path, content, text)
    assert len(texts_of(loaded)) == 2
    assert loaded.items.tolist() == ["a", "b"]


def test_columns_that_are_not_used_and_empty_texts_are_noted(tmp_path: Path) -> None:
    loaded = read(tmp_path, "item,text,gold\na,good,1\nb,,0\nc,  ,1\n")
    assert texts_of(loaded) == ["good", "", "  "]
    assert "'text'" in loaded.note
    assert "'gold'" in loaded.note
    assert "2 texts are empty" in loaded.note


def test_a_parquet_file_of_texts(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"item": [3, 1], "text": ["good", None]}), tmp_path / "texts.parquet")
    loaded = read_features(tmp_path / "texts.parquet")
    assert texts_of(loaded) == ["good", ""]
    assert loaded.items.tolist() == [3, 1]


def test_a_table_without_item_column_has_row_numbers_as_ids_where_this_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text\ngood film\nbad film\n")
    with pytest.raises(ValueError, match="no column for the item"):
        read_texts(tmp_path / "texts.csv")
    loaded = read_texts(tmp_path / "texts.csv", needs_items=False)
    assert loaded.items.tolist() == [0, 1]
    assert "row numbers" in loaded.note


@pytest.mark.parametrize(
    ("content", "text", "message"),
    [
        ("item,text,comment\na,good,fine\n", None, "several columns of texts: 'text', 'comment'.*--text"),
        ('item,one,two\na,"good film","a remark"\n', None, "several columns of texts: 'one', 'two'"),
        ("item,text\na,1\nb,2.5\n", None, "column 'text' holds only numbers"),
        ("item,text\na,good\n", "txt", "no column 'txt'; its columns are 'item', 'text'"),
        ("item,text\n,good\n", None, "line 2: item is empty"),
        ("item,text\na,good\na,bad\n", None, "'a'"),
        ("item,text\n", None, "no rows"),
        ("item,color,size\na,red,1\nb,blue,2\n", None, "'red', which is not a number"),
    ],
)
def test_what_is_not_a_table_of_texts_is_refused(tmp_path: Path, content: str, text: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content, text)


def test_a_text_of_a_megabyte_is_read(tmp_path: Path) -> None:
    long = "word " * 210_000
    assert texts_of(read(tmp_path, f'item,text\na,"{long}"\nb,short\n')) == [long, "short"]


def test_a_sparse_matrix_of_scipy_is_read(tmp_path: Path) -> None:
    matrix = sparse.csr_array(np.eye(3))
    sparse.save_npz(tmp_path / "X.npz", matrix)
    loaded = read_features(tmp_path / "X.npz")
    assert loaded.inputs.is_sparse
    assert np.array_equal(loaded.inputs.rows(np.arange(3)), np.eye(3))
    assert loaded.items.tolist() == [0, 1, 2]
    assert "row numbers" in loaded.note


def test_texts_have_the_methods_of_inputs() -> None:
    texts = Texts(["a", "b", "c"])
    assert texts.take(np.array([True, False, True])).texts.tolist() == ["a", "c"]
    assert texts.fingerprint == Texts(np.array(["a", "b", "c"])).fingerprint
    assert texts.fingerprint != Texts(["a", "bc", ""]).fingerprint
    with pytest.raises(TypeError, match="encoder"):
        texts.rows(np.arange(2))
    with pytest.raises(TypeError, match="text 1 is None"):
        Texts(["a", None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="single string"):
        Texts("a text")


def test_numbers_tables_and_dicts_are_not_texts() -> None:
    others = (np.eye(2), [1, 2], np.array([["a"]]), {"a": 1}, {"a"}, sparse.eye_array(2), None)
    assert [as_texts(other) for other in others] == [None] * len(others)
