"""A table of rows: how large the values of every feature are on average, and all of them as swarms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.ticker import MaxNLocator

from dasp.plots.canvas import beside, drawing, labelled, lines_that_fit, names_width, new_axes
from dasp.plots.given import Given, read_table
from dasp.plots.labels import fitted_all, numbers_of
from dasp.plots.parts import Part, faces, largest
from dasp.plots.rows import notes
from dasp.plots.style import BLACK, DARK, GREY, LIGHT, SMALL, TEXT, tidy
from dasp.words import interval_of

__all__ = ["bar", "beeswarm"]

_WIDTH, _LINE = 7.5, 0.3  # inches
_CUT = 4  # times the largest named feature, beyond which the bar of all others is cut off
_SWARM_LINE, _BINS, _DOT = 0.42, 100, 13.0
_DATA = "cividis"  # from small to large, also for the colour-blind; red and blue are signs


@drawing
def bar(
    explanation: Any,
    *,
    names: Sequence[object] | None = None,
    data: Any = None,
    std: Any = None,
    output: str | None = None,
    most: int = 15,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw the mean |value| of every feature over all rows, with intervals of 95 %; for one row, its values.

    There are two reasons for an interval. The thin bar holds both: with other rows the mean would be another (s/√n for
    the spread s over n rows, times Student's quantile), and every value has an error of its own (√Σσ²/n for standard
    deviations σ, taken as independent). The thick bar inside it has the second one alone. Errors make |value| larger
    on average: a mean that is not much larger than its thick bar may be nothing but error.

    Args:
        explanation: a `shap.Explanation` of a table, or attributions (rows, features).
        names, data, std, output: as in `waterfall`, for all rows.
        most: how many lines there are at most; the last one is for all other features together.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = bar([[2.0, -1.0], [1.0, 0.5]], names=["age", "income"])
    >>> [float(patch.get_width()) for patch in axes.patches]  # from below
    [0.75, 1.5]
    """
    found = read_table(explanation, names=names, data=data, std=std, output=output)
    rows = len(found.values)
    signed = found.values if rows == 1 else np.abs(found.values)
    shown, others = largest(signed.mean(0), lines_that_fit(ax, most))
    groups = [[i] for i in shown] + ([list(others)] if len(others) else [])
    axes = new_axes(ax, _WIDTH, 1.5 + _LINE * len(groups))
    labels = fitted_all([found.names[i] for i in shown], names_width(axes), TEXT)
    labels += [f"{len(others)} others"] if len(others) else []
    hatched = False
    for place, (label, group) in enumerate(zip(labels[::-1], groups[::-1], strict=True)):
        inner, whole = _halves(found, signed, group)
        part = Part(label, float(signed[:, group].sum(1).mean()), whole)
        look = faces(part) if rows == 1 or part.uncertain else {"facecolor": GREY, "edgecolor": "white"}
        look |= {"edgecolor": DARK} if rows > 1 and part.uncertain else {}
        axes.barh(place, part.value, 0.7, **look, zorder=2)
        if whole:
            axes.errorbar(part.value, place, xerr=whole, color=BLACK, linewidth=1.2, capsize=2.5, zorder=3)
        if inner and rows > 1:
            axes.plot(
                part.value + inner * np.array([-1, 1]),
                [place] * 2,
                color=BLACK,
                linewidth=3.5,
                solid_capstyle="butt",
                zorder=4,
            )
        hatched |= part.uncertain
        beside(axes, place, part.text if rows == 1 else part.text.removeprefix("+"))
    _lines(axes, labels[::-1])
    axes.axvline(0, color=BLACK, linewidth=0.8, zorder=3)
    axes.margins(x=0.05)
    if len(others):
        _cut(axes, float(np.abs(signed.mean(0)[shown]).max()))
    of = f" of {found.output}" if found.output else ""
    below = f"value{of}" if rows == 1 else f"mean |value|{of} over {rows:,} rows"
    labelled(axes, title=title, below=below, note=_bar_note(found, hatched))
    return axes


def _cut(axes: Any, named: float) -> None:
    """End the axis where the largest named feature does, if all others together are several times as large: their bar
    is open at that end, and their number is written beside it."""
    others = axes.patches[0].get_width()
    if named and abs(others) > _CUT * named:
        low, high = axes.get_xlim()
        edge = 1.3 * named
        axes.set_xlim(max(low, -edge), min(high, edge))
        place = np.clip(others, -edge, edge)
        axes.annotate(
            "» " if others > 0 else " «", (place, 0), ha="right" if others > 0 else "left", va="center", color="white",
            fontsize=TEXT, fontweight="bold", zorder=5,
        )  # fmt: skip


def _halves(found: Given, signed: np.ndarray, group: list[int]) -> tuple[float | None, float | None]:
    """Half of the interval of a mean: from the errors of the values alone, and from the choice of rows, too."""
    rows = len(signed)
    inner = None if found.half is None else float(np.sqrt(np.square(found.half[:, group]).sum())) / rows
    if rows == 1:
        return inner, inner
    outer = interval_of(rows) * float(signed[:, group].sum(1).std(ddof=1)) / np.sqrt(rows)
    return inner, float(np.hypot(outer, inner or 0.0))


