"""Read arrays with matching rows from `.npz` files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_arrays(
    place: Path, files: Mapping[str, Iterable[str]], otherwise: str, optional: Iterable[str] = ()
) -> dict[str, NDArray[Any]]:
    """The named arrays of the named files in the folder `place`. `otherwise` says what to do if a file is missing.

    The arrays in `optional` are read if a file has them.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for name, keys in files.items():
        path = place / name
        if not path.exists():
            expected = " and ".join(f"{file} (arrays: {', '.join(group)})" for file, group in files.items())
            raise FileNotFoundError(f"{path} is missing. The folder must contain {expected}; {otherwise}")
        try:
            with np.load(path, allow_pickle=False) as content:
                found = [*keys, *(key for key in optional if key in content)]
                arrays |= {key: content[key] for key in found}
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read: {error}; replace the file") from error
    return arrays


def refuse_other_lengths(place: Path, arrays: Mapping[str, NDArray[Any]], pairs: Iterable[tuple[str, str]]) -> None:
    """Raise an error for a pair of arrays with different numbers of rows."""
    for one, other in pairs:
        if len(arrays[one]) != len(arrays[other]):
            raise ValueError(
                f"{place}: {one} has {len(arrays[one]):,} rows, but {other} has {len(arrays[other]):,}; both must "
                "have one row per item"
            )
