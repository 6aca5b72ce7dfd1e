"""Files as people have them: separators, compression, Excel, encodings, missing labels, huge images."""

from __future__ import annotations

import gzip
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from crowdfuse import Annotations
from crowdfuse.io import images, read_features, read_gold
from crowdfuse.io.file_content import describe_encoding
from crowdfuse.io.tables import TableFile
from tests.exports import labels_by_item, prodigy_task, write

ROWS = [["item", "annotator", "label"], ["1", "ada", "cat"], ["1", "bob", "dog"], ["2", "ada", "cat"]]
EXPECTED = {1: {"ada": "cat", "bob": "dog"}, 2: {"ada": "cat"}}


def joined(separator: str, rows: list[list[str]] = ROWS) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is looked at)
        Annotations.read(path, **options)
    return str(caught.value)


# ---- separators ------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".tab"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_detected(tmp_path: Path, separator: str, ending: str) -> None:
    path = write(tmp_path / f"labels{ending}", joined(separator))
    assert labels_by_item(Annotations.read(path)) == EXPECTED


def test_a_column_name_with_another_separator_in_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", 'item,annotator,label,"a;b;c;d;e"\n1,ada,cat,x\n')
    assert TableFile(path).columns == ["item", "annotator", "label", "a;b;c;d;e"]


def test_the_given_separator_overrides_detection(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,annotator,label;a;b;c\n1,ada,cat;x;y;z\n")
    assert "has no column for the" in complaint(path)
    assert Annotations.read(path, sep=",", label="label;a;b;c").classes.tolist() == ["cat;x;y;z"]
    path = write(tmp_path / "labels.csv", joined("^"))
    assert labels_by_item(Annotations.read(path, sep="^")) == EXPECTED


@pytest.mark.parametrize("sep", ["tab", "\\t", "\t"])
def test_ways_to_write_a_tab(tmp_path: Path, sep: str) -> None:
    assert labels_by_item(Annotations.read(write(tmp_path / "labels.csv", joined("\t")), sep=sep)) == EXPECTED


@pytest.mark.parametrize("sep", ["", ";;", '"', "\n"])
def test_separators_that_are_not_one_character(tmp_path: Path, sep: str) -> None:
    assert "sep must be one character" in complaint(write(tmp_path / "labels.csv", joined(",")), sep=sep)


values = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1).filter(
    lambda text: text.strip()
)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([",", ";", "\t"]),
    st.lists(values, min_size=1, max_size=4),
    st.sampled_from(["utf-8-sig", "utf-16"]),
)
def test_any_value_survives_separator_and_encoding(
    tmp_path_factory: pytest.TempPathFactory, separator: str, names: list[str], encoding: str
) -> None:
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names]
    content = joined(separator, [["item", "annotator", "label"], *([name, "ada", "cat"] for name in quoted)])
    path = tmp_path_factory.mktemp("values") / "labels.csv"
    path.write_bytes(content.encode(encoding))
    assert TableFile(path).read(text=True)["item"].to_pylist() == names


# ---- gzip and encodings -----------------------------------------------------------------------


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv.gz"
    path.write_bytes(gzip.compress(joined("\t").encode()))
    assert labels_by_item(Annotations.read(path)) == EXPECTED
    assert complaint(path, classes=["cat"]).startswith(f"{path}, line 3: label 'dog' is not one of the 1 classes")
    export = tmp_path / "tasks.jsonl.gz"
    export.write_bytes(
        gzip.compress(write(tmp_path / "tasks.jsonl", [prodigy_task("x", "ada", accept=["a"])]).read_bytes())
    )
    assert labels_by_item(Annotations.read(export, item="name")) == {"x": {"ada": "a"}}
    features = tmp_path / "features.csv.gz"
    features.write_bytes(gzip.compress(b"item,x\n1,0.5\n"))
    assert read_features(features).inputs.values.tolist() == [[0.5]]
    gold = tmp_path / "gold.csv.gz"
    gold.write_bytes(gzip.compress(b"item;label\n1;cat\n"))
    assert read_gold(gold)[1].tolist() == ["cat"]


