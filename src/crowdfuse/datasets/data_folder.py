"""Where data sets lie: in the folder that is given, or in the one that the environment names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from crowdfuse.labels.ids import format_count_with_verb

DATA_FOLDER_VARIABLE = "CROWDFUSE_DATA"


def data_folder(folder: Path | None, name: str, holds: str) -> Path:
    """The folder of the data set called `name`; `holds` says what should be in it.

    >>> data_folder(Path("mine"), "mnist", "mnist/").name
    'mine'
    """
    named = folder or os.environ.get(DATA_FOLDER_VARIABLE)
    if not named:
        raise FileNotFoundError(
            f"{name}: no data folder is given; pass folder= (--data), or set {DATA_FOLDER_VARIABLE} to the folder "
            f"that holds {holds}"
        )
    return Path(named)


def refuse_missing(place: Path, files: Sequence[str], name: str, published: str) -> None:
    """All files that the data set called `name` lacks, at once; `published` says where they are to be had."""
    missing = [file for file in files if not (place / file).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: no {', '.join(missing)} in {place}. {published}; folder= or {DATA_FOLDER_VARIABLE} names the "
            "folder above"
        )


def refuse_missing_images(paths: Sequence[Path], name: str, published: str) -> None:
    """Images that a list names and that are not there, before any of them is needed."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: {format_count_with_verb(len(missing), 'image')} not there of {len(paths):,}, the first "
            f"{missing[0]}. {published}"
        )
