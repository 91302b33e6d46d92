"""Are hidden units Gaussian over random coalitions, and are their propagated moments right? (the paper's appendix D)

For coalitions of exactly k of N players, drawn at random, the values of all units of a layer are compared with the mean
and standard deviation that `dasp` propagates for that k, without factors (rank 0, the paper's network) and with them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dasp.attribution.gradient import automatic_rank
from dasp.games.arguments import Arguments, Baselines, games
from dasp.games.game import Game
from dasp.propagation.coalitions import Rank, SizedCoalitions, column_count, sketch
from dasp.propagation.lifting import Lifted, lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace

__all__ = ["Moments", "Sampled", "moments", "spread_sizes"]

_AT_ONCE = 500  # coalitions


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of every unit of a layer."""

    mean: Tensor
    std: Tensor


@dataclass(frozen=True)
class Sampled:
    """A layer over random coalitions of one size."""

    layer: str
    size: int
    unit: int  # the one that varies most over all sizes, by the propagated moments
    values: Tensor  # of that unit, one per coalition
    sampled: Moments
    propagated: dict[int, Moments]  # by the number of factor columns


def spread_sizes(players: int) -> list[int]:
    """Eight sizes, (2j + 1)N/16; fewer of fewer than eight players.

    >>> spread_sizes(784)
    [49, 147, 245, 343, 441, 539, 637, 735]
    """
    return sorted({max(1, (2 * j + 1) * players // 16) for j in range(8)})


def moments(
    layers: Mapping[str, nn.Module],
    inputs: Tensor,
    baselines: Baselines = None,
    feature_mask: Tensor | None = None,
    *,
    sizes: Sequence[int] | None = None,
    ranks: Sequence[Rank | Literal["auto"]] = (0, "auto"),
    coalitions: int = 2000,
    seed: int = 0,
) -> list[Sampled]:
    """The moments of all units of each layer for coalitions of each size.

    Args:
        layers: models that give the units of a layer, such as the prefixes `model[:1]`, `model[:4]` of a sequential
            one; copied to evaluation mode, which slices forget.
        inputs: one row.
        baselines: what absent players are, as in Captum.
        feature_mask: entries with the same number are one player.
        sizes: of the coalitions; None for eight equally spaced ones.
        ranks: how many factor columns to propagate: numbers, "full", or "auto" as in `GradientDASP`.
        coalitions: how many to draw for each size.
        seed: of the coalitions and of the sketches.

    >>> model = nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    >>> found = moments({"hidden": model[:1], "output": model}, torch.ones(1, 16), coalitions=50)
    >>> [(one.layer, one.size) for one in found[:2]], found[0].propagated[0].std.shape
    ([('hidden', 1), ('hidden', 3)], torch.Size([5]))
    """
    if len(inputs) != 1:
        raise ValueError(f"the units are those of one row, not of {len(inputs)}")
    (game,) = games(Arguments(inputs, baselines, feature_mask=feature_mask))
    sizes = spread_sizes(game.count) if sizes is None else list(sizes)
    columns = [column_count(automatic_rank(game) if rank == "auto" else rank, game.count) for rank in ranks]
    result = []
    with torch.no_grad():
        for name, given in layers.items():
            layer = copy.deepcopy(given).eval()
            values = [_sample(layer, game, size, coalitions, seed) for size in sizes]
            lifted = lift(trace(layer, game.on, RULES), game.toggled(), game.count)
            propagated = {number: _propagated(lifted, game, sizes, number, seed) for number in columns}
            # Not by the sampled variance: the largest of many estimates is too large.
            unit = int(torch.stack([each.std.square() for each in propagated[columns[-1]]]).sum(0).argmax())
            for i, (size, drawn) in enumerate(zip(sizes, values, strict=True)):
                sampled = Moments(drawn.mean(0), drawn.std(0))
                ours = {number: each[i] for number, each in propagated.items()}
                result.append(Sampled(name, size, unit, drawn[:, unit].clone(), sampled, ours))
    return result


def _sample(layer: nn.Module, game: Game, size: int, coalitions: int, seed: int) -> Tensor:
    """The units (coalitions, units) for random coalitions of a size; the same ones for every layer."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + size)
    parts = []
    for start in range(0, coalitions, _AT_ONCE):
        number = min(_AT_ONCE, coalitions - start)
        chosen = torch.rand(number, game.count, generator=generator).argsort(1)[:, :size]
        members = torch.zeros(number, game.count, dtype=torch.bool).scatter_(1, chosen, value=True)
        parts.append(game.evaluate(layer, members[:, None].to(game.device)).flatten(1))
    return torch.cat(parts)


def _propagated(lifted: Lifted, game: Game, sizes: Sequence[int], columns: int, seed: int) -> list[Moments]:
    """The moments of all units for each size."""
    sketches = None
    if columns:
        seeds = [seed + i for i in range(len(sizes))] if columns < game.count else [seed]
        drawn = [sketch(columns, game.count, game.coordinates, each) for each in seeds]
        sketches = torch.stack(drawn).to(device=game.device, dtype=game.dtype)
    frontier = lifted.frontier(*game.toggled())
    coalitions = frontier.map(lambda x: SizedCoalitions.of(x, 1, sketches).of_all(torch.tensor(sizes)))
    output = coalitions.propagated(batched=True)
    variance = output.variance if output.factors is None else output.variance + output.factors.square().sum(1)
    return [Moments(mean.flatten(), v.sqrt().flatten()) for mean, v in zip(output.mean, variance, strict=True)]
