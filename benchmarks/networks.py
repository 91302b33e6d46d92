"""The networks that benchmarks run on, with random weights."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """ReLU(body + shortcut)."""
        return torch.relu(self.body(x) + self.shortcut(x))


def small_resnet(channels: int = 1, width: int = 16, classes: int = 10) -> nn.Module:
    """Three residual blocks."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes),
    )  # fmt: skip


def resnet18(classes: int = 1000) -> nn.Module:
    """A network of ResNet-18's size and shape."""
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Residual(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip
