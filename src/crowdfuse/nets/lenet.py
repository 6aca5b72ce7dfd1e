"""LeNet as in Gao et al. (2022): two 5x5 convolutions without bias, 6 and 16 channels, giving 256 features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FEATURE_MAP_SIDE = 4  # height and width of the last feature map


class LeNet(nn.Module):
    """The convolutional part of LeNet, with 256 features per image.

    It has two 5x5 convolutions without bias, with 6 and 16 channels, as in Gao et al. (2022). For images of 28 x 28
    pixels, the last feature map has 4 x 4 pixels. For other sizes, adaptive average pooling resizes it to 4 x 4.

    Parameters
    ----------
    channels : int, default=1
        Number of channels of the images.

    Examples
    --------
    >>> LeNet()(torch.zeros(2, 28, 28)).shape
    torch.Size([2, 256])
    """

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 5, bias=False),
            NormPool(6),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5, bias=False),
            NormPool(16),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of images.

        Parameters
        ----------
        x : Tensor of shape (N, C, H, W) or (N, H, W)
            The images.

        Returns
        -------
        features : Tensor of shape (N, 256)
        """
        maps: Tensor = self.layers(x.unsqueeze(1) if x.ndim == 3 else x)
        if maps.shape[2:] != (FEATURE_MAP_SIDE, FEATURE_MAP_SIDE):
            maps = nn.functional.adaptive_avg_pool2d(maps, FEATURE_MAP_SIDE)
        return maps.flatten(1)


class NormPool(nn.Module):
    """`AvgPool2d(2)` after `BatchNorm2d(affine=False)`: the same function, faster on a CPU.

    Both layers are linear once mean and variance are known. So the values can be normalized after pooling, when only a
    quarter of them remain. Both layers are implemented as sums, which are faster than PyTorch's kernels for them.

    Parameters
    ----------
    channels : int
        Number of channels.
    momentum : float, default=0.1
        Weight of a new batch in the running statistics.
    eps : float, default=1e-5
        Added to the variance.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized and pooled maps.

        Parameters
        ----------
        x : Tensor of shape (N, C, H, W)
            Feature maps.

        Returns
        -------
        pooled : Tensor of shape (N, C, H // 2, W // 2)
        """
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # 16 bits are too few for the statistics
        if not self.training:
            return (_pool(x) - self.mean[:, None, None]) * (self.variance + self.eps).rsqrt()[:, None, None]
        out, mean, variance = _NormPool.apply(x, self.eps)  # type: ignore[no-untyped-call]
        count = x.numel() // x.shape[1]
        self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
        self.variance.lerp_((variance * (count / (count - 1))).to(self.variance.dtype), self.momentum)
        return out  # type: ignore[no-any-return]


class _NormPool(torch.autograd.Function):
    """Normalize by the statistics of the batch, then pool."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pooled maps, and mean and variance of each channel."""
        mean = x.mean((0, 2, 3))
        centred = x - mean[:, None, None]
        variance = centred.square().mean((0, 2, 3))
        scale = (variance + eps).rsqrt()
        out = _pool(centred) * scale[:, None, None]
        ctx.save_for_backward(centred, out, scale)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the maps, including the part that flows through mean and variance."""
        gradient, (centred, out, scale) = gradients[0], ctx.saved_tensors
        count = centred.numel() // centred.shape[1]
        # mean and variance depend on all values of a channel
        by_mean = -scale * gradient.sum((0, 2, 3)) / count
        by_variance = -scale.square() * (gradient * out).sum((0, 2, 3)) / count
        dx = (centred * by_variance[:, None, None]).add_(by_mean[:, None, None])
        height, width = out.shape[2:]
        each = gradient * (scale / 4)[:, None, None]
        wide = torch.stack([each, each], dim=4).flatten(3)
        # an odd last row or column belongs to no window
        windows = dx[:, :, : 2 * height, : 2 * width].unflatten(2, (height, 2))
        windows += wide[:, :, :, None]
        return dx, None


def _pool(x: Tensor) -> Tensor:
    """Return the means of 2 x 2 windows."""
    height, width = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
    rows = x[:, :, 0:height:2] + x[:, :, 1:height:2]
    return (rows[..., 0:width:2] + rows[..., 1:width:2]) / 4
