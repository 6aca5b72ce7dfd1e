"""Inputs: an array or sparse matrix with one row an item, checked once, handed out by rows as float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crowdfuse.ids import few


class Inputs:
    """Rows of X. Sparse matrices are made dense a batch at a time; bytes (images) stay bytes until then."""

    def __init__(self, X: Any) -> None:
        self.values = X
        self.is_sparse = sparse.issparse(X)
        self.shape: tuple[int, ...] = tuple(X.shape[1:])

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def rows(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """These rows as a dense float32 array."""
        chosen = self.values[index]
        dense: NDArray[Any] = chosen.toarray() if self.is_sparse else chosen
        return np.ascontiguousarray(dense, dtype=np.float32)

    def hash_into(self, digest: Any) -> None:
        """Feed shape, type and content to a hash, block by block."""
        parts = [self.values] if not self.is_sparse else [self.values.data, self.values.indices, self.values.indptr]
        for part in parts:
            digest.update(f"{part.shape}{part.dtype.str}".encode())
            for start in range(0, len(part), 4096 if part.ndim > 1 else 1 << 22):
                digest.update(np.ascontiguousarray(part[start : start + (4096 if part.ndim > 1 else 1 << 22)]).data)


def check_inputs(X: Any, name: str = "X") -> Inputs:
    """Inputs from anything array-like; NaN and infinity are refused, naming the place."""
    if sparse.issparse(X):
        X = X.tocsr()
        _refuse_unfinite(X.data, name, lambda at: (int(np.searchsorted(X.indptr, at[0], "right")) - 1,))
    else:
        X = np.asarray(X)
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
        if X.dtype.kind == "f":
            _refuse_unfinite(X, name, lambda at: tuple(int(i) for i in at))
    if X.shape[0] == 0:
        raise ValueError(f"{name} has 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
    if 0 in X.shape[1:]:
        raise ValueError(f"{name} has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    return Inputs(X)


def _refuse_unfinite(values: NDArray[Any], name: str, place: Any) -> None:
    for start in range(0, len(values), 1 << 16):
        block = values[start : start + (1 << 16)]
        with np.errstate(over="ignore"):
            finite = np.isfinite(block.astype(np.float32, copy=False))
        if not finite.all():
            at = np.argwhere(~finite)[0]
            value = block[tuple(at)]
            at[0] += start
            rows = np.unique(np.argwhere(~finite)[:, 0]) + start
            kind = "NaN" if np.isnan(value) else "infinity or a value too large for float32"
            raise ValueError(
                f"{name} contains {kind} at {place(at)} (rows {few(rows.tolist())} of this block); "
                "fill or drop such values first"
            )
