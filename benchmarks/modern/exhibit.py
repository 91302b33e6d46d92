"""A network of the zoo, with its task and how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from modern.tasks import Task

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def supervised(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Squares of what a model of one output misses, or the cross entropy of its logits."""
    outputs = model(x)
    return (outputs[:, 0] - y).pow(2).mean() if y.is_floating_point() else nn.functional.cross_entropy(outputs, y)


def surprise(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The cross entropy of probabilities."""
    return nn.functional.nll_loss(model(x).log(), y)


def output(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The output itself is to be small."""
    return model(x).mean()


def of_pixels(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The cross entropy of every pixel's logit."""
    return nn.functional.binary_cross_entropy_with_logits(model.logits(x), y)  # type: ignore[operator]


@dataclass(frozen=True)
class Exhibit:
    """An architecture that is explained on rows of a task."""

    name: str
    task: Callable[[], Task]
    make: Callable[..., nn.Module]  # of the task and, if it has any, the number of equal layers
    loss: Loss = supervised
    layers: int | None = None
    rate: float = 5e-3

    @property
    def target(self) -> str | None:
        """The output to explain: the largest, if there are several."""
        return "predicted" if self.task().outputs > 1 else None

    def built(self, steps: int = 0, layers: int | None = None) -> nn.Module:
        """The network in evaluation mode, after some steps of training; always with the same random numbers. It may
        have fewer layers than it has by itself."""
        task = self.task()
        of_layers = () if self.layers is None else (layers or self.layers,)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.make(task, *of_layers).train()
            self._train(model, task, steps)
        return model.eval()

    def _train(self, model: nn.Module, task: Task, steps: int) -> None:
        if not steps:
            return
        optimizer = torch.optim.AdamW(model.parameters(), self.rate, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, total_steps=steps)
        for _ in range(steps):
            batch = torch.randint(task.cut, (64,))
            optimizer.zero_grad()
            self.loss(model, task.x[batch], task.y[batch]).backward()
            optimizer.step()
            schedule.step()
