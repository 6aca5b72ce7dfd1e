"""Sentence encoders of the package sentence-transformers, which is an optional dependency."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdfuse.encoders.frozen import PROBE_TEXTS, PROBE_TOLERANCE, FrozenEncoder, checksum_of_network
from crowdfuse.io.inputs import Inputs
from crowdfuse.io.texts import Texts
from crowdfuse.nets.importing import format_error

DEFAULT_MODEL = "all-MiniLM-L6-v2"
TEXTS_PER_BATCH = 32
INSTALL_COMMAND = "pip install 'crowdfuse[text]'"


class SentenceEncoder(FrozenEncoder):
    """A pretrained model of sentence-transformers that turns each text into a vector.

    Parameters
    ----------
    source : str, default="all-MiniLM-L6-v2"
        Name of a model, or a local folder with a model. A model that is not on this machine is downloaded by
        sentence-transformers.

    Raises
    ------
    ValueError
        If sentence-transformers is not installed, if the model cannot be loaded, or if the model's weights or tokenizer
        have changed since training. The error is raised when the encoder is first used.

    Examples
    --------
    >>> SentenceEncoder("my-models/minilm").describe()
    'sentence encoder my-models/minilm'
    """

    type_name: ClassVar[str] = "sentence"
    reads: ClassVar[str] = "texts"

    def __init__(self, source: str = DEFAULT_MODEL) -> None:
        super().__init__(source)

    def _load(self) -> Any:
        """Return the model."""
        if importlib.util.find_spec("sentence_transformers") is None:
            raise ValueError(
                "the encoder 'sentence' needs the package sentence-transformers; install it with "
                f"`{INSTALL_COMMAND}`, or use the encoder 'tfidf', which needs no other package"
            )
        from sentence_transformers import SentenceTransformer

        try:
            return SentenceTransformer(self.source, device="cpu")
        except Exception as error:  # it reads files and the network
            what = "folder" if Path(self.source).exists() else "model"
            raise ValueError(
                f"sentence-transformers cannot load the {what} {self.source!r}: {format_error(error)}. Use the encoder "
                "'sentence:NAME', where NAME is the name of a model or a folder with a model"
            ) from error

    def _checksum(self) -> NDArray[Any]:
        """Return a hash of the weights and the vectors of two fixed texts, which depend on the tokenizer, too."""
        vectors = self.encode(Texts(PROBE_TEXTS))
        return np.concatenate([checksum_of_network(self.loaded).astype(np.float32), vectors.ravel()])

    def _is_same(self, expected: NDArray[Any], found: NDArray[Any]) -> bool:
        """Return whether the weights are the same, and the vectors of the fixed texts up to rounding."""
        n_hash = hashlib.sha256().digest_size
        return (
            expected.shape == found.shape
            and np.array_equal(expected[:n_hash], found[:n_hash])
            and np.allclose(expected[n_hash:], found[n_hash:], PROBE_TOLERANCE, PROBE_TOLERANCE)
        )

    def encode(self, inputs: Inputs, *, verbose: int = 0) -> Any:
        """Return the vector of each text.

        Parameters
        ----------
        inputs : Texts
            The texts. Texts longer than the model's token limit are truncated.
        verbose : int, default=0
            1 shows progress.

        Returns
        -------
        rows : ndarray of shape (n_items, n_features), float32
        """
        rows = self.loaded.encode(
            inputs.values.tolist(), batch_size=TEXTS_PER_BATCH, show_progress_bar=bool(verbose), convert_to_numpy=True
        )
        return np.asarray(rows, np.float32)

    def describe(self) -> str:
        """Return the name of the model.

        Returns
        -------
        description : str
        """
        return f"sentence encoder {self.source}"
