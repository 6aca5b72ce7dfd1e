"""A frozen network that encodes images."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crowdfuse.encoders.base import EncoderState
from crowdfuse.encoders.frozen import FrozenEncoder, checksum_of_network
from crowdfuse.encoders.frozen_network import FrozenNetwork
from crowdfuse.encoders.pretrained import PretrainedNetwork, is_pretrained_name, load_pretrained
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.inputs import Inputs
from crowdfuse.nets.external_backbones import load_backbone
from crowdfuse.training.progress import make_progress_bar

DEFAULT_IMAGE_SIZE = 224
IMAGES_PER_BATCH = 64


class ImageEncoder(FrozenEncoder):
    """A frozen network that turns images into features.

    Pixels are scaled to the range from 0 to 1, then normalized with a mean and a standard deviation. Torchvision and
    timm list these two values for each of their networks. For other networks, the mean and standard deviation of
    ImageNet are used. Features are computed on the CPU.

    Parameters
    ----------
    source : str, nn.Module or callable
        A network; a function that returns a network; the import path of such a function, "module:callable"; or the name
        of a pretrained network, "torchvision/NAME" or "timm/NAME". The network maps images (N, 3, size, size) to
        features (N, D) or (N, D, H, W). Features (N, D, H, W) are averaged over H and W.
    image_size : int, default=None
        Height and width in pixels to which image files are resized. Images in an array keep their size. If None, `fit`
        sets `image_size` to the size of the training images, with one exception. Torchvision and timm list an image
        size for their networks. If the network is one of theirs, and the training images are `ImageFiles` of size 224
        (the default of the command line), `fit` uses the listed size.

    Examples
    --------
    >>> images = Inputs(np.zeros((2, 3, 4, 4), np.uint8))
    >>> ImageEncoder(nn.Flatten()).encode(images).shape
    (2, 48)
    """

    type_name: ClassVar[str] = "image_network"
    reads: ClassVar[str] = "images"

    def __init__(self, source: Any, image_size: int | None = None) -> None:
        super().__init__(source)
        self.image_size = image_size

    def _load(self) -> PretrainedNetwork:
        """Return the network, with the pixels that it expects."""
        if isinstance(self.source, str) and is_pretrained_name(self.source):
            return load_pretrained(self.source)
        if isinstance(self.source, str):
            return PretrainedNetwork(load_backbone(self.source, role="encoder"))
        module = self.source if isinstance(self.source, nn.Module) else self.source()
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"encoder {self.describe()} must be an nn.Module, or a function that returns an nn.Module, got "
                f"{type(module).__name__}"
            )
        return PretrainedNetwork(module)

    def _checksum(self) -> NDArray[Any]:
        """Return a hash of the weights."""
        return checksum_of_network(self.loaded.module)

    def fit(self, inputs: Inputs) -> Self:
        """Load the network, and choose the image size.

        If `image_size` is None, `fit` chooses it as described for the parameter `image_size` of `ImageEncoder`.

        Parameters
        ----------
        inputs : Inputs
            Images of the training items.

        Returns
        -------
        self : ImageEncoder
        """
        super().fit(inputs)
        if self.image_size is None:
            self.image_size = inputs.item_shape[-1]
            if isinstance(inputs, ImageFiles) and self.image_size == DEFAULT_IMAGE_SIZE:
                self.image_size = self.loaded.image_size or DEFAULT_IMAGE_SIZE
        return self

    def encode(self, inputs: Inputs, *, verbose: int = 0) -> Any:
        """Compute the features of all images.

        Parameters
        ----------
        inputs : Inputs
            Either `ImageFiles`, which are resized to `image_size`, or an `Inputs` object with an array of uint8 pixels.
            The array has the shape (n_items, channels, height, width) with 1 or 3 channels, or
            (n_items, height, width).
        verbose : int, default=0
            1 shows progress.

        Returns
        -------
        rows : ndarray of shape (n_items, n_features), float32

        Raises
        ------
        ValueError
            If an image cannot be read, or if the inputs are not images.
        """
        pixels = self._pixels(inputs)
        network = self.loaded
        mean, std = (np.array(values, np.float32) for values in (network.mean, network.std))
        frozen = FrozenNetwork(network.module, torch.device("cpu"), mean, std, role="encoder")
        rows = np.arange(len(inputs))
        batches = [rows[start : start + IMAGES_PER_BATCH] for start in range(0, len(rows), IMAGES_PER_BATCH)]
        features = []
        with make_progress_bar(verbose) as progress, closing(pixels.stream(batches)) as blocks:
            task = progress.add_task("encoding images", total=len(rows))
            for block in blocks:
                features.append(frozen(_as_rgb(block)))
                progress.advance(task, len(block))
        return np.concatenate(features)

    def _pixels(self, inputs: Inputs) -> Inputs:
        """Return the images at the size that the network reads."""
        if isinstance(inputs, ImageFiles):
            size = self.image_size or DEFAULT_IMAGE_SIZE
            return inputs if inputs.size == size else inputs.resized(size)
        shape = inputs.item_shape
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] not in (1, 3)):
            raise ValueError(
                f"encoder {self.describe()} reads images, got rows of shape {shape}; pass ImageFiles, or an array of "
                "shape (N, 3, H, W)"
            )
        if inputs.values.dtype != np.uint8:
            raise ValueError(
                f"encoder {self.describe()} reads pixels from 0 to 255 of type uint8, got {inputs.values.dtype}; "
                "convert the pixels to this range and type (if they are in this range already, with "
                "X.astype(np.uint8))"
            )
        return inputs

    def state(self) -> EncoderState:
        """Return the name of the network, a checksum of its weights, and the image size.

        Returns
        -------
        state : EncoderState
        """
        settings, arrays = super().state()
        return EncoderState(settings | {"image_size": self.image_size}, arrays)

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Create the encoder from its saved state. The network is loaded when it is first needed.

        Parameters
        ----------
        state : EncoderState
            Return value of the method `state`.

        Returns
        -------
        encoder : ImageEncoder
        """
        encoder = super().from_state(state)
        encoder.image_size = state.settings["image_size"]
        return encoder


def _as_rgb(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return images (N, 3, H, W). Grey images get the same values in all channels."""
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    return pixels if pixels.shape[1] == 3 else pixels.repeat(3, axis=1)
