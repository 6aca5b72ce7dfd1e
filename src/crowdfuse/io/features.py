"""Inputs from files: `.npy`, `.npz`, tables, folders of images; each row with the ids it answers to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from crowdfuse.ids import as_text, few, find, from_text, tidy
from crowdfuse.inputs import Inputs, check_inputs
from crowdfuse.io.tables import TableError, TableFile, choose_columns

IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
AS_IS = 96  # images of one size up to this many pixels a side are taken as they are
RESIZED = 64  # others become this size unless the user says otherwise


@dataclass(frozen=True)
class Loaded:
    """Inputs and the id of each row. Images also answer to their path without the ending."""

    inputs: Inputs
    items: NDArray[Any]
    short_names: NDArray[Any] | None
    note: str = ""

    def find(self, wanted: NDArray[Any]) -> NDArray[np.int64]:
        """The row that answers to each id, -1 where none does. Two images that answer to one id are refused."""
        rows = find(wanted, self.items).astype(np.int64)
        if self.short_names is None or not (rows < 0).any():
            return rows
        names, first, count = np.unique(self.short_names, return_index=True, return_counts=True)
        names = names.astype(object)
        lost = np.flatnonzero(rows < 0)
        position = find(as_text(wanted[lost]), names)
        twice = position[(position >= 0) & (count[position] > 1)]
        if len(twice):
            same = self.items[as_text(self.short_names) == names[twice[0]]]
            raise ValueError(
                f"two images answer to the id {names[twice[0]]!r}: {few(same)}. "
                "Use the full names in the labels, or keep one of the files"
            )
        rows[lost] = np.where(position >= 0, first[position], -1)
        return rows

    def fingerprint(self) -> str:
        """A hash of inputs and ids."""
        digest = hashlib.blake2b(digest_size=16)
        self.inputs.hash_into(digest)
        digest.update(repr(self.items.tolist()).encode())
        return digest.hexdigest()


def read_features(path: Path, *, item: str | None = None, image_size: int | None = None) -> Loaded:
    """Inputs from a file or a folder of images.

    An `.npz` holds `X` and `items`; a table an item column and numeric columns; a bare `.npy` goes by row
    number; an image's id is its path below the folder, with or without the ending.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_dir():
        return _read_images(path, image_size)
    if path.suffix == ".npy":
        array = _numpy(path)
        return Loaded(check_inputs(array, str(path)), np.arange(len(array)), None)
    if path.suffix == ".npz":
        return _read_npz(path)
    return _read_table(path, item)


def _numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a readable NumPy file without pickled objects ({error})") from error


def _read_npz(path: Path) -> Loaded:
    archive = _numpy(path)
    if "X" not in archive:
        raise ValueError(f"{path} has no array 'X'; it holds {few(list(archive))}. Save it with np.savez(path, X=, items=)")
    try:
        X = archive["X"]
        ids = archive["items"] if "items" in archive else np.arange(len(X))
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}. Arrays of Python objects are not read; save ids as np.array(ids, dtype=str)"
        ) from error
    ids = from_text(tidy(ids, f"{path}, items"))
    if len(ids) != len(X):
        raise ValueError(f"{path}: X has {len(X):,} rows, items {len(ids):,}")
    _refuse_repeats(ids, path)
    return Loaded(check_inputs(X, f"{path}, X"), ids, None)


def _read_table(path: Path, item: str | None) -> Loaded:
    file = TableFile(path)
    column = choose_columns(file.columns, {"item": item}, str(path))["item"]
    ids_table = file.read([column], text=True)
    values = ids_table[column].combine_chunks()
    if values.null_count or (pa.types.is_string(values.type) and "" in values.unique().to_pylist()):
        raise TableError(f"{path}: some rows have no {column}")
    ids = tidy(values.to_numpy(zero_copy_only=False), f"{path}, {column}")
    ids = from_text(ids) if file.is_text else ids
    _refuse_repeats(ids, path)
    numbers = [name for name in file.columns if name != column]
    if not numbers:
        raise TableError(f"{path} has no columns but {column!r}; numeric columns were expected beside it")
    table = file.read(numbers)
    for name in numbers:
        kind = table[name].type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise TableError(f"{path}: column {name!r} holds {kind}, not numbers; leave it out or encode it first")
    X = np.column_stack([table[name].to_numpy().astype(np.float32) for name in numbers])
    return Loaded(check_inputs(X, str(path)), ids, None)


def _read_images(folder: Path, image_size: int | None) -> Loaded:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_ENDINGS and p.is_file())
    if not paths:
        raise ValueError(f"{folder} holds no images ({', '.join(sorted(IMAGE_ENDINGS))})")
    sizes, modes = set(), set()
    for path in paths:
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
                modes.add(image.mode)
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"{path}: not a readable image ({error})") from error
    note = ""
    size = next(iter(sizes))
    if image_size is not None:
        size = (image_size, image_size)
    elif len(sizes) > 1 or max(size) > AS_IS:
        note = f"images are resized to {RESIZED} x {RESIZED} (--image-size changes that)"
        size = (RESIZED, RESIZED)
    mode = "L" if modes <= {"L", "1", "I;16", "LA"} else "RGB"
    names = np.array([path.relative_to(folder).as_posix() for path in paths], dtype=object)
    short = np.array([path.relative_to(folder).with_suffix("").as_posix() for path in paths], dtype=object)
    X = np.stack(list(_pixels(paths, size, mode)))
    return Loaded(check_inputs(X, str(folder)), names, short, note)


def _pixels(paths: Iterable[Path], size: tuple[int, int], mode: str) -> Iterable[NDArray[np.uint8]]:
    for path in paths:
        try:
            with Image.open(path) as image:
                ready = image.convert(mode)
                if ready.size != size:
                    ready = ready.resize(size, Image.Resampling.BILINEAR)
                pixels = np.asarray(ready)
        except OSError as error:
            raise ValueError(f"{path}: not a readable image ({error})") from error
        yield pixels[None] if mode == "L" else np.moveaxis(pixels, 2, 0)


def _refuse_repeats(ids: NDArray[Any], path: Path) -> None:
    names, counts = np.unique(ids, return_counts=True)
    if len(names) < len(ids):
        raise ValueError(f"{path}: these items stand more than once: {few(names[counts > 1])}")
