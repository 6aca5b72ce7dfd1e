"""ResNet-18 up to its 512 pooled features, with parameter names as in torchvision."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from crowdfuse.checks.choices import check_choice

Stem = Literal["small", "large"]

SMALL_STEM_MAX_SIDE = 64  # pixels; for larger images the large stem divides height and width by 4
STAGE_WIDTHS = (64, 128, 256, 512)  # channels of the four stages


class ResNet18(nn.Module):
    """ResNet-18 without its last layer, with 512 features per image.

    If `stem` is "large", torchvision's weights can be loaded, except the weights of the last layer. For a `ResNet18`
    called `net` and torchvision's state dict `weights`, use
    `net.load_state_dict({name: w for name, w in weights.items() if not name.startswith("fc.")})`.

    Parameters
    ----------
    channels : int, default=3
        Number of channels of the images.
    stem : {"small", "large"}, default="small"
        First layers of the network. "small": one 3x3 convolution that keeps the image size, as is usual for CIFAR.
        "large": a 7x7 convolution of stride 2 and max-pooling, as is usual for ImageNet. `resnet_stem` returns the stem
        that suits an image size.

    References
    ----------
    He, Zhang, Ren and Sun, "Deep residual learning for image recognition", CVPR 2016.

    Examples
    --------
    >>> import torch
    >>> ResNet18(channels=3, stem="small")(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 512])
    """

    def __init__(self, channels: int = 3, stem: Stem = "small") -> None:
        super().__init__()
        self.stem = check_choice("stem", stem, ("small", "large"))
        if self.stem == "large":
            self.conv1 = nn.Conv2d(channels, STAGE_WIDTHS[0], 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, STAGE_WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(STAGE_WIDTHS[0])
        self.layer1 = _two_blocks(STAGE_WIDTHS[0], STAGE_WIDTHS[0], stride=1)
        self.layer2 = _two_blocks(STAGE_WIDTHS[0], STAGE_WIDTHS[1], stride=2)
        self.layer3 = _two_blocks(STAGE_WIDTHS[1], STAGE_WIDTHS[2], stride=2)
        self.layer4 = _two_blocks(STAGE_WIDTHS[2], STAGE_WIDTHS[3], stride=2)
        for module in self.modules():  # batch norm already starts at weight 1 and bias 0
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of images.

        Parameters
        ----------
        x : Tensor of shape (N, C, H, W) or (N, H, W)
            The images.

        Returns
        -------
        features : Tensor of shape (N, 512)
        """
        x = relu(self.bn1(self.conv1(x.unsqueeze(1) if x.ndim == 3 else x)), inplace=True)
        if self.stem == "large":
            x = max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


class BasicBlock(nn.Module):
    """`relu(x + f(x))` with two 3x3 convolutions f; if the shape changes, x passes through a 1x1 convolution.

    Parameters
    ----------
    n_in, n_out : int
        Number of input and output channels.
    stride : int
        Stride of the first convolution.
    """

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, n_in, H, W) to (N, n_out, H / stride, W / stride)."""
        change: Tensor = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)), inplace=True)))
        change += x if self.downsample is None else self.downsample(x)
        return relu(change, inplace=True)


def resnet_stem(shape: tuple[int, ...]) -> Stem:
    """Return the kind of first layers (stem) for images of this shape: small up to 64 x 64 pixels, else large.

    Parameters
    ----------
    shape : tuple of int
        (C, H, W) or (H, W).

    Returns
    -------
    stem : {"small", "large"}

    Examples
    --------
    >>> resnet_stem((3, 32, 32)), resnet_stem((3, 224, 224))
    ('small', 'large')
    """
    return "small" if max(shape[-2:]) <= SMALL_STEM_MAX_SIDE else "large"


def _two_blocks(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    """Return one stage of the network."""
    return nn.Sequential(BasicBlock(n_in, n_out, stride), BasicBlock(n_out, n_out, 1))
