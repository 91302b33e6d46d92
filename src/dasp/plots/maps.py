"""Attribution maps of images: every method beside the truth, on the truth's scale."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from dasp.plots.style import SMALL, TEXT, empty_figure

__all__ = ["maps"]

_ACROSS = 9  # methods beside image and truth
_INCH = 1.0  # of a picture
_LETTERS = 14  # of a line above it
_COLOURS = "RdBu_r"


def maps(images: Tensor, attributions: dict[str, Tensor], *, labels: Sequence[str]) -> Figure:
    """Draw a row for every image (n, height, width): the image, the truth (the first of the `attributions`) and the
    other methods; in several blocks if they are many.

    Red pixels raise the output, blue ones lower it. The colours of an image reach as far as the largest of its true
    values, for all methods: darker ones are cut off, and a method that is pale everywhere attributes too little.
    """
    (truth, values), *others = attributions.items()
    scales = values.abs().flatten(1).amax(1).clamp(min=1e-12)
    number = max(1, -(-len(others) // _ACROSS))
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
            axes[0].set_title(_heading(name), fontsize=SMALL, fontweight="bold" if name == truth else "normal")
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


def _heading(name: str) -> str:
    """Break a name into short lines; long words are divided where a capital letter begins a new one.

    >>> _heading("BayesianShapley on DASP").splitlines()
    ['Bayesian-', 'Shapley on', 'DASP']
    """
    words = [re.sub("(?<=[a-z])(?=[A-Z])", "- ", word) if len(word) > _LETTERS else word for word in name.split()]
    return "\n".join(textwrap.wrap(" ".join(words), _LETTERS, break_long_words=False))
