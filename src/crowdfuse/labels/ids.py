"""Ids of items and annotators, and names of classes: which values are allowed, and which values are equal.

Ids and names are strings or 64-bit integers. The string "12" from a text file and the integer 12 from an array are the
same id. The string "012" is a different id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = NDArray[np.integer[Any]]

INTEGER_PATTERN = r"^(0|-?[1-9][0-9]{0,18})(\.0+)?$"  # tables with missing values often hold "1.0"
DECIMALS_PATTERN = r"\.0+$"
EXACT_FLOAT_LIMIT = 2**53  # above this limit, neighbouring integers can be the same float
MAX_SHOWN_CHARACTERS = 60  # of one name in a message
ALLOWED_IDS = f"only strings, or only whole numbers (64-bit integers, or floats below {EXACT_FLOAT_LIMIT:.0e})"


def normalize_ids(
    values: ArrayLike | Sequence[Any], name: str, describe_position: Callable[[int], str] | None = None
) -> NDArray[Any]:
    """Return integer ids as an int64 array, and string ids as an object array.

    Parameters
    ----------
    values : array-like of shape (n,)
        Strings, integers, or floats with whole values below 2**53.
    name : str
        Name of the argument, for error messages.
    describe_position : callable, default=None
        Function that describes a position for an error message. By default, position 3 of `items` becomes "items[3]".

    Returns
    -------
    ndarray of shape (n,)
        Of dtype int64 or object.

    Raises
    ------
    ValueError
        If the values are not one-dimensional, if they mix strings and numbers, or if a value is missing or has another
        type.

    Examples
    --------
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
        # scikit-learn's estimator checks expect the last words for a regression target
        hint = ". Unknown label type" if name == "labels" else ""
        raise ValueError(f"{where}: {name} must be {ALLOWED_IDS}, got {format_names([array[at]])}{hint}")
    return array.astype(np.int64)


def as_array(values: ArrayLike | Sequence[Any]) -> NDArray[Any]:
    """Return `np.asarray(values)`, but as objects if a list holds strings: NumPy would turn NaN into a string."""
    if isinstance(values, (list, tuple)):
        rows = values if any(isinstance(row, (list, tuple)) for row in values) else [values]
        if any(isinstance(cell, str) for row in rows if isinstance(row, (list, tuple)) for cell in row):
            return np.array(values, dtype=object)
    return np.asarray(values)


def parse_integer_ids(values: NDArray[Any]) -> NDArray[Any]:
    """Convert strings to integers if all of them are whole numbers, else return them unchanged.

    "7" and "7.0" are whole numbers; "007" and "7.5" are not. Distinct strings can become equal numbers, such as "7" and
    "7.0". Merge them afterwards with `merge_equal_names`.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Strings, as an object array. Arrays of any other dtype are returned unchanged.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> parse_integer_ids(np.array(["7", "12"], object)), parse_integer_ids(np.array(["007", "12"], object))
    (array([ 7, 12]), array(['007', '12'], dtype=object))
    """
    import pyarrow as pa

    if values.dtype.kind != "O":
        return values
    numbers = parse_integers(pa.array(values, pa.string()))
    return values if numbers is None else numbers


def parse_integers(strings: pa.Array) -> NDArray[np.int64] | None:
    """Convert strings to integers if all are whole numbers (see `parse_integer_ids`), else return None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for part in (strings.slice(0, 100), strings):  # the first values are enough to rule out most columns
        if not len(part) or not pc.all(pc.match_substring_regex(part, INTEGER_PATTERN), skip_nulls=False).as_py():
            return None
    try:
        return np.asarray(pc.replace_substring_regex(strings, DECIMALS_PATTERN, "").cast(pa.int64()))
    except pa.ArrowInvalid:  # more than 64 bits
        return None


def merge_equal_names(names: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct names in order of first appearance, and the position of each name in this list.

    Examples
    --------
    >>> merge_equal_names(np.array([7, 3, 7]))
    (array([7, 3]), array([0, 1, 0]))
    """
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return names[first[order]], rank[inverse]


