"""Networks of a size that people use, with random weights, to time how long it takes to lift them: each with a row and
its players."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Lifted = tuple[nn.Module, Tensor, Tensor]
_TOKENS, _STEPS, _PIXELS = 32, 200, 64


def bert_tiny() -> Lifted:
    """Two layers of 128 units; a player is one of 32 tokens."""
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415 (takes seconds)

    from modern.libraries import Logits  # noqa: PLC0415

    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    model = Logits(BertForSequenceClassification(config), "inputs_embeds").eval()
    return model, torch.randn(1, _TOKENS, 128), torch.arange(_TOKENS)[:, None].expand(_TOKENS, 128).clone()


class _Read(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(16, 64, batch_first=True), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


def lstm_200() -> Lifted:
    """64 units that read 200 steps; a player is a step."""
    return _Read().eval(), torch.randn(1, _STEPS, 16), torch.arange(_STEPS)[:, None].expand(_STEPS, 16).clone()


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet_50() -> Lifted:
    """Bottleneck blocks, 3, 4, 6 and 3 of them, on 64×64 pixels; a player is one of 64 blocks of pixels."""
    blocks, inputs = [], 64
    for width, number, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(number):
            blocks.append(_Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000),
    )  # fmt: skip
    place = torch.arange(_PIXELS) * 8 // _PIXELS
    mask = (place[:, None] * 8 + place).expand(3, _PIXELS, _PIXELS)
    return model.eval(), torch.randn(1, 3, _PIXELS, _PIXELS), mask.clone()


LARGE = {
    "BERT-tiny (2 layers of 128)": bert_tiny,
    "LSTM, 200 steps": lstm_200,
    "ResNet-50, 64×64 pixels": resnet_50,
}
