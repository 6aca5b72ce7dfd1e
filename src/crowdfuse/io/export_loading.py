"""Load the inputs from a file of labels: its texts, or the image files that its paths point to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from crowdfuse.io.features import LoadedInputs, decode_images
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.item_fields import ExportInputs
from crowdfuse.io.texts import Texts
from crowdfuse.labels.ids import format_count, format_names

UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")  # Label Studio puts it before the name of an uploaded file


def load_export_inputs(
    found: ExportInputs,
    labels: Path,
    *,
    image_size: int | None = None,
    image_shape: tuple[int, ...] | None = None,
    files_of_size: int | None = None,
    drop_missing: bool = False,
) -> LoadedInputs:
    """Load the texts or images of a file of labels.

    Parameters
    ----------
    found : ExportInputs
        The inputs, from `crowdfuse.io.read_export_inputs`.
    labels : Path
        The file of labels. Image paths are looked up as they are, and relative to the folder of this file.
    image_size : int, default=None
        Height and width of images in pixels, as in `crowdfuse.io.read_features`.
    image_shape : tuple of int, default=None
        Channels, height and width that a trained model expects, as in `crowdfuse.io.read_features`.
    files_of_size : int, default=None
        If given, each image is decoded only when it is needed, at this size in pixels per side.
    drop_missing : bool, default=False
        Whether to leave out items whose image does not exist. By default, a missing image is an error.

    Returns
    -------
    loaded : LoadedInputs
        Its attribute `inputs` holds texts, pixels or `ImageFiles`. Its attribute `note` says which field of which file
        they come from.

    Raises
    ------
    FileNotFoundError
        If no image exists on this machine, or if some do not exist and `drop_missing` is false.
    """
    note = f"the inputs are the {found.kind}s in {found.field!r} of {labels}"
    if found.kind == "text":
        return LoadedInputs(Texts(found.values), found.items, note=note)
    folder = labels if labels.is_dir() else labels.parent
    paths = [_find_image(value, folder) for value in found.values]
    missing = [value for value, path in zip(found.values, paths, strict=True) if path is None]
    existing = [path for path in paths if path is not None]
    if missing and (not existing or not drop_missing):
        raise FileNotFoundError(
            f"{format_count(len(missing), 'image')} of {labels} cannot be found, neither at the path in "
            f"{found.field!r} nor in the folder {folder}: {format_names(missing, 3)}. Put the file of labels into the "
            f"folder of the images, or name that folder on the command line: `--inputs FOLDER --item {found.field}`"
        )
    items = found.items[np.array([path is not None for path in paths])]
    if files_of_size is not None:
        return LoadedInputs(ImageFiles(existing, files_of_size), items, note=note)
    inputs, size_note = decode_images(existing, str(labels), image_size, image_shape)
    return LoadedInputs(inputs, items, note="; ".join(filter(None, (note, size_note))))


def _find_image(value: str, folder: Path) -> Path | None:
    """The file of an image, from the path or URL that a labelling tool wrote; None if it is not on this machine."""
    return next((path for path in _candidates(value, folder) if path.is_file()), None)


def _candidates(value: str, folder: Path) -> Iterator[Path]:
    """Where the file of an image may be."""
    if value.startswith("data:"):
        return
    parts = urlsplit(value)
    for name in (value, unquote(parts.path), *parse_qs(parts.query).get("d", [])):  # Label Studio's local files: ?d=
        if parts.scheme in ("", "file") or name != value:
            yield Path(name)
            yield folder / name.lstrip("/")
            yield folder / Path(name).name
            yield folder / UPLOAD_PREFIX.sub("", Path(name).name)