def _bar_note(found: Given, hatched: bool) -> str:
    if len(found.values) == 1:
        return notes(found, hatched=hatched)
    zero = " Hatched: it holds 0." * hatched
    if found.half is None or not found.half.any():
        errors = "Errors of the values are not known." if found.half is None else "The values are exact."
        return f"Thin bars and ±: intervals of 95 % for other rows of the same kind. {errors}{zero}"
    return (
        "Thin bars and ±: intervals of 95 % for other rows of the same kind and errors of the values together; thick "
        f"bars: for errors of the values alone.{zero}"
    )


def _lines(axes: Any, labels: list[str]) -> None:
    """Name the lines, and draw the grid."""
    axes.set_yticks(range(len(labels)), labels, fontsize=TEXT, parse_math=False)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(numbers_of(axes.xaxis))
    tidy(axes, grid=False)
    axes.tick_params(axis="y", length=0, labelsize=TEXT)
    axes.grid(axis="x", color=LIGHT, linewidth=0.6)


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
    a swarm is as long as the typical interval of 95 % (by the root mean square of the standard deviations), and dots
    whose own interval holds 0 are hollow.

    Args:
        explanation: a `shap.Explanation` of a table, or attributions (rows, features).
        names, data, std, output: as in `waterfall`, for all rows.
        most: how many lines there are at most; the last one is for all other features together.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = beeswarm([[2.0, -1.0], [1.0, 0.5]], names=["age", "income"])
    >>> [text.get_text() for text in axes.get_yticklabels()]
    ['income', 'age']
    """
    found = read_table(explanation, names=names, data=data, std=std, output=output)
    shown, others = largest(np.abs(found.values).mean(0), lines_that_fit(ax, most))
    groups = [[i] for i in shown] + ([list(others)] if len(others) else [])
    axes = new_axes(ax, _WIDTH + 0.5, 1.4 + _SWARM_LINE * len(groups))
    labels = fitted_all([found.names[i] for i in shown], names_width(axes), TEXT)
    labels += [f"{len(others)} others, summed"] if len(others) else []
    coloured = False
    for place, group in enumerate(groups[::-1]):
        values = found.values[:, group].sum(1)
        half = None if found.half is None else np.sqrt(np.square(found.half[:, group]).sum(1))
        colours = _colours(found, group)
        coloured |= colours is not None
        _swarm(axes, place, values, half, colours)
        if half is not None and half.any():
            typical = float(np.sqrt(np.square(half).mean()))
            axes.errorbar(
                values.mean(),
                place - 0.42 * (len(values) > 1),
                xerr=typical,
                color=BLACK,
                linewidth=1.2,
                capsize=2,
                zorder=4,
            )
    _lines(axes, labels[::-1])
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.margins(x=0.05)
    if len(others):
        _cut_swarm(axes, found.values[:, shown], found.values[:, others].sum(1))
    if coloured:
        _data_bar(axes)
    labelled(axes, title=title, below=f"value of {found.output}" if found.output else "value", note=_swarm_note(found))
    return axes


def _cut_swarm(axes: Any, named: np.ndarray, others: np.ndarray) -> None:
    """End the axis where named features do, if all others together reach several times as far, and say how many of
    their dots are beyond it."""
    edge = 1.3 * float(np.abs(named).max())
    if not edge or np.abs(others).max() <= _CUT / 2 * edge:
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
    heights = place + layers * min(0.12, 0.3 / max(1.0, float(np.abs(layers).max())))
    colours = np.full(len(values), DARK, dtype=object) if colours is None else colours
    unsure = np.zeros(len(values), dtype=bool) if half is None else (np.abs(values) <= half) & (half > 0)
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


def _colours(found: Given, group: list[int]) -> np.ndarray | None:
    """The colour of every row's dot by its rank among the data, from 5 to 95 %; None for what is not a number."""
    if found.data is None or len(group) > 1:
        return None
    try:
        numbers = found.data[:, group[0]].astype(np.float64)
    except (TypeError, ValueError):
        return None
    known = np.isfinite(numbers)
    if not known.any():
        return None
    low, high = np.percentile(numbers[known], (5, 95))
    fractions = np.clip((np.where(known, numbers, low) - low) / ((high - low) or 1.0), 0, 1)
    colours = np.empty(len(numbers), dtype=object)
    colours[:] = [tuple(colour) for colour in colormaps[_DATA](fractions)]
    colours[~known] = GREY
    return colours


def _data_bar(axes: Any) -> None:
    scale = axes.figure.colorbar(ScalarMappable(cmap=_DATA), ax=axes, pad=0.015, aspect=30)
    scale.set_ticks([0, 1], labels=["low", "high"])
    scale.ax.tick_params(labelsize=SMALL, length=0)
    scale.set_label("the feature in that row", fontsize=SMALL)
    scale.outline.set_visible(False)


def _swarm_note(found: Given) -> str:
    if found.half is None or not found.half.any():
        return notes(found, hatched=False)
    hollow = " Hollow dots: their interval holds 0." * bool(found.uncertain.any())
    return f"Thin bars: the typical length of an interval of 95 %.{hollow}"
