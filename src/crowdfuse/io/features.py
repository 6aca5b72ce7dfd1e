"""Inputs from files: `.npy`, `.npz`, tables, folders of images; each row with the ids it answers to."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.io.images import GREY_MODES, find_images, image_names, not_readable, open_upright
from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.io.tables import (
    DEFAULT_COLUMN_NAMES,
    TABLE_ENDINGS,
    TableError,
    TableFile,
    choose_columns,
    encode_column,
)
from crowdfuse.labels.ids import format_names, ids_to_strings, normalize_ids, positions_of, refuse_repeats

NOT_FEATURES = {*DEFAULT_COLUMN_NAMES["annotator"], *DEFAULT_COLUMN_NAMES["label"], "gold", "class", "target"}
MAX_UNRESIZED_SIDE_PIXELS = 96  # images of one size up to this many pixels a side are taken as they are
DEFAULT_IMAGE_SIDE_PIXELS = 64  # others become this size unless the user says otherwise


@dataclass(frozen=True)
class LoadedInputs:
    """Inputs and the id of each row. Images, and features of images, also answer to the path without the ending."""

    inputs: Inputs
    items: NDArray[Any]
    short_names: NDArray[Any] | None = None
    note: str = ""
    columns: tuple[str, ...] | None = None  # of a table

    def rows_of(self, wanted: NDArray[Any]) -> NDArray[np.int64]:
        """The row that answers to each id, -1 where none does. Two images that answer to one id are refused."""
        rows = positions_of(wanted, self.items).astype(np.int64)
        if self.short_names is None:
            return rows
        names, first, count = np.unique(self.short_names, return_index=True, return_counts=True)
        position = positions_of(ids_to_strings(wanted), names)
        by_short_name = np.where(position >= 0, first[position], -1)
        several = (position >= 0) & ((count[position] > 1) | ((rows >= 0) & (rows != by_short_name)))
        if several.any():
            name = ids_to_strings(wanted)[several][0]
            both = self.items[(self.items == name) | (self.short_names == name)]
            raise ValueError(
                f"two images answer to the id {name!r}: {format_names(both)}. "
                "Use their full names in the labels, or rename or remove one of the files"
            )
        return np.where(rows >= 0, rows, by_short_name)

    def fingerprint(self) -> str:
        """A hash of inputs and ids."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(self.inputs.fingerprint.encode())
        digest.update(repr(self.items.tolist()).encode())
        return digest.hexdigest()


def read_features(
    path: Path,
    *,
    item: str | None = None,
    image_size: int | None = None,
    image_shape: tuple[int, ...] | None = None,
    columns: Sequence[str] | None = None,
) -> LoadedInputs:
    """Inputs from a file or a folder of images.

    An `.npz` holds `X` and `items`, and `short_names` where an item answers to a second name; a table an item column
    and numeric columns; a bare `.npy` goes by row number; an image's id is its path below the folder, with or
    without the ending.

    `image_shape` (channels, height, width) and `columns` say what a trained model reads: images are brought
    to that shape, and these columns of a table are taken, in this order. `image_size` sets height and width.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_dir():
        return _read_images(path, image_size, image_shape)
    if path.suffix.lower() in (".npy", ".npz"):
        return _read_numpy(path)
    if path.suffix.lower() in TABLE_ENDINGS:
        return _read_table(path, item, columns)
    raise ValueError(
        f"{path}: inputs are .npy, .npz, .csv, .tsv or .parquet files or a folder of images, got {path.suffix!r}"
    )


def _read_numpy(path: Path) -> LoadedInputs:
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            arrays = {"X": content}
        else:
            with content:
                if "X" not in content:
                    held = format_names(content.files)
                    raise ValueError(f"it has no array 'X' but {held}; write it with np.savez(path, X=X, items=items)")
                arrays = {name: content[name] for name in ("X", "items", "short_names") if name in content}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        hint = ". Save ids as np.array(ids, dtype=str)" if "Object arrays" in str(error) else ""
        raise ValueError(f"{path} cannot be read: {error}{hint}") from error
    name = f"{path}, X" if path.suffix.lower() == ".npz" else str(path)
    inputs = check_inputs(arrays["X"], name)
    if "items" not in arrays:
        note = f"{path} names no items: its row numbers, 0 to {len(inputs) - 1:,}, are the ids"
        return LoadedInputs(inputs, np.arange(len(inputs)), note=note)
    items = normalize_ids(arrays["items"], f"{path}, items")
    if len(items) != len(inputs):
        raise ValueError(f"{path}: X has {len(inputs):,} rows, but there are {len(items):,} items; one a row is needed")
    refuse_repeats(items, f"{path}, items")
    if "short_names" not in arrays:
        return LoadedInputs(inputs, items)
    short_names = ids_to_strings(normalize_ids(arrays["short_names"], f"{path}, short_names"))
    if len(short_names) != len(items):
        raise ValueError(f"{path}: there are {len(items):,} items, but {len(short_names):,} short_names; one each")
    return LoadedInputs(inputs, items, short_names)


def _read_table(path: Path, item: str | None, columns: Sequence[str] | None) -> LoadedInputs:
    file = TableFile(path)
    id_column = choose_columns(file.columns, {"item": item}, str(path))["item"]
    items, code = encode_column(file.read([id_column], text=True)[id_column], id_column, str(path), text=file.is_text)
    if not len(code):
        raise TableError(f"{path} has a header but no rows")
    if (code < 0).any():
        raise TableError(f"{file.describe_row(int(np.argmax(code < 0)))}: {id_column} is empty")
    refuse_repeats(items[code], f"{path}, {id_column}")

    names = [name for name in file.columns if name != id_column] if columns is None else list(columns)
    suspect = [name for name in names if name.strip().lower() in NOT_FEATURES]
    if suspect and columns is None:
        raise TableError(
            f"{path}: column {format_names(suspect)} looks like labels, not like a feature; leave it out, "
            "or rename it if it is one"
        )
    absent = [name for name in names if name not in file.columns]
    if absent:
        raise TableError(f"{path} has no column {format_names(absent)}, which the model was trained on")
    if not names:
        raise TableError(f"{path} has no column but {id_column!r}; numeric columns were expected beside it")
    table = file.read(names)
    X = np.empty((len(code), len(names)), np.float32)
    for index, name in enumerate(names):
        if not _is_number(table[name].type):
            _refuse_words(file, name, table[name])
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            X[:, index] = table[name].cast(pa.float64(), safe=False).to_numpy()

    def place(at: tuple[int, ...]) -> str:
        return f"{file.describe_row(at[0]).removeprefix(f'{path}, ')}, column {names[at[1]]!r}"

    return LoadedInputs(check_inputs(X, str(path), place), items[code], columns=tuple(names))


def _is_number(kind: pa.DataType) -> bool:
    """Null is the type of a column without any values; that becomes NaN."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in tests)


