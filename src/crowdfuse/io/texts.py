"""Texts as inputs: the strings of the items, which an encoder turns into numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.ids import format_names


class Texts(Inputs):
    """Texts as inputs, one string per item. An encoder turns them into rows of numbers before a network reads them.

    Parameters
    ----------
    texts : iterable of str
        The texts. They may be empty.

    Attributes
    ----------
    texts : ndarray of shape (n_items,), object
        The texts.
    values : ndarray of shape (n_items,), object
        The same array as `texts`, under the name that it has in the base class `Inputs`.
    item_shape : tuple of int
        Always ``()``.
    is_sparse : bool
        Always false.
    in_memory : bool
        Always true.

    Raises
    ------
    TypeError
        If `texts` is a single string, or if an element is not a string.

    See Also
    --------
    crowdfuse.io.read_texts : Reads texts and their item ids from a table.

    Examples
    --------
    >>> texts = Texts(["a good film", "a bad film"])
    >>> len(texts), texts.take(np.array([1])).texts.tolist()
    (2, ['a bad film'])
    """

    def __init__(self, texts: Iterable[str]) -> None:
        if isinstance(texts, str):
            raise TypeError(f"texts must be a list of strings, got the single string {texts[:60]!r}; pass [text]")
        values = list(texts)
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise TypeError(f"text {row} is {value!r}, which is not a string; use '' for an item without text")
        self.texts: NDArray[Any] = np.empty(len(values), dtype=object)
        self.texts[:] = [str(value) for value in values]  # convert NumPy strings to Python strings
        self.values = self.texts
        self.is_sparse = False
        self.item_shape = ()

    def __repr__(self) -> str:
        return f"Texts({len(self)})"

    def rows(self, index: NDArray[Any]) -> NoReturn:
        """Raise an error, because texts are not numbers.

        Parameters
        ----------
        index : ndarray of shape (n,)
            Not used.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("texts are not numbers; turn them into numbers with an encoder of crowdfuse.encoders first")

    def take(self, rows: NDArray[Any]) -> Texts:
        """Return the texts of the given rows.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Row numbers, or a boolean mask over all rows.

        Returns
        -------
        texts : Texts
        """
        return Texts(self.texts[rows])

    def hash_into(self, digest: Any) -> None:
        """Update a hash with the texts.

        Parameters
        ----------
        digest : hash object
            An object of `hashlib`.
        """
        digest.update(f"texts {len(self)}".encode())
        for text in self.texts:
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(content)}:".encode() + content)


def as_texts(X: Any, name: str = "X") -> Texts | None:
    """Return X as texts if it holds strings in one dimension, else None.

    Parameters
    ----------
    X : object
        A list, an array, or a column of pandas, polars or Arrow; anything else is not text.
    name : str, default="X"
        Name of X in error messages.

    Returns
    -------
    texts : Texts or None

    Raises
    ------
    ValueError
        If X is a single string, or if some but not all of its elements are strings.

    Examples
    --------
    >>> as_texts(np.array(["yes", "no"])), as_texts([[1, 2]])
    (Texts(2), None)
    """
    if isinstance(X, Texts):
        return X
    if isinstance(X, str):
        raise ValueError(f"{name} is the single text {X[:60]!r}; pass a list of texts, such as [text]")
    if isinstance(X, (Inputs, Mapping, Set)) or sparse.issparse(X) or not hasattr(X, "__len__"):
        return None
    if len(getattr(X, "shape", (0,))) != 1 or (isinstance(X, np.ndarray) and X.dtype.kind not in "OUT"):
        return None
    values = X.to_pylist() if hasattr(X, "to_pylist") else X.tolist() if hasattr(X, "tolist") else list(X)
    is_text = np.fromiter((isinstance(value, str) for value in values), bool, len(values))
    if not is_text.any():
        return None
    if not is_text.all():
        row = int(is_text.argmin())
        raise ValueError(
            f"{name} holds texts, but element {row} is {values[row]!r} ({int((~is_text).sum()):,} of {len(values):,} "
            "elements are not strings); use '' for an item without text, or drop these items"
        )
    return Texts(values)


def refuse_numbers(texts: Texts, name: str) -> None:
    """Raise a ValueError if all texts are numbers, because numbers should be passed as features.

    Parameters
    ----------
    texts : Texts
        The texts.
    name : str
        Where the texts come from, for the error message.

    Examples
    --------
    >>> refuse_numbers(Texts(["1.5", "2"]), "column 'text'")
    Traceback (most recent call last):
    ...
    ValueError: column 'text' holds only numbers ('1.5', '2'), not texts; pass features as a table of numbers
    """
    filled = [text for text in texts.texts if text.strip()]
    if filled and all(is_number(text) for text in filled):
        raise ValueError(
            f"{name} holds only numbers ({format_names(filled, 3)}), not texts; pass features as a table of numbers"
        )


def is_number(text: str) -> bool:
    """Return whether a string is a number.

    >>> is_number("1e3"), is_number("one")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
