"""Read inputs and their item ids from `.npy` and `.npz` files, tables of numbers or texts, and folders of images."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse

from crowdfuse.io.column_encoding import encode_column
from crowdfuse.io.file_content import file_ending
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.images import (
    GREY_MODES,
    check_image_folder,
    find_images,
    image_names,
    is_image_name,
    open_image,
    open_upright,
    unreadable_message,
)
from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.io.tables import (
    DEFAULT_COLUMN_NAMES,
    TABLE_ENDINGS,
    TableError,
    TableFile,
    choose_columns,
    usual_columns,
)
from crowdfuse.io.text_columns import choose_text_column, looks_like_texts, named_text_columns
from crowdfuse.io.texts import Texts, refuse_numbers
from crowdfuse.labels.ids import (
    format_count_with_verb,
    format_names,
    ids_to_strings,
    normalize_ids,
    positions_of,
    refuse_repeats,
)

LABEL_COLUMN_NAMES = {*DEFAULT_COLUMN_NAMES["annotator"], *DEFAULT_COLUMN_NAMES["label"], "gold", "class", "target"}
MAX_UNRESIZED_SIDE_PIXELS = 96  # larger images, and images of several sizes, are resized
DEFAULT_IMAGE_SIDE_PIXELS = 64  # the size after resizing, unless the user gives one


@dataclass(frozen=True)
class LoadedInputs:
    """Inputs that were read from a file or from a folder of images, with the item id of each row.

    Parameters
    ----------
    inputs : Inputs
        The inputs, one row per item.
    items : ndarray of shape (n_items,)
        The id of each row.
    short_names : ndarray of shape (n_items,), default=None
        A second id for each row, such as the path of an image without the file extension. None if each row has a single
        id.
    note : str, default=""
        A message for the user, for example that images were resized.
    columns : tuple of str, default=None
        The names of the feature columns, if the inputs come from a table of numbers. None otherwise.
    has_ids : bool, default=True
        Whether the ids come from the file or folder of the inputs. If not, the ids are row numbers.

    Examples
    --------
    >>> loaded = LoadedInputs(Inputs(np.eye(2)), np.array(["a", "b"], object))
    >>> loaded.rows_of(np.array(["b", "c"], object)).tolist()
    [1, -1]
    """

    inputs: Inputs
    items: NDArray[Any]
    short_names: NDArray[Any] | None = None
    note: str = ""
    columns: tuple[str, ...] | None = None
    has_ids: bool = True

    def rows_of(self, wanted: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each item id.

        Parameters
        ----------
        wanted : ndarray of shape (n,)
            Item ids.

        Returns
        -------
        rows : ndarray of shape (n,)
            The row number of each id, or -1 if the id is unknown. The id of an image may lack the file extension or
            have another one. For example, ``cat`` and ``cat.jpg`` are ids of ``cat.png``, if the folder has no image
            ``cat.jpg``.

        Raises
        ------
        ValueError
            If an id matches two images. For example, ``cat`` matches both ``cat.png`` and ``cat.jpg``.
        """
        rows = positions_of(wanted, self.items).astype(np.int64)
        if self.short_names is None:
            return rows
        names = ids_to_strings(wanted)
        rows = self._rows_by_short_name(names, rows)
        other_ending = np.array([row < 0 and is_image_name(name) for row, name in zip(rows, names, strict=True)], bool)
        if other_ending.any():
            stems = np.array([str(PurePosixPath(name).with_suffix("")) for name in names[other_ending]], object)
            rows[other_ending] = self._rows_by_short_name(stems, np.full(len(stems), -1))
        return rows

    def _rows_by_short_name(self, wanted: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Replace each row of -1 by the row with the wanted short name, if any; an error if there are two such rows."""
        assert self.short_names is not None
        names, first, count = np.unique(self.short_names, return_index=True, return_counts=True)
        position = positions_of(wanted, names)
        by_short_name = np.where(position >= 0, first[position], -1)
        several = (position >= 0) & ((count[position] > 1) | ((rows >= 0) & (rows != by_short_name)))
        if several.any():
            name = wanted[several][0]
            both = self.items[(self.items == name) | (self.short_names == name)]
            raise ValueError(
                f"the id {name!r} matches two images: {format_names(both)}. Use their full names in the labels, or "
                "rename or remove one of the files"
            )
        return np.where(rows >= 0, rows, by_short_name)

    def other_endings_note(self, wanted: NDArray[Any], rows: NDArray[np.int64]) -> list[str]:
        """Return a note if ids were matched with images of the same name but another file extension.

        Parameters
        ----------
        wanted : ndarray of shape (n,)
            Item ids.
        rows : ndarray of shape (n,)
            The row of each id, from `rows_of`.

        Returns
        -------
        notes : list of str
            A list with the note, or an empty list if there is none.
        """
        if self.short_names is None:
            return []
        pairs = [
            (name, self.items[row])
            for name, row in zip(ids_to_strings(wanted), rows, strict=True)
            if row >= 0 and name not in (self.items[row], self.short_names[row])
        ]
        if not pairs:
            return []
        return [
            f"{format_count_with_verb(len(pairs), 'id')} matched with images of the same name but another extension, "
            f"such as {pairs[0][0]!r} with {pairs[0][1]!r}"
        ]

    def fingerprint(self) -> str:
        """Return a hash of the inputs and their ids.

        Returns
        -------
        digest : str
            Hexadecimal digits.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(self.inputs.fingerprint.encode())
        digest.update(repr(self.items.tolist()).encode())
        return digest.hexdigest()


def read_features(
    path: Path,
    *,
    item: str | None = None,
    text: str | None = None,
    image_size: int | None = None,
    image_shape: tuple[int, ...] | None = None,
    columns: Sequence[str] | None = None,
) -> LoadedInputs:
    """Read inputs from a file or from a folder of images.

    Parameters
    ----------
    path : Path
        A file or a folder:

        - ``.npz`` with the arrays ``X`` and ``items`` (the id of each row). The file may also have an array
          ``short_names`` with a second id for each row. Labels can then use either id.
        - ``.npy`` with the array ``X`` alone, or ``.npz`` written by `scipy.sparse.save_npz`. The item ids are the row
          numbers.
        - ``.csv``, ``.tsv``, ``.xlsx`` or ``.parquet`` with an item column. The other columns are numeric features, or
          one of them holds texts.
        - A folder of images. The item ids are the paths of the images relative to the folder. In the labels, an id may
          leave out the file extension: ``one`` stands for ``one.png``.
    item : str, default=None
        Name of the item column of a table. By default, a column that is called item, task, example or similar.
    text : str, default=None
        Name of the column of texts in a table. By default, the column is detected by its name or content. If a table
        has a column of texts, only this column is read.
    image_size : int, default=None
        Height and width of images in pixels. By default, `image_shape` sets the size. If `image_shape` is None too,
        images keep their size if all of them have one common size of at most 96 x 96. Otherwise all images are resized
        to 64 x 64.
    image_shape : tuple of int, default=None
        Channels, height and width that a trained model expects. Images are converted to this shape. If `image_size` is
        given as well, `image_size` sets height and width. By default, images have 1 channel if all of them are grey,
        otherwise 3.
    columns : sequence of str, default=None
        Names of the feature columns of a table, in the order that a trained model expects. By default, all columns
        except the item column are features.

    Returns
    -------
    loaded : LoadedInputs

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    ValueError
        If the inputs cannot be read; the message gives the place and the value.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "features.npz"
    >>> np.savez(path, X=np.eye(2), items=np.array(["a", "b"]))
    >>> read_features(path).items.tolist()
    ['a', 'b']
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_dir():
        return _read_images(path, image_size, image_shape)
    if path.suffix.lower() in (".npy", ".npz"):
        return _read_numpy(path)
    if file_ending(path) in TABLE_ENDINGS:
        return _read_table(path, item, text, columns)
    raise ValueError(
        f"{path}: expected a .npy, .npz, .csv, .tsv, .xlsx or .parquet file or a folder of images, got {path.suffix!r}"
    )


def _read_numpy(path: Path) -> LoadedInputs:
    """Inputs and ids from a `.npy` or `.npz` file."""
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            arrays = {"X": content}
        else:
            with content:
                if {"format", "shape", "data"} <= set(content.files):
                    return _read_sparse(path)
                if "X" not in content:
                    held = format_names(content.files)
                    raise ValueError(
                        f"the file has no array 'X', only {held}; write it with np.savez(path, X=X, items=items)"
                    )
                arrays = {name: content[name] for name in ("X", "items", "short_names") if name in content}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        hint = ". Save ids as np.array(ids, dtype=str)" if "Object arrays" in str(error) else ""
        raise ValueError(f"{path} cannot be read: {error}{hint}") from error
    name = f"{path}, X" if path.suffix.lower() == ".npz" else str(path)
    inputs = check_inputs(arrays["X"], name)
    if "items" not in arrays:
        note = f"{path} has no item ids; its row numbers, 0 to {len(inputs) - 1:,}, are used as ids"
        return LoadedInputs(inputs, np.arange(len(inputs)), note=note, has_ids=False)
    items = normalize_ids(arrays["items"], f"{path}, items")
    if len(items) != len(inputs):
        raise ValueError(
            f"{path}: X has {len(inputs):,} rows, but items has {len(items):,} ids; expected one id per row"
        )
    refuse_repeats(items, f"{path}, items")
    if "short_names" not in arrays:
        return LoadedInputs(inputs, items)
    short_names = ids_to_strings(normalize_ids(arrays["short_names"], f"{path}, short_names"))
    if len(short_names) != len(items):
        raise ValueError(
            f"{path}: items has {len(items):,} ids, but short_names has {len(short_names):,}; expected one per item"
        )
    return LoadedInputs(inputs, items, short_names)


def _read_sparse(path: Path) -> LoadedInputs:
    """Inputs from a file of `scipy.sparse.save_npz`, with row numbers as ids."""
    inputs = check_inputs(sparse.load_npz(path), str(path))
    note = f"{path} has no item ids; its row numbers, 0 to {len(inputs) - 1:,}, are used as ids"
    return LoadedInputs(inputs, np.arange(len(inputs)), note=note, has_ids=False)


def read_texts(
    path: Path, *, item: str | None = None, text: str | None = None, needs_items: bool = True
) -> LoadedInputs:
    """Read texts from a table.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv``, ``.xlsx`` or ``.parquet`` file with one row per item.
    item : str, default=None
        Name of the item column. By default, a column that is called item, task, example or similar.
    text : str, default=None
        Name of the column of texts. By default, the column is detected by its name, such as text, or by its content.
    needs_items : bool, default=True
        Whether a table without an item column is an error. If False, such a table gets row numbers as item ids.

    Returns
    -------
    loaded : LoadedInputs
        Its attribute `inputs` is a `Texts` object.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TableError
        If the column of texts cannot be detected because there is none or there are several, if the texts are numbers,
        or if an item id is missing or repeated.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "texts.csv"
    >>> _ = path.write_text("item,text\\na,good film\\nb,bad film\\n")
    >>> loaded = read_texts(path)
    >>> loaded.items.tolist(), loaded.inputs.texts.tolist()
    (['a', 'b'], ['good film', 'bad film'])
    """
    file = TableFile(path)
    if item is None and not needs_items and not usual_columns(file.columns, "item"):
        column = choose_text_column(file, text, [])
        texts = _texts_of(file, column)
        note = f"{path} has no item column; its row numbers, 0 to {len(texts) - 1:,}, are used as ids"
        return LoadedInputs(texts, np.arange(len(texts)), note=note, has_ids=False)
    id_column, items = _read_items(file, item)
    column = choose_text_column(file, text, [id_column])
    texts = _texts_of(file, column)
    others = [name for name in file.columns if name not in (id_column, column)]
    notes = (
        [f"the texts are in column {column!r}; other columns are not used: {format_names(others)}"] if others else []
    )
    n_empty = sum(not value.strip() for value in texts.texts)
    if n_empty:
        notes.append(f"{format_count_with_verb(n_empty, 'text')} empty")
    return LoadedInputs(texts, items, note="; ".join(notes))


def _texts_of(file: TableFile, column: str) -> Texts:
    """Return a column as texts; missing values are empty texts."""
    values = file.read([column], text=True)[column]
    if not len(values):
        raise TableError(f"{file.path} has a header but no rows; expected one row per item")
    texts = Texts("" if value is None else str(value) for value in values.to_pylist())
    try:
        refuse_numbers(texts, f"{file.path}, column {column!r}")
    except ValueError as error:
        raise TableError(str(error)) from error
    return texts


def _read_items(file: TableFile, item: str | None) -> tuple[str, NDArray[Any]]:
    """Return the name of the item column and the id of each row."""
    path = file.path
    id_column = choose_columns(file.columns, {"item": item}, str(path))["item"]
    items, code = encode_column(file.read([id_column], text=True)[id_column], id_column, str(path), text=file.is_text)
    if not len(code):
        raise TableError(f"{path} has a header but no rows; expected one row per item")
    if (code < 0).any():
        raise TableError(
            f"{file.describe_row(int(np.argmax(code < 0)))}: {id_column} is empty; fill it in, or remove the row"
        )
    refuse_repeats(items[code], f"{path}, {id_column}")
    return id_column, items[code]


def _read_table(path: Path, item: str | None, text: str | None, columns: Sequence[str] | None) -> LoadedInputs:
    """Inputs and ids from a table of numbers or texts."""
    file = TableFile(path)
    id_column, items = _read_items(file, item)
    if columns is None and (text is not None or named_text_columns([n for n in file.columns if n != id_column])):
        return read_texts(path, item=item, text=text)
    names = [name for name in file.columns if name != id_column] if columns is None else list(columns)
    absent = [name for name in names if name not in file.columns]
    if absent:
        raise TableError(f"{path} has no column {format_names(absent)}, but the model was trained with it; add it")
    if not names:
        raise TableError(f"{path} has only the column {id_column!r}; add at least one column of numbers")
    table = file.read(names)
    if columns is None and any(looks_like_texts(table[name]) for name in names):
        return read_texts(path, item=item)
    suspect = [name for name in names if name.strip().lower() in LABEL_COLUMN_NAMES]
    if suspect and columns is None:
        raise TableError(
            f"{path}: column {format_names(suspect)} looks like labels, not like a feature; remove it, "
            "or rename it if it is a feature"
        )
    X = np.empty((len(items), len(names)), np.float32)
    for index, name in enumerate(names):
        if not _is_number(table[name].type):
            _refuse_text(file, name, table[name])
        with np.errstate(over="ignore"):  # values that become infinite are refused below
            X[:, index] = table[name].cast(pa.float64(), safe=False).to_numpy()

    def place(at: tuple[int, ...]) -> str:
        return f"{file.describe_row(at[0]).removeprefix(f'{path}, ')}, column {names[at[1]]!r}"

    return LoadedInputs(check_inputs(X, str(path), place), items, columns=tuple(names))


def _is_number(kind: pa.DataType) -> bool:
    """Whether a column type is numeric. Null is the type of a column without values, which becomes NaN."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in tests)


def _refuse_text(file: TableFile, name: str, column: pa.ChunkedArray) -> None:
    """Raise an error with the first value that is not a number."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float(value or 0)
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{file.describe_row(row)}: column {name!r} holds {value!r}, which is not a number; "
                "convert the column to numbers, or remove it"
            ) from error
    raise TableError(f"{file.path}: column {name!r} holds {column.type} values; convert it to numbers, or remove it")


def _read_images(folder: Path, image_size: int | None, image_shape: tuple[int, ...] | None) -> LoadedInputs:
    """Inputs and ids from a folder of images, in memory."""
    paths = find_images(folder)
    inputs, note = decode_images(paths, str(folder), image_size, image_shape)
    return LoadedInputs(inputs, *image_names(folder, paths), note)


def decode_images(
    paths: Sequence[Path], name: str, image_size: int | None = None, image_shape: tuple[int, ...] | None = None
) -> tuple[Inputs, str]:
    """The pixels of images, in memory, and a note if images were resized; `read_features` describes the options."""
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
                "(change this with --image-size)"
            )
            size = (DEFAULT_IMAGE_SIDE_PIXELS, DEFAULT_IMAGE_SIDE_PIXELS)
    if image_size is not None:
        size = (image_size, image_size)
    X = np.empty((len(paths), len(mode), size[1], size[0]), np.uint8)  # "L" has one channel, "RGB" three
    for row, path in enumerate(paths):
        X[row] = _pixels(path, size, mode)
    return check_inputs(X, name), note


def read_image_files(folder: Path, size: int) -> LoadedInputs:
    """List the images of a folder; each image is decoded only when it is needed.

    Parameters
    ----------
    folder : Path
        Folder of images; subfolders are included.
    size : int
        Each image is cropped to its central square and resized to this many pixels per side.

    Returns
    -------
    loaded : LoadedInputs
        Its attribute `inputs` is an `ImageFiles` object. The item ids are the paths of the images relative to the
        folder. Labels may name an image without its file extension: ``one`` stands for ``one.png``.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If the folder contains no images.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Image.new("RGB", (60, 40)).save(folder / "one.png")
    >>> loaded = read_image_files(folder, 32)
    >>> loaded.items.tolist(), loaded.inputs.item_shape
    (['one.png'], (3, 32, 32))
    """
    check_image_folder(folder)
    paths = find_images(folder)
    return LoadedInputs(ImageFiles(paths, size), *image_names(folder, paths))


def read_image(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read one image: rotate it as its EXIF data say, and resize it to the given shape.

    `read_features` reads the images of a folder in the same way.

    Parameters
    ----------
    path : Path
        The image file.
    shape : tuple of int
        Channels (1 or 3), height and width of the result.

    Returns
    -------
    pixels : ndarray of shape (channels, height, width), uint8
        Pixel values from 0 to 255.

    Raises
    ------
    ValueError
        If the file is not a readable image.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "grey.png"
    >>> Image.new("L", (60, 40), 7).save(path)
    >>> read_image(path, (3, 8, 8)).shape
    (3, 8, 8)
    """
    channels, height, width = shape
    return _pixels(path, (width, height), "L" if channels == 1 else "RGB")


def _image_sizes_and_modes(paths: Sequence[Path]) -> tuple[set[tuple[int, int]], set[str]]:
    """The distinct sizes and modes of images, from the headers of their files."""
    sizes, modes = set(), set()
    for path in paths:
        try:
            with open_image(path) as image:
                sizes.add(image.size)
                modes.add(image.mode)
        except Exception as error:  # Pillow's readers may raise any exception
            raise _unreadable(path, error) from error
    return sizes, modes


def _pixels(path: Path, size: tuple[int, int], mode: str) -> NDArray[np.uint8]:
    """One image as (channels, height, width), rotated as its EXIF data say."""
    try:
        ready = open_upright(path).convert(mode)
        if ready.size != size:
            ready = ready.resize(size, Image.Resampling.BILINEAR)
        pixels = np.asarray(ready)
    except Exception as error:  # as above
        raise _unreadable(path, error) from error
    return pixels[None] if mode == "L" else np.moveaxis(pixels, 2, 0)


def _unreadable(path: Path, error: Exception) -> ValueError:
    """The error for an unreadable image."""
    return ValueError(f"{unreadable_message(path, error)}. Repair it, or remove it from the folder")
