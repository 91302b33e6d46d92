"""The figure that opens the page of benchmarks: errors on real networks, drawn from benchmarks/results/real.csv.

python benchmarks/real_figure.py        writes docs/images/real.png
"""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from dasp.plots.style import BLUE, DARK, GREY, LIGHT, SMALL, TEXT, VERMILLION, tidy
from real_results import FILE, TIME, Results, best

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "real.png"
_LEAST = 3e-3  # errors below it are drawn there


def draw(results: Results) -> Figure:
    """A line for each game: the default, the best single method of ours and the best peer in the same time."""
    rows = sorted(results.defaults(), key=lambda row: -row.error)
    figure = Figure(figsize=(8, 0.21 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    marks = {
        "method": ("D", BLUE, "best single method of ours in its time"),
        "peer": ("x", GREY, "best peer in its time"),
    }
    for place, row in enumerate(rows):
        axes.axhline(place, color=LIGHT, linewidth=0.6, zorder=0)
        for what, (marker, colour, _) in marks.items():
            if rivals := results.of_game(row.game, what, TIME):
                axes.plot(max(best(rivals).error, _LEAST), place, marker, color=colour, markersize=5, clip_on=False)
        axes.plot(max(row.error, _LEAST), place, "o", color=VERMILLION, markersize=6, clip_on=False, zorder=3)
        axes.plot(max(row.truth_error, _LEAST), place, "|", color=DARK, markersize=7, clip_on=False)
    for label, marker, colour in (
        ("default", "o", VERMILLION), *((label, marker, colour) for marker, colour, label in marks.values()),
        ("error of the truth", "|", DARK),
    ):  # fmt: skip
        axes.plot([], [], marker, color=colour, label=label)
    axes.set_xscale("log")
    axes.set_xlim(left=_LEAST)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_yticks(range(len(rows)), [f"{row.network}, {row.players:,} {row.kind}" for row in rows], fontsize=SMALL)
    axes.set_xlabel("error of Shapley values, relative to their size", fontsize=TEXT)
    axes.legend(fontsize=SMALL, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    tidy(axes)
    return figure


def main(file: Path = FILE, picture: Path = PICTURE) -> None:
    """Draw it."""
    content = io.BytesIO()
    draw(Results.of(file)).savefig(content, format="png", dpi=130)
    Image.open(content).convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    main()
