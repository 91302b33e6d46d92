"""Which method for how many players: what `dasp.methods.choose` rests on.

    python benchmarks/selection.py

prints the error of each method relative to the size of the true values (RMSE over their root mean square), and the time
for a row, of trained networks with 6 to 64 players: a smooth function of N inputs learnt by a 128–64 ReLU network, the
first N columns of the breast cancer data by one of tanh, and a convolutional network on 8×8 digits, whose players are
blocks of pixels. Truth: exact up to 20 players, else 1,000 antithetic permutations. Each row is explained for one
output, with a baseline of the features' means; 8 rows at once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor, nn

from dasp.evaluation import Problem
from dasp.methods import METHODS, find

ROWS = 8
METHOD_NAMES = (
    "exact_shapley", "dasp", "gradient_dasp", "bayesian_shapley", "bayesian_shapley_on_dasp",
    "bayesian_shapley_on_gradient_dasp",
)  # fmt: skip
MOST = {"exact_shapley": 14, "dasp": 30, "bayesian_shapley_on_dasp": 30}  # players


def trained(model: nn.Module, x: Tensor, y: Tensor, epochs: int = 40) -> nn.Module:
    loss = nn.functional.mse_loss if y.is_floating_point() else nn.functional.cross_entropy
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval()


def waves(players: int) -> tuple[nn.Module, Tensor, int]:
    x = torch.rand(3000, players) * 2 - 1
    y = torch.sin(x @ (2 * torch.randn(players, 8) / players**0.5)).sum(1, keepdim=True) + 2 * x[:, :1] * x[:, 1:2]
    mlp = nn.Sequential(nn.Linear(players, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    return trained(mlp, x, y), x, 0


def cancer(players: int) -> tuple[nn.Module, Tensor, int]:
    table, labels = load_breast_cancer(return_X_y=True)
    x = torch.tensor(table[:, :players]).float()
    x = (x - x.mean(0)) / x.std(0)
    mlp = nn.Sequential(nn.Linear(players, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 2))
    return trained(mlp, x, torch.tensor(labels)), x, 1


def digits() -> tuple[nn.Module, Tensor, int]:
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images).float().view(-1, 1, 8, 8) / 16
    cnn = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    return trained(cnn, x, torch.tensor(labels), epochs=10), x, 3


def problems() -> Iterator[tuple[str, Problem]]:
    for players in (6, 8, 10, 12, 14, 16, 24, 32, 48, 64):
        torch.manual_seed(players)
        model, x, target = waves(players)
        yield f"waves {players}", problem(model, x, target)
    for players in (6, 10, 12, 14, 20, 30):
        torch.manual_seed(players)
        model, x, target = cancer(players)
        yield f"cancer {players}", problem(model, x, target)
    torch.manual_seed(0)
    model, x, target = digits()
    for height, width in ((4, 2), (2, 2), (2, 1), (1, 1)):  # blocks
        columns = 8 // width
        mask = torch.arange(8).view(8, 1) // height * columns + torch.arange(8).view(1, 8) // width
        yield f"digits {64 // height // width}", problem(model, x, target, mask)


def problem(model: nn.Module, x: Tensor, target: int, mask: Tensor | None = None) -> Problem:
    return Problem.of(model, x[:ROWS], x.mean(0), target, mask)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'':14}" + "".join(f"{name:>34}" for name in METHOD_NAMES))
    for name, known in problems():
        line, size = f"{name:14}", known.truth.square().mean().sqrt()
        players = int(name.split()[1])
        for method in METHOD_NAMES:
            if players > MOST.get(method, players):
                line += f"{'':34}"
                continue
            attribution = METHODS[find(method)].on(known.model)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a tolerance was not reached, which the errors show
                attribution.attribute(**known.arguments)  # traces the model
                start = time.perf_counter()
                values = attribution.attribute(**known.arguments)
            milliseconds = (time.perf_counter() - start) / ROWS * 1e3
            entries = known.arguments["feature_mask"]
            first = range(players) if entries is None else [int((entries == p).flatten().int().argmax()) for p in
                                                             range(players)]  # fmt: skip
            error = (values.flatten(1)[:, first] - known.truth).square().mean().sqrt() / size
            line += f"{f'{error:.4f}  {milliseconds:9.1f} ms':>34}"
        noise = f"  truth ±{known.standard_error / size:.4f}" if known.standard_error else ""
        print(line + noise, flush=True)


if __name__ == "__main__":
    main()
