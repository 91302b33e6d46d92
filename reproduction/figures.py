"""The figures of the paper's experiments.

    comparison, pareto    the error of methods against what they cost, with its spread over rows or with the front
    maps                  the attributions of images by every method, beside the truth and on its scale
    logos                 the attributions of a sequence of letters, a panel for every method

`dasp_rank_0` and the like are identifiers of methods; people see their display names.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from torch import Tensor

from dasp.evaluation import Result, front
from dasp.plots import logo
from reproduction.comparison_methods import display_name
from reproduction.style import BLACK, FAMILIES, GREY, LIGHT, SMALL, TEXT, empty_figure, style_of, text_width, tidy

__all__ = ["comparison", "logos", "maps", "pareto"]

_COSTS = {"evaluations": "evaluations per row", "seconds": "time per row (ms)"}
_DASHES = (0, (4, 3))
_LINE = 12  # points from name to name beside the front
_DECADES = 4  # below the largest RMSE, that are shown
_CLOSEST = 1e-4  # the least 1 − ρ that is shown
_RANKS = (-0.9, -0.5, 0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999)

_METHODS_ACROSS = 9  # beside image and truth
_INCH = 1.0  # the side of a picture
_LETTERS = 14  # of a line above it
_COLOURS = "RdBu_r"

_POSITIONS = 100  # of a line of letters
_TALLEST = 1.5  # times the largest true value, that is shown


def comparison(results: Sequence[Result], *, title: str, standard_error: float = 0.0) -> Figure:
    """Draw RMSE and Spearman's rank correlation against evaluations and time: a line per method over its budgets, with
    bars of ± one standard deviation over the rows.

    A method without a budget is one marker with a dashed line to the right: it gains nothing from more. Markers on the
    edge of a panel are beyond it, like those of exact values. Correlations are spaced by the logarithm of 1 − ρ.
    """
    figure = empty_figure(12, max(8, _legend_height(results)), title)
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for (errors, ranks), cost in zip(panels.T, _COSTS, strict=True):
        _scale_costs(errors, results, cost)
        _scale_errors(errors, results, standard_error)
        _scale_ranks(ranks, results)
        for name, some in _by_method(results).items():
            costs = [_cost_of(r, cost) for r in some]
            _line(errors, name, costs, [r.rmse for r in some], [r.rmse_std for r in some], _fixed(some))
            _line(ranks, name, costs, [r.spearman for r in some], [r.spearman_std for r in some], _fixed(some))
        ranks.set_xlabel(_COSTS[cost], fontsize=TEXT)
    for axes, label in zip(panels[:, 0], ("RMSE", "Spearman's rank correlation"), strict=True):
        axes.set_ylabel(label, fontsize=TEXT)
    deviation = Line2D([], [], color=GREY, alpha=0.5, marker="|", markersize=11, linestyle="", label="± std over rows")
    fixed = Line2D([], [], color=GREY, linestyle=_DASHES, linewidth=0.8, label="no budget: one cost")
    _legend(figure, results, [deviation, fixed, *_truth(standard_error)])
    return figure


def pareto(results: Sequence[Result], *, ours: Collection[str], title: str, standard_error: float = 0.0) -> Figure:
    """Draw RMSE against time and against evaluations, with the Pareto front as steps; `ours` are filled, the others
    hollow, and named where they are on the front."""
    figure = empty_figure(12, max(5.6, _legend_height(results)), title)
    names = []
    for axes, cost in zip(figure.subplots(1, 2, sharey=True), ("seconds", "evaluations"), strict=True):
        _scale_costs(axes, results, cost)
        _scale_errors(axes, results, standard_error)
        lowest = axes.get_ylim()[0]
        for name, some in _by_method(results).items():
            style = style_of(name)
            axes.plot(
                [_cost_of(r, cost) for r in some], [max(r.rmse, lowest) for r in some], color=style.colour,
                marker=style.marker, markerfacecolor=style.colour if name in ours else "white", markersize=6,
                linestyle=style.line, linewidth=0.8, clip_on=False, zorder=3,
            )  # fmt: skip
        best = [results[i] for i in front([(_cost_of(r, cost), r.rmse) for r in results])]
        _steps(axes, [(_cost_of(r, cost), max(r.rmse, lowest)) for r in best])
        named = {r.method: (_cost_of(r, cost), max(r.rmse, lowest)) for r in reversed(best) if r.method not in ours}
        names.append((axes, named))
        axes.set_xlabel(_COSTS[cost], fontsize=TEXT)
    figure.axes[0].set_ylabel("RMSE", fontsize=TEXT)
    steps = Line2D([], [], color=BLACK, linewidth=4, alpha=0.13, label="Pareto front")
    kinds = [
        Line2D([], [], color=GREY, marker="o", markerfacecolor=face, linestyle="", label=label)
        for label, face in (("filled: ours", GREY), ("hollow: others", "white"))
    ]
    _legend(
        figure,
        results,
        [steps, *kinds, *_truth(standard_error)],
        hollow=[r.method for r in results if r.method not in ours],
    )
    figure.draw_without_rendering()  # to know where points are
    for axes, named in names:
        _names(axes, named)
    return figure


def _steps(axes: Any, points: list[tuple[float, float]]) -> None:
    """Draw the front: for each cost, the smallest error that it buys."""
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    x, y = zip(*points, strict=True)
    axes.step([x[0], *x, right], [top, *y, y[-1]], where="post", color=BLACK, linewidth=4, alpha=0.13, zorder=2)


def _names(axes: Any, points: dict[str, tuple[float, float]]) -> None:
    """Write names below and left of the front, where no point can be; one below the other, if points are close."""
    ordered = sorted(points.items(), key=lambda item: -item[1][1])
    box, inch = axes.get_window_extent(), 72 / axes.figure.dpi  # known as the layout has been made
    places = [axes.transAxes.inverted().transform(axes.transData.transform(point)) for _, point in ordered]
    widths = [(text_width(display_name(name), SMALL) + 20) / (box.width * inch) for name, _ in ordered]
    wider = max([0, *((w - x) / (1 - w) for (x, _), w in zip(places, widths, strict=True))])
    left, right = axes.get_xlim()
    axes.set_xlim(left / (right / left) ** wider, right)
    heights = [y * box.height * inch for _, y in places]
    lines: list[float] = []
    for height in heights:
        lines.append(min([height, *lines[-1:]]) - _LINE)
    for i, ((name, point), height) in enumerate(zip(ordered, heights, strict=True)):
        y = max(lines[i], _LINE * (len(lines) - i) - 4)
        colour = style_of(name).colour
        axes.annotate(
            display_name(name), point, xytext=(-14, y - height), textcoords="offset points", ha="right", va="center",
            fontsize=SMALL,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.9},
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )  # fmt: skip


def _by_method(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Sort results: methods in the order of legends, the results of each by increasing cost."""
    order = {name: i for i, name in enumerate(name for names in FAMILIES.values() for name in names)}
    names = sorted({r.method for r in results}, key=lambda name: (order.get(name, len(order)), name))
    return {name: sorted((r for r in results if r.method == name), key=lambda r: r.evaluations) for name in names}


