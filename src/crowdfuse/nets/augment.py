"""Random crops and flips of a batch of images at once, on whatever device it is.

They act in training mode only, and draw from torch's own generator of the device, which the training loop seeds
at every step: so a training that was stopped and continued sees the same crops.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, interpolate, pad

TRIES = 10  # draws of a crop's shape, of which the first that fits into the image is taken


class CropAndFlip(nn.Module):
    """Images (N, C, H, W) or (N, H, W), each moved by up to `padding` pixels and mirrored with chance 1/2: CIFAR's way.

    What moves in from outside is 0: black where pixels come as they are, grey after standardising.
    Any dtype; nothing happens in evaluation mode.

    >>> images = torch.arange(6, dtype=torch.uint8).view(1, 1, 2, 3)
    >>> CropAndFlip(padding=0).eval()(images).equal(images)
    True
    >>> CropAndFlip(padding=4)(images).shape
    torch.Size([1, 1, 2, 3])
    """

    def __init__(self, padding: int = 4, flip: bool = True) -> None:
        super().__init__()
        if padding < 0:
            raise ValueError(f"padding must be a number of pixels, 0 or more, got {padding}")
        self.padding = padding
        self.flip = flip

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        (height, width), count, side = x.shape[-2:], len(x), self.padding
        down, right = torch.randint(2 * side + 1, (2, count, 1), device=x.device)
        rows = down + torch.arange(height, device=x.device)  # (N, H), of the padded image
        columns = right + torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(_coin_flips(count, x.device)[:, None], columns.flip(1), columns)
        pixels = rows[:, :, None] * (width + 2 * side) + columns[:, None]  # (N, H, W)
        planes = pad(x, (side,) * 4).flatten(-2).view(count, -1, (height + 2 * side) * (width + 2 * side))
        index = pixels.view(count, 1, -1).expand(-1, planes.shape[1], -1)
        return _laid_out_as(x, planes.gather(2, index).view(x.shape))


class RandomResizedCropAndFlip(nn.Module):
    """Of each image (N, C, H, W) a random part, brought to `size` x `size`, mirrored with chance 1/2: ImageNet's way.

    The part has a share of the area drawn from `scale`, and width to height from `ratio`, evenly in logarithms.
    Values between pixels are bilinear, and nothing is smoothed: images much larger than `size` are better made
    smaller beforehand. In evaluation mode it is the whole image at that size.

    >>> images = torch.rand(2, 3, 40, 50)
    >>> RandomResizedCropAndFlip(32)(images).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(
        self,
        size: int,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: bool = True,
    ) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size must be a number of pixels, 1 or more, got {size}")
        if not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(f"scale must be two shares of the area, 0 < least <= most <= 1, got {scale}")
        if not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"ratio must be two widths for height 1, 0 < least <= most, got {ratio}")
        self.size = size
        self.scale = scale
        self.ratio = ratio
        self.flip = flip

    def forward(self, x: Tensor) -> Tensor:
        values = x.to(torch.promote_types(x.dtype, torch.float32))  # 16 bits cannot tell places between pixels
        if self.training:
            out = self._crops(values)
        elif x.shape[-2:] == (self.size, self.size):
            return x
        else:
            out = interpolate(values, (self.size, self.size), mode="bilinear", antialias=True)
        return _laid_out_as(x, (out if x.is_floating_point() else out.round()).to(x.dtype))

    def _crops(self, x: Tensor) -> Tensor:
        width, height = self._shapes(x)  # as shares of the image's
        # The image spans -1 to 1 both ways: a crop of share s has its middle within +-(1 - s).
        across, down = torch.rand((2, len(x)), device=x.device, dtype=x.dtype) * 2 - 1
        place = x.new_zeros(len(x), 2, 3)
        place[:, 0, 0] = torch.where(_coin_flips(len(x), x.device), -width, width) if self.flip else width
        place[:, 1, 1] = height
        place[:, 0, 2] = across * (1 - width)
        place[:, 1, 2] = down * (1 - height)
        grid = affine_grid(place, [len(x), 1, self.size, self.size], align_corners=False)
        return grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def _shapes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Widths and heights (N,) of the crops, as shares of the image's."""
        draws = torch.rand((2, len(x), TRIES), device=x.device, dtype=x.dtype)
        share = self.scale[0] + (self.scale[1] - self.scale[0]) * draws[0]
        least, most = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(least + (most - least) * draws[1]) * (x.shape[-2] / x.shape[-1])
        width, height = (share * ratio).sqrt(), (share / ratio).sqrt()
        fits = (width <= 1) & (height <= 1)
        first = fits.int().argmax(1, keepdim=True)  # where none fits, it is cut to the image
        return width.gather(1, first)[:, 0].clamp(max=1), height.gather(1, first)[:, 0].clamp(max=1)


def _coin_flips(count: int, device: torch.device) -> Tensor:
    """Fair coins, (count,)."""
    return torch.rand(count, device=device) < 0.5


def _laid_out_as(x: Tensor, out: Tensor) -> Tensor:
    """`out` with channels last in memory if x has them so: the convolutions that follow go by it."""
    is_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return out.contiguous(memory_format=torch.channels_last) if is_last else out
