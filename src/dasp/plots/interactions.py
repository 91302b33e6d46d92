"""Interactions of pairs as a heat map: red where two players add more together than each by itself, blue where less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.patches import Rectangle

from dasp.display import uncertain
from dasp.errors import BadInput
from dasp.formatting import number
from dasp.plots.data import feature_names, read
from dasp.plots.style import (
    DIVERGING,
    LIGHT,
    SMALL,
    add_labels,
    colour_bar,
    drawing,
    fit_names,
    new_axes,
    points,
    readable,
    text_width,
)

__all__ = ["interactions"]

_CELL, _NAMES = 0.42, 130  # inches, and points of a name
_HATCHES = "///"
_SMALLEST = 6.5  # letters, in the cells


@drawing
def interactions(
    values: Any,
    *,
    names: Sequence[object] | None = None,
    std: Any = None,
    most: int = 20,
    limit: float | None = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw pairwise interactions, as `explanation.interactions()` and `GradientDASP.interactions` give them. Pairs
    whose 95 % interval includes 0 are hatched.

    Args:
        values: (players, players) of one row, or (rows, players, players), whose mean is drawn; or what
            `explanation.interactions()` returns, with its standard deviations.
        names: the names of the players.
        std: the standard deviations of the values, if these do not tell; of the mean of several rows, as if the errors
            of rows were independent.
        most: the largest number of players: those whose interactions are largest in sum are drawn.
        limit: the value of the darkest colour; by default the largest.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> interactions([[0.0, 1.0], [1.0, 0.0]], names=["age", "income"]).get_xticklabels()[1].get_text()
    'income'
    """
    std = getattr(values, "error_std", None) if std is None else std
    names = getattr(values, "feature_names", None) if names is None else names
    if getattr(values, "output_names", None) is not None:
        raise BadInput("these are interactions of several outputs: choose one, as by interactions.of_output(0)")
    own = getattr(values, "values", values)
    data = read(values if callable(own) else own, names=names, std=std)  # a tensor has a method of that name
    found = data.values
    if found.ndim not in (2, 3) or found.shape[-1] != found.shape[-2]:
        raise BadInput(f"interactions of the shape {found.shape} are not those of all pairs, (players, players)")
    rows = len(found) if found.ndim == 3 else 1
    matrix = found.mean(0) if found.ndim == 3 else found
    half = np.zeros_like(matrix) if data.half is None else data.half
    half = np.sqrt((half**2).sum(0)) / rows if half.ndim == 3 else half
    named = feature_names([] if names is None else [str(name) for name in names], len(matrix), "players")
    count = len(matrix)
    shown = np.sort(np.argsort(-np.abs(matrix).sum(1), kind="stable")[:most])
    matrix, half = matrix[np.ix_(shown, shown)], half[np.ix_(shown, shown)]
    side = _CELL * max(len(shown), 4)
    axes = new_axes(ax, side + 3.2, side + 2.4)
    labels = fit_names([named[i] for i in shown], min(_NAMES, 0.3 * min(points(axes))), SMALL)
    top = limit or float(np.abs(matrix).max()) or 1.0
    axes.imshow(matrix, cmap=DIVERGING, vmin=-top, vmax=top)
    _numbers(axes, matrix, top)
    doubted = np.argwhere(uncertain(matrix, half))
    for i, j in doubted:
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch=_HATCHES, edgecolor=LIGHT, linewidth=0))
    axes.set_xticks(range(len(shown)), labels, rotation=90, fontsize=SMALL, parse_math=False)
    axes.set_yticks(range(len(shown)), labels, fontsize=SMALL, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    colour_bar(axes, top, "interaction" if rows == 1 else f"interaction, mean over {rows:,} rows", aspect=25)
    left = count - len(shown)
    note = f"{left} other player{'s' * (left != 1)} with smaller interactions" if left else ""
    if len(doubted):
        note = f"hatched: the 95 % interval includes 0{'; ' + note if note else ''}"
    add_labels(axes, title=title, below=note)
    return axes


def _numbers(axes: Any, matrix: np.ndarray, top: float) -> None:
    """Write numbers into the cells, if they fit."""
    texts = {place: number(float(value), digits=2) for place, value in np.ndenumerate(matrix) if place[0] != place[1]}
    cell = min(72 * _CELL, min(points(axes)) / len(matrix))
    if not texts or max(text_width(text, _SMALLEST) for text in set(texts.values())) > 0.9 * cell:
        return
    for (i, j), text in texts.items():
        colour = readable(colormaps[DIVERGING](0.5 + 0.5 * np.clip(matrix[i, j] / top, -1, 1))[:3])
        axes.text(j, i, text, ha="center", va="center", fontsize=_SMALLEST, color=colour)
