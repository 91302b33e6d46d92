"""The distribution of a model's output over random coalitions of players, as `DASP` propagates it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dasp.propagation.coalitions import Rank, SizedCoalitions, column_count, sketch
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace
from dasp.propagation.values import NOBODY, Toggled

__all__ = ["propagate_coalitions"]


@torch.no_grad()
def propagate_coalitions(
    model: nn.Module,
    inputs: Tensor,
    baselines: Tensor,
    players: Tensor,
    sizes: Sequence[int],
    *,
    rank: Rank = 0,
    coordinates: Tensor | None = None,
    seed: int = 0,
) -> Gaussian:
    """Return the distribution of a model's output when k random players have their entries of the input, and all
    others have those of the baseline; along dimension 0 for each size k.

    Args:
        model: a module in evaluation mode, of one input.
        inputs: one row, (1, *shape).
        baselines: the baseline of the row, in the same shape.
        players: the player (0 … N − 1) of every entry of the row, in its shape without the first dimension.
        sizes: the numbers k of players.
        rank: how many columns of correlation between units to propagate; "full" is one for each player.
        coordinates: where the players are on a grid, (N, dimensions), if they are: neighbours then share no column.
        seed: the seed that divides players among fewer columns.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
    >>> propagate_coalitions(model, torch.ones(1, 3), torch.zeros(1, 3), torch.arange(3), [1, 2]).mean.shape
    torch.Size([2, 1, 1])
    """
    count = int(players.max()) + 1
    columns = column_count(rank, count)
    toggled = Toggled(inputs, baselines, (players + NOBODY + 1).expand(inputs.shape))
    sketches = None
    if columns:
        seeds = [seed + i for i in range(len(sizes))] if columns < count else [seed]
        sketches = torch.stack([sketch(columns, count, coordinates, each) for each in seeds]).to(inputs)
    frontier = lift(trace(model, (inputs,), RULES), (toggled,), count).frontier(toggled)
    coalitions = frontier.map(lambda x: SizedCoalitions.of(x, 1, sketches).of_all(torch.tensor(sizes)))
    return coalitions.propagated(batched=True)
