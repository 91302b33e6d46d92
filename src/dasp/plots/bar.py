"""The bars of a table: how large the values of every feature are on average over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dasp.display import half_of_mean, half_of_sum, largest
from dasp.plots.data import Part, PlotData, axis_edge, error_note, faces, read_table
from dasp.plots.style import (
    BLACK,
    DARK,
    DOWN,
    GREY,
    TEXT,
    UP,
    add_labels,
    drawing,
    fit_names,
    line_axes,
    lines_that_fit,
    names_width,
    new_axes,
    write_beside,
)

__all__ = ["bar"]

_WIDTH, _LINE = 7.5, 0.3  # inches
_CUT = 4  # times the largest named feature, beyond which the bar of all others is cut off


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
    """Draw the mean |value| of every feature over all rows, with 95 % intervals; for one row, its values. Of a mean,
    the part by which the feature raises the output is red, on the left, and that by which it lowers it blue.

    There are two reasons for an interval. The thin bar holds both: with other rows the mean would be another (s/√n for
    the spread s over n rows, times Student's quantile), and every value has an error of its own (√Σσ²/n for standard
    deviations σ, taken as independent). The thick bar inside it has the second one alone. Errors make |value| larger
    on average: a mean that is not much larger than its thick bar may be nothing but error.

    Args:
        explanation: a `shap.Explanation` of a table, or attributions (rows, features).
        names, data, std, output: as in `waterfall`, for all rows.
        most: the largest number of lines; the last one is for all other features together.
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
    labels = fit_names([found.names[i] for i in shown], names_width(axes), TEXT)
    labels += [f"{len(others)} others"] if len(others) else []
    hatched = False
    for place, (label, group) in enumerate(zip(labels[::-1], groups[::-1], strict=True)):
        inner, whole = _halves(found, signed, group)
        part = Part(label, float(signed[:, group].sum(1).mean()), whole)
        look = faces(part) if rows == 1 or part.uncertain else {"facecolor": GREY, "edgecolor": "white"}
        look |= {"edgecolor": DARK} if rows > 1 and part.uncertain else {}
        axes.barh(place, part.value, 0.7, **look, zorder=2)
        if rows > 1 and not part.uncertain:
            _signs(axes, place, found.values[:, group])
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
        write_beside(axes, place, part.text if rows == 1 else part.text.removeprefix("+"))
    line_axes(axes, labels[::-1])
    axes.axvline(0, color=BLACK, linewidth=0.8, zorder=3)
    axes.margins(x=0.05)
    if len(others):
        _cut(axes, float(np.abs(signed.mean(0)[shown]).max()))
    of = f" of {found.output}" if found.output else ""
    below = f"value{of}" if rows == 1 else f"mean |value|{of} over {rows:,} rows"
    add_labels(axes, title=title, below=below, note=_bar_note(found, hatched))
    return axes


def _signs(axes: Any, place: float, values: np.ndarray) -> None:
    """Colour the parts of a mean |value| that raise the output, on the left, and that lower it."""
    up, down = (float(np.maximum(sign * values, 0).sum(1).mean()) for sign in (1, -1))
    axes.broken_barh(
        [(0, up), (up, down)], (place - 0.35, 0.7), facecolors=[UP, DOWN], edgecolor="white", linewidth=0.8, zorder=2.5
    )


def _cut(axes: Any, named: float) -> None:
    """End the axis where the largest named feature does, if all others together are several times as large: their bar
    is open at that end, and their number is written beside it."""
    others = axes.patches[0].get_width()
    edge = axis_edge(named, abs(others), _CUT)
    if edge is not None:
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, -edge), min(high, edge))
        place = np.clip(others, -edge, edge)
        axes.annotate(
            "» " if others > 0 else " «", (place, 0), ha="right" if others > 0 else "left", va="center", color="white",
            fontsize=TEXT, fontweight="bold", zorder=5,
        )  # fmt: skip


def _halves(found: PlotData, signed: np.ndarray, group: list[int]) -> tuple[float | None, float | None]:
    """Return half of the interval of a mean: from the errors of the values alone, and from the choice of rows, too."""
    rows = len(signed)
    inner = None if found.half is None else half_of_sum(found.half[:, group]) / rows
    if rows == 1:
        return inner, inner
    return inner, half_of_mean(rows, float(signed[:, group].sum(1).std(ddof=1)), inner or 0.0)


def _bar_note(found: PlotData, hatched: bool) -> str:
    if len(found.values) == 1:
        return error_note(found, hatched=hatched)
    signs = "Red raises the output, blue lowers it. "
    zero = " Hatched: the interval includes 0." * hatched
    if found.half is None or not found.half.any():
        errors = "Errors of the values are not known." if found.half is None else "The values are exact."
        return f"{signs}Thin bars and ±: 95 % intervals for other rows of the same kind. {errors}{zero}"
    return (
        f"{signs}Thin bars and ±: 95 % intervals for other rows of the same kind and errors of the values together; "
        f"thick bars: for errors of the values alone.{zero}"
    )
