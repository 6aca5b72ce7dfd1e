"""ResNet-18 (He et al. 2016) up to its 512 pooled features; the parts are named as in torchvision."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from crowdfuse.checks.choices import check_choice

Stem = Literal["small", "large"]

SMALL_SIDE = 64  # pixels; larger images are brought to a quarter of their side before the first block
WIDTHS = (64, 128, 256, 512)


class ResNet18(nn.Module):
    """(N, C, H, W) images, or grey ones (N, H, W), to (N, 512) features.

    `stem="small"` begins with one 3x3 convolution and keeps the size, as is usual for CIFAR; `stem="large"`
    begins with a 7x7 convolution of stride 2 and a max-pool, as for ImageNet. `resnet_stem` says which fits.
    torchvision's weights fit the large one, without those of the last layer, which is not part of it:
    `net.load_state_dict({name: w for name, w in weights.items() if not name.startswith("fc.")})`.

    >>> import torch
    >>> ResNet18(channels=3, stem="small")(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 512])
    """

    def __init__(self, channels: int = 3, stem: Stem = "small") -> None:
        super().__init__()
        self.stem = check_choice("stem", stem, ("small", "large"))
        if self.stem == "large":
            self.conv1 = nn.Conv2d(channels, WIDTHS[0], 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _two_blocks(WIDTHS[0], WIDTHS[0], stride=1)
        self.layer2 = _two_blocks(WIDTHS[0], WIDTHS[1], stride=2)
        self.layer3 = _two_blocks(WIDTHS[1], WIDTHS[2], stride=2)
        self.layer4 = _two_blocks(WIDTHS[2], WIDTHS[3], stride=2)
        for module in self.modules():  # batch norm starts at weight 1 and bias 0 by itself
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x.unsqueeze(1) if x.ndim == 3 else x)), inplace=True)
        if self.stem == "large":
            x = max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


class BasicBlock(nn.Module):
    """`relu(x + f(x))`, f two 3x3 convolutions; where the shape changes, x goes through a 1x1 convolution."""

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
        change: Tensor = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)), inplace=True)))
        change += x if self.downsample is None else self.downsample(x)
        return relu(change, inplace=True)


def resnet_stem(shape: tuple[int, ...]) -> Stem:
    """The stem for images of this shape, (C, H, W) or (H, W): small up to 64 pixels a side, large above.

    >>> resnet_stem((3, 32, 32)), resnet_stem((3, 224, 224))
    ('small', 'large')
    """
    return "small" if max(shape[-2:]) <= SMALL_SIDE else "large"


def _two_blocks(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(n_in, n_out, stride), BasicBlock(n_out, n_out, 1))
