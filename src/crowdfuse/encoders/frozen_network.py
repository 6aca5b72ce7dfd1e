"""A frozen network that turns pixels into rows of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crowdfuse.labels.ids import format_count, format_names

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # for pixels from 0 to 1; most published weights expect these values
IMAGENET_STD = (0.229, 0.224, 0.225)


class FrozenNetwork:
    """A network in evaluation mode that computes features from pixels.

    Parameters
    ----------
    module : nn.Module
        The network. It maps images (N, 3, size, size) to features (N, D), or to feature maps (N, D, H, W), which are
        averaged over H and W.
    device : torch.device
        Device that computes the features.
    mean : ndarray of shape (3,)
        Mean to subtract from the red, green and blue values, which range from 0 to 1.
    std : ndarray of shape (3,)
        Standard deviation by which the values are divided after subtracting the mean.
    role : str, default="backbone"
        What error messages call the network.

    Examples
    --------
    >>> network = FrozenNetwork(nn.Flatten(), torch.device("cpu"), np.zeros(3, np.float32), np.ones(3, np.float32))
    >>> network(np.full((1, 3, 1, 1), 51, np.float32)).round(3).tolist()
    [[0.20000000298023224, 0.20000000298023224, 0.20000000298023224]]
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        mean: NDArray[np.float32],
        std: NDArray[np.float32],
        role: str = "backbone",
    ) -> None:
        self.module, self.device, self.role = module.to(device), device, role
        try:
            module.eval()
        except NotImplementedError:  # exported modules cannot change their mode
            for part in module.modules():
                part.training = False
        self.mean, self.std = (torch.from_numpy(values).to(device)[:, None, None] for values in (mean, std))
        weights = [*module.parameters(), *module.buffers()]
        self.dtype = next((values.dtype for values in weights if values.is_floating_point()), torch.float32)

    def __call__(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features (N, D) of pixels (N, 3, size, size) from 0 to 255."""
        with torch.inference_mode():
            x = ((torch.from_numpy(pixels).to(self.device) / 255 - self.mean) / self.std).to(self.dtype)
            try:
                features = self.module(x)
            except Exception as error:  # a network may raise anything
                raise ValueError(
                    f"the {self.role} cannot read a batch of shape {pixels.shape}: {type(error).__name__}: "
                    f"{error}. The option --image-size sets the height and width of the images; for `crowdfuse embed`, "
                    "--batch-size sets their number per batch"
                ) from error
            return _as_rows(features, len(pixels), self.role).float().cpu().numpy()


def _as_rows(features: Any, n_images: int, role: str) -> Tensor:
    """Return the features as (N, D), or raise an error that describes the shape."""
    if not isinstance(features, Tensor):
        raise ValueError(
            f"the {role} must return one tensor of features, got {type(features).__name__}{_parts(features)}; to use "
            "one part of the output, wrap it in an nn.Module that returns only this part"
        )
    shape = tuple(features.shape)
    if not features.is_floating_point():
        raise ValueError(f"the {role} must return floating-point features, got {features.dtype}")
    if len(shape) == 3:
        raise ValueError(
            f"the {role} returns shape {shape}, which looks like (images, tokens, features); wrap it in an nn.Module "
            "that returns one token, such as features[:, 0], or the mean of the tokens, features.mean(1)"
        )
    if len(shape) not in (2, 4) or shape[0] != n_images or 0 in shape:
        raise ValueError(
            f"the {role} must return features of shape ({n_images}, D) or ({n_images}, D, H, W) for "
            f"{format_count(n_images, 'image')}, got {shape}; wrap it in an nn.Module that returns one of these shapes"
        )
    return features if len(shape) == 2 else features.mean((2, 3))


def _parts(features: Any) -> str:
    """Return the keys or the length of a container in words."""
    if isinstance(features, dict):
        return f" with {format_names(features)}"
    return f" of {len(features)}" if isinstance(features, tuple | list) else ""
