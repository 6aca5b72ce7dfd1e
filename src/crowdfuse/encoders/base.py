"""The base class of all encoders, and inputs that an encoder has turned into numbers."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.io.texts import Texts


class EncoderState(NamedTuple):
    """Everything that defines a fitted encoder, in a form that can be saved without pickle.

    Attributes
    ----------
    settings : dict of str to object
        Values that are saved as JSON, by name: numbers, strings, lists and dicts.
    arrays : dict of str to ndarray
        Arrays that are saved in the safetensors format, by name.
    """

    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class FeatureOccurrences(NamedTuple):
    """The places in a text where the features of an encoder occur.

    A feature is, for example, a word. It may occur several times, and the places of different features may overlap.

    Attributes
    ----------
    column : ndarray of shape (n_occurrences,)
        For each occurrence, the index of the feature's column in the rows that the encoder returns.
    start : ndarray of shape (n_occurrences,)
        For each occurrence, the position of its first character in the text.
    end : ndarray of shape (n_occurrences,)
        For each occurrence, the position after its last character.
    """

    column: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


class Encoder(ABC):
    """Base class of encoders, which turn texts or images into rows of numbers without using labels.

    An encoder is fitted on the training items, saved with the model, and applied to the inputs of every prediction.

    Attributes
    ----------
    type_name : str
        Name of the encoder class, such as "tfidf". A saved model contains this name, and `crowdfuse.load` uses it to
        find the class.
    reads : {"texts", "images"}
        Kind of input that the encoder takes.
    """

    type_name: ClassVar[str]
    reads: ClassVar[str]

    def fit(self, inputs: Inputs) -> Self:
        """Fit the encoder to the training items.

        The implementation in the base class does nothing, which is right for encoders with fixed weights.

        Parameters
        ----------
        inputs : Inputs
            Texts or images of the training items.

        Returns
        -------
        self : Encoder
        """
        return self

    @abstractmethod
    def encode(self, inputs: Inputs, *, verbose: int = 0) -> Any:
        """Turn inputs into numbers.

        Parameters
        ----------
        inputs : Inputs
            Texts or images.
        verbose : int, default=0
            1 shows progress.

        Returns
        -------
        rows : ndarray or sparse matrix of shape (n_items, n_features)
        """

    def locate_features(self, text: str) -> FeatureOccurrences | None:
        """Return the places in a text where the features of this encoder occur.

        Parameters
        ----------
        text : str
            A text.

        Returns
        -------
        occurrences : FeatureOccurrences or None
            None if the features are not parts of the text, for example if a neural network computes them. The
            implementation in the base class always returns None.
        """
        return None

    @abstractmethod
    def describe(self) -> str:
        """Return a description of the encoder in a few words, for messages.

        Returns
        -------
        description : str
        """

    @abstractmethod
    def state(self) -> EncoderState:
        """Return everything that defines the fitted encoder, so that it can be saved.

        Returns
        -------
        state : EncoderState
        """

    @classmethod
    @abstractmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Create a fitted encoder from its saved state.

        Parameters
        ----------
        state : EncoderState
            Return value of the method `state`.

        Returns
        -------
        encoder : Encoder
        """

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the fitted encoder, as hexadecimal text. Available after `fit`."""
        settings, arrays = self.state()
        digest = hashlib.blake2b(json.dumps([self.type_name, settings], sort_keys=True).encode(), digest_size=16)
        for name in sorted(arrays):
            digest.update(f"{name}{arrays[name].shape}{arrays[name].dtype.str}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
        return digest.hexdigest()


class EncodedInputs(Inputs):
    """Rows of numbers that an encoder has computed, together with the original texts or images.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n_items, n_features)
        The rows of numbers.
    raw : Inputs
        The texts or images.
    encoder : Encoder
        The encoder that computed the rows.

    Attributes
    ----------
    raw : Inputs
        The texts or images.
    encoder : Encoder
        The encoder that computed the rows.

    Examples
    --------
    >>> from crowdfuse.encoders.tfidf import TfidfEncoder
    >>> texts = Texts(["good film", "bad film"])
    >>> encoder = TfidfEncoder().fit(texts)
    >>> EncodedInputs(encoder.encode(texts), texts, encoder).take(np.array([1])).raw.texts.tolist()
    ['bad film']
    """

    def __init__(self, X: Any, raw: Inputs, encoder: Encoder) -> None:
        super().__init__(X)
        self.raw, self.encoder = raw, encoder

    def take(self, rows: NDArray[Any]) -> EncodedInputs:
        """Return the chosen rows, with their texts or images.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Row numbers, or a boolean mask over all rows.

        Returns
        -------
        inputs : EncodedInputs
        """
        return EncodedInputs(self.values[rows], self.raw.take(rows), self.encoder)


def encode_inputs(encoder: Encoder, raw: Inputs, *, verbose: int = 0) -> EncodedInputs:
    """Encode inputs, and check the resulting numbers.

    Parameters
    ----------
    encoder : Encoder
        A fitted encoder.
    raw : Inputs
        Texts or images, depending on what the encoder reads.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    inputs : EncodedInputs

    Raises
    ------
    ValueError
        If the encoder reads texts but the inputs are not texts, if it reads images but the inputs are texts, or if it
        does not return one row of finite numbers per item.
    """
    if (encoder.reads == "texts") != isinstance(raw, Texts):
        given = "texts" if isinstance(raw, Texts) else f"items of shape {raw.item_shape}"
        raise ValueError(f"the encoder {encoder.describe()} reads {encoder.reads}, got {given}; use another encoder")
    rows = check_inputs(encoder.encode(raw, verbose=verbose), f"the result of the encoder {encoder.describe()}")
    if len(rows) != len(raw) or len(rows.item_shape) != 1:
        raise ValueError(
            f"the encoder {encoder.describe()} must return one row of numbers per item: for {len(raw):,} items, "
            f"an array of shape ({len(raw)}, n_features). It returned an array of shape "
            f"{(len(rows), *rows.item_shape)}"
        )
    return EncodedInputs(rows.values, raw, encoder)
