"""How good attributions are: the error that they state beside the actual one, and the error that a cost buys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dasp.errors import BadInput
from dasp.evaluation import Result
from dasp.plots.canvas import drawing, labelled, new_axes
from dasp.plots.given import array, read
from dasp.plots.labels import fitted
from dasp.plots.style import (
    BLACK,
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
    style_of,
    tidy,
)  # fmt: skip
from dasp.words import INTERVAL

__all__ = ["calibration", "cost"]

_BINS, _FEWEST = 10, 20  # of stated errors, and values in each
_MOST_POINTS = 3000
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
_AXES = {"evaluations": "evaluations of the model per row", "seconds": "seconds per row"}


@drawing
def calibration(
    explanation: Any,
    truth: Any,
    *,
    std: Any = None,
    truth_std: Any = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw the error that attributions state beside the actual one: honest error bars are on the diagonal.

    Every dot is a value; the line joins the root mean square of the actual errors of values that state about the same
    error. Above the diagonal errors are larger than stated. How many intervals of 95 % hold the truth is written below.

    Args:
        explanation: a `shap.Explanation`, or attributions of any shape.
        truth: the exact values, in the same shape; or sampled ones.
        std: the standard deviations that are stated, if the explanation does not tell.
        truth_std: those of sampled true values, which are added to the stated ones.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = calibration([1.0, 2.0], [1.1, 2.0], std=[0.1, 0.1])
    >>> axes.get_xlabel().splitlines()[0]
    'stated error (standard deviation)'
    """
    found = read(explanation, std=std)
    if found.std is None:
        raise BadInput("which errors are stated? Give the standard deviations of the attributions as std")
    actual = array(truth).astype(np.float64)
    if actual.shape != found.values.shape:
        raise BadInput(f"the truth has the shape {actual.shape}, and the values {found.values.shape}")
    more = 0.0 if truth_std is None else array(truth_std).astype(np.float64)
    stated, error = np.sqrt(np.square(found.std) + np.square(more)).ravel(), np.abs(found.values - actual).ravel()
    held = float((error <= INTERVAL * stated).mean())
    drawn = stated > 0
    axes = new_axes(ax, 4.8, 5.0)
    if drawn.any():
        _errors(axes, stated[drawn], error[drawn])
    tidy(axes)
    axes.set_ylabel("actual error", fontsize=TEXT)
    exact = f" {int((~drawn).sum()):,} state no error, and are not drawn." if not drawn.all() else ""
    labelled(
        axes, title=title, below="stated error (standard deviation)",
        note=f"Intervals of 95 % hold the truth for {100 * held:.3g} % of {len(error):,} values.{exact}",
    )  # fmt: skip
    return axes


def _errors(axes: Any, stated: np.ndarray, error: np.ndarray) -> None:
    """Draw dots, the diagonal, and the actual error of values that state about the same."""
    low = 0.3 * float(stated.min())
    high = 1.5 * float(max(stated.max(), error.max()))
    chosen = np.random.default_rng(0).permutation(len(stated))[:_MOST_POINTS]
    axes.plot(
        stated[chosen], np.maximum(error[chosen], low), ".", color=BLUE, markersize=3, alpha=0.35,
        markeredgewidth=0, label="a value", zorder=2,
    )  # fmt: skip
    axes.plot([low, high], [low, high], color=BLACK, linewidth=1, linestyle="--", label="as stated", zorder=3)
    bins = np.array_split(np.argsort(stated), max(1, min(_BINS, len(stated) // _FEWEST)))
    middles = [(float(np.sqrt(np.square(x[some]).mean()))) for some in bins for x in (stated, error)]
    axes.plot(
        middles[::2], np.maximum(middles[1::2], low), "o-", color=VERMILLION, markersize=5, linewidth=1.5,
        label="root mean square", zorder=4,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.7 * float(stated.min()), 1.4 * float(stated.max()))
    axes.set_ylim(low, high)
    axes.legend(fontsize=SMALL, frameon=False, loc="upper left")


@drawing
def cost(
    results: Sequence[Result] | Mapping[str, Sequence[tuple[float, float]]],
    *,
    by: str = "evaluations",
    standard_error: float = 0.0,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw the error of methods against what they cost, a line for each; both axes are logarithmic.

    Args:
        results: what `dasp.evaluation.compare` returns, or points (cost, error) by the name of the method.
        by: "evaluations" or "seconds".
        standard_error: of a sampled truth: errors below it say nothing, and are shaded.
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
            markersize=6, markeredgecolor="white", markeredgewidth=0.5, label=fitted(name, 150, SMALL), zorder=3,
        )  # fmt: skip
    axes.set_ylim(bottom=floor)
    if standard_error:
        axes.axhspan(floor, standard_error, color=LIGHT, alpha=0.6, linewidth=0, zorder=0, label="error of the truth")
    tidy(axes)
    axes.set_ylabel("error (RMSE)", fontsize=TEXT)
    for text in axes.legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(1, 1)).get_texts():
        text.set_parse_math(False)
    labelled(axes, title=title, below=_AXES[by], note="On the lower edge: no error at all." if 0 in errors else "")
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
    """The styles of methods; those that are not known get colours, markers and lines in turn."""
    taken = {style_of(name).colour for name in names if name in STYLES}
    colours = [colour for colour in _COLOURS if colour not in taken] or _COLOURS
    kinds = [Style(colour, marker, line) for line in ("-", "--", ":") for marker in "osD^vP" for colour in colours]
    unknown = [name for name in names if name not in STYLES]
    others = {name: kinds[i % len(kinds)] for i, name in enumerate(unknown)}
    return [others.get(name) or style_of(name) for name in names]
