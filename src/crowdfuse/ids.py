"""Names of items, annotators and classes: strings or 64-bit integers, and how two lists of them meet.

Text says "12" where an array says 12. The two are the same id; "012" is another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]

INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


def tidy(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Ids as an int64 or an object array of strings; whole floats count as integers.

    >>> tidy(np.array([1.0, 2.0]), "items")
    array([1, 2])
    """
    if values.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, got shape {values.shape}")
    kind = values.dtype.kind
    if kind in "iub":
        return values.astype(np.int64)
    if kind == "f":
        whole = np.isfinite(values) & (values == np.floor(values))
        if not whole.all():
            raise ValueError(f"{what} must be strings or whole numbers, got {values[~whole][0]}. Unknown label type")
        return values.astype(np.int64)
    if kind in "UT":
        return values.astype(object)
    if kind == "O":
        if all(isinstance(value, str) for value in values):
            return values
        if all(isinstance(value, (int, float, np.integer, np.floating)) for value in values):
            return tidy(values.astype(np.float64) if _has_float(values) else values.astype(np.int64), what)
        odd = next(value for value in values if not isinstance(value, str))
        raise ValueError(f"{what} must be all strings or all integers, got {odd!r} of type {type(odd).__name__}")
    raise ValueError(f"{what} must be strings or integers, got dtype {values.dtype}")


def from_text(values: NDArray[Any]) -> NDArray[Any]:
    """Strings read from a text file: integers if every one round-trips, else left alone.

    >>> from_text(np.array(["7", "12"], object)), from_text(np.array(["007", "12"], object))
    (array([ 7, 12]), array(['007', '12'], dtype=object))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.dtype.kind != "O" or not len(values):
        return values
    if not pc.all(pc.match_substring_regex(pa.array(values, pa.string()), INTEGER)).as_py():
        return values
    return values.astype(np.int64)


def find(wanted: NDArray[Any], among: NDArray[Any]) -> IntArray:
    """Where each wanted id stands in `among` (which has no repeats), -1 where it does not.

    >>> find(np.array([2, 9]), np.array(["1", "2"], object)).tolist()
    [1, -1]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if wanted.dtype.kind != among.dtype.kind:
        wanted, among = as_text(wanted), as_text(among)
    positions = pc.index_in(pa.array(wanted), value_set=pa.array(among)) if len(among) and len(wanted) else None
    if positions is None:
        return np.full(len(wanted), -1, np.int64)
    return np.asarray(positions.fill_null(-1)).astype(np.int64)


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Ids as strings, object dtype."""
    return values if values.dtype.kind == "O" else values.astype(str).astype(object)


def unique_sorted(values: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """The distinct ids in order (integers as numbers, strings by alphabet), and each value's position."""
    if not len(values):
        return values.astype(np.int64) if values.dtype.kind != "O" else values, np.zeros(0, np.int64)
    names, code = np.unique(values, return_inverse=True)
    return names, code


def few(names: Iterable[Any], most: int = 5) -> str:
    """A few names for a message.

    >>> few(["a", "b"]), few(range(9), most=2)
    ("'a', 'b'", '0, 1, ... (9 in all)')
    """
    listed = [name.item() if isinstance(name, np.generic) else name for name in names]
    shown = ", ".join(repr(name) if len(repr(name)) <= 60 else repr(name)[:57] + "..." for name in listed[:most])
    return shown if len(listed) <= most else f"{shown}, ... ({len(listed):,} in all)"


def plural(count: int, noun: str) -> str:
    """A count with its noun and verb: '1 item is', '3 items are'."""
    return f"1 {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _has_float(values: NDArray[Any]) -> bool:
    return any(isinstance(value, (float, np.floating)) for value in values)
