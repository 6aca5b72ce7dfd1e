"""Where data sets lie: in the folder that is given, or in the one that the environment names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from crowdfuse.labels.ids import plural

ENVIRONMENT = "CROWDFUSE_DATA"


def data_folder(folder: Path | None, name: str, holds: str) -> Path:
    """The folder of the data set called `name`; `holds` says what should be in it.

    >>> data_folder(Path("mine"), "mnist", "mnist/").name
    'mine'
    """
    named = folder or os.environ.get(ENVIRONMENT)
    if not named:
        raise FileNotFoundError(
            f"{name}: no data folder is given; pass folder= (--data), or set {ENVIRONMENT} to the folder "
            f"that holds {holds}"
        )
    return Path(named)


def refuse_missing(place: Path, files: Sequence[str], name: str, published: str) -> None:
    """All files that the data set called `name` lacks, at once; `published` says where they are to be had."""
    missing = [file for file in files if not (place / file).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: no {', '.join(missing)} in {place}. {published}; folder= or {ENVIRONMENT} names the folder above"
        )


def refuse_missing_images(paths: Sequence[Path], name: str, published: str) -> None:
    """Images that a list names and that are not there, before any of them is needed."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name}: {plural(len(missing), 'image')} not there of {len(paths):,}, the first {missing[0]}. {published}"
        )
