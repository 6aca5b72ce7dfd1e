"""The data folder: the given folder, or the value of an environment variable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from crowdfuse.labels.ids import format_count

DATA_FOLDER_VARIABLE = "CROWDFUSE_DATA"


def data_folder(folder: Path | None, name: str, holds: str) -> Path:
    """The data folder for the data set `name`. `holds` describes its contents, for the error message.

    >>> data_folder(Path("mine"), "mnist", "mnist/").name
    'mine'
    """
    named = folder or os.environ.get(DATA_FOLDER_VARIABLE)
    if not named:
        raise FileNotFoundError(
            f"{name}: no data folder given; pass folder= (--data), or set the environment variable "
            f"{DATA_FOLDER_VARIABLE} to the folder that contains {holds}"
        )
    return Path(named)


def other_data_sets_advice(name: str) -> str:
    """The end of a message about missing files: how to run `crowdfuse reproduce crowds` without the data set `name`."""
    return f"or leave out {name}: pass the names of the other data sets to 'crowdfuse reproduce crowds' with --values"


def refuse_missing(place: Path, files: Sequence[str], name: str, published: str) -> None:
    """Raise an error that lists all missing files of the data set `name`; `published` tells where to get them."""
    missing = [file for file in files if not (place / file).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: no {', '.join(missing)} in {place}. {published}. If the files are elsewhere, pass the folder "
            f"that contains {place.name}/ as folder=, or set {DATA_FOLDER_VARIABLE} to this folder"
        )


def refuse_missing_images(paths: Sequence[Path], name: str, published: str) -> None:
    """Raise an error if listed images are missing."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: {len(missing):,} of {format_count(len(paths), 'image')} not found; the first is {missing[0]}. "
            f"{published}"
        )
