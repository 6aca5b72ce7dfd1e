"""The folder of images from which a file of features was computed, so that reports can show the pictures."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

PICTURE_FOLDER_ARRAY = "image_folder"  # in the `.npz` that `embed` writes


def relative_picture_folder(folder: Path, file: Path) -> str:
    """Return the path of a folder of images relative to the folder of a file, so that both can be moved together.

    Parameters
    ----------
    folder : Path
        The images.
    file : Path
        The file of features.

    Returns
    -------
    path : str

    Examples
    --------
    >>> relative_picture_folder(Path("photos/2024"), Path("photos/features.npz"))
    '2024'
    """
    return Path(os.path.relpath(folder.resolve(), file.resolve().parent)).as_posix()


def read_picture_folder(path: Path) -> Path | None:
    """Return the folder of images that a file of features names, if it still exists.

    Parameters
    ----------
    path : Path
        A file of inputs of any kind.

    Returns
    -------
    folder : Path or None
        None if the file does not name a folder, if it cannot be read, or if the folder is gone.

    Examples
    --------
    >>> read_picture_folder(Path("texts.csv")) is None
    True
    """
    if path.suffix.lower() != ".npz":
        return None
    try:
        with np.load(path, allow_pickle=False) as content:
            if PICTURE_FOLDER_ARRAY not in content:
                return None
            folder = path.resolve().parent / str(content[PICTURE_FOLDER_ARRAY])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):  # reported where the inputs are read
        return None
    return folder if folder.is_dir() else None
