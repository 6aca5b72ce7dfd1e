"""Inputs from every kind of file, and the ids that match labels to rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from crowdfuse.io.features import read_features


def ids(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=object if isinstance(values[0], str) else np.int64)


def grey(path: Path, value: int = 100, size: tuple[int, int] = (20, 20), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, value, value)).save(path)


# ---- numpy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["X.npy", "X.NPY"])
def test_npy_uses_row_numbers_as_ids(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        np.save(file, np.arange(6.0).reshape(3, 2))
    loaded = read_features(tmp_path / name)
    assert loaded.items.tolist() == [0, 1, 2]
    assert loaded.rows_of(ids(2, 0, 3)).tolist() == [2, 0, -1]
    assert loaded.rows_of(ids("2", "02")).tolist() == [2, -1]
    assert loaded.inputs.rows(np.array([1])).tolist() == [[2, 3]]


def test_an_npz_holds_x_and_items(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.eye(3), items=np.array(["b", "a", "c"]))
    loaded = read_features(tmp_path / "f.npz")
    assert loaded.items.tolist() == ["b", "a", "c"]
    assert loaded.rows_of(ids("a", "z")).tolist() == [1, -1]


def test_an_npz_may_give_its_items_a_second_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.eye(3), items=np.array(["b.png", "7.png", "c"]), short_names=["b", "7", "c"])
    loaded = read_features(tmp_path / "f.npz")
    assert loaded.items.tolist() == ["b.png", "7.png", "c"]
    assert loaded.rows_of(ids("b", "b.png", "7", "z", "c")).tolist() == [0, 0, 1, -1, 2]
    assert loaded.rows_of(ids(7)).tolist() == [1]
    np.savez(tmp_path / "f.npz", X=np.eye(2), items=["a", "b"], short_names=["c", "c"])
    loaded = read_features(tmp_path / "f.npz")
    assert loaded.rows_of(ids("b", "a")).tolist() == [1, 0]
    with pytest.raises(ValueError, match="the id 'c' matches two images: 'a', 'b'"):
        loaded.rows_of(ids("c"))


def test_npz_without_items_uses_row_numbers_as_ids(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.eye(3))
    assert read_features(tmp_path / "f.npz").rows_of(ids("1", "x")).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("items", "wanted", "rows"),
    [
        (np.array([7, 12]), ids("007", "12"), [-1, 1]),
        (np.array(["007", "12"]), ids(7, 12), [-1, 1]),
        (np.array(["007", "12"]), ids("007", "12"), [0, 1]),
        (np.array(["7", "12"]), ids(7, 12), [0, 1]),
        (np.array([7.0, 12.0]), ids(12, 7), [1, 0]),
        (np.array([7, 12], np.uint8), ids(12, 7), [1, 0]),
    ],
)
def test_text_id_equals_integer_id_only_if_it_round_trips(
    tmp_path: Path, items: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], rows: list[int]
) -> None:
    np.savez(tmp_path / "f.npz", X=np.eye(2), items=items)
    assert read_features(tmp_path / "f.npz").rows_of(wanted).tolist() == rows


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"features": np.eye(2)}, r"no array 'X', only 'features'; write it with np.savez"),
        ({"X": np.eye(2), "items": np.arange(3)}, "X has 2 rows, but items has 3 ids"),
        ({"X": np.eye(2), "items": np.array(["a", "a"])}, "items must be distinct, .*more than once: 'a'"),
        (
            {"X": np.eye(2), "items": np.arange(2), "short_names": np.arange(3)},
            "items has 2 ids, but short_names has 3",
        ),
        ({"X": np.eye(2), "items": np.array([0.5, 1])}, r"items\[0\].*0.5"),
        ({"X": np.eye(2), "items": np.array(["a", None])}, r"np.array\(ids, dtype=str\)"),
        ({"X": np.array([[1.0, np.nan]])}, "X contains NaN at row 0, column 1"),
        ({"X": np.arange(3.0)}, "one row per item"),
        ({"X": np.float64(3)}, "one row per item"),
        ({"X": np.array([["a"]])}, "must hold numbers"),
    ],
)
def test_invalid_npz_is_refused_by_name(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(ValueError, match=rf"f\.npz.*{words}"):
        read_features(tmp_path / "f.npz")


@pytest.mark.parametrize("name", ["f.npz", "f.npy"])
def test_a_damaged_numpy_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    whole = tmp_path / "whole"
    with whole.open("wb") as file:
        np.savez_compressed(file, X=np.random.default_rng(0).normal(size=(50, 4)))
    content = bytearray(whole.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0xFF
    for damaged in (b"", b"no numpy", bytes(content[:middle]), bytes(content)):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"{name} cannot be read"):
            read_features(tmp_path / name)


# ---- tables ----------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_csv_has_an_item_column_and_numbers(tmp_path: Path) -> None:
    loaded = read_features(write(tmp_path / "f.csv", "height,item,wide,n\n1.5,b,true,2\n-2,a,false,3\n"))
    assert loaded.items.tolist() == ["b", "a"]
    assert loaded.columns == ("height", "wide", "n")
    assert loaded.inputs.rows(np.array([0, 1])).tolist() == [[1.5, 1, 2], [-2, 0, 3]]


def test_csv_ids_are_integers_only_if_all_round_trip(tmp_path: Path) -> None:
    loaded = read_features(write(tmp_path / "f.csv", "item,x\n007,1\n12,2\n"))
    assert loaded.items.tolist() == ["007", "12"]
    assert loaded.rows_of(ids(7, 12)).tolist() == [-1, 1]
    assert read_features(write(tmp_path / "g.csv", "item,x\n7,1\n12,2\n")).items.tolist() == [7, 12]


def test_tsv_and_parquet_are_read_too(tmp_path: Path) -> None:
    write(tmp_path / "f.tsv", "task\tx\ty\nb\t1\t2\na\t3\t4\n")
    table = pa.table({"task": pa.array(["b", "a"]).dictionary_encode(), "x": [1, 3], "y": [2.0, 4.0]})
    pa.parquet.write_table(table, tmp_path / "f.parquet")
    for name in ("f.tsv", "f.parquet"):
        loaded = read_features(tmp_path / name)
        assert loaded.items.tolist() == ["b", "a"]
        assert loaded.inputs.rows(np.array([0, 1])).tolist() == [[1, 2], [3, 4]]


def test_the_item_column_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "photo,item,x\np,1,2\nq,2,3\n")
    loaded = read_features(path, item="photo")
    assert loaded.items.tolist() == ["p", "q"]
    assert loaded.columns == ("item", "x")


def test_a_models_columns_are_taken_by_name_and_order(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "notes,b,item,a\nhello,2,i,1\n")
    loaded = read_features(path, columns=["a", "b"])
    assert loaded.inputs.rows(np.array([0])).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match=r"f\.csv has no column 'c', 'd', but the model was trained with it"):
        read_features(path, columns=["c", "a", "d"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,x,y\na,1,2\nb,,2\n", "f.csv contains NaN at line 3, column 'x'"),
        ("item,x,y\na,1,2\n\nb,3,nan\n", "f.csv contains NaN at line 4, column 'y'"),
        ("item,x,y\na,1,inf\n", "f.csv contains infinity.* at line 2, column 'y'"),
        ("item,x,y\na,1,1e60\n", "f.csv contains infinity or a value too large.* at line 2, column 'y'"),
        ("item,x\na,true\nb,\n", "f.csv contains NaN at line 3, column 'x'"),
        ("item,x\na,\nb,\n", "f.csv contains NaN at line 2, column 'x', the first of 2"),
        ("item,x\na,1\nb,tall\n", "line 3: column 'x' holds 'tall', which is not a number"),
        ("item,x\na,2020-01-01\n", "line 2: column 'x' holds datetime.* which is not a number"),
        ("item,x\na,1\n,2\n", "line 3: item is empty"),
        ("item,x\na,1\nb,2\na,3\n", "item must be distinct.*'a'"),
        ("item\na\n", "only the column 'item'"),
        ("item,x\n", "a header but no rows"),
        ("name,x\na,1\n", "no column for the item.*--item"),
        ("item,task,x\na,b,1\n", "several columns that may be the item.*--item"),
        ("", "is empty"),
    ],
)
def test_invalid_table_is_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_features(write(tmp_path / "f.csv", text))


def test_missing_and_unknown_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv: no such file"):
        read_features(tmp_path / "nothing.csv")
    with pytest.raises(
        ValueError, match=r"\.npy, \.npz, \.csv, \.tsv, \.xlsx or \.parquet file or a folder of images.*'\.txt'"
    ):
        read_features(write(tmp_path / "f.txt", "x"))


# ---- images ----------------------------------------------------------------------------------------


def test_an_image_is_known_by_its_path_with_or_without_the_ending(tmp_path: Path) -> None:
    grey(tmp_path / "b.png", 10)
    grey(tmp_path / "cats" / "old" / "1.JPG", 20)
    grey(tmp_path / "cats" / "1.v2.bmp", 30)
    write(tmp_path / "cats" / "notes.txt", "no image")
    loaded = read_features(tmp_path)
    assert loaded.items.tolist() == ["b.png", "cats/1.v2.bmp", "cats/old/1.JPG"]
    wanted = ids("cats/old/1", "b.png", "cats/1.v2", "cats/1.v2.bmp", "b", "1", "cats/1", "B")
    assert loaded.rows_of(wanted).tolist() == [2, 0, 1, 1, 0, -1, -1, -1]
    assert np.abs(loaded.inputs.values[:, 0, 5, 5].astype(int) - [10, 30, 20]).max() <= 1  # JPEG is not exact


def test_images_named_by_numbers_match_integer_ids(tmp_path: Path) -> None:
    grey(tmp_path / "7.png")
    grey(tmp_path / "012.png")
    assert read_features(tmp_path).rows_of(ids(7, 12)).tolist() == [1, -1]


def test_grey_images_have_one_channel_and_colour_three(tmp_path: Path) -> None:
    grey(tmp_path / "grey" / "a.png", 5, (12, 9))
    Image.new("1", (12, 9), 1).save(tmp_path / "grey" / "b.png")
    loaded = read_features(tmp_path / "grey")
    assert loaded.inputs.values.dtype == np.uint8
    assert loaded.inputs.values.shape == (2, 1, 9, 12)
    assert loaded.inputs.values[:, 0, 0, 0].tolist() == [5, 255]

    Image.new("RGB", (12, 9), (1, 2, 3)).save(tmp_path / "grey" / "c.png")
    Image.new("RGBA", (12, 9), (4, 5, 6, 128)).save(tmp_path / "grey" / "d.png")
    mixed = read_features(tmp_path / "grey").inputs.values
    assert mixed.shape == (4, 3, 9, 12)
    assert mixed[:, :, 0, 0].tolist() == [[5, 5, 5], [255, 255, 255], [1, 2, 3], [4, 5, 6]]


def test_sixteen_bit_greys_are_scaled_not_clipped(tmp_path: Path) -> None:
    values = np.array([[0, 256], [32768, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert read_features(tmp_path).inputs.values[0, 0].tolist() == [[0, 1], [128, 255]]


def test_thirty_two_bit_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((9, 9), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=r"a\.tif: not a readable image.*32 bits"):
        read_features(tmp_path)


def test_photographs_are_rotated_by_exif(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 0, 255], [0, 0, 255], [0, 0, 255]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter
    image.save(tmp_path / "a.png", exif=exif)
    assert read_features(tmp_path).inputs.values[0, 0].tolist() == [[0, 0, 0], [0, 0, 0], [255, 255, 255]]


def test_different_or_large_sizes_are_resized(tmp_path: Path) -> None:
    grey(tmp_path / "a.png", 50, (20, 30))
    grey(tmp_path / "b.png", 60, (30, 20))
    loaded = read_features(tmp_path)
    assert loaded.inputs.values.shape == (2, 1, 64, 64)
    assert loaded.inputs.values[:, 0, 30, 30].tolist() == [50, 60]
    assert "64 x 64 (change this with --image-size" in loaded.note
    chosen = read_features(tmp_path, image_size=16)
    assert chosen.inputs.values.shape == (2, 1, 16, 16)
    assert chosen.note == ""
    grey(tmp_path / "large" / "a.png", 50, (97, 20))
    assert read_features(tmp_path / "large").inputs.values.shape == (1, 1, 64, 64)
    grey(tmp_path / "small" / "a.png", 50, (96, 20))
    assert read_features(tmp_path / "small").inputs.values.shape == (1, 1, 20, 96)


def test_a_models_image_shape_decides_size_and_channels(tmp_path: Path) -> None:
    Image.new("RGB", (40, 10), (200, 200, 200)).save(tmp_path / "a.png")
    loaded = read_features(tmp_path, image_shape=(1, 12, 18))
    assert loaded.inputs.values.shape == (1, 1, 12, 18)
    assert read_features(tmp_path, image_shape=(3, 12, 18)).inputs.values.shape == (1, 3, 12, 18)
    assert read_features(tmp_path, image_shape=(7,)).inputs.values.shape == (1, 3, 10, 40)  # a model of features


@pytest.mark.parametrize("other", ["a.jpg", "a.png.bmp"])
def test_id_that_fits_two_images_is_refused_when_it_is_used(tmp_path: Path, other: str) -> None:
    grey(tmp_path / "a.png")
    grey(tmp_path / other)
    grey(tmp_path / "b.png")
    loaded = read_features(tmp_path)
    used = "a" if other == "a.jpg" else "a.png"
    assert loaded.rows_of(ids("b", other)).tolist() == [2, loaded.items.tolist().index(other)]
    with pytest.raises(ValueError, match=f"the id '{used}' matches two images: .*'{other}'.*full names"):
        loaded.rows_of(ids("b", used))


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    grey(tmp_path / "a.png", size=(60, 60))
    whole = (tmp_path / "a.png").read_bytes()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 60), np.uint8)).save(tmp_path / "noise.png")
    noise = (tmp_path / "noise.png").read_bytes()
    for damaged in (b"no image", b"", whole[:20], noise[: len(noise) // 2]):
        (tmp_path / "b.png").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"b\.png: not a readable image.*remove it"):
            read_features(tmp_path)
        with pytest.raises(ValueError, match=r"b\.png: not a readable image.*remove it"):
            read_features(tmp_path, image_shape=(1, 60, 60))


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "x")
    with pytest.raises(ValueError, match=r"has no images.*\.png"):
        read_features(tmp_path)


# ---- knowing it again ------------------------------------------------------------------------------


def test_the_fingerprint_depends_on_values_and_ids(tmp_path: Path) -> None:
    def fingerprint(X: Any, items: Any) -> str:
        np.savez(tmp_path / "f.npz", X=X, items=items)
        return read_features(tmp_path / "f.npz").fingerprint()

    X = np.eye(2)
    same = fingerprint(X, ["a", "b"])
    assert fingerprint(X, ["a", "b"]) == same
    assert len({same, fingerprint(X, ["b", "a"]), fingerprint(X + 1e-9, ["a", "b"]), fingerprint(X, ["a", "c"])}) == 4
