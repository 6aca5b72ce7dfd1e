"""Arrays in .npz files that belong together, row by row."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_arrays(place: Path, files: Mapping[str, Iterable[str]], otherwise: str) -> dict[str, NDArray[Any]]:
    """The arrays named, of the files named, all in the folder `place`; `otherwise` is what to do without them."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, keys in files.items():
        path = place / name
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is not there. Needed are {', '.join(files)} with the arrays "
                f"{', '.join(key for group in files.values() for key in group)}, rows in one order; {otherwise}"
            )
        try:
            with np.load(path, allow_pickle=False) as content:
                arrays |= {key: content[key] for key in keys}
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
    return arrays


def refuse_other_lengths(place: Path, arrays: Mapping[str, NDArray[Any]], pairs: Iterable[tuple[str, str]]) -> None:
    """Arrays whose rows belong together have equally many."""
    for one, other in pairs:
        if len(arrays[one]) != len(arrays[other]):
            raise ValueError(f"{place}: {one} has {len(arrays[one]):,} rows, {other} has {len(arrays[other]):,}")
