"""Image files: which files of a folder they are, the names they answer to, and how one is opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
SIXTEEN_BIT_MODES = {"I;16", "I;16L", "I;16B", "I;16N"}
GREY_MODES = {"1", "L", "LA", *SIXTEEN_BIT_MODES}


def find_images(folder: Path) -> list[Path]:
    """The images below a folder, however deep, by their endings, sorted."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_ENDINGS and p.is_file())
    if not paths:
        raise ValueError(f"{folder} holds no images ({', '.join(sorted(IMAGE_ENDINGS))})")
    return paths


def image_names(folder: Path, paths: Sequence[Path]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The path of each image below the folder, and the same without the ending: labels may use either.

    >>> image_names(Path("photos"), [Path("photos/cats/1.png")])
    (array(['cats/1.png'], dtype=object), array(['cats/1'], dtype=object))
    """
    below = [path.relative_to(folder) for path in paths]
    names = np.array([path.as_posix() for path in below], dtype=object)
    return names, np.array([path.with_suffix("").as_posix() for path in below], dtype=object)


def open_upright(path: str | Path, least: int | None = None) -> Image.Image:
    """An image that is ready for `convert`: decoded, upright as its EXIF data say, with 8 bits a channel.

    16-bit greys lose their lower 8 bits; of 32 bits nobody knows the range, and they are refused. With `least`, a
    JPEG is decoded at 1/2, 1/4 or 1/8 where that leaves it at least so many pixels a side.
    Pillow's readers raise whatever they stumble over: whoever calls this catches all of it.
    """
    with Image.open(path) as image:
        if image.mode in ("I", "F"):
            raise ValueError("it has 32 bits a pixel, whose range nobody knows; save it with 8 or 16")
        if least is not None:
            image.draft(None, (least, least))
        ready = ImageOps.exif_transpose(image)
    if ready.mode in SIXTEEN_BIT_MODES:  # convert would turn all but the darkest 256 of 65,536 greys white
        return Image.fromarray((np.asarray(ready) >> 8).astype(np.uint8))
    if ready.mode == "P" and "transparency" in ready.info:
        return ready.convert("RGBA")  # Pillow warns where that is left out
    return ready


def not_readable(path: str | Path, error: Exception) -> str:
    """What is wrong with a file; whoever says it adds the way out."""
    return f"{path}: not a readable image ({error})"