@pytest.mark.parametrize(
    "content",
    [b"item,annotator,label\n", gzip.compress(b"item,annotator,label\n", mtime=0)[:-9]],
    ids=["not compressed", "cut short"],  # without ids, the time in the header would be part of the name of the test
)
def test_damaged_compressed_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.csv.gz"
    path.write_bytes(content)
    assert "not a readable gzip file" in complaint(path)


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [("1,ada,été\n", "cp1252", "Windows-1252"), ("1,ada,хорошо\n", "cp1251", "Windows-1251")],
)
def test_windows_encodings_are_named(tmp_path: Path, text: str, encoding: str, name: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(f"item,annotator,label\n{text}".encode(encoding))
    message = complaint(path)
    assert f"{path}, line 2: not UTF-8 text. It is probably {name}" in message
    assert text.strip().rsplit(",", maxsplit=1)[-1] in message
    assert "Save the file as UTF-8" in message
    path = tmp_path / "export.json"
    path.write_bytes(f'[{{"text": "{text.strip()}"}}]'.encode(encoding))
    assert f"{path}: not UTF-8 text. It is probably {name}" in complaint(path)


def test_bytes_that_are_no_text_at_all() -> None:
    assert describe_encoding(b"\x81\x8d") == "not UTF-8 text; save the file as UTF-8"


def test_a_wrong_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(b"\xff\xfeabc")
    assert "byte-order mark says UTF-16, but its content is not UTF-16" in complaint(path)


# ---- Excel ------------------------------------------------------------------------------------


def workbook(path: Path, *rows: list[Any]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.create_sheet("notes").append(["not read"])
    book.save(path)
    return path


def test_the_first_sheet_of_a_workbook(tmp_path: Path) -> None:
    header = ["item", "annotator", "label", None]
    path = workbook(tmp_path / "labels.xlsx", header, [1.0, "ada", 3], [], [2, "bob, jr.", 4.0], [2, "cy", None])
    ann = Annotations.read(path)
    assert labels_by_item(ann) == {1: {"ada": 3}, 2: {"bob, jr.": 4}}
    assert ann.dropped_missing == 1
    assert complaint(path, classes=[3]).startswith(f"{path}, row 4: label 4 is not one of the 1 classes")
    features = workbook(tmp_path / "features.xlsx", ["item", "x"], ["a", 0.5], ["b", 2])
    assert read_features(features).inputs.values.tolist() == [[0.5], [2.0]]


def test_rows_longer_than_the_header_of_a_workbook(tmp_path: Path) -> None:
    path = workbook(tmp_path / "labels.xlsx", ["item", "annotator", "label"], [1, "ada", "cat"], [2, "ada", "cat", "?"])
    assert f"{path}, row 3: it has 4 values, but the header has 3 columns" in complaint(path)


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"PK", "not a readable Excel workbook")])
def test_damaged_workbooks(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "labels.xlsx"
    path.write_bytes(content)
    assert message in complaint(path)


def test_without_openpyxl_the_error_has_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "labels.xlsx", *ROWS)
    monkeypatch.setattr("crowdfuse.io.excel.find_spec", lambda name: None)
    assert importlib.util.find_spec("openpyxl") is not None
    assert "pip install 'crowdfuse[excel]'" in complaint(path)


# ---- missing labels -----------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["NA", "N/A", "nan", " NaN "])
def test_words_for_a_missing_label(tmp_path: Path, word: str) -> None:
    path = write(tmp_path / "labels.csv", f"item,annotator,label\n1,ada,1.0\n1,bob,{word}\n2,ada,\n2,bob,2.0\n")
    with pytest.warns(UserWarning, match="1 label counts as missing") as caught:
        ann = Annotations.read(path)
    assert f"{word!r} (1)" in str(caught[0].message)
    assert "classes= (--classes)" in str(caught[0].message)
    assert labels_by_item(ann) == {1: {"ada": 1}, 2: {"bob": 2}}
    assert ann.dropped_missing == 2
    assert ann.classes.dtype == np.int64


@pytest.mark.parametrize("text", ["item,annotator,label\n1,ada,NA\n1,bob,yes\n", "item,ada,bob\n1,NA,yes\n"])
def test_a_class_called_na(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "labels.csv", text)
    format_: Any = "auto" if "annotator" in text else "wide"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ann = Annotations.read(path, classes=["yes", "NA"], format=format_)
    assert labels_by_item(ann) == {1: {"ada": "NA", "bob": "yes"}}


def test_items_and_annotators_may_be_called_na(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "item,annotator,label\nNA,nan,yes\n")
    assert labels_by_item(Annotations.read(path)) == {"NA": {"nan": "yes"}}


def test_whole_numbers_with_decimals_match_integers(tmp_path: Path) -> None:
    labels = Annotations.read(write(tmp_path / "labels.csv", "item,annotator,label\n1.0,7.0,2.0\n1,8,2\n2,8.0,3\n"))
    assert labels_by_item(labels) == {1: {7: 2, 8: 2}, 2: {8: 3}}
    wide = Annotations.read(write(tmp_path / "labels.csv", "item,ada,bob\n1.0,2.0,2\n2.0,3,3.0\n"))
    assert labels_by_item(wide) == {1: {"ada": 2, "bob": 2}, 2: {"ada": 3, "bob": 3}}


# ---- images -------------------------------------------------------------------------------------


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of Pillow and of ours, so that small images are huge."""
    monkeypatch.setattr(images, "MAX_DECODED_PIXELS", 10_000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2_000)


@pytest.mark.usefixtures("low_limit")
def test_a_huge_jpeg_is_read_at_a_reduced_size(tmp_path: Path) -> None:
    Image.new("RGB", (400, 240), "red").save(tmp_path / "huge.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also those of Pillow
        assert images.open_upright(tmp_path / "huge.jpg").size == (100, 60)
        assert read_features(tmp_path, image_size=20).inputs.values.shape == (1, 3, 20, 20)
    assert Image.MAX_IMAGE_PIXELS == 2_000


@pytest.mark.usefixtures("low_limit")
@pytest.mark.parametrize(("name", "size"), [("huge.png", (400, 240)), ("huge.jpg", (1200, 800))])
def test_an_image_that_is_too_large_is_refused_with_its_size(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    Image.new("L", size).save(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}.*{size[0]:,} x {size[1]} pixels, but the limit is"):
        read_features(tmp_path, image_size=20)


def test_an_id_with_another_ending_must_fit_one_image(tmp_path: Path) -> None:
    for name in ("cat.png", "cat.bmp", "dog.png"):
        Image.new("L", (4, 4)).save(tmp_path / name)
    loaded = read_features(tmp_path)
    assert loaded.rows_of(np.array(["dog.jpg", "dog.txt", "cow.jpg"], object)).tolist() == [2, -1, -1]
    with pytest.raises(ValueError, match="matches two images"):
        loaded.rows_of(np.array(["cat.jpg"], object))
