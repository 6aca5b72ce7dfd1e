"""Encoders with fixed weights: loaded by name when needed, and checked for changes since training."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crowdfuse.encoders.base import Encoder, EncoderState
from crowdfuse.io.inputs import Inputs

PROBE_TEXTS = ["a short text", "Ein längerer Text, mit Zahlen: 123!"]  # their features serve as checksum
PROBE_TOLERANCE = 1e-3  # the same encoder rounds differently on another processor


class FrozenEncoder(Encoder):
    """Base class of encoders that are not trained.

    The name and a checksum of the encoder are saved, not the encoder itself. It is loaded when it is first needed.

    Parameters
    ----------
    source : str or object
        Name from which the encoder can be loaded, or the encoder itself, such as an `nn.Module`. In the second case,
        the encoder must be passed again to `crowdfuse.load`.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self._loaded: Any = None
        self._expected: NDArray[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for other processes. A named encoder is left out, because they load it themselves."""
        return self.__dict__ | ({"_loaded": None} if isinstance(self.source, str) else {})

    @property
    def loaded(self) -> Any:
        """The network or function of this encoder. Raises an error if it has changed since training."""
        if self._loaded is None:
            if self.source is None:
                raise ValueError(
                    "the encoder of this model was passed as a network or function, which is not saved with the model; "
                    "pass the same network or function again: load(path, encoder=...)"
                )
            self._loaded = self._load()
            if self._expected is not None and not self._is_same(self._expected, self._checksum()):
                self._loaded = None
                raise ValueError(
                    f"the encoder {self.describe()} has changed since the model was trained (its checksum is "
                    "different). Restore the version used in training, or train again"
                )
        return self._loaded

    @abstractmethod
    def _load(self) -> Any:
        """Return the network or function that `source` names."""

    @abstractmethod
    def _checksum(self) -> NDArray[Any]:
        """Return numbers that are the same for the same encoder."""

    def _is_same(self, expected: NDArray[Any], found: NDArray[Any]) -> bool:
        """Return whether two checksums belong to the same encoder."""
        return np.array_equal(expected, found)

    def fit(self, inputs: Inputs) -> Self:
        """Load the network or function, so that errors are raised before training.

        Parameters
        ----------
        inputs : Inputs
            The inputs of the training items: texts or images, whichever this encoder reads.

        Returns
        -------
        self : FrozenEncoder
        """
        self._remember_checksum()
        return self

    def _remember_checksum(self) -> NDArray[Any]:
        """Return the checksum of the encoder, which is computed in training."""
        if self._expected is None:
            self._loaded = self.loaded
            self._expected = self._checksum()
        return self._expected

    def attach(self, source: Any) -> None:
        """Set the network or function of an encoder that was read from a saved model.

        This is needed if the encoder was given as an object and not by name, because the object itself is not saved.

        Parameters
        ----------
        source : object
            The network or function that the model was trained with.
        """
        self.source, self._loaded = source, None

    def describe(self) -> str:
        """Return the name of the encoder.

        Returns
        -------
        description : str
        """
        if isinstance(self.source, str):
            return self.source
        return str(getattr(self.source, "__qualname__", type(self.source).__qualname__))

    def state(self) -> EncoderState:
        """Return the name of the network or function, and a checksum that shows whether it has changed since training.

        Returns
        -------
        state : EncoderState
        """
        name = self.source if isinstance(self.source, str) else None
        return EncoderState({"source": name}, {"checksum": self._remember_checksum()})

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Create the encoder from its saved state. The network or function is loaded when it is first needed.

        Parameters
        ----------
        state : EncoderState
            Return value of the method `state`.

        Returns
        -------
        encoder : FrozenEncoder
        """
        encoder = cls(state.settings["source"])
        encoder._expected = state.arrays["checksum"]
        return encoder


def checksum_of_network(network: nn.Module) -> NDArray[np.uint8]:
    """Return a SHA-256 of the class and the weights of a network.

    Parameters
    ----------
    network : nn.Module
        The network.

    Returns
    -------
    checksum : ndarray of shape (32,), uint8

    Examples
    --------
    >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> bool((checksum_of_network(a) == checksum_of_network(b)).all())
    False
    """
    digest = hashlib.sha256(type(network).__qualname__.encode())
    for name, tensor in network.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return np.frombuffer(digest.digest(), np.uint8).copy()
