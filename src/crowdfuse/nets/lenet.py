"""The paper's LeNet: two 5x5 convolutions without bias, 6 and 16 channels, giving 256 features."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """(N, H, W) or (N, C, H, W) images to (N, 256) features.

    28 x 28 images are the paper's case; other sizes are averaged down to the same 4 x 4 map.
    """

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 5, bias=False),
            nn.BatchNorm2d(6, affine=False),
            nn.AvgPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5, bias=False),
            nn.BatchNorm2d(16, affine=False),
            nn.AvgPool2d(2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x.unsqueeze(1) if x.ndim == 3 else x)
        return features
