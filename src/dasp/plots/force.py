"""Force plots of one row: what pushes the output up and what pulls it down, from the base value to the prediction.

Forces are laid end to end: those that push up end at the prediction, those that pull down begin there, the largest
nearest to it, so that the sum of both from the base value gives the prediction. Labels descend in two staircases, each
at the end of its own leader: however small the forces and long the names, no label meets another or a leader. An error
bar is above the far end of its force, each higher than the one before: they may be longer than their forces.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from matplotlib.patches import Polygon

from dasp.plots.data import Part, PlotData, end_labels, error_note, faces, parts_of, read_row, sum_of
from dasp.plots.style import (
    BLACK,
    DARK,
    DOWN,
    SMALL,
    TEXT,
    UP,
    add_labels,
    drawing,
    new_axes,
    number_format,
    points,
    text_width,
    tidy,
)

__all__ = ["force"]

_INCHES = 11.0  # a new figure's width
_MARGIN = 0.03
# In points, which are the units of the vertical axis: forces are from 0 to _BAND, error bars above, labels below.
_LINE, _BAND, _BAR, _MARK, _BELOW = 15.0, 22.0, 5.0, 12.0, 58.0


@drawing
def force(
    explanation: Any,
    *,
    names: Sequence[object] | None = None,
    data: Any = None,
    std: Any = None,
    base: float | None = None,
    output: str | None = None,
    most: int = 8,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw what each player of one row adds to the base value, to give the prediction, with 95 % intervals.

    Args:
        explanation: one row of a `shap.Explanation`, or the attributions of one row; their sum and `base` are taken
            for the prediction.
        names, data, std, base, output: the names of the players, their data in this row, the standard deviations of
            their values, the base value and the name of the output; for what the explanation does not have.
        most: the largest number of players that are named, as far as there is room; the others are summed.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = force([2.0, -1.0], names=["age", "income"], std=[0.1, 0.6], base=10.0)
    >>> len(axes.patches)
    2
    """
    found = read_row(explanation, names=names, data=data, std=std, base=base, output=output)
    axes = new_axes(ax, _INCHES, (sum(_heights(found, most)) + _BELOW + 24 * bool(title)) / 72)
    width, height = points(axes)
    while ax is not None and most > 1 and sum(_heights(found, most)) > height:
        most -= 1
    above, below = _heights(found, most)
    start = 0.0 if found.base is None else float(found.base)
    prediction = start + float(found.values.sum())
    forces = [
        parts_of(found, named, 0.45 * width - 90, SMALL) + ([sum_of(found, rest)] if len(rest) else [])
        for named, rest in _sides(found, most)
    ]
    placed = [_placed(some, prediction) for some in forces]
    marks = list(zip((start, prediction), end_labels(found, start, prediction), strict=True))
    _limits(axes, width, placed, marks)
    tip = 0.008 * (axes.get_xlim()[1] - axes.get_xlim()[0])
    for some, colour, side in zip(placed, (UP, DOWN), ("right", "left"), strict=True):
        for i, (one, begin, end) in enumerate(some):
            axes.add_patch(_arrow(one, begin, end, tip))
            if one.half:
                y = _BAND + _BAR * (i + 1)
                axes.errorbar(begin, y, xerr=one.half, color=colour, linewidth=1.2, capsize=2, zorder=3)
            _label(axes, one, (begin + end) / 2, len(some) - i, colour, side)
    sides = ("right", "left") if prediction >= start else ("left", "right")
    for (x, text), colour, side in zip(marks, (DARK, BLACK), sides, strict=True):
        _mark(axes, x, above - _MARK, text, colour, side)
    axes.set_ylim(-below, above)
    axes.xaxis.set_major_formatter(number_format(axes.xaxis))
    tidy(axes, grid=False)
    axes.spines["left"].set_visible(False)
    axes.yaxis.set_visible(False)
    hatched = any(one.uncertain for some in forces for one in some)
    add_labels(axes, title=title, below=found.output or "output", note=error_note(found, hatched=hatched))
    return axes


