"""Calibration: the errors that attributions state beside the actual ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasp.errors import BadInput
from dasp.formatting import INTERVAL
from dasp.plots.data import as_array, read
from dasp.plots.style import BLACK, BLUE, SMALL, TEXT, VERMILLION, add_labels, drawing, new_axes, tidy

__all__ = ["calibration"]

_BINS, _FEWEST = 10, 20  # of stated errors, and values in each
_MOST_POINTS = 3000


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
    error. Above the diagonal errors are larger than stated. Below it is written how many 95 % intervals hold
    the truth.

    Args:
        explanation: a `shap.Explanation`, or attributions of any shape.
        truth: the exact values, in the same shape; or sampled ones.
        std: the standard deviations that are stated, if the explanation has none.
        truth_std: the standard deviations of sampled true values; their variances are added to the stated ones.
        title: above the figure.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = calibration([1.0, 2.0], [1.1, 2.0], std=[0.1, 0.1])
    >>> axes.get_xlabel().splitlines()[0]
    'stated error (standard deviation)'
    """
    found = read(explanation, std=std)
    if found.std is None:
        raise BadInput("the stated errors are not known: give the standard deviations of the attributions as std")
    actual = as_array(truth).astype(np.float64)
    if actual.shape != found.values.shape:
        raise BadInput(f"the truth has the shape {actual.shape}, and the values {found.values.shape}")
    more = 0.0 if truth_std is None else as_array(truth_std).astype(np.float64)
    stated, error = np.sqrt(np.square(found.std) + np.square(more)).ravel(), np.abs(found.values - actual).ravel()
    held = float((error <= INTERVAL * stated).mean())
    drawn = stated > 0
    axes = new_axes(ax, 4.8, 5.0)
    if drawn.any():
        _errors(axes, stated[drawn], error[drawn])
    tidy(axes)
    axes.set_ylabel("actual error", fontsize=TEXT)
    exact = f" {int((~drawn).sum()):,} state no error, and are not drawn." if not drawn.all() else ""
    add_labels(
        axes, title=title, below="stated error (standard deviation)",
        note=f"95 % intervals hold the truth for {100 * held:.3g} % of {len(error):,} values.{exact}",
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
