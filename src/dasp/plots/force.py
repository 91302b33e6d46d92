"""Force plots of one row: what pushes the output up and what pulls it down, from the baseline to the prediction.

Forces are laid end to end: those that push up end at the prediction, those that pull down begin there, the largest
nearest to it, so that the sum of both from the base value gives the prediction. Labels descend in two staircases, each
at the end of its own leader: however small the forces and long the names, no label meets another or a leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from torch import Tensor

from dasp.plots.style import BLACK, BLUE, GREY, SMALL, TEXT, VERMILLION, empty_figure, text_width, tidy

__all__ = ["force"]

_INCHES = 11.0  # the figure's width
_MARGIN = 0.03
_STEP = 0.24  # inches from label to label
_UP, _DOWN = VERMILLION, BLUE


@dataclass(frozen=True)
class _Force:
    value: float
    label: str


def force(
    values: Tensor, names: Sequence[str], inputs: Tensor, *, base: float, output: str, title: str, most: int = 8
) -> Figure:
    """Draw what each player adds to f(baseline) = `base`, to give the prediction of `output`.

    Args:
        values: the attributions of the players of one row; `base` and their sum are taken for the prediction.
        names, inputs: their names, and what they are in this row.
        base: the output for the baseline.
        output: what is predicted, the label of the axis.
        title: above the figure.
        most: how many players are named; the others are lumped together.
    """
    prediction = base + float(values.sum())
    forces = _forces(values, names, inputs, most)
    rows = max(map(len, forces))
    figure = empty_figure(_INCHES, 1.9 + _STEP * (rows + 1), title)
    axes = figure.subplots()
    placed = [_placed(some, prediction) for some in forces]
    right = prediction >= base
    marks = [(base, f"f(baseline) = {_number(base)}"), (prediction, f"f(input) = {_number(prediction)}")]
    outward = [marks[0]], [marks[1]]
    leftward, rightward = outward if right else reversed(outward)
    middles = [[((start + end) / 2, one.label) for one, start, end in some] for some in placed]
    ends = [base, prediction, *(start for some in placed for _, start, _ in some)]
    _limits(axes, ends, leftward + middles[0], rightward + middles[1])
    tip = 0.008 * (axes.get_xlim()[1] - axes.get_xlim()[0])
    for some, colour, side in zip(placed, (_UP, _DOWN), ("right", "left"), strict=True):
        for i, (one, start, end) in enumerate(some):
            axes.add_patch(_arrow(start, end, colour, tip))
            _label(axes, one, (start + end) / 2, len(some) - i, colour, side)
    for (x, text), colour, side in zip(
        marks, (GREY, BLACK), ("right", "left") if right else ("left", "right"), strict=True
    ):
        _mark(axes, x, text, colour, side)
    axes.set_ylim(-_STEP * (rows + 1), 0.95)
    axes.set_xlabel(output, fontsize=TEXT)
    tidy(axes, grid=False)
    axes.spines["left"].set_visible(False)
    axes.yaxis.set_visible(False)
    return figure


def _placed(forces: list[_Force], prediction: float) -> list[tuple[_Force, float, float]]:
    """Lay forces end to end: each with where it starts and ends."""
    ends = [prediction - total for total in accumulate((one.value for one in forces), initial=0.0)]
    return [(one, start, end) for one, (end, start) in zip(forces, pairwise(ends), strict=True)]


def _forces(values: Tensor, names: Sequence[str], inputs: Tensor, most: int) -> tuple[list[_Force], list[_Force]]:
    """Sort forces into those that push up and those that pull down, the largest first, the lumped ones last."""
    order = values.abs().argsort(descending=True, stable=True).tolist()
    result = []
    for sign in (1, -1):
        named = [
            _force(f"{names[i]} = {_number(float(inputs[i]), '.3g')}", float(values[i]))
            for i in order[:most] if sign * values[i] > 0
        ]  # fmt: skip
        rest = [float(values[i]) for i in order[most:] if sign * values[i] > 0]
        if rest:
            others = "1 other" if len(rest) == 1 else f"{len(rest)} others"
            named.append(_force(others, sum(rest)))
        result.append(named)
    return result[0], result[1]


def _force(name: str, value: float) -> _Force:
    return _Force(value, f"{name}  ({_number(value, '+.2g')})")


def _number(value: float, form: str = ".4g") -> str:
    return format(value, form).replace("-", "−")


def _limits(
    axes: Any, ends: list[float], leftward: list[tuple[float, str]], rightward: list[tuple[float, str]]
) -> None:
    """Set an axis around all `ends`, with room for labels that extend to the left and to the right of where they are.

    With margins l and r, in units of the span, a label at distance d from the left end that takes the fraction w of the
    axis fits if (d + l)/(1 + l + r) ≥ w.
    """
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    left, right = (
        [(distance / span, min((text_width(label, TEXT) / 72 + 0.25) / _INCHES, 0.45)) for distance, label in labels]
        for labels in ([(x - low, label) for x, label in leftward], [(high - x, label) for x, label in rightward])
    )
    l = r = _MARGIN  # noqa: E741
    for _ in range(30):  # converges, as w < 1/2
        l, r = (max([_MARGIN, *(w * (1 + l + r) - d for d, w in labels)]) for labels in (left, right))  # noqa: E741
    axes.set_xlim(low - l * span, high + r * span)


def _arrow(start: float, end: float, colour: str, tip: float) -> Polygon:
    """Make an arrow from start to end; the tip of one fits in the notch of the next."""
    head = tip if end > start else -tip
    outline = [
        (start - head, 0),
        (end - head, 0),
        (end, 0.175),
        (end - head, 0.35),
        (start - head, 0.35),
        (start, 0.175),
    ]
    return Polygon(outline, closed=True, facecolor=colour, edgecolor="white", linewidth=0.8, zorder=2)


def _label(axes: Any, one: _Force, x: float, row: int, colour: str, side: str) -> None:
    y = -_STEP * row
    axes.plot([x, x], [0, y], color=colour, linewidth=0.7, alpha=0.7, zorder=1)
    _text(axes, one.label, (x, y), side, color=colour, va="center", fontsize=SMALL)


def _mark(axes: Any, x: float, text: str, colour: str, side: str) -> None:
    """Mark the base value or the prediction, across the forces."""
    axes.plot([x, x], [-0.03, 0.6], color=colour, linewidth=1.3, linestyle="-" if colour == BLACK else "--", zorder=3)
    weight = "bold" if colour == BLACK else "normal"
    _text(axes, text, (x, 0.6), side, color=colour, va="center", fontsize=TEXT, fontweight=weight)


def _text(axes: Any, text: str, place: tuple[float, float], side: str, **options: Any) -> None:
    """Write text that ends (side "right") or begins ("left") just beside a place."""
    axes.annotate(text, place, (-4 if side == "right" else 4, 0), textcoords="offset points", ha=side, **options)
