"""What an item looks like: a thumbnail where it is an image, the features that stand out where it is a row."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.images import IMAGE_ENDINGS, open_upright
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.ids import IntArray
from crowdfuse.report.names import printable

THUMBNAIL_SIDES_PIXELS = (96, 64, 48, 32)  # pixels: the largest at which all pictures together are not too much
MAX_LISTED_FEATURES = 4  # that stand out most
MAX_SAMPLED_ROWS = 5_000  # rows that tell what is usual

ItemPreview = dict[str, Any]
"""`image`: a data URI; or `missing`: the file that could not be shown; or `features`: [name, value, deviation]."""


def picture_of_file(path: Path, side: int) -> ItemPreview:
    """A thumbnail; a file that is not there any more, or is no image any more, is named."""
    try:
        return {"image": _data_uri(open_upright(path, side).convert("RGB"), side)}
    except Exception:  # Pillow's readers raise whatever they stumble over
        return {"missing": printable(path)}


def file_of(folder: Path, item: str) -> Path | None:
    """The image that an item is: its id is its path below the folder, with or without the ending.

    None for an id that leads out of the folder: what lies there is no image of this run.
    """
    path = folder / item
    if Path(item).is_absolute() or ".." in Path(item).parts:
        return None
    for ending in ("", *sorted(IMAGE_ENDINGS)):
        for candidate in (folder / f"{item}{ending}", folder / f"{item}{ending.upper()}"):
            if candidate.is_file():
                return candidate
    return path


def pictures_of_inputs(
    inputs: Inputs, rows: IntArray, side: int, names: Sequence[str] | None = None
) -> list[ItemPreview]:
    """Of these rows. Rows of two dimensions, or of one or three channels of two, are taken to be images."""
    if isinstance(inputs, ImageFiles):
        return [picture_of_file(Path(inputs.paths[row]), side) for row in rows]
    if not len(rows):
        return []
    shape = inputs.item_shape
    if len(shape) == 1:
        return _features_of_inputs(inputs, rows, names)
    if len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3)):
        return [{"image": _data_uri(image, side)} for image in _images(inputs, rows)]
    return [{} for _ in rows]


def _images(inputs: Inputs, rows: IntArray) -> list[Image.Image]:
    pixels = inputs.rows(rows)
    if getattr(inputs.values, "dtype", None) != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = (pixels - low) * (255 / (high - low) if high > low else 0)
    images = pixels.round().astype(np.uint8).reshape(len(rows), -1, *inputs.item_shape[-2:])
    return [Image.fromarray(np.moveaxis(p, 0, 2) if len(p) == 3 else p[0]).convert("RGB") for p in images]


def _data_uri(image: Image.Image, side: int) -> str:
    """A JPEG of at most so many pixels a side; small ones grow by whole steps, so that they can be seen."""
    longest = max(image.size)
    if longest > side:
        image.thumbnail((side, side))
    elif side // longest > 1:
        step = side // longest
        image = image.resize((image.width * step, image.height * step), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=72, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _features_of_inputs(inputs: Inputs, rows: IntArray, names: Sequence[str] | None) -> list[ItemPreview]:
    """The features of each row that are furthest from usual, in standard deviations."""
    usual = np.random.default_rng(0).permutation(len(inputs))[:MAX_SAMPLED_ROWS]
    total, square = np.zeros(inputs.item_shape), np.zeros(inputs.item_shape)
    size = max(1, 4_000_000 // inputs.item_shape[0])
    for start in range(0, len(usual), size):
        block = inputs.rows(usual[start : start + size]).astype(np.float64)
        total, square = total + block.sum(0), square + (block**2).sum(0)
    mean = total / len(usual)
    spread = np.sqrt(np.maximum(square / len(usual) - mean**2, 0))
    return [_outstanding(row, mean, spread, names) for row in inputs.rows(rows)]


def _outstanding(
    values: NDArray[np.float32], mean: NDArray[Any], spread: NDArray[Any], names: Sequence[str] | None
) -> ItemPreview:
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.where(spread > 0, (values - mean) / spread, 0)
    order = np.argsort(-np.abs(off), kind="stable")[:MAX_LISTED_FEATURES]
    return {
        "features": [
            [printable(names[j]) if names is not None else f"column {j}", float(values[j]), float(off[j])]
            for j in order
        ]
    }