def positions_of(wanted: NDArray[Any], among: NDArray[Any]) -> IntArray:
    """Return the position of each wanted id in `among`.

    Parameters
    ----------
    wanted : ndarray of shape (n,)
        Ids, as from `normalize_ids`.
    among : ndarray of shape (m,)
        Distinct ids. If one array holds integers and the other strings, the integers are converted to strings first.

    Returns
    -------
    ndarray of int64, shape (n,)
        -1 for ids that are not in `among`.

    Examples
    --------
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
    """Return ids as strings, in an object array."""
    return values if values.dtype.kind == "O" else values.astype(str).astype(object)


def sort_names(names: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Sort distinct names (integers by value, strings alphabetically), and return them with their new positions.

    Examples
    --------
    >>> sort_names(np.array([30, 4]))
    (array([ 4, 30]), array([1, 0]))
    """
    order = np.argsort(names)
    position = np.empty(len(names), np.int64)
    position[order] = np.arange(len(names))
    return names[order], position


def unique_sorted(values: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct ids, sorted, and the position of each value in this list.

    Examples
    --------
    >>> unique_sorted(np.array([30, 4, 30]))
    (array([ 4, 30]), array([1, 0, 1]))
    """
    import pyarrow as pa

    if not len(values):
        return values, np.zeros(0, np.int64)
    encoded = pa.array(values).dictionary_encode()  # hashing beats numpy's sort of Python strings
    names, position = sort_names(encoded.dictionary.to_numpy(zero_copy_only=False))
    return names, position[np.asarray(encoded.indices)]


def refuse_repeats(ids: NDArray[Any], name: str) -> None:
    """Raise an error if an id occurs more than once; the message lists the repeated ids.

    Parameters
    ----------
    ids : ndarray of shape (n,)
        Ids, as from `normalize_ids`.
    name : str
        Name of the argument, for the error message.

    Raises
    ------
    ValueError
        If an id occurs more than once.
    """
    import pyarrow as pa

    if len(ids) and len(pa.array(ids).unique()) < len(ids):
        names, position = unique_sorted(ids)
        repeated = names[np.bincount(position) > 1]
        raise ValueError(
            f"{name} must be distinct, but these occur more than once: {format_names(repeated)}; keep each of them "
            "only once"
        )


def similar_names(names: NDArray[Any]) -> list[list[str]]:
    """Return the groups of names that differ only by case or spaces.

    Examples
    --------
    >>> similar_names(np.array(["Cat", "cat ", "dog"], object))
    [['Cat', 'cat ']]
    """
    if names.dtype.kind != "O":
        return []
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(without_case_and_spaces(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def without_case_and_spaces(name: str) -> str:
    """Return the name in a form that ignores case and spaces."""
    return "".join(name.split()).casefold()


def similar_class_notes(classes: NDArray[Any]) -> list[str]:
    """Return a note if class names differ only by case or spaces, which is probably a mistake.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Class names.

    Returns
    -------
    list of str
        One note, or an empty list.

    Examples
    --------
    >>> similar_class_notes(np.array(["Cat", "cat ", "dog"], object))
    ["classes that differ only by case or spaces: 'Cat', 'cat '; rename them if they are the same class"]
    """
    similar = [name for group in similar_names(classes) for name in group]
    way_out = "rename them if they are the same class"
    return [f"classes that differ only by case or spaces: {format_names(similar)}; {way_out}"] if similar else []


def format_names(names: Iterable[Any], max_names: int = 5) -> str:
    """Return names as text for a message. If only some are listed, their total number follows.

    Parameters
    ----------
    names : iterable
        Strings or numbers.
    max_names : int, default=5
        Maximum number of names to list.

    Returns
    -------
    str

    Examples
    --------
    >>> format_names(["a", "b"]), format_names(range(9), max_names=2)
    ("'a', 'b'", '0, 1, ... (9 in all)')
    """
    values = [name.item() if isinstance(name, np.generic) else name for name in names]
    shown = ", ".join(_shorten(repr(value)) for value in values[:max_names])
    return shown if len(values) <= max_names else f"{shown}, ... ({len(values):,} in all)"


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: '1 item', '3 items'."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def format_count_with_verb(count: int, noun: str) -> str:
    """Return a count with its noun and verb: '1 item is', '3 items are'."""
    return f"{format_count(count, noun)} {'is' if count == 1 else 'are'}"


def _shorten(text: str) -> str:
    """The text, cut after `MAX_SHOWN_CHARACTERS`."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number (an integer or a float) that fits into 64 bits."""
    if isinstance(value, (float, np.floating)):
        return float(value).is_integer() and abs(float(value)) < EXACT_FLOAT_LIMIT
    return isinstance(value, (int, np.integer, np.bool_)) and -(2**63) <= int(value) < 2**63
