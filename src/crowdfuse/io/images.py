"""Image files: find them in a folder, name them, and open them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
SIXTEEN_BIT_MODES = {"I;16", "I;16L", "I;16B", "I;16N"}
MAX_DECODED_PIXELS = 1 << 27  # 134 million; larger images are decoded at a reduced size if their format allows it
MAX_JPEG_REDUCTION = 8  # the JPEG decoder can keep only every eighth row and column
GREY_MODES = {"1", "L", "LA", *SIXTEEN_BIT_MODES}


def check_image_folder(folder: Path) -> None:
    """Raise an error unless the path is a folder.

    Parameters
    ----------
    folder : Path
        The folder of images.

    Raises
    ------
    FileNotFoundError
        If the path does not exist or is a file.

    Examples
    --------
    >>> check_image_folder(Path("nowhere"))
    Traceback (most recent call last):
    FileNotFoundError: the folder of images nowhere does not exist
    """
    if not folder.is_dir():
        problem = "is a file; pass the folder that holds the images" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"the folder of images {folder} {problem}")


def find_images(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders, recognised by their endings, sorted."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_ENDINGS and p.is_file())
    if not paths:
        raise ValueError(f"{folder} has no images; expected files that end in {', '.join(sorted(IMAGE_ENDINGS))}")
    return paths


def image_names(folder: Path, paths: Sequence[Path]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The path of each image relative to the folder, with and without its ending; labels may use either of the two.

    >>> image_names(Path("photos"), [Path("photos/cats/1.png")])
    (array(['cats/1.png'], dtype=object), array(['cats/1'], dtype=object))
    """
    relative = [path.relative_to(folder) for path in paths]
    names = np.array([path.as_posix() for path in relative], dtype=object)
    return names, np.array([path.with_suffix("").as_posix() for path in relative], dtype=object)


def is_image_name(name: str) -> bool:
    """Whether a name has the ending of an image.

    >>> is_image_name("cats/1.JPG"), is_image_name("1.csv")
    (True, False)
    """
    return PurePosixPath(name).suffix.lower() in IMAGE_ENDINGS


_pillow_limit = threading.Lock()


@contextmanager
def open_image(path: str | Path) -> Iterator[Image.Image]:
    """Open an image of any size and read its header; its pixels may be too many to decode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `refuse_or_reduce` has its own limit
        try:
            image = Image.open(path)
        except Image.DecompressionBombError:
            with _pillow_limit:  # Pillow has one limit for all threads
                limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
                try:
                    image = Image.open(path)
                finally:
                    Image.MAX_IMAGE_PIXELS = limit
    with image:
        yield image


def refuse_or_reduce(image: Image.Image) -> None:
    """Let a JPEG with too many pixels be decoded at a reduced size; raise an error for other formats."""
    width, height = image.size
    if width * height <= MAX_DECODED_PIXELS:
        return
    scale = next((s for s in (2, 4, MAX_JPEG_REDUCTION) if width * height <= MAX_DECODED_PIXELS * s * s), None)
    if image.format == "JPEG" and scale is not None:
        image.draft(None, (width // scale, height // scale))
        return
    raise ValueError(
        f"it has {width:,} x {height:,} pixels, but the limit is {MAX_DECODED_PIXELS / 1e6:.0f} million pixels "
        f"({MAX_DECODED_PIXELS * MAX_JPEG_REDUCTION**2 / 1e6:,.0f} million for JPEG); save it at a smaller size"
    )


def open_upright(path: str | Path, min_side: int | None = None) -> Image.Image:
    """Open and decode an image, rotate it as its EXIF data say, and reduce it to 8 bits per channel.

    16-bit grey values lose their lower 8 bits. Images with 32 bits per channel raise an error, because the range of
    their values is unknown. A JPEG of more than 134 million pixels is decoded at 1/2, 1/4 or 1/8 of its size. An image
    of that size in another format raises an error.

    Parameters
    ----------
    path : str or Path
        The image file.
    min_side : int, default=None
        If given, a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides keep at least this many
        pixels.

    Returns
    -------
    image : PIL.Image.Image

    Raises
    ------
    Exception
        Pillow's readers may raise any exception; callers catch all of them.
    """
    with open_image(path) as image:
        if image.mode in ("I", "F"):
            raise ValueError(
                "it has 32 bits per channel, so its largest possible value is not known; save it with 8 or 16 bits"
            )
        if min_side is not None:
            image.draft(None, (min_side, min_side))
        refuse_or_reduce(image)
        ready = ImageOps.exif_transpose(image)
    if ready.mode in SIXTEEN_BIT_MODES:  # `convert` would turn every grey above 255 (of 65,535) white
        return Image.fromarray((np.asarray(ready) >> 8).astype(np.uint8))
    if ready.mode == "P" and "transparency" in ready.info:
        return ready.convert("RGBA")  # otherwise Pillow warns
    return ready


def unreadable_message(path: str | Path, error: Exception) -> str:
    """The first part of an error message about an unreadable image; callers add the way out."""
    return f"{path}: not a readable image ({error})"
