"""Inputs: an array or sparse matrix with one row per item, whose values are checked once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

VALUES_PER_BLOCK = 1 << 22  # values checked or hashed at a time

PositionDescriber = Callable[[tuple[int, ...]], str]


class Inputs:
    """The inputs of a model, with one row per item. Rows are read as dense float32 arrays.

    The array or matrix X is stored unchanged. Only the rows that are read are converted to dense float32. This saves
    memory if X is a sparse matrix, or holds images as bytes.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n_items, ...)
        Values that have already been checked; for values from a user, call `check_inputs`.

    Attributes
    ----------
    values : ndarray or sparse matrix of shape (n_items, ...)
        X as it was given.
    is_sparse : bool
        Whether X is a sparse matrix.
    item_shape : tuple of int
        The shape of one row.
    in_memory : bool
        Always true: X is in memory, so reading rows is fast. False for `ImageFiles`, which decodes a file to read a
        row.

    See Also
    --------
    check_inputs : Makes inputs from anything array-like.
    ImageFiles : Inputs that are decoded from image files when they are needed.

    Examples
    --------
    >>> inputs = Inputs(np.eye(3))
    >>> len(inputs), inputs.item_shape, inputs.rows(np.array([2])).tolist()
    (3, (3,), [[0.0, 0.0, 1.0]])
    """

    in_memory: ClassVar[bool] = True

    def __init__(self, X: Any) -> None:
        self.values = X
        self.is_sparse = sparse.issparse(X)
        self.item_shape: tuple[int, ...] = tuple(X.shape[1:])

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """Return rows as a dense array.

        Parameters
        ----------
        index : ndarray of shape (n,)
            Row numbers, or a boolean mask over all rows.

        Returns
        -------
        rows : ndarray of shape (n, ...), float32
        """
        chosen = self.values[index]
        dense: NDArray[Any] = chosen.toarray() if self.is_sparse else chosen
        return np.ascontiguousarray(dense, dtype=np.float32)

    def stream(self, batches: Sequence[NDArray[Any]]) -> Generator[NDArray[np.float32], None, None]:
        """Yield the rows of each batch, in order. If you do not read all batches, call the generator's `close()`.

        Parameters
        ----------
        batches : sequence of ndarray
            The row numbers of each batch.

        Yields
        ------
        rows : ndarray of shape (n, ...), float32

        Examples
        --------
        >>> [rows.tolist() for rows in Inputs(np.eye(3)).stream([np.array([2]), np.array([1, 0])])]
        [[[0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]]
        """
        for batch in batches:
            yield self.rows(batch)

    def take(self, rows: NDArray[Any]) -> Inputs:
        """Return the chosen rows as new inputs.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Row numbers, or a boolean mask over all rows.

        Returns
        -------
        inputs : Inputs
        """
        return Inputs(self.values[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the inputs, as hexadecimal text. It is computed once."""
        digest = hashlib.blake2b(digest_size=16)
        self.hash_into(digest)
        return digest.hexdigest()

    def hash_into(self, digest: Any) -> None:
        """Update a hash with the shape, type and content of X.

        Parameters
        ----------
        digest : hash object
            An object of `hashlib`.
        """
        digest.update(f"{self.values.shape}".encode())
        parts = [self.values.data, self.values.indices, self.values.indptr] if self.is_sparse else [self.values]
        for part in parts:
            digest.update(f"{part.shape}{part.dtype.str}".encode())
            for _, block in _blocks(part):
                digest.update(np.ascontiguousarray(block).data)


def check_inputs(X: Any, name: str = "X", describe_position: PositionDescriber | None = None) -> Inputs:
    """Check the values that a user passed, and return them as an `Inputs` object.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_items, ...), or Inputs
        Finite numbers. An `Inputs` object is returned unchanged.
    name : str, default="X"
        Name of X in error messages.
    describe_position : callable, default=None
        Function that turns the index of a wrong value into words for an error message. By default, the index (1, 2)
        becomes "row 1, column 2".

    Returns
    -------
    inputs : Inputs

    Raises
    ------
    ValueError
        If X holds strings, lists, complex numbers, NaN or infinite values, if it has fewer than two dimensions, or if
        it is empty.
    TypeError
        If X holds other Python objects that are not numbers, such as dicts.

    Examples
    --------
    >>> check_inputs([[1, 2], [3, float("nan")]])
    Traceback (most recent call last):
    ValueError: X contains NaN at row 1, column 1; fill or drop such values first
    """
    if isinstance(X, Inputs):
        return X
    X = X.tocsr() if sparse.issparse(X) else np.asarray(X)
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} must hold numbers, but one of its values is not a number: {error}") from error
    if X.dtype.kind == "c":
        raise ValueError(f"{name} holds complex numbers. Complex data not supported")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, got dtype {X.dtype}")
    if X.ndim < 2:
        raise ValueError(
            f"{name} must have one row per item, got shape {X.shape}. Reshape your data: "
            "X.reshape(-1, 1) if it has a single feature, X.reshape(1, -1) if it is a single item"
        )
    # scikit-learn's estimator checks expect the wording of the next two messages
    if X.shape[0] == 0:
        raise ValueError(f"{name} has 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
    if 0 in X.shape[1:]:
        raise ValueError(f"{name} has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.dtype.kind == "f":
        _refuse_nonfinite(X, name, describe_position or _describe_position)
    return Inputs(X)


def _refuse_nonfinite(X: Any, name: str, place: PositionDescriber) -> None:
    """Raise an error with the place of the first value that is not finite as float32."""
    values = X.data if sparse.issparse(X) else X
    count, first = 0, None
    for start, block in _blocks(values):
        with np.errstate(over="ignore"):
            finite = np.isfinite(block.astype(np.float32, copy=False))
        if finite.all():
            continue
        count += int((~finite).sum())
        if first is None:
            row, *rest = (int(i) for i in np.unravel_index(np.argmin(finite), finite.shape))
            first = (start + row, *rest)
    if first is None:
        return
    kind = "NaN" if np.isnan(values[first]) else "infinity or a value too large for float32"
    if sparse.issparse(X):
        first = (int(np.searchsorted(X.indptr, first[0], "right")) - 1, int(X.indices[first[0]]))
    more = "" if count == 1 else f", the first of {count:,} such values"
    raise ValueError(f"{name} contains {kind} at {place(first)}{more}; fill or drop such values first")


def _describe_position(at: tuple[int, ...]) -> str:
    """An index in words: 'row 1, column 2'."""
    row, *rest = at
    return f"row {row}, column {rest[0]}" if len(rest) == 1 else f"row {row}, at {tuple(rest)}"


def _blocks(values: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Blocks of rows with the number of their first row; about `VALUES_PER_BLOCK` values each."""
    n_rows = max(1, VALUES_PER_BLOCK // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), n_rows):
        yield start, values[start : start + n_rows]
