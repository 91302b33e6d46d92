"""Figures of hidden units over random coalitions: histograms with the propagated Gaussian, and all units' spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from dasp.evaluation.moments import Sampled
from dasp.plots.style import BLACK, LIGHT, SKY, SMALL, TEXT, VERMILLION, empty_figure, tidy

__all__ = ["gaussianity"]

_ACROSS = 4


def gaussianity(found: Sequence[Sampled]) -> Figure:
    """Draw how Gaussian units are, and how right their propagated moments.

    Above is the unit of the first layer that varies most: its values for coalitions of each size, and the propagated
    Gaussian. Below is the propagated against the sampled standard deviation of every unit, for each layer (columns) and
    number of factor columns (rows); on the diagonal they are equal.
    """
    layers = list(dict.fromkeys(one.layer for one in found))
    ranks = list(found[0].propagated)
    first = [one for one in found if one.layer == layers[0]]
    rows = -(-len(first) // _ACROSS)
    heights = 1.85 * rows + 0.5, 3.0 * len(ranks) + 0.3
    figure = empty_figure(12, sum(heights) + 0.2)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    above.suptitle(
        f"One unit of {layers[0]} over {len(first[0].values):,} random coalitions of k players",
        fontsize=TEXT, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    panels = above.subplots(rows, _ACROSS, squeeze=False)
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
