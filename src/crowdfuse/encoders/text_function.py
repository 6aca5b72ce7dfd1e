"""Encode texts with a function that the user provides."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crowdfuse.encoders.frozen import PROBE_TEXTS, PROBE_TOLERANCE, FrozenEncoder
from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.nets.importing import format_error, import_named

TEXTS_PER_CALL = 1024


class TextFunctionEncoder(FrozenEncoder):
    """Encodes texts with a function that returns one row of numbers per string.

    When the encoder of a saved model is first used, it checks that the function has not changed since training: for two
    fixed texts, the function must return the same features as it did in training, up to rounding.

    Parameters
    ----------
    source : str or callable
        The function, or its import path, "module:callable". The function takes a list of at most 1,024 strings, and
        returns an array or a sparse matrix of shape (n_texts, n_features).

    Examples
    --------
    >>> from crowdfuse.io.texts import Texts
    >>> TextFunctionEncoder(lambda texts: [[len(text)] for text in texts]).encode(Texts(["one", "seven"])).tolist()
    [[3], [5]]
    """

    type_name: ClassVar[str] = "text_function"
    reads: ClassVar[str] = "texts"

    def _load(self) -> Any:
        """Return the function."""
        function = import_named(self.source, "encoder") if isinstance(self.source, str) else self.source
        if not callable(function):
            raise ValueError(
                f"encoder {self.describe()} must be a function that takes a list of texts, got {function!r}"
            )
        return function

    def _checksum(self) -> NDArray[Any]:
        """Return the features of two fixed texts."""
        features = check_inputs(self._call(PROBE_TEXTS), f"the result of the encoder {self.describe()}")
        return features.rows(np.arange(len(features)))

    def _is_same(self, expected: NDArray[Any], found: NDArray[Any]) -> bool:
        """Return whether the features of the fixed texts are the same, up to rounding."""
        return expected.shape == found.shape and np.allclose(expected, found, PROBE_TOLERANCE, PROBE_TOLERANCE)

    def encode(self, inputs: Inputs, *, verbose: int = 0) -> Any:
        """Return the rows that the function computes for the texts.

        Parameters
        ----------
        inputs : Texts
            The texts.
        verbose : int, default=0
            Not used.

        Returns
        -------
        rows : ndarray or csr_matrix of shape (n_items, n_features)

        Raises
        ------
        ValueError
            If the function raises an error.
        """
        texts = inputs.values.tolist()
        blocks = [self._call(texts[start : start + TEXTS_PER_CALL]) for start in range(0, len(texts), TEXTS_PER_CALL)]
        return sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)

    def _call(self, texts: list[str]) -> Any:
        """Return the features of some texts."""
        function = self.loaded
        try:
            features = function(texts)
        except Exception as error:  # it is the user's code
            raise ValueError(
                f"encoder {self.describe()}: calling it with {len(texts):,} texts failed: {format_error(error)}"
            ) from error
        return features if sparse.issparse(features) else np.asarray(features)
