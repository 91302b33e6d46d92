"""The waterfall of one row: from the base value, by what every player adds, to the output."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.ticker import MaxNLocator

from dasp.display import largest
from dasp.plots.data import Part, end_labels, error_note, faces, parts_of, read_row, sum_of
from dasp.plots.style import (
    BLACK,
    DARK,
    GREY,
    LIGHT,
    TEXT,
    add_labels,
    drawing,
    lines_that_fit,
    names_width,
    new_axes,
    number_format,
    tidy,
    write_beside,
)

__all__ = ["waterfall"]

_WIDTH, _LINE = 7.5, 0.3  # inches


@drawing
def waterfall(
    explanation: Any,
    *,
    names: Sequence[object] | None = None,
    data: Any = None,
    std: Any = None,
    base: float | None = None,
    output: str | None = None,
    most: int = 10,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw what every player of one row adds to the base value, the largest on top, with 95 % intervals.

    Args:
        explanation: one row of a `shap.Explanation`, or the attributions of one row.
        names, data, std, base, output: the names of the players, their data in this row, the standard deviations of
            their values, the base value and the name of the output; for what the explanation does not have.
        most: the largest number of lines; the smallest players share one, with their sum.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = waterfall([2.0, -1.0], names=["age", "income"], std=[0.1, 0.6], base=10.0)
    >>> [text.get_text() for text in axes.get_yticklabels()]
    ['income', 'age']
    """
    found = read_row(explanation, names=names, data=data, std=std, base=base, output=output)
    named, others = largest(found.values, lines_that_fit(ax, most + 2) - 2)
    axes = new_axes(ax, _WIDTH, 1.6 + _LINE * (len(named) + bool(len(others)) + 1))
    parts = parts_of(found, named, names_width(axes)) + ([sum_of(found, others)] if len(others) else [])
    parts.reverse()  # the smallest first, at the bottom
    start = 0.0 if found.base is None else float(found.base)
    ends = list(accumulate((part.value for part in parts), initial=start))
    for place, (part, (left, right)) in enumerate(zip(parts, pairwise(ends), strict=True)):
        axes.barh(place, right - left, 0.7, left=left, **faces(part), zorder=2)
        axes.plot([right, right], [place - 0.35, place + 1.35], color=GREY, linewidth=0.6, zorder=1)
        if part.half:
            axes.errorbar(right, place, xerr=part.half, color=BLACK, linewidth=1.2, capsize=2.5, zorder=3)
    _values(axes, parts)
    _scaled(axes, ends, parts)
    _marks(axes, (start, ends[-1]), end_labels(found, start, ends[-1]), len(parts))
    tidy(axes, grid=False)
    axes.grid(axis="x", color=LIGHT, linewidth=0.6)
    hatched = any(part.uncertain for part in parts)
    add_labels(axes, title=title, below=found.output or "output", note=error_note(found, hatched=hatched))
    return axes


def _values(axes: Any, parts: list[Part]) -> None:
    """Write names on the left and values on the right, each on its line."""
    axes.set_yticks(range(len(parts)), [part.label for part in parts], fontsize=TEXT, parse_math=False)
    axes.tick_params(axis="y", length=0)
    for place, part in enumerate(parts):
        write_beside(axes, place, part.text)


def _marks(axes: Any, places: tuple[float, float], texts: tuple[str, str], lines: int) -> None:
    """Mark where the values start, below all bars, and where they lead to, above them."""
    axes.set_ylim(-1.5, lines + 0.5)
    looks = ((-0.95, "normal", DARK), (lines - 0.05, "bold", BLACK))
    for x, text, (y, weight, colour) in zip(places, texts, looks, strict=True):
        axes.axvline(x, color=colour, linewidth=0.8, linestyle="--", zorder=0.5)
        right = x > sum(axes.get_xlim()) / 2  # there is more room on its left
        axes.annotate(
            text, (x, y), (-4 if right else 4, 0), textcoords="offset points", ha="right" if right else "left",
            va="center", fontsize=TEXT, fontweight=weight, color=colour,
        )  # fmt: skip


def _scaled(axes: Any, ends: list[float], parts: list[Part]) -> None:
    """Set limits that hold all bars with their intervals, wide enough for the marks."""
    reach = [*ends, *(e + s * (p.half or 0) for e, p in zip(ends[1:], parts, strict=True) for s in (-1, 1))]
    low, high = min(reach), max(reach)
    span = high - low or abs(high) or 1.0
    axes.set_xlim(low - 0.05 * span, high + 0.05 * span)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(number_format(axes.xaxis))
