"""Figures: what can be checked without looking at them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from matplotlib.text import Annotation, Text

import dasp
from dasp.formatting import METHOD_NAMES
from dasp.plots import force
from dasp.plots.style import STYLES, style_of

SOURCE = Path(dasp.__file__).parent


def drawn(figure):
    """The renderer of the figure, after it was drawn, without a warning."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert np.asarray(canvas.buffer_rgba()).std() > 0
    return canvas.get_renderer()


def test_no_two_methods_have_the_same_style():
    looks = {(style.colour, style.marker) for style in STYLES.values()}
    assert set(METHOD_NAMES) < set(STYLES)
    assert len(looks) == len(set(STYLES.values())) == len(METHOD_NAMES)
    assert STYLES["gradient_dasp"] == STYLES["GradientDASP"]
    assert style_of("of somebody else") not in STYLES.values()


def forces():
    generator = torch.Generator().manual_seed(0)
    tiny = torch.randn(18, generator=generator) * torch.logspace(0.7, -6, 18)
    return {
        "many tiny": tiny,
        "only up": tiny.abs(),
        "only down": -tiny.abs(),
        "equal": torch.ones(18),
        "none": tiny * 0,
    }


@pytest.mark.parametrize("case", forces())
@pytest.mark.parametrize("most", [8, 18])
def test_labels_of_forces_do_not_overlap(case, most):
    values = forces()[case]
    names = [f"a rather long name {i}" for i in range(18)]
    figure = Figure((11, 6), layout="constrained")
    force(values, names=names, data=torch.linspace(-1, 1, 18), base=-2.0, most=most, ax=figure.subplots())
    renderer = drawn(figure)
    (axes,) = figure.axes
    labels = [child for child in axes.get_children() if isinstance(child, Annotation)]
    boxes = [Text.get_window_extent(label, renderer) for label in labels]
    for (a, first), (b, second) in itertools.combinations(zip(labels, boxes, strict=True), 2):
        assert not first.overlaps(second), (a.get_text(), b.get_text())
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    arrows = [patch.get_window_extent(renderer) for patch in axes.patches]
    assert not any(box.overlaps(arrow) for box in boxes for arrow in arrows)


def test_forces_sum_to_the_prediction():
    values = torch.tensor([3.0, -1.0, 0.5, 0.25, -0.125])
    figure = Figure((11, 4), layout="constrained")
    force(values, names=list("abcde"), data=torch.zeros(5), base=10.0, output="score", most=2, ax=figure.subplots())
    texts = [child.get_text() for child in figure.axes[0].get_children() if isinstance(child, Annotation)]
    assert "base = 10" in texts
    assert "base + values = 12.62" in texts
    assert any(text.startswith("2 others  (+0.75") for text in texts)
    assert any(text.startswith("1 other  (−0.12") for text in texts)
    arrows = [patch for patch in figure.axes[0].patches if isinstance(patch, Polygon)]
    lengths = [abs(patch.get_xy()[2, 0] - patch.get_xy()[5, 0]) for patch in arrows]  # from notch to tip
    assert sorted(lengths) == pytest.approx([0.125, 0.75, 1, 3])
    assert arrows[0].get_xy()[2, 0] == pytest.approx(12.625)


def test_figures_are_imported_by_those_who_draw_and_know_no_pyplot():
    drawing = {"plots", "paper"}  # paper until it is outside
    for file in SOURCE.rglob("*.py"):
        text, folder = file.read_text(), file.relative_to(SOURCE).parts[0]
        assert folder not in drawing or file.name == "style.py" or "pyplot" not in text, file
        assert folder in drawing or "import dasp.plots" not in text, file
        top = [line for line in text.splitlines() if line.startswith(("from dasp.plots", "from matplotlib"))]
        assert folder in drawing or not top, file
