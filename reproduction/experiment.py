"""An experiment: data, a network, how it is trained, which rows and output are explained, and how much is done.

Every experiment has three sizes, which differ in how many rows are explained, with how many evaluations of the model,
against how exact a truth.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

__all__ = ["SLOW", "Data", "Drawn", "Experiment", "ExplainedRows", "Size", "SizeName", "fit"]

# Evaluations per row beyond which Captum's KernelSHAP, by either name, takes longer than all other methods together.
SLOW = {"kernel_shap": 1000, "captum_kernel_shap": 1000}


class SizeName(StrEnum):
    """The names of the sizes that every experiment has."""

    QUICK = "quick"
    STANDARD = "standard"
    PAPER = "paper"


@dataclass(frozen=True)
class Size:
    """The amount of an experiment that is done."""

    rows: int  # that are explained
    permutations: int  # of a sampled truth, each with its reverse; 0 for an exact one
    budgets: tuple[int, ...]  # evaluations per row
    patience: float = math.inf  # seconds for all rows; a method that would take longer is not given a budget
    at_most: Mapping[str, int] = field(default_factory=dict)  # evaluations per row of methods that are slow with more
    coalitions: int = 2000  # of each size, over which hidden units are sampled


@dataclass(frozen=True)
class Data:
    """The data of an experiment: rows to train on and rows to test with."""

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
    attributions: dict[str, Tensor]  # by the identifier of the method


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
        """Load the paper's data; if they cannot be had, load others in their place."""

    @abstractmethod
    def network(self, data: Data) -> nn.Module:
        """Build the paper's network, untrained."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of a batch."""

    @abstractmethod
    def quality(self, model: nn.Module, data: Data) -> dict[str, float]:
        """Measure how good the network is on the test rows."""

    @abstractmethod
    def explained(self, data: Data, rows: int) -> dict[str, Any]:
        """Return what is explained as arguments of `attribute`: the first test rows, and one output."""

    @abstractmethod
    def figures(self, explained: ExplainedRows) -> dict[str, Drawn]:
        """Draw the explained rows; return figures by name."""

    def train(self, data: Data, on_epoch: Callable[[], None] = lambda: None) -> nn.Module:
        """Train the network on all training rows, by a one-cycle schedule of Adam."""
        with torch.random.fork_rng(), _at_most(self.most_threads):
            torch.manual_seed(0)
            model = self.network(data)
            fit(model, data.train, self.loss, self.epochs, self.batch, self.rate, on_epoch)
        return model.eval()


@contextmanager
def _at_most(threads: int | None) -> Iterator[None]:
    """Limit torch to a number of threads for a while."""
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
