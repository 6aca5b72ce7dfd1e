"""Where data sets lie: in the folder that is given, or in the one that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

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
