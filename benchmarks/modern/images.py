"""Networks for images of 8×8 pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from modern.sequences import encoder
from modern.tables import Beside
from modern.tasks import SIDE, Task


class Patches(nn.Module):
    """The patches of an image as tokens, each with its place."""

    def __init__(self, width: int, size: int = 2) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, width, size, size)
        self.places = nn.Parameter(torch.randn((SIDE // size) ** 2, width) / 4)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, patches, width)."""
        return self.cut(x).flatten(2).transpose(1, 2) + self.places


class ViT(nn.Module):
    """A Transformer on patches and a token of its own, from which it reads the answer."""

    def __init__(self, task: Task, layers: int, width: int = 16) -> None:
        super().__init__()
        self.patches = Patches(width)
        self.answer = nn.Parameter(torch.randn(1, 1, width) / 2)
        self.body = encoder(width, layers, norm_first=True, activation="gelu")
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, task.outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        tokens = torch.cat([self.answer.expand(x.shape[0], -1, -1), self.patches(x)], 1)
        return self.head(self.body(tokens)[:, 0])


class _MixerLayer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.across = nn.Sequential(nn.Linear(tokens, tokens), nn.GELU(), nn.Linear(tokens, tokens))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norms[1](x))


class Mixer(nn.Module):
    """MLP-Mixer: perceptrons across the patches and within them, in turn."""

    def __init__(self, task: Task, width: int = 16) -> None:
        super().__init__()
        self.patches = Patches(width)
        self.body = nn.Sequential(*(_MixerLayer(16, width) for _ in range(2)), nn.LayerNorm(width))
        self.head = nn.Linear(width, task.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        return self.head(self.body(self.patches(x)).mean(1))


class _ChannelsLast(nn.Module):
    """Modules that act on the channels, which they want last."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _classified(width: int, task: Task) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, task.outputs)


def convnext(task: Task, width: int = 16) -> nn.Module:
    """Two blocks of a depthwise convolution, a layer norm and a perceptron of the channels."""
    blocks = [
        Beside(
            nn.Conv2d(width, width, 5, 1, 2, groups=width),
            _ChannelsLast(nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)),
        )
        for _ in range(2)
    ]
    return nn.Sequential(nn.Conv2d(1, width, 2, 2), *blocks, *_classified(width, task))


def resnet(task: Task, width: int = 16) -> nn.Module:
    """Two residual blocks with group norm."""

    def half() -> tuple[nn.Module, ...]:
        return nn.GroupNorm(4, width), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1, bias=False)

    blocks = (Beside(*half(), *half()), nn.MaxPool2d(2), Beside(*half(), *half()))
    return nn.Sequential(nn.Conv2d(1, width, 3, 1, 1), *blocks, nn.ReLU(), *_classified(width, task))


class _Dense(nn.Module):
    """The input beside what a convolution makes of it."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, growth, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet(task: Task) -> nn.Module:
    """A dense block of three convolutions and a transition to half the size."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1), *(_Dense(8 + 8 * i, 8) for i in range(3)), nn.Conv2d(32, 16, 1), nn.AvgPool2d(2),
        nn.BatchNorm2d(16), nn.ReLU(), *_classified(16, task),
    )  # fmt: skip


class _SqueezeExcite(nn.Module):
    """Channels weighted by what all of them are like on the whole image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.ReLU(), nn.Conv2d(8, width, 1), nn.Hardsigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gates(x)


def mobilenet(task: Task, width: int = 16) -> nn.Module:
    """An inverted residual block of MobileNetV3: wider, depthwise, weighted, narrow again."""
    wide = 2 * width
    block = Beside(
        nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(),
        nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(),
        _SqueezeExcite(wide), nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width),
    )  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 2, 1), nn.BatchNorm2d(width), nn.Hardswish(), block, *_classified(width, task)
    )


def mtcnn(task: Task) -> nn.Module:
    """PReLU, and pools of three that reach over the edge, as in the networks of MTCNN."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1), nn.PReLU(8), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(8, 16, 3), nn.PReLU(16), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(16, 32), nn.PReLU(32), nn.Linear(32, task.outputs),
    )  # fmt: skip


class UNet(nn.Module):
    """Segmentation, of which the area is explained: the sum of all pixels' probabilities."""

    def __init__(self, _: Task, width: int = 8) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1), nn.ReLU())
        self.bottom = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, 1, 1), nn.ReLU(), nn.Conv2d(2 * width, width, 3, 1, 1),
            nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"),
        )  # fmt: skip
        self.up = nn.Sequential(nn.Conv2d(2 * width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, 1, 1))

    def logits(self, x: Tensor) -> Tensor:
        """(rows, side, side)."""
        top = self.down(x)
        return self.up(torch.cat([top, self.bottom(top)], 1))[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 1)."""
        return self.logits(x).sigmoid().sum((1, 2)).unsqueeze(1)
