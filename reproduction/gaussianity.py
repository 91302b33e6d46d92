"""Are hidden units Gaussian over random coalitions, and are their propagated moments right? (the paper's appendix D)

For coalitions of exactly k of N players, drawn at random, the values of all units of a layer are compared with the mean
and standard deviation that `dasp` propagates for that k, without factors (rank 0, the paper's network) and with them.
The figure shows histograms of one unit with the propagated Gaussian, and the standard deviations of all units.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from dasp.propagation import propagate_coalitions
from reproduction.style import BLACK, LIGHT, SKY, SMALL, TEXT, VERMILLION, empty_figure, tidy

__all__ = ["Moments", "Sampled", "gaussianity", "moments", "spread_sizes"]

_AT_ONCE = 500  # coalitions
_FEW_PLAYERS = 32
_DEFAULT_COLUMNS = {0: 32, 1: 16, 2: 25}  # by the dimensions of the players' grid
_SIZES_ACROSS = 4


@dataclass(frozen=True)
class Moments:
    """The mean and standard deviation of every unit of a layer."""

    mean: Tensor
    std: Tensor


@dataclass(frozen=True)
class Sampled:
    """The units of a layer over random coalitions of one size."""

    layer: str
    size: int
    unit: int  # the one that varies most over all sizes, by the propagated moments
    values: Tensor  # of that unit, one per coalition
    sampled: Moments
    propagated: dict[int, Moments]  # by the number of factor columns


def spread_sizes(players: int) -> list[int]:
    """Return eight sizes of coalitions, (2j + 1)N/16; fewer for fewer than eight players.

    >>> spread_sizes(784)
    [49, 147, 245, 343, 441, 539, 637, 735]
    """
    return sorted({max(1, (2 * j + 1) * players // 16) for j in range(8)})


def moments(
    layers: Mapping[str, nn.Module],
    inputs: Tensor,
    baselines: Tensor | None = None,
    feature_mask: Tensor | None = None,
    *,
    sizes: Sequence[int] | None = None,
    coalitions: int = 2000,
    seed: int = 0,
) -> list[Sampled]:
    """Return the moments of all units of each layer for coalitions of each size.

    Args:
        layers: models that return the units of a layer, such as the prefixes `model[:1]`, `model[:4]` of a sequential
            one. They are copied to evaluation mode, which slices forget.
        inputs: one row.
        baselines: the baseline of the row; None for zeros.
        feature_mask: numbers of players, 0 to N − 1: entries with the same number are one player.
        sizes: the sizes of coalitions; None for eight equally spaced ones.
        coalitions: how many coalitions of each size are drawn.
        seed: the seed of the coalitions and of the sketches.

    >>> model = nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    >>> found = moments({"hidden": model[:1], "output": model}, torch.ones(1, 16), coalitions=50)
    >>> [(one.layer, one.size) for one in found[:2]], found[0].propagated[0].std.shape
    ([('hidden', 1), ('hidden', 3)], torch.Size([5]))
    """
    if len(inputs) != 1:
        raise ValueError(f"the units are those of one row, not of {len(inputs)}")
    off = torch.zeros_like(inputs) if baselines is None else baselines.expand(inputs.shape)
    players = torch.arange(inputs[0].numel()).view(inputs[0].shape) if feature_mask is None else feature_mask
    count, places = int(players.max()) + 1, _places(players)
    sizes = spread_sizes(count) if sizes is None else list(sizes)
    result = []
    for name, given in layers.items():
        layer = copy.deepcopy(given).eval()
        propagated = {}
        for rank in (0, _columns(count, places)):
            output = propagate_coalitions(layer, inputs, off, players, sizes, rank=rank, coordinates=places, seed=seed)
            shared = 0 if output.factors is None else output.factors.square().sum(1)
            std = (output.variance + shared).sqrt()
            propagated[rank] = [Moments(mean.flatten(), s.flatten()) for mean, s in zip(output.mean, std, strict=True)]
        # Not by the sampled variance: the largest of many estimates is too large.
        unit = int(torch.stack([each.std.square() for each in propagated[rank]]).sum(0).argmax())
        for i, size in enumerate(sizes):
            drawn = _sample(layer, inputs, off, players, size, coalitions, seed)
            ours = {number: each[i] for number, each in propagated.items()}
            result.append(Sampled(name, size, unit, drawn[:, unit].clone(), Moments(drawn.mean(0), drawn.std(0)), ours))
    return result


def _places(players: Tensor) -> Tensor | None:
    """Return where each player is in a sequence or an image, (N, dimensions); None for a row of features. Players are
    positions there, with all channels."""
    if players.dim() < 2:
        return None
    grid = torch.cartesian_prod(*(torch.arange(n) for n in players.shape[1:])).view(-1, players.dim() - 1)
    places = torch.zeros(int(players.max()) + 1, grid.shape[1], dtype=torch.long)
    places[players[0].flatten()] = grid
    return places


def _columns(count: int, places: Tensor | None) -> int:
    """Return the number of factor columns that `GradientDASP` propagates by default."""
    if count <= _FEW_PLAYERS:
        return count
    return _DEFAULT_COLUMNS[0 if places is None else places.shape[1]]


@torch.no_grad()
def _sample(
    layer: nn.Module, inputs: Tensor, baselines: Tensor, players: Tensor, size: int, coalitions: int, seed: int
) -> Tensor:
    """Return the units (coalitions, units) for random coalitions of a size; the same ones for every layer."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + size)
    count, parts = int(players.max()) + 1, []
    for start in range(0, coalitions, _AT_ONCE):
        number = min(_AT_ONCE, coalitions - start)
        drawn = torch.rand(number, count, generator=generator).argsort(1)[:, :size]
        members = torch.zeros(number, count, dtype=torch.bool).scatter_(1, drawn, value=True)
        parts.append(layer(torch.where(members[:, players], inputs, baselines)).flatten(1))
    return torch.cat(parts)


