"""Networks for tables: columns in, a number or logits out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from modern.sequences import encoder
from modern.tasks import COLUMNS, Task


def mlp(task: Task) -> nn.Module:
    """A perceptron whose probabilities are explained."""
    return nn.Sequential(
        nn.Linear(COLUMNS, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, task.outputs), nn.Softmax(1)
    )


class Beside(nn.Module):
    """x + body(x)."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        """x + body(x)."""
        return x + self.body(x)


def tabular_resnet(task: Task) -> nn.Module:
    """Two residual blocks with batch norm."""
    width = 32
    blocks = [Beside(nn.BatchNorm1d(width), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width)) for _ in range(2)]
    head = (nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, task.outputs))
    return nn.Sequential(nn.Linear(COLUMNS, width), *blocks, *head)


class FTTransformer(nn.Module):
    """Every column a token, x_i w_i + b_i, in a Transformer that reads its answer from a token of its own."""

    def __init__(self, task: Task, layers: int, width: int = 16) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(COLUMNS, width) / 2)
        self.bias = nn.Parameter(torch.randn(COLUMNS, width) / 2)
        self.answer = nn.Parameter(torch.randn(1, 1, width) / 2)
        self.body = encoder(width, layers, norm_first=True, activation="gelu")
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, task.outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        tokens = x.unsqueeze(2) * self.weight + self.bias
        tokens = torch.cat([self.answer.expand(x.shape[0], -1, -1), tokens], 1)
        return self.head(self.body(tokens)[:, 0])


class Mixture(nn.Module):
    """Four experts, weighted by a softmax of the same columns."""

    def __init__(self, task: Task, experts: int = 4) -> None:
        super().__init__()
        self.gates = nn.Linear(COLUMNS, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(COLUMNS, 24), nn.ReLU(), nn.Linear(24, task.outputs)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        answers = torch.stack([expert(x) for expert in self.experts], 1)
        return (self.gates(x).softmax(1).unsqueeze(2) * answers).sum(1)


class ReconstructionError(nn.Module):
    """How badly an autoencoder reconstructs a row."""

    def __init__(self, _: Task) -> None:
        super().__init__()
        self.coder = nn.Sequential(
            nn.Linear(COLUMNS, 24), nn.Tanh(), nn.Linear(24, 3), nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, COLUMNS)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 1)."""
        return (self.coder(x) - x).pow(2).sum(1, keepdim=True)


class Siamese(nn.Module):
    """The cosine between what one network makes of either half of the columns."""

    def __init__(self, _: Task) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(COLUMNS // 2, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 1)."""
        first, second = x.chunk(2, 1)
        return nn.functional.cosine_similarity(self.tower(first), self.tower(second), dim=1).unsqueeze(1)