def _sides(found: PlotData, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the players that push up and those that pull down: of each, the largest, to be named, and the others."""
    order = np.argsort(-np.abs(found.values), kind="stable")
    sides = [found.values[order] > 0, found.values[order] < 0]
    return [(order[:most][side[:most]], order[most:][side[most:]]) for side in sides]


def _heights(found: PlotData, most: int) -> tuple[float, float]:
    """Return the height of forces with their error bars and marks, and the height of the labels below them."""
    lines = max(len(named) + bool(len(rest)) for named, rest in _sides(found, most))
    bars = lines if found.half is not None and found.half.any() else 1
    return _BAND + _BAR * (bars + 1) + 2 * _MARK, _LINE * (lines + 1)


def _placed(forces: list[Part], prediction: float) -> list[tuple[Part, float, float]]:
    """Lay forces end to end: each with where it starts and ends."""
    ends = [prediction - total for total in accumulate((one.value for one in forces), initial=0.0)]
    return [(one, start, end) for one, (end, start) in zip(forces, pairwise(ends), strict=True)]


def _text_of(one: Part) -> str:
    return f"{one.label}  ({one.text})"


def _limits(
    axes: Any, width: float, placed: list[list[tuple[Part, float, float]]], marks: list[tuple[float, str]]
) -> None:
    """Set an axis around all forces with their intervals, and with room for labels: those of what pushes up extend to
    the left, those of what pulls down to the right, and marks away from each other.

    With margins l and r, in units of the span, a label at distance d from the left end that takes the fraction w of the
    axis fits if (d + l)/(1 + l + r) ≥ w.
    """
    (start, _), (prediction, _) = marks
    reach = [start + side * (one.half or 0) for some in placed for one, start, _ in some for side in (-1, 1)]
    low, high = min([*reach, start, prediction]), max([*reach, start, prediction])
    span = (high - low) or abs(high) or 1.0
    outward = marks if prediction >= start else marks[::-1]
    sides = [
        [outward[place], *(((begin + end) / 2, _text_of(one)) for one, begin, end in placed[place])] for place in (0, 1)
    ]
    left, right = (
        [(abs(x - end) / span, min((text_width(text, TEXT) + 18) / width, 0.48)) for x, text in labels]
        for labels, end in zip(sides, (low, high), strict=True)
    )
    l = r = _MARGIN  # noqa: E741
    for _ in range(60):  # converges, as w < 1/2
        l, r = (max([_MARGIN, *(w * (1 + l + r) - d for d, w in labels)]) for labels in (left, right))  # noqa: E741
    axes.set_xlim(low - l * span, high + r * span)


def _arrow(one: Part, start: float, end: float, tip: float) -> Polygon:
    """Make an arrow from start to end; the tip of one fits in the notch of the next."""
    head = tip if end > start else -tip
    outline = [
        (start - head, 0),
        (end - head, 0),
        (end, _BAND / 2),
        (end - head, _BAND),
        (start - head, _BAND),
        (start, _BAND / 2),
    ]
    return Polygon(outline, closed=True, **faces(one), zorder=2)


def _label(axes: Any, one: Part, x: float, row: int, colour: str, side: str) -> None:
    y = -_LINE * row
    axes.plot([x, x], [0, y], color=colour, linewidth=0.7, alpha=0.7, zorder=1)
    _text(axes, _text_of(one), (x, y), side, color=colour, va="center", fontsize=SMALL)


def _mark(axes: Any, x: float, y: float, text: str, colour: str, side: str) -> None:
    """Mark the base value or the prediction, across the forces."""
    axes.plot([x, x], [-2, y], color=colour, linewidth=1.3, linestyle="-" if colour == BLACK else "--", zorder=2.5)
    weight = "bold" if colour == BLACK else "normal"
    _text(axes, text, (x, y), side, color=colour, va="center", fontsize=TEXT, fontweight=weight)


def _text(axes: Any, text: str, place: tuple[float, float], side: str, **options: Any) -> None:
    """Write text that ends (side "right") or begins ("left") just beside a place."""
    away = (-4 if side == "right" else 4, 0)
    axes.annotate(text, place, away, textcoords="offset points", ha=side, parse_math=False, **options)
