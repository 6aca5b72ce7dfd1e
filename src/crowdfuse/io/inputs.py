"""Inputs: an array or sparse matrix with one row an item, checked once, handed out by rows as float32."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

VALUES_PER_BLOCK = 1 << 22  # how many values are looked at in one go

PositionDescriber = Callable[[tuple[int, ...]], str]


class Inputs:
    """Rows of X. Sparse matrices are made dense a batch at a time; bytes (images) stay bytes until then."""

    in_memory: ClassVar[bool] = True
    """Whether a row is there at once. Where it is not, nobody looks at all rows who can do with a sample."""

    def __init__(self, X: Any) -> None:
        self.values = X
        self.is_sparse = sparse.issparse(X)
        self.item_shape: tuple[int, ...] = tuple(X.shape[1:])

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """These rows as a dense float32 array."""
        chosen = self.values[index]
        dense: NDArray[Any] = chosen.toarray() if self.is_sparse else chosen
        return np.ascontiguousarray(dense, dtype=np.float32)

    def stream(self, batches: Sequence[NDArray[Any]]) -> Generator[NDArray[np.float32], None, None]:
        """The rows of each batch, in turn. Whoever stops before the last one closes it.

        >>> [rows.tolist() for rows in Inputs(np.eye(3)).stream([np.array([2]), np.array([1, 0])])]
        [[[0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]]
        """
        for batch in batches:
            yield self.rows(batch)

    def take(self, rows: NDArray[Any]) -> Inputs:
        """Inputs of these rows alone."""
        return Inputs(self.values[rows])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the inputs, computed once."""
        digest = hashlib.blake2b(digest_size=16)
        self.hash_into(digest)
        return digest.hexdigest()

    def hash_into(self, digest: Any) -> None:
        """Feed shape, type and content to a hash, block by block."""
        digest.update(f"{self.values.shape}".encode())
        parts = [self.values.data, self.values.indices, self.values.indptr] if self.is_sparse else [self.values]
        for part in parts:
            digest.update(f"{part.shape}{part.dtype.str}".encode())
            for _, block in _blocks(part):
                digest.update(np.ascontiguousarray(block).data)


def check_inputs(X: Any, name: str = "X", describe_position: PositionDescriber | None = None) -> Inputs:
    """Inputs from anything array-like; NaN and infinity are refused, naming the place.

    `name` is what messages call X, and `place` puts an index into words for them. Inputs are taken as they are.

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
            raise type(error)(f"{name} must hold numbers: argument must be a string or a number ({error})") from error
    if X.dtype.kind == "c":
        raise ValueError(f"{name} holds complex numbers. Complex data not supported")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, got dtype {X.dtype}")
    if X.ndim < 2:
        raise ValueError(
            f"{name} must have one row an item, got shape {X.shape}. Reshape your data: "
            "X.reshape(-1, 1) if it has a single feature, X.reshape(1, -1) if it is a single item"
        )
    # scikit-learn's own checks look for the wording of the next two
    if X.shape[0] == 0:
        raise ValueError(f"{name} has 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
    if 0 in X.shape[1:]:
        raise ValueError(f"{name} has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.dtype.kind == "f":
        _refuse_unfinite(X, name, describe_position or _in_words)
    return Inputs(X)


def _refuse_unfinite(X: Any, name: str, place: PositionDescriber) -> None:
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


def _in_words(at: tuple[int, ...]) -> str:
    row, *rest = at
    return f"row {row}, column {rest[0]}" if len(rest) == 1 else f"row {row}, at {tuple(rest)}"


def _blocks(values: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Runs of rows, with the number of the first: few where rows are large."""
    n_rows = max(1, VALUES_PER_BLOCK // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), n_rows):
        yield start, values[start : start + n_rows]
