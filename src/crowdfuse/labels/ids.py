"""Names of items, annotators and classes: strings or 64-bit integers, and how two lists of them meet.

Text says "12" where an array says 12. The two are the same id; "012" is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = NDArray[np.integer[Any]]

INTEGER_PATTERN = r"^(0|-?[1-9][0-9]{0,18})$"
EXACT_FLOAT_LIMIT = 2**53  # from here on floats skip integers, so that two ids may have become one
WHOLE = f"strings or whole numbers (of 64 bits; as floats below {EXACT_FLOAT_LIMIT:.0e})"


def normalize_ids(
    values: ArrayLike | Sequence[Any], name: str, describe_position: Callable[[int], str] | None = None
) -> NDArray[Any]:
    """Ids as an int64 or an object array of strings; whole floats count as integers.

    `place` puts a position into words for an error message; otherwise it is `what[position]`.

    >>> normalize_ids([1.0, 2.0], "items")
    array([1, 2])
    """
    array = as_array(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    kind = array.dtype.kind
    if kind in "UT":
        return array.astype(object)
    if kind in "ib":
        return array.astype(np.int64)
    usable: NDArray[np.bool_]
    if kind == "u":
        usable = array <= np.iinfo(np.int64).max
    elif kind == "f":
        usable = (np.abs(array) < EXACT_FLOAT_LIMIT) & (array == np.floor(array))
    elif kind == "O":
        usable = np.array([isinstance(value, str) for value in array], bool)
        if usable.all():
            return array
        if not usable.any():
            usable = np.array([_is_whole(value) for value in array], bool)
    else:
        raise ValueError(f"{name} must be strings or integers, got dtype {array.dtype}")
    if not usable.all():
        at = int(np.argmin(usable))
        where = f"{name}[{at}]" if describe_position is None else describe_position(at)
        # scikit-learn's checks look for the last words where a regression target is given
        hint = ". Unknown label type" if name == "labels" else ""
        raise ValueError(f"{where}: {name} must be all {WHOLE}, got {format_names([array[at]])}{hint}")
    return array.astype(np.int64)


def as_array(values: ArrayLike | Sequence[Any]) -> NDArray[Any]:
    """As numpy has it, but a list keeps its strings apart from None and NaN, which numpy would spell out."""
    if isinstance(values, (list, tuple)):
        rows = values if any(isinstance(row, (list, tuple)) for row in values) else [values]
        if any(isinstance(cell, str) for row in rows if isinstance(row, (list, tuple)) for cell in row):
            return np.array(values, dtype=object)
    return np.asarray(values)


def parse_integer_ids(values: NDArray[Any]) -> NDArray[Any]:
    """Strings read from a text file: integers if every one round-trips, else left alone.

    >>> parse_integer_ids(np.array(["7", "12"], object)), parse_integer_ids(np.array(["007", "12"], object))
    (array([ 7, 12]), array(['007', '12'], dtype=object))
    """
    import pyarrow as pa

    if values.dtype.kind != "O":
        return values
    numbers = parse_integers(pa.array(values, pa.string()))
    return values if numbers is None else numbers


def parse_integers(strings: pa.Array) -> NDArray[np.int64] | None:
    """Strings as integers if there are any and every one round-trips; else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for some in (strings.slice(0, 100), strings):  # most columns are told by their first values
        if not len(some) or not pc.all(pc.match_substring_regex(some, INTEGER_PATTERN), skip_nulls=False).as_py():
            return None
    try:
        return np.asarray(strings.cast(pa.int64()))
    except pa.ArrowInvalid:  # more than 64 bits
        return None


def positions_of(wanted: NDArray[Any], among: NDArray[Any]) -> IntArray:
    """Where each wanted id stands in `among` (which has no repeats), -1 where it does not.

    >>> positions_of(np.array([2, 9]), np.array(["1", "2"], object)).tolist()
    [1, -1]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(wanted) or not len(among):
        return np.full(len(wanted), -1, np.int64)
    if wanted.dtype.kind != among.dtype.kind:
        wanted, among = ids_to_strings(wanted), ids_to_strings(among)
    positions = pc.index_in(pa.array(wanted), value_set=pa.array(among))
    return np.asarray(positions.fill_null(-1)).astype(np.int64)


def ids_to_strings(values: NDArray[Any]) -> NDArray[Any]:
    """Ids as strings, object dtype."""
    return values if values.dtype.kind == "O" else values.astype(str).astype(object)


def sort_names(names: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Distinct names in order (integers as numbers, strings by alphabet), and the new position of each.

    >>> sort_names(np.array([30, 4]))
    (array([ 4, 30]), array([1, 0]))
    """
    order = np.argsort(names)
    position = np.empty(len(names), np.int64)
    position[order] = np.arange(len(names))
    return names[order], position


def unique_sorted(values: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """The distinct ids in order, and each value's position among them."""
    import pyarrow as pa

    if not len(values):
        return values, np.zeros(0, np.int64)
    encoded = pa.array(values).dictionary_encode()  # hashing beats numpy's sort of Python strings
    names, position = sort_names(encoded.dictionary.to_numpy(zero_copy_only=False))
    return names, position[np.asarray(encoded.indices)]


def refuse_repeats(ids: NDArray[Any], what: str) -> None:
    """An error if an id stands more than once."""
    import pyarrow as pa

    if len(ids) and len(pa.array(ids).unique()) < len(ids):
        names, position = unique_sorted(ids)
        twice = names[np.bincount(position) > 1]
        raise ValueError(f"{what} must be distinct; these stand more than once: {format_names(twice)}")


def similar_class_notes(classes: NDArray[Any]) -> list[str]:
    """A note of classes that are the same but for case and spaces: most likely one, written in two ways.

    >>> similar_class_notes(np.array(["Cat", "cat ", "dog"], object))
    ["classes that differ only by case or spaces: 'Cat', 'cat '"]
    """
    if classes.dtype.kind != "O":
        return []
    seen: dict[str, list[str]] = {}
    for name in classes:
        seen.setdefault("".join(name.split()).casefold(), []).append(name)
    alike = [name for group in seen.values() if len(group) > 1 for name in group]
    return [f"classes that differ only by case or spaces: {format_names(alike)}"] if alike else []


def format_names(names: Iterable[Any], max_names: int = 5) -> str:
    """A few names for a message.

    >>> format_names(["a", "b"]), format_names(range(9), most=2)
    ("'a', 'b'", '0, 1, ... (9 in all)')
    """
    listed = [name.item() if isinstance(name, np.generic) else name for name in names]
    shown = ", ".join(repr(name) if len(repr(name)) <= 60 else repr(name)[:57] + "..." for name in listed[:max_names])
    return shown if len(listed) <= max_names else f"{shown}, ... ({len(listed):,} in all)"


def format_count(count: int, noun: str) -> str:
    """A count with its noun: '1 item', '3 items'."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def format_count_with_verb(count: int, noun: str) -> str:
    """A count with its noun and verb: '1 item is', '3 items are'."""
    return f"{format_count(count, noun)} {'is' if count == 1 else 'are'}"


def _is_whole(value: Any) -> bool:
    if isinstance(value, (float, np.floating)):
        return float(value).is_integer() and abs(float(value)) < EXACT_FLOAT_LIMIT
    return isinstance(value, (int, np.integer, np.bool_)) and -(2**63) <= int(value) < 2**63
