"""The interface of an experiment: data, a network, how it is trained, and which rows and output are explained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from dasp.paper.sizes import SLOW, Size, SizeName

__all__ = ["SLOW", "Data", "Drawn", "Experiment", "ExplainedRows", "Size", "SizeName", "fit"]


@dataclass(frozen=True)
class Data:
    """Rows to train on and rows to test with."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    players: list[str]  # their names
    source: str  # where the data come from
    stands_in_for: str | None = None  # the paper's data, if these are not


@dataclass(frozen=True)
class ExplainedRows:
    """Rows of the test data with their Shapley values and what each method attributes, all (rows, players)."""

    model: nn.Module
    data: Data
    truth: Tensor
    attributions: dict[str, Tensor]  # by the name of the method


@dataclass(frozen=True)
class Drawn:
    """A figure and its caption."""

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
    most_threads: ClassVar[int | None] = None  # that training takes; None for as many as torch has
    sizes: ClassVar[Mapping[SizeName, Size]]
    minutes: ClassVar[Mapping[SizeName, float]]  # that they take on two cores, as far as that is known

    @abstractmethod
    def data(self) -> Data:
        """Load the data, or what stands in for them."""

    @abstractmethod
    def network(self, data: Data) -> nn.Module:
        """Build the paper's network, untrained."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Compute what training makes small."""

    @abstractmethod
    def quality(self, model: nn.Module, data: Data) -> dict[str, float]:
        """Measure how good the network is on the test rows."""

    @abstractmethod
    def explained(self, data: Data, rows: int) -> dict[str, Any]:
        """Choose what is explained, as arguments of `attribute`: the first of the rows, and one output."""

    @abstractmethod
    def figures(self, explained: ExplainedRows) -> dict[str, Drawn]:
        """Draw the explained rows."""

    def train(self, data: Data, on_epoch: Callable[[], None] = lambda: None) -> nn.Module:
        """Train the network on all training rows, by a one-cycle schedule of Adam."""
        with torch.random.fork_rng(), _at_most(self.most_threads):
            torch.manual_seed(0)
            model = self.network(data)
            fit(model, data.train, self.loss, self.epochs, self.batch, self.rate, on_epoch)
        return model.eval()


@contextmanager
def _at_most(threads: int | None) -> Iterator[None]:
    """Let torch have no more threads than these for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else min(before, threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
