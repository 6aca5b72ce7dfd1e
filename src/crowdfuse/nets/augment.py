"""Random crops and flips of a whole batch of images, on the device of the batch.

Images are changed in training mode only. Random numbers come from torch's generator of the device. The training loop
seeds this generator at every step, so the crops are the same if training is stopped and resumed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, interpolate, pad

from crowdfuse.checks.choices import check_choice

AUGMENTATION_NAMES = ("shift", "crop-flip", "resized-crop-flip")
MAX_SHIFT = 1 / 8  # largest shift of the augmentation "shift", as a fraction of the shorter side
N_CROP_DRAWS = 10  # crop shapes drawn per image; the first that fits into the image is used


def choose_augmentation(choice: str | None, backbone: object, shape: tuple[int, ...]) -> str | None:
    """Return the name of the augmentation that a classifier uses.

    Parameters
    ----------
    choice : str or None
        The parameter `augment` of a classifier.
    backbone : str, nn.Module or callable
        The parameter `backbone` of a classifier.
    shape : tuple of int
        Shape of one input.

    Returns
    -------
    name : str or None
        If `choice` is "auto": "shift" if `backbone` is "auto" and the shape is that of an image, (C, H, W), else None.
        Otherwise `choice`.

    Raises
    ------
    ValueError
        If `choice` is unknown.

    Examples
    --------
    >>> choose_augmentation("auto", "auto", (3, 64, 64))
    'shift'
    >>> choose_augmentation("auto", "lenet", (3, 64, 64)) is None
    True
    """
    if choice is None:
        return None
    check_choice("augment", choice, ("auto", *AUGMENTATION_NAMES))
    if choice != "auto":
        return choice
    return "shift" if isinstance(backbone, str) and backbone == "auto" and len(shape) == 3 else None


def make_augmentation(name: str | None, shape: tuple[int, ...]) -> nn.Module | None:
    """Return the augmentation module with the given name.

    Parameters
    ----------
    name : {"shift", "crop-flip", "resized-crop-flip"} or None
        "shift": `CropAndFlip` without mirroring, with shifts of up to an eighth of the shorter side. "crop-flip":
        `CropAndFlip`. "resized-crop-flip": `RandomResizedCropAndFlip`, with the width of the inputs as `size`. The
        results are square. None: no augmentation.
    shape : tuple of int
        Shape of one input: (C, H, W). "shift" and "crop-flip" also allow (H, W).

    Returns
    -------
    augmentation : nn.Module or None

    Raises
    ------
    ValueError
        If the name is unknown or the inputs are not images.

    Examples
    --------
    >>> make_augmentation("crop-flip", (3, 32, 32))
    CropAndFlip()
    """
    if name is None:
        return None
    check_choice("augment", name, AUGMENTATION_NAMES)
    min_dimensions = 3 if name == "resized-crop-flip" else 2
    if not min_dimensions <= len(shape) <= 3:
        allowed = "(C, H, W)" if name == "resized-crop-flip" else "(H, W) or (C, H, W)"
        raise ValueError(
            f"augment={name!r} needs images of shape {allowed}, got inputs of shape {shape}; leave out augment"
        )
    if name == "shift":
        return CropAndFlip(padding=int(min(shape[-2:]) * MAX_SHIFT), flip=False)
    return CropAndFlip() if name == "crop-flip" else RandomResizedCropAndFlip(shape[-1])


class CropAndFlip(nn.Module):
    """Shift each image by up to `padding` pixels and mirror it with probability 1/2, as is usual for CIFAR.

    Images have the shape (N, C, H, W) or (N, H, W) and any dtype. After a shift, the empty pixels are 0. In evaluation
    mode the images are returned unchanged.

    Parameters
    ----------
    padding : int, default=4
        Largest shift in pixels, in each direction.
    flip : bool, default=True
        Whether to mirror each image left to right with probability 1/2.

    Raises
    ------
    ValueError
        If `padding` is negative.

    Examples
    --------
    >>> images = torch.arange(6, dtype=torch.uint8).view(1, 1, 2, 3)
    >>> CropAndFlip(padding=0).eval()(images).equal(images)
    True
    >>> CropAndFlip(padding=4)(images).shape
    torch.Size([1, 1, 2, 3])
    """

    def __init__(self, padding: int = 4, flip: bool = True) -> None:
        super().__init__()
        if padding < 0:
            raise ValueError(f"padding must be at least 0 pixels, got {padding}")
        self.padding = padding
        self.flip = flip

    def forward(self, x: Tensor) -> Tensor:
        """Return the images, shifted and mirrored in training mode.

        Parameters
        ----------
        x : Tensor of shape (N, C, H, W) or (N, H, W)
            The images.

        Returns
        -------
        images : Tensor of the shape and dtype of x
        """
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
        return _with_memory_format_of(x, planes.gather(2, index).view(x.shape))


class RandomResizedCropAndFlip(nn.Module):
    """Crop a random part of each image, resize it and mirror it with probability 1/2, as is usual for ImageNet.

    Images have the shape (N, C, H, W). Crops are resized by bilinear interpolation without antialiasing. If crops are
    much larger than `size`, this interpolation skips pixels, so reduce large images beforehand. In evaluation mode the
    whole image is resized, with antialiasing.

    Parameters
    ----------
    size : int
        Height and width of the result in pixels.
    scale : tuple of float, default=(0.08, 1.0)
        Smallest and largest area of a crop, as a fraction of the image's area. The fraction is drawn uniformly.
    ratio : tuple of float, default=(3/4, 4/3)
        Smallest and largest ratio of width to height of a crop. The logarithm of the ratio is drawn uniformly.
    flip : bool, default=True
        Whether to mirror each crop left to right with probability 1/2.

    Raises
    ------
    ValueError
        If `size`, `scale` or `ratio` is out of range.

    Examples
    --------
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
            raise ValueError(f"size must be at least 1 pixel, got {size}")
        if not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(
                f"scale must be two fractions of the image's area, 0 < smallest <= largest <= 1, got {scale}"
            )
        if not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"ratio must be two ratios of width to height, 0 < smallest <= largest, got {ratio}")
        self.size = size
        self.scale = scale
        self.ratio = ratio
        self.flip = flip

    def forward(self, x: Tensor) -> Tensor:
        """Return crops in training mode, and whole images of the new size in evaluation mode.

        Parameters
        ----------
        x : Tensor of shape (N, C, H, W)
            The images.

        Returns
        -------
        images : Tensor of shape (N, C, size, size)
        """
        values = x.to(torch.promote_types(x.dtype, torch.float32))  # 16 bits are too few for positions between pixels
        if self.training:
            out = self._crops(values)
        elif x.shape[-2:] == (self.size, self.size):
            return x
        else:
            out = interpolate(values, (self.size, self.size), mode="bilinear", antialias=True)
        return _with_memory_format_of(x, (out if x.is_floating_point() else out.round()).to(x.dtype))

    def _crops(self, x: Tensor) -> Tensor:
        """Return one random crop per image, (N, C, size, size)."""
        width, height = self._crop_shapes(x)
        # The image spans -1 to 1 in both directions, so the centre of a crop of share s lies within +-(1 - s).
        across, down = torch.rand((2, len(x)), device=x.device, dtype=x.dtype) * 2 - 1
        place = x.new_zeros(len(x), 2, 3)
        place[:, 0, 0] = torch.where(_coin_flips(len(x), x.device), -width, width) if self.flip else width
        place[:, 1, 1] = height
        place[:, 0, 2] = across * (1 - width)
        place[:, 1, 2] = down * (1 - height)
        grid = affine_grid(place, [len(x), 1, self.size, self.size], align_corners=False)
        return grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def _crop_shapes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return widths and heights (N,) of the crops, as shares of the image's width and height."""
        draws = torch.rand((2, len(x), N_CROP_DRAWS), device=x.device, dtype=x.dtype)
        share = self.scale[0] + (self.scale[1] - self.scale[0]) * draws[0]
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + (high - low) * draws[1]) * (x.shape[-2] / x.shape[-1])
        width, height = (share * ratio).sqrt(), (share / ratio).sqrt()
        fits = (width <= 1) & (height <= 1)
        first = fits.int().argmax(1, keepdim=True)  # if none fits, the first draw is clipped to the image
        return width.gather(1, first)[:, 0].clamp(max=1), height.gather(1, first)[:, 0].clamp(max=1)


def _coin_flips(count: int, device: torch.device) -> Tensor:
    """Return `count` booleans that are True with probability 1/2."""
    return torch.rand(count, device=device) < 0.5


def _with_memory_format_of(x: Tensor, out: Tensor) -> Tensor:
    """Return `out` with channels last in memory if x has them last, since the following convolutions depend on it."""
    is_channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return out.contiguous(memory_format=torch.channels_last) if is_channels_last else out
