"""The beeswarm of a table: the values of every feature in all rows, a dot each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap

from dasp.display import data_fractions, half_of_sum, largest, uncertain
from dasp.plots.data import PlotData, axis_edge, error_note, read_table
from dasp.plots.style import (
    DARK,
    GREY,
    LIGHT,
    SMALL,
    TEXT,
    add_labels,
    drawing,
    fit_names,
    line_axes,
    lines_that_fit,
    names_width,
    new_axes,
)

__all__ = ["beeswarm"]

_WIDTH, _LINE = 8.0, 0.42  # inches
_BINS, _DOT = 100, 17.0
_CUT = 2.6  # times the largest named value, beyond which the dots of all others are cut off
# From small to large, as on the pages of reports: cividis without its yellow, which is not seen on white. Red and blue
# are signs.
_DATA = LinearSegmentedColormap.from_list("data", ["#00204c", "#414d6b", "#7c7b78", "#aa9450", "#d6a800"])


@drawing
def beeswarm(
    explanation: Any,
    *,
    names: Sequence[object] | None = None,
    data: Any = None,
    std: Any = None,
    output: str | None = None,
    most: int = 12,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw the values of all rows as dots, a line for each feature, coloured by what the feature is in that row.

    `shap.plots.beeswarm` takes explanations of `dasp.Explainer`, too; this one also shows errors: the thin bar below
    a swarm is as long as the typical 95 % interval (by the root mean square of the standard deviations), and dots
    whose own interval includes 0 are hollow.

    Args:
        explanation: a `shap.Explanation` of a table, or attributions (rows, features).
        names, data, std, output: as in `waterfall`, for all rows.
        most: the largest number of lines; the last one is for all other features together.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = beeswarm([[2.0, -1.0], [1.0, 0.5]], names=["age", "income"])
    >>> [text.get_text() for text in axes.get_yticklabels()]
    ['income', 'age']
    """
    found = read_table(explanation, names=names, data=data, std=std, output=output)
    shown, others = largest(np.abs(found.values).mean(0), lines_that_fit(ax, most))
    groups = [[i] for i in shown] + ([list(others)] if len(others) else [])
    axes = new_axes(ax, _WIDTH, 1.4 + _LINE * len(groups))
    labels = fit_names([found.names[i] for i in shown], names_width(axes), TEXT)
    labels += [f"{len(others)} others, summed"] if len(others) else []
    coloured = False
    for place, group in enumerate(groups[::-1]):
        values = found.values[:, group].sum(1)
        half = None if found.half is None else np.array([half_of_sum(row) for row in found.half[:, group]])
        colours = _colours(found, group)
        coloured |= colours is not None
        _swarm(axes, place, values, half, colours)
        if half is not None and half.any():
            typical = float(np.sqrt(np.square(half).mean()))
            axes.errorbar(
                values.mean(),
                place - 0.42 * (len(values) > 1),
                xerr=typical,
                color=DARK,
                linewidth=1.0,
                capsize=2,
                zorder=4,
            )
    line_axes(axes, labels[::-1])
    axes.grid(axis="y", color=LIGHT, linewidth=0.6, linestyle=(0, (1, 3)))
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.margins(x=0.05)
    if len(others):
        _cut_swarm(axes, found.values[:, shown], found.values[:, others].sum(1))
    if coloured:
        _data_bar(axes)
    add_labels(
        axes, title=title, below=f"value of {found.output}" if found.output else "value", note=_swarm_note(found)
    )
    return axes


def _cut_swarm(axes: Any, named: np.ndarray, others: np.ndarray) -> None:
    """End the axis where named features do, if all others together reach several times as far, and say how many of
    their dots are beyond it."""
    edge = axis_edge(float(np.abs(named).max()), float(np.abs(others).max()), _CUT)
    if edge is None:
        return
    axes.set_xlim(-edge, edge)
    for sign, place in ((-1, "left"), (1, "right")):
        beyond = int((sign * others > edge).sum())
        if beyond:
            text = f"{beyond} »" if sign > 0 else f"« {beyond}"
            axes.annotate(text, (sign * edge, 0), ha=place, va="bottom", fontsize=SMALL, fontweight="bold", zorder=5)


def _swarm(axes: Any, place: float, values: np.ndarray, half: np.ndarray | None, colours: np.ndarray | None) -> None:
    """Draw dots that keep apart where many are alike: bins of values are filled from the middle outwards."""
    low, high = values.min(), values.max()
    bins = np.zeros(len(values), dtype=int) if high == low else ((values - low) / (high - low) * _BINS).astype(int)
    layers = np.zeros(len(values))
    for one in np.unique(bins):
        inside = np.flatnonzero(bins == one)
        rank = np.arange(len(inside))
        layers[inside] = (rank + 1) // 2 * np.where(rank % 2, 1, -1)
    heights = place + layers * min(0.11, 0.33 / max(1.0, float(np.abs(layers).max())))
    colours = np.full(len(values), DARK, dtype=object) if colours is None else colours
    unsure = np.zeros(len(values), dtype=bool) if half is None else uncertain(values, half)
    axes.scatter(values[~unsure], heights[~unsure], s=_DOT, c=list(colours[~unsure]) or None, linewidths=0, zorder=3)
    axes.scatter(
        values[unsure],
        heights[unsure],
        s=_DOT,
        facecolors="white",
        edgecolors=list(colours[unsure]) or None,
        linewidths=0.8,
        zorder=2,
    )


def _colours(found: PlotData, group: list[int]) -> np.ndarray | None:
    """Return the colour of every row's dot by the feature there, grey where it is missing; None if it is no number."""
    fractions = None if found.data is None or len(group) > 1 else data_fractions(found.data[:, group[0]])
    if fractions is None:
        return None
    colours = np.empty(len(fractions), dtype=object)
    colours[:] = [tuple(colour) for colour in _DATA(fractions)]
    colours[np.isnan(fractions)] = GREY
    return colours


def _data_bar(axes: Any) -> None:
    scale = axes.figure.colorbar(ScalarMappable(cmap=_DATA), ax=axes, pad=0.015, aspect=30)
    scale.set_ticks([0, 1], labels=["low", "high"])
    scale.ax.tick_params(labelsize=SMALL, length=0)
    scale.set_label("the feature in that row", fontsize=SMALL)
    scale.outline.set_visible(False)


def _swarm_note(found: PlotData) -> str:
    if found.half is None or not found.half.any():
        return error_note(found, hatched=False)
    hollow = " Hollow dots: their interval includes 0." * bool(found.uncertain.any())
    return f"Thin bars: the typical length of a 95 % interval.{hollow}"