def _refuse_words(file: TableFile, name: str, column: pa.ChunkedArray) -> None:
    """Name the first value that is no number."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float(value or 0)
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{file.describe_row(row)}: column {name!r} holds {value!r}, which is no number; "
                "turn the column into numbers, or leave it out"
            ) from error
    raise TableError(f"{file.path}: column {name!r} holds {column.type}; turn it into numbers, or leave it out")


def _read_images(folder: Path, image_size: int | None, image_shape: tuple[int, ...] | None) -> LoadedInputs:
    paths = find_images(folder)
    note = ""
    if image_shape is not None and len(image_shape) == 3:
        channels, height, width = image_shape
        size, mode = (width, height), "L" if channels == 1 else "RGB"
    else:
        sizes, modes = _image_sizes_and_modes(paths)
        size, mode = next(iter(sizes)), "L" if modes <= GREY_MODES else "RGB"
        if image_size is None and (len(sizes) > 1 or max(size) > MAX_UNRESIZED_SIDE_PIXELS):
            note = (
                f"images are resized to {DEFAULT_IMAGE_SIDE_PIXELS} x {DEFAULT_IMAGE_SIDE_PIXELS} "
                "(--image-size changes that)"
            )
            size = (DEFAULT_IMAGE_SIDE_PIXELS, DEFAULT_IMAGE_SIDE_PIXELS)
    if image_size is not None:
        size = (image_size, image_size)
    X = np.empty((len(paths), len(mode), size[1], size[0]), np.uint8)  # "L" has one channel, "RGB" three
    for row, path in enumerate(paths):
        X[row] = _pixels(path, size, mode)
    return LoadedInputs(check_inputs(X, str(folder)), *image_names(folder, paths), note)


def read_image(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One image as a model reads it that was trained on a folder of images: (channels, height, width)."""
    channels, height, width = shape
    return _pixels(path, (width, height), "L" if channels == 1 else "RGB")


def _image_sizes_and_modes(paths: Sequence[Path]) -> tuple[set[tuple[int, int]], set[str]]:
    """The sizes and modes there are, from the files' headers."""
    sizes, modes = set(), set()
    for path in paths:
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
                modes.add(image.mode)
        except Exception as error:  # Pillow's readers raise whatever they stumble over
            raise _unreadable(path, error) from error
    return sizes, modes


def _pixels(path: Path, size: tuple[int, int], mode: str) -> NDArray[np.uint8]:
    """One image as (channels, height, width), upright."""
    try:
        ready = open_upright(path).convert(mode)
        if ready.size != size:
            ready = ready.resize(size, Image.Resampling.BILINEAR)
        pixels = np.asarray(ready)
    except Exception as error:  # as above
        raise _unreadable(path, error) from error
    return pixels[None] if mode == "L" else np.moveaxis(pixels, 2, 0)


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{not_readable(path, error)}. Repair it, or take it out of the folder")