def _fixed(some: list[Result]) -> bool:
    """Return True if a method takes no budget."""
    return len(some) == 1 and some[0].number is None


def _cost_of(result: Result, cost: str) -> float:
    """Return the evaluations or the milliseconds of a result."""
    return result.seconds * 1e3 if cost == "seconds" else float(result.evaluations)


def _scale_costs(axes: Any, results: Sequence[Result], cost: str) -> None:
    """Set up a logarithmic axis that holds all costs."""
    costs = [_cost_of(r, cost) for r in results]
    axes.set_xscale("log")
    axes.set_xlim(min(costs) / 1.6, max(costs) * 1.6)


def _scale_errors(axes: Any, results: Sequence[Result], standard_error: float) -> None:
    """Set up a logarithmic axis that holds all errors with their bars, but not those that are next to nothing."""
    largest = max(r.rmse for r in results)
    shown = [r.rmse for r in results if r.rmse > largest * 10**-_DECADES]
    lowest = min([*shown, standard_error] if standard_error else shown) / 1.6 if shown else 1e-1
    axes.set_yscale("log")
    axes.set_ylim(lowest, max([1.25 * (r.rmse + r.rmse_std) for r in results if r.rmse >= lowest], default=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    tidy(axes)
    if standard_error:
        axes.axhspan(lowest, standard_error, color=LIGHT, alpha=0.6, linewidth=0, zorder=0)
        axes.axhline(standard_error, color=GREY, linewidth=0.8, zorder=0.5)


def _scale_ranks(axes: Any, results: Sequence[Result]) -> None:
    known = [r.spearman for r in results if not math.isnan(r.spearman)]
    farthest = max([1 - rank for rank in known] or [1]) * 1.25
    closest = max(min([1 - rank for rank in known if 1 - rank > _CLOSEST] or [0.1]) / 1.6, _CLOSEST)
    limits = max(1 - farthest, -1), 1 - closest
    axes.set_yscale(
        "function",
        functions=(lambda y: -np.log10(np.maximum(1 - y, _CLOSEST / 10)), lambda z: 1 - np.power(10.0, -np.asarray(z))),
    )
    axes.set_ylim(*limits)
    axes.yaxis.set_major_locator(FixedLocator([rank for rank in _RANKS if limits[0] <= rank <= limits[1]]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    tidy(axes)


def _line(axes: Any, name: str, costs: list[float], values: list[float], spreads: list[float], fixed: bool) -> None:
    """Draw the points of a method; those beyond the axis, on its edge."""
    style = style_of(name)
    lowest, highest = axes.get_ylim()
    inside = [min(max(value, lowest), highest) for value in values]
    axes.plot(
        costs, inside, color=style.colour, marker=style.marker, linestyle="" if fixed else style.line,
        linewidth=1.5, markersize=5.5, markeredgecolor="white", markeredgewidth=0.5, clip_on=False, zorder=3,
    )  # fmt: skip
    bottoms = [max(value - spread, lowest) for value, spread in zip(values, spreads, strict=True)]
    tops = [min(value + spread, highest) for value, spread in zip(values, spreads, strict=True)]
    if fixed:
        axes.plot(
            [costs[0], axes.get_xlim()[1]], inside * 2, color=style.colour, linestyle=_DASHES, linewidth=0.8, zorder=2
        )
    for cost, bottom, top in zip(costs, bottoms, tops, strict=True):
        if top > bottom:
            axes.plot([cost, cost], [bottom, top], color=style.colour, linewidth=1.2, alpha=0.25, zorder=1)


def _legend_height(results: Sequence[Result]) -> float:
    """Compute the inches that every method, heading and mark take."""
    return 0.19 * (len(_by_method(results)) + len(FAMILIES) + 6)


def _legend(figure: Figure, results: Sequence[Result], marks: list[Any], *, hollow: Sequence[str] = ()) -> None:
    """Write a legend beside the panels: all methods by family, and other marks; `hollow` ones have empty markers."""
    present = _by_method(results)
    others = [name for name in present if not any(name in names for names in FAMILIES.values())]
    groups: dict[str, list[Any]] = {}
    for family, names in {**FAMILIES, "Others": others}.items():
        groups[family] = [_sample(name, present[name], name in hollow) for name in names if name in present]
    groups["Marks"] = marks
    handles = []
    for heading, some in groups.items():
        handles += [Line2D([], [], linestyle="", label=heading), *some] if some else []
    made = figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=SMALL, handlelength=2.6)
    for text in made.get_texts():
        if text.get_text() in groups:
            text.set_fontweight("bold")


def _sample(name: str, some: list[Result], hollow: bool) -> Line2D:
    style = style_of(name)
    return Line2D(
        [], [], color=style.colour, marker=style.marker, linestyle="" if _fixed(some) else style.line, linewidth=1.5,
        markersize=5.5, markerfacecolor="white" if hollow else style.colour, label=display_name(name),
    )  # fmt: skip


def _truth(standard_error: float) -> list[Any]:
    label = "sampling error of the truth"
    return [Patch(facecolor=LIGHT, edgecolor=GREY, label=label)] if standard_error else []


def maps(images: Tensor, attributions: dict[str, Tensor], *, labels: Sequence[str]) -> Figure:
    """Draw a row for every image (n, height, width): the image, the truth (the first of the `attributions`) and the
    other methods; in several blocks if they are many.

    Red pixels raise the output, blue ones lower it. The colours of an image reach as far as the largest of its true
    values, for all methods: darker ones are cut off, and a method that is pale everywhere attributes too little.
    """
    (truth, values), *others = attributions.items()
    scales = values.abs().flatten(1).amax(1).clamp(min=1e-12)
    number = max(1, -(-len(others) // _METHODS_ACROSS))
    across = -(-len(others) // number)
    blocks = [others[i * across : (i + 1) * across] for i in range(number)]
    height = max(2.6, (_INCH * len(images) + 0.6) * number + 0.3)
    figure = empty_figure(_INCH * (across + 2) + 1.3, height, w_pad=0.03, h_pad=0.04, wspace=0.02, hspace=0.02)
    panels = figure.subplots(number * len(images), across + 2, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for block, methods in enumerate(blocks):
        rows = panels[block * len(images) : (block + 1) * len(images)]
        for row, image, label in zip(rows, images, labels, strict=True):
            row[0].imshow(image.numpy(force=True), cmap="gray", interpolation="nearest")
            row[0].text(-0.08, 0.5, label, transform=row[0].transAxes, ha="right", va="center", fontsize=TEXT)
        columns = [(truth, values), *methods]
        for axes, (name, picture) in zip(rows.T[1:], columns, strict=False):
            axes[0].set_title(_wrapped(name), fontsize=SMALL, fontweight="bold" if name == truth else "normal")
            for one, image, pixels, scale in zip(axes, images, picture, scales.tolist(), strict=True):
                _map(one, image, pixels / scale)
        rows[0, 0].set_title("image", fontsize=SMALL)
    bar = figure.colorbar(
        ScalarMappable(Normalize(-1, 1), _COLOURS), ax=list(panels.flat), extend="both", shrink=min(1, 0.9 / number),
        pad=0.015, aspect=30,
    )  # fmt: skip
    bar.set_label("attribution, relative to the\nlargest true one of the image", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    return figure


def _map(axes: Any, image: Tensor, values: Tensor) -> None:
    """Draw attributions with a thin outline of what the image shows."""
    axes.imshow(values.numpy(force=True), cmap=_COLOURS, vmin=-1, vmax=1, interpolation="nearest")
    axes.contour(
        image.numpy(force=True), levels=[(float(image.min()) + float(image.max())) / 2], colors="0.35", linewidths=0.4
    )
    axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, fill=False, edgecolor="0.8", linewidth=0.6))


def _wrapped(name: str) -> str:
    """Break a name into short lines; long words are divided where a capital letter begins a new one.

    >>> _wrapped("BayesianShapley on DASP").splitlines()
    ['Bayesian-', 'Shapley on', 'DASP']
    """
    words = [re.sub("(?<=[a-z])(?=[A-Z])", "- ", word) if len(word) > _LETTERS else word for word in name.split()]
    return "\n".join(textwrap.wrap(" ".join(words), _LETTERS, break_long_words=False))


def logos(
    sequence: str, attributions: dict[str, Tensor], motifs: Sequence[tuple[int, int, str]], *, title: str
) -> Figure:
    """Draw a panel for every method, the truth first, in lines of 100 positions.

    Args:
        sequence: the letters.
        attributions: for each method a value per position; the first are the truth.
        motifs: start, length and name of each motif that was planted in the sequence.
        title: the title of the figure.

    All panels have the same scale, at most one and a half times what the truth needs: letters that are larger are cut
    off at the edge of their panel.
    """
    starts = range(0, len(sequence), _POSITIONS)
    limits = _limits(list(attributions.values()))
    height = 0.85 if len(attributions) <= 8 else 0.6
    figure = empty_figure(12, (height * len(attributions) + 0.7) * len(starts) + 0.4, title, h_pad=0.02, hspace=0.0)
    for part, start in zip(figure.subfigures(len(starts), 1, squeeze=False)[:, 0], starts, strict=True):
        panels = part.subplots(len(attributions), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        letters = sequence[start : start + _POSITIONS]
        here = [(at - start, length, name) for at, length, name in motifs]  # those of other lines are not drawn
        for axes, (name, values) in zip(panels, attributions.items(), strict=True):
            logo(values[start : start + _POSITIONS], sequence=letters, highlighted=here, ax=axes)
            if axes is not panels[0]:  # the names of motifs stand above the first panel
                for text in list(axes.texts):
                    text.remove()
            axes.set_ylabel(textwrap.fill(name, 20), fontsize=SMALL, rotation=0, ha="right", va="center")
            axes.set_xlabel("")
        panels[0].set_ylim(*limits)
        panels[0].set_xlim(0.5, _POSITIONS + 0.5)
        panels[0].xaxis.set_major_locator(MaxNLocator(10, integer=True))
        panels[0].xaxis.set_major_formatter(FuncFormatter(lambda x, _, start=start: f"{x + start:.0f}"))
        panels[-1].set_xlabel("position (the height of a letter is its attribution)", fontsize=TEXT)
        panels[0].yaxis.label.set_fontweight("bold")
    return figure


def _limits(values: list[Tensor]) -> tuple[float, float]:
    """Return limits from the lowest to the highest value, neither much beyond the largest true one."""
    largest = _TALLEST * float(values[0].abs().max()) or 1.0
    low = max(min(float(v.min()) for v in values), -largest)
    high = min(max(float(v.max()) for v in values), largest)
    return 1.05 * min(low, -0.1 * high), 1.05 * max(high, -0.1 * low)
