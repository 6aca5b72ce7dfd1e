"""Crop an image to the square in its centre and resize it, for networks with a fixed input size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.io.images import open_upright


def crop_centre_square(path: str | Path, size: int) -> NDArray[np.uint8]:
    """Crop an image to the largest square in its centre, and resize the square.

    Parameters
    ----------
    path : str or Path
        The image file.
    size : int
        Pixels per side of the result.

    Returns
    -------
    pixels : ndarray of shape (3, size, size)
        Red, green and blue.

    Raises
    ------
    Exception
        Pillow's readers may raise any exception; callers catch all of them.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (30, 20), "red").save(f"{folder}/wide.png")
    ...     crop_centre_square(f"{folder}/wide.png", 8).shape
    (3, 8, 8)
    """
    image = open_upright(path, size).convert("RGB")
    side = min(image.size)
    left, top = ((length - side) / 2 for length in image.size)
    square = (left, top, left + side, top + side)
    return np.moveaxis(np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=square)), 2, 0)
