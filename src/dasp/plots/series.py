"""Series whose windows are shaded: red where they raise the output, blue where they lower it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dasp.display import uncertain
from dasp.errors import BadInput
from dasp.formatting import INTERVAL
from dasp.plots.data import as_array, read_entries
from dasp.plots.style import (
    BLACK,
    GREY,
    SMALL,
    add_labels,
    colour_bar,
    drawing,
    fit_text,
    new_panels,
    number_format,
    shade,
    tidy,
)

__all__ = ["series"]

_WIDTH, _HEIGHT = 8.0, 1.6  # inches


@drawing
def series(
    explanation: Any,
    *,
    data: Any = None,
    std: Any = None,
    feature_mask: Any = None,
    names: Sequence[object] | None = None,
    limit: float | None = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw one series as a line, with a panel for every channel; its steps or windows are shaded by their values.

    Args:
        explanation: one row of a `shap.Explanation`, or attributions: (steps,), (channels, steps), or one number for
            every player of the feature mask.
        data: the series, (steps,) or (channels, steps), if the explanation has none.
        std: the standard deviations of attributions; windows whose 95 % interval includes 0 are hatched.
        feature_mask: the number of every entry's player, as `dasp.players.windows` gives it; by default those that the
            explanation keeps, or else every step.
        names: the names of the channels.
        limit: the value of the strongest colour; by default the largest.
        title: above the first panel.
        ax: the axes to draw on, for one channel.

    Returns:
        The axes, or an array of axes, one for every channel.

    >>> len(series([0.5, -1.0], data=[1.0, 2.0, 3.0, 1.0], feature_mask=[0, 0, 1, 1]).patches)  # two windows
    2
    """
    found, players_kept = read_entries(explanation, data=data, std=std)
    feature_mask = players_kept if feature_mask is None else feature_mask
    if found.data is None or found.data.dtype == object:
        raise BadInput("a series needs its numbers: give them as data, (steps,) or (channels, steps)")
    whole = found.data.astype(np.float64)
    whole = whole[0] if whole.ndim == 3 and len(whole) == 1 else whole
    lines = np.atleast_2d(whole)
    if lines.ndim != 2:
        raise BadInput(f"data of the shape {found.data.shape} are not one series, (steps,) or (channels, steps)")
    values, players = _by_entry(found.values, feature_mask, lines.shape)
    half = None if found.std is None else INTERVAL * _by_entry(found.std, feature_mask, lines.shape)[0]
    if ax is not None and len(lines) > 1:
        raise BadInput(f"{len(lines)} channels do not fit on one ax: leave ax out for a new figure")
    panels = (
        new_panels(len(lines), 1, _WIDTH, _HEIGHT * len(lines) + 0.8, sharex=True)[:, 0]
        if ax is None
        else np.array([ax])
    )
    largest = limit or float(np.abs(values).max()) or 1.0
    hatched = False
    for i, axes in enumerate(panels):
        hatched |= _windows(axes, values[i] / largest, players[i], None if half is None else half[i] / largest)
        axes.plot(lines[i], color=BLACK, linewidth=1.1, zorder=3, marker="." if lines.shape[1] == 1 else None)
        axes.set_xlim(-0.5, lines.shape[1] - 0.5)
        tidy(axes, grid=False)
        axes.yaxis.set_major_formatter(number_format(axes.yaxis))
        if names is not None:
            axes.set_ylabel(fit_text(names[i], 72 * _HEIGHT, SMALL), fontsize=SMALL, parse_math=False)
    label = "value of a step" if feature_mask is None else "value of a window"
    colour_bar(panels, largest, label, pale=True, aspect=25)
    add_labels(panels[0], title=title)
    add_labels(panels[-1], below="step", note="Hatched: the 95 % interval includes 0." if hatched else "")
    return panels[0] if len(panels) == 1 else panels


def _by_entry(given: np.ndarray, feature_mask: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the value of every entry's player, and the player's number, (channels, steps)."""
    if feature_mask is None:
        players = np.arange(int(np.prod(shape))).reshape(shape)
    else:
        mask = as_array(feature_mask)
        try:
            players = np.broadcast_to(mask[0] if mask.ndim == 3 else mask, shape)
        except ValueError:
            raise BadInput(f"feature_mask has the shape {mask.shape}, which does not broadcast to {shape}") from None
        players = np.unique(players, return_inverse=True)[1].reshape(shape)
    count = int(players.max()) + 1
    if given.size == count:
        return given.ravel()[players], players
    if given.size != players.size:
        raise BadInput(f"there are {given.size} values for {count} players and {players.size} entries")
    sums = np.bincount(players.ravel(), given.ravel()) / np.bincount(players.ravel())  # entries have their player's
    return sums[players], players


def _windows(axes: Any, fractions: np.ndarray, players: np.ndarray, half: np.ndarray | None) -> bool:
    """Shade runs of steps of one player; return True if any is uncertain."""
    starts = np.flatnonzero(np.r_[True, players[1:] != players[:-1]])
    stops = np.r_[starts[1:], len(players)]
    unsure = False
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        own = half is not None and bool(uncertain(fractions[start], half[start]))
        unsure |= own
        axes.axvspan(
            start - 0.5, stop - 0.5, facecolor=shade(float(fractions[start])), linewidth=0, zorder=0,
            hatch="//" if own else None, edgecolor=GREY if own else "none", alpha=0.5 if own else None,
        )  # fmt: skip
    return unsure
