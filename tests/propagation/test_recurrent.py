"""Recurrent networks: all that they give, in all their forms, against sampling and against the network itself."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import Tensor, nn

from dasp.propagation.coalitions import SizedCoalitions, bernoulli
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import Lifted, lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace
from dasp.propagation.values import Toggled

STEPS, SIZE = 4, 3


class Everything(nn.Module):
    """All that a network gives for a row: outputs and last states."""

    def __init__(self, network: nn.RNNBase) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        rows_first = self.network.batch_first
        output, last = self.network(x if rows_first else x.transpose(0, 1))
        states = [last] if isinstance(last, Tensor) else last
        parts = (output if rows_first else output.transpose(0, 1), *(h.transpose(0, 1) for h in states))
        return torch.cat([part.flatten(1) for part in parts], 1)


class Translator(nn.Module):
    """The last states of one network are the first of another, which sees constants."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.writes = nn.LSTM(SIZE, 4, batch_first=True), nn.LSTM(SIZE, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.writes(torch.ones_like(x), self.reads(x)[1])[0]


class Steps(nn.Module):
    """A cell, step by step."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return torch.cat(state, 1) if isinstance(state, tuple) else state


torch.manual_seed(0)
NETWORKS = {
    "LSTM": Everything(nn.LSTM(SIZE, 4, batch_first=True)),
    "deep LSTM": Everything(nn.LSTM(SIZE, 4, 2, bidirectional=True, proj_size=2)),
    "deep GRU": Everything(nn.GRU(SIZE, 4, 2, bidirectional=True, bias=False, batch_first=True)),
    "deep RNN": Everything(nn.RNN(SIZE, 4, 2, bidirectional=True)),
    "LSTM cell": Steps(nn.LSTMCell(SIZE, 4)),
    "GRU cell": Steps(nn.GRUCell(SIZE, 4)),
    "translator": Translator(),
}
for network in NETWORKS.values():
    network.double().eval().requires_grad_(False)


@functools.cache
def traced(name: str) -> torch.fx.GraphModule:
    example = torch.zeros(2, STEPS, SIZE, dtype=torch.float64)
    return trace(NETWORKS[name], (example,), RULES)


def lifted(name: str, value: Toggled | Gaussian, count: int = STEPS) -> Lifted:
    return lift(traced(name), (value,), count)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", NETWORKS)
def test_moments_with_all_columns(name: str) -> None:
    """What is left is the error of taking gates for Gaussian."""
    mean, factors = draw(1, STEPS, SIZE), 0.25 * draw(6, 1, STEPS, SIZE, seed=1)
    x = Gaussian(mean, torch.zeros_like(mean), factors)
    actual = lifted(name, x)(x)
    y = NETWORKS[name](mean + torch.tensordot(draw(10_000, 6, seed=2), factors, dims=1)[:, 0]).unsqueeze(1)
    check(actual, y.mean(0), y.std(0), 0.05)


def check(actual: Gaussian, mean: Tensor, deviation: Tensor, error: float) -> None:
    """The error over all units, relative to their deviations."""
    assert float(((actual.mean - mean) / deviation).square().mean().sqrt()) < error
    assert float((actual.total_variance.sqrt() / deviation - 1).square().mean().sqrt()) < 2 * error


def words(player_of_step: list[int]) -> Toggled:
    """Two rows with a player for each step."""
    players = torch.tensor(player_of_step).view(1, -1, 1) + 1 + torch.tensor([0, STEPS]).view(2, 1, 1)
    return Toggled(draw(2, STEPS, SIZE), draw(2, STEPS, SIZE, seed=1), players.expand(2, STEPS, SIZE))


EVERYONE = torch.eye(STEPS, dtype=torch.float64)[:, None]  # a column for each player


@pytest.mark.parametrize("signs", [None, EVERYONE], ids=["diagonal", "full"])
@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if isinstance(network, Everything)])
def test_one_player_is_exact(name: str, signs: Tensor | None) -> None:
    """As long as steps have the same player nothing is mixed: both moments are those of on and off."""
    x, chance = words([0] * STEPS), torch.full((2, STEPS), 0.3, dtype=torch.float64)
    actual = lifted(name, x).frontier(x).map(lambda met: bernoulli(met, chance, signs)).propagated()
    on, off = NETWORKS[name](x.on), NETWORKS[name](x.off)
    torch.testing.assert_close(actual.mean, 0.3 * on + 0.7 * off)
    torch.testing.assert_close(actual.total_variance, 0.21 * (on - off) ** 2)


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_with_a_player_each(name: str) -> None:
    """Against all coalitions."""
    x, chance = words(list(range(STEPS))), torch.full((2, STEPS), 0.4, dtype=torch.float64)
    members = torch.tensor(list(itertools.product((0, 1), repeat=STEPS)))
    y = torch.stack([NETWORKS[name](torch.where(member[:, None] > 0, x.on, x.off)) for member in members])
    weights = torch.where(members > 0, 0.4, 0.6).double().prod(1)
    mean = torch.tensordot(weights, y, dims=1)
    deviation = torch.tensordot(weights, (y - mean) ** 2, dims=1).sqrt()
    actual = lifted(name, x).frontier(x).map(lambda met: bernoulli(met, chance, EVERYONE)).propagated()
    check(actual, mean, deviation, 0.04)


def test_sizes_of_coalitions() -> None:
    """Coalitions of nobody and of everybody are the network, batched along sizes."""
    x = words(list(range(STEPS)))
    coalitions = lifted("deep GRU", x).frontier(x).map(lambda met: SizedCoalitions.of(met, 2))
    actual = coalitions.map(lambda met: met.of_all(torch.tensor([0, STEPS]))).propagated(batched=True)
    torch.testing.assert_close(actual.mean, torch.stack([NETWORKS["deep GRU"](part) for part in (x.off, x.on)]))


def test_several_players_in_a_step() -> None:
    """Then steps are not switched, and entries are Gaussian: a certain coalition is the network still."""
    on, off, count = draw(2, STEPS, SIZE), draw(2, STEPS, SIZE, seed=1), STEPS * SIZE
    x = Toggled(on, off, torch.arange(1, 2 * count + 1).view(on.shape))
    member = (draw(2, count, seed=3) > 0).double()
    actual = lifted("LSTM", x, count).frontier(x).map(lambda met: bernoulli(met, member)).propagated()
    torch.testing.assert_close(actual.mean, NETWORKS["LSTM"](torch.where(member.view(on.shape) > 0, on, off)))