def gaussianity(found: Sequence[Sampled]) -> Figure:
    """Draw how Gaussian units are, and how right their propagated moments.

    Above is the unit of the first layer that varies most: its values for coalitions of each size, and the propagated
    Gaussian. Below is the propagated against the sampled standard deviation of every unit, for each layer (columns) and
    number of factor columns (rows); on the diagonal they are equal.
    """
    layers = list(dict.fromkeys(one.layer for one in found))
    ranks = list(found[0].propagated)
    first = [one for one in found if one.layer == layers[0]]
    rows = -(-len(first) // _SIZES_ACROSS)
    heights = 1.85 * rows + 0.5, 3.0 * len(ranks) + 0.3
    figure = empty_figure(12, sum(heights) + 0.2)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    above.suptitle(
        f"One unit of {layers[0]} over {len(first[0].values):,} random coalitions of k players",
        fontsize=TEXT, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    panels = above.subplots(rows, _SIZES_ACROSS, squeeze=False)
    for axes in panels.flat[len(first) :]:
        axes.set_axis_off()
    for axes, one in zip(panels.flat, first, strict=False):
        _histogram(axes, one, ranks[-1])
    above.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False, fontsize=SMALL
    )
    above.supxlabel("value of the unit", fontsize=TEXT)
    above.supylabel("density", fontsize=TEXT)
    below.suptitle(
        "Standard deviation σ of every unit, for coalitions of all sizes",
        fontsize=TEXT,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    _scatters(below, found, layers, ranks)
    return figure


def _histogram(axes: Any, one: Sampled, rank: int) -> None:
    mean, std = (float(x[one.unit]) for x in (one.propagated[rank].mean, one.propagated[rank].std))
    axes.hist(one.values.numpy(force=True), bins=40, density=True, color=SKY, alpha=0.75, label="sampled coalitions")
    reach = 4 * max(std, 1e-12)
    x = np.linspace(mean - reach, mean + reach, 200)
    density = np.exp(-0.5 * ((x - mean) / max(std, 1e-12)) ** 2) / (max(std, 1e-12) * np.sqrt(2 * np.pi))
    axes.plot(x, density, color=VERMILLION, linewidth=1.8, label="propagated Gaussian")
    tidy(axes, grid=False)
    axes.set_title(
        f"k = {one.size}\nσ {float(one.sampled.std[one.unit]):.3f} sampled / {std:.3f} propagated", fontsize=SMALL
    )


def _scatters(part: Any, found: Sequence[Sampled], layers: list[str], ranks: list[int]) -> None:
    panels = part.subplots(len(ranks), len(layers), squeeze=False)
    sizes = sorted({one.size for one in found})
    scale = Normalize(sizes[0], sizes[-1])
    ends = {layer: 1.05 * max(_largest(one) for one in found if one.layer == layer) for layer in layers}
    for row, rank in zip(panels, ranks, strict=True):
        for axes, layer in zip(row, layers, strict=True):
            some = [one for one in found if one.layer == layer]
            _scatter(axes, some, rank, scale, ends[layer])
            factors = f"{rank} factor columns" if rank else "no factors (rank 0)"
            axes.set_title(f"{layer}\n{factors}", fontsize=TEXT)
        row[0].set_ylabel("propagated σ", fontsize=TEXT)
    for axes in panels[-1]:
        axes.set_xlabel("sampled σ", fontsize=TEXT)
    bar = part.colorbar(ScalarMappable(scale, "viridis"), ax=list(panels.flat), pad=0.01, aspect=40, ticks=sizes)
    bar.set_label("players in a coalition, k", fontsize=TEXT)
    bar.ax.tick_params(labelsize=SMALL)


def _largest(one: Sampled) -> float:
    return max(float(m.std.max()) for m in (one.sampled, *one.propagated.values()))


def _scatter(axes: Any, some: Sequence[Sampled], rank: int, scale: Normalize, end: float) -> None:
    """Draw one panel; units that do not vary at all are left out."""
    sampled = torch.cat([one.sampled.std for one in some])
    propagated = torch.cat([one.propagated[rank].std for one in some])
    sizes = torch.cat([torch.full_like(one.sampled.std, one.size) for one in some])
    varying = sampled > 1e-6 * sampled.max()
    order = torch.randperm(int(varying.sum()), generator=torch.Generator().manual_seed(0))  # no size hides the others
    x, y, k = (v[varying][order].numpy(force=True) for v in (sampled, propagated, sizes))
    axes.plot([0, end], [0, end], color=BLACK, linewidth=0.8, linestyle="--", zorder=1)
    axes.scatter(x, y, c=colormaps["viridis"](scale(k)), s=5, alpha=0.6, linewidths=0, zorder=2, rasterized=True)
    axes.set_xlim(0, end)
    axes.set_ylim(0, end)
    axes.set_aspect("equal")
    tidy(axes)
    ratio = float((propagated[varying] / sampled[varying]).median())
    axes.text(
        0.97, 0.05, f"median ratio {ratio:.3f}\n{int(varying.sum()):,} points", transform=axes.transAxes, ha="right",
        va="bottom", fontsize=SMALL, bbox={"facecolor": "white", "edgecolor": LIGHT, "boxstyle": "round,pad=0.3"},
    )  # fmt: skip
