"""The error of methods against their cost, in evaluations or in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dasp.errors import BadInput
from dasp.evaluation import Result
from dasp.formatting import display_name
from dasp.plots.style import (
    BLUE,
    GREEN,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    STYLES,
    TEXT,
    VERMILLION,
    Style,
    add_labels,
    drawing,
    fit_text,
    new_axes,
    style_of,
    tidy,
)

__all__ = ["cost"]

_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
_AXES = {"evaluations": "evaluations of the model per row", "seconds": "seconds per row"}


@drawing
def cost(
    results: Sequence[Result] | Mapping[str, Sequence[tuple[float, float]]],
    *,
    by: str = "evaluations",
    standard_error: float = 0.0,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw the error of methods against their cost, a line for each; both axes are logarithmic.

    Args:
        results: the results of `dasp.evaluation.compare`, or points (cost, error) by the name of the method.
        by: "evaluations" or "seconds".
        standard_error: the standard error of a sampled truth: errors below it say nothing, and are shaded.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = cost({"DASP": [(10, 0.5), (100, 0.05)], "Permutations": [(10, 2.0), (100, 0.6)]})
    >>> len(axes.lines)
    2
    """
    if by not in _AXES:
        raise BadInput(f"by is {by!r}: it must be 'evaluations' or 'seconds'")
    lines = _points(results, by)
    errors = [error for some in lines.values() for _, error in some]
    floor = 0.5 * min([error for error in (*errors, standard_error) if error > 0], default=2.0)
    axes = new_axes(ax, 7.5, 4.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ordered = sorted(lines.items(), key=lambda item: -item[1][-1][1])  # as the lines end, from above
    for (name, some), style in zip(ordered, _styles([name for name, _ in ordered]), strict=True):
        costs, own = zip(*some, strict=True)
        axes.plot(
            costs, np.maximum(own, floor), color=style.colour, marker=style.marker, linestyle=style.line, linewidth=1.5,
            markersize=6, markeredgecolor="white", markeredgewidth=0.5, zorder=3,
            label=fit_text(display_name(name), 150, SMALL),
        )  # fmt: skip
    axes.set_ylim(bottom=floor)
    if standard_error:
        axes.axhspan(floor, standard_error, color=LIGHT, alpha=0.6, linewidth=0, zorder=0, label="error of the truth")
    tidy(axes)
    axes.set_ylabel("error (RMSE)", fontsize=TEXT)
    for text in axes.legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(1, 1)).get_texts():
        text.set_parse_math(False)
    add_labels(axes, title=title, below=_AXES[by], note="On the lower edge: no error at all." if 0 in errors else "")
    return axes


def _points(
    results: Sequence[Result] | Mapping[str, Sequence[tuple[float, float]]], by: str
) -> dict[str, list[tuple[float, float]]]:
    """Cost and error of every method, by increasing cost."""
    if isinstance(results, Mapping):
        found = {name: [(float(x), float(y)) for x, y in some] for name, some in results.items()}
    else:
        names = dict.fromkeys(result.method for result in results)
        found = {name: [(float(getattr(r, by)), r.rmse) for r in results if r.method == name] for name in names}
    if not found or not all(found.values()):
        raise BadInput("there are no results to draw: give at least one for every method")
    wrong = [name for name, some in found.items() for x, y in some if not (0 < x < np.inf and 0 <= y < np.inf)]
    if wrong:
        raise BadInput(f"{wrong[0]!r} has a cost that is not positive, or an error that is no number")
    return {name: sorted(some) for name, some in found.items()}


def _styles(names: Sequence[str]) -> list[Style]:
    """Return the styles of methods; those that are not known get colours, markers and lines in turn."""
    taken = {style_of(name).colour for name in names if name in STYLES}
    colours = [colour for colour in _COLOURS if colour not in taken] or _COLOURS
    kinds = [Style(colour, marker, line) for line in ("-", "--", ":") for marker in "osD^vP" for colour in colours]
    unknown = [name for name in names if name not in STYLES]
    others = {name: kinds[i % len(kinds)] for i, name in enumerate(unknown)}
    return [others.get(name) or style_of(name) for name in names]
