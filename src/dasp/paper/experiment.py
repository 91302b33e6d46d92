"""What an experiment is: data, a network, how it is trained, and what of it is explained."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

__all__ = ["Data", "Drawn", "Experiment", "Explained", "Size", "fit"]


@dataclass(frozen=True)
class Data:
    """Rows to train on and rows to test with."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    players: list[str]  # their names
    source: str  # where the data come from
    stands_in_for: str | None = None  # the data that could not be had


@dataclass(frozen=True)
class Size:
    """How much of an experiment is done."""

    rows: int  # that are explained
    permutations: int  # of a sampled truth, each with its reverse
    budgets: tuple[int, ...]  # evaluations per row
    patience: float = math.inf  # seconds for all rows, beyond which a method is not given a budget


@dataclass(frozen=True)
class Explained:
    """A trained network, and what is known of the explained rows: (rows, players) by each method."""

    model: nn.Module
    data: Data
    truth: Tensor
    attributions: dict[str, Tensor]


@dataclass(frozen=True)
class Drawn:
    """A figure, and what it shows."""

    figure: Figure
    text: str


class Experiment(ABC):
    """One of the paper's tasks."""

    name: ClassVar[str]
    title: ClassVar[str]
    task: ClassVar[str]  # what is learnt and explained, for the page
    epochs: ClassVar[int]
    batch: ClassVar[int]
    rate: ClassVar[float]
    default: ClassVar[Size]
    full: ClassVar[Size]

    @abstractmethod
    def data(self) -> Data:
        """The data, or what stands in for them."""

    @abstractmethod
    def network(self, data: Data) -> nn.Module:
        """The paper's network, untrained."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """What training makes small."""

    @abstractmethod
    def quality(self, model: nn.Module, data: Data) -> dict[str, float]:
        """How good the network is on the test rows."""

    @abstractmethod
    def explained(self, data: Data, rows: int) -> dict[str, Any]:
        """Arguments of `attribute`: the rows that are explained, and of which output."""

    @abstractmethod
    def figures(self, explained: Explained) -> dict[str, Drawn]:
        """Figures of the explained rows."""

    def train(self, data: Data, on_epoch: Callable[[], None] = lambda: None) -> nn.Module:
        """The network, trained on all training rows by a one-cycle schedule of Adam."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = self.network(data)
            fit(model, data.train, self.loss, self.epochs, self.batch, self.rate, on_epoch)
        return model.eval()


def fit(
    model: nn.Module,
    rows: tuple[Tensor, Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
    batch: int,
    rate: float,
    on_epoch: Callable[[], None] = lambda: None,
) -> None:
    """Train a model; `rate` is the largest learning rate."""
    x, y = rows
    optimizer = torch.optim.Adam(model.parameters(), rate)
    steps = epochs * -(-len(x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss(model(x[part]), y[part]).backward()
            optimizer.step()
            schedule.step()
        on_epoch()
