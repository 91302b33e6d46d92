"""Figures: what can be checked without looking at them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.patches import Polygon
from matplotlib.text import Annotation, Text

import dasp
from dasp.evaluation import Result, front
from dasp.evaluation.moments import Moments, Sampled
from dasp.methods import METHODS
from dasp.paper.peers import PEERS
from dasp.plots.comparison import comparison, pareto
from dasp.plots.force import force
from dasp.plots.gaussianity import gaussianity
from dasp.plots.logo import COLOURS, logos
from dasp.plots.maps import maps
from dasp.plots.style import FAMILIES, STYLES, empty_figure, style_of

SOURCE = Path(dasp.__file__).parent
SAME = {
    "captum DeepLift": "DeepLIFT Rescale", "captum Integrated Gradients": "Integrated Gradients",
    "captum Shapley sampling": "Shapley sampling", "captum KernelShap": "KernelSHAP",
}  # fmt: skip


def drawn(figure):
    """The renderer of the figure, after it was drawn, without a warning."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert np.asarray(canvas.buffer_rgba()).std() > 0
    return canvas.get_renderer()


def results(names, *, budgets=(10, 100, 1000), exact=True):
    found = []
    for i, name in enumerate(names):
        fixed = name in METHODS and METHODS[name].samples is None
        for budget in budgets[:1] if fixed else budgets:
            error = (1 + i / 7) / math.sqrt(budget)  # a spread as large as the mean, and larger
            found.append(
                Result(name, None if fixed else budget, budget, budget, budget * 1e-5 * (1 + i), error, 1.5 * error,
                       1 - error / 3, 0.3)
            )  # fmt: skip
    if exact:
        found.append(Result("Exact", None, 2**18, 2**18, 2.0, 0.0, 0.0, 1.0, 0.0))
    return found


def test_every_method_has_a_style_and_no_two_the_same():
    for name in (*METHODS, *PEERS):
        assert name in STYLES, name
    own = [name for name in STYLES if name not in SAME]
    for a, b in itertools.combinations(own, 2):
        assert (STYLES[a].colour, STYLES[a].marker) != (STYLES[b].colour, STYLES[b].marker), (a, b)
        assert STYLES[a] != STYLES[b], (a, b)
    for name, other in SAME.items():
        assert STYLES[name] == STYLES[other]
    for names in FAMILIES.values():
        assert len({STYLES[name].colour for name in names}) == 1
    assert len({STYLES[names[0]].colour for names in FAMILIES.values()}) == len(FAMILIES)
    assert style_of("of somebody else") not in STYLES.values()


POINT = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(st.lists(POINT, min_size=1, max_size=12))
def test_front_is_what_nothing_dominates(points):
    def dominated(p):
        return any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)

    found = front(points)
    assert sorted(found) == [i for i, p in enumerate(points) if not dominated(p)]
    assert [points[i][0] for i in found] == sorted(points[i][0] for i in found)


def every_box(figure, renderer):
    return [axes.get_tightbbox(renderer) for axes in figure.axes]


@pytest.mark.parametrize("names", [[*METHODS, *PEERS], ["DASP", "a new one"]], ids=len)
@pytest.mark.parametrize("kind", ["comparison", "pareto"])
def test_legends_are_complete_and_beside_the_panels(names, kind):
    found = results([name for name in names if name != "Exact"])
    figure = (
        comparison(found, title="title", standard_error=0.01)
        if kind == "comparison"
        else pareto(found, ours=[name for name in names if "DASP" in name], title="title")
    )
    renderer = drawn(figure)
    (legend,) = figure.legends
    box = legend.get_window_extent(renderer)
    assert not any(box.overlaps(panel) for panel in every_box(figure, renderer))
    assert box.y0 >= figure.bbox.y0
    assert box.x1 <= figure.bbox.x1
    assert {r.method for r in found} <= {text.get_text() for text in legend.get_texts()}


def test_axes_hold_every_mean_and_stay_sane():
    found = results(["DASP", "Permutations", "Occlusion"])
    figure = comparison(found, title="title")
    drawn(figure)
    for axes in figure.axes[:2]:
        low, high = axes.get_ylim()
        assert 0 < low < min(r.rmse for r in found if r.rmse)
        assert max(r.rmse + r.rmse_std for r in found) < high < 10
        assert low > 1e-3  # not drawn down to the exact zero
    for axes in figure.axes[2:]:
        assert axes.get_ylim()[0] < min(r.spearman for r in found)
    milliseconds = figure.axes[1].get_xlim()
    assert milliseconds[0] < min(r.seconds for r in found) * 1e3
    assert milliseconds[1] > max(r.seconds for r in found) * 1e3


def test_peers_on_the_front_are_named_apart():
    names = ["Saliency", *PEERS]
    found = [
        Result(name, 1, 10 + i, 10, 1e-3 * (1 + i / 50), 1 / (1 + i / 50), 0.0, 0.9, 0.0)
        for i, name in enumerate([*names, "DASP"])
    ]
    figure = pareto(found, ours=["DASP"], title="title")
    renderer = drawn(figure)
    for axes in figure.axes:
        labels = [child for child in axes.get_children() if isinstance(child, Annotation)]
        assert {label.get_text() for label in labels} == set(names)
        boxes = [label.get_bbox_patch().get_window_extent(renderer) for label in labels]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert all(box.x0 >= axes.get_window_extent().x0 for box in boxes)


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
    figure = empty_figure(11, 6, "title")
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
    figure = empty_figure(11, 4)
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


def test_maps_have_the_scale_of_the_truth_and_are_symmetric():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 8, 8, generator=generator)
    truth = torch.randn(2, 8, 8, generator=generator) * torch.tensor([1.0, 100.0]).view(2, 1, 1)
    methods = {"truth": truth, **dict.fromkeys(METHODS, truth * 2)}
    drawn(maps(images, {name: methods[name] for name in ("truth", "DASP")}, labels=["7", "2"]))
    figure = maps(images, methods, labels=["7", "2"])
    pictures = [image for axes in figure.axes for image in axes.images if image.get_cmap().name == "RdBu_r"]
    pictures = [image for image in pictures if image.get_array().shape == (8, 8)]
    assert len(pictures) == 2 * (len(METHODS) + -(-len(METHODS) // 9))  # the truth is in every block
    expected = {1: 1.0} | dict.fromkeys(range(2, 20), 2.0)  # the truth, then methods twice as large
    for image in pictures:
        low, high = image.get_clim()
        assert -low == high
        assert abs(image.get_array()).max() / high == pytest.approx(
            expected[image.axes.get_subplotspec().colspan.start]
        )
    headings = {axes.get_title().replace("-\n", "").replace("\n", " ") for axes in figure.axes}
    assert set(METHODS) <= headings


def test_letters_are_as_high_as_their_attributions():
    sequence = "ACGTTGCA" * 25
    values = torch.linspace(-1, 1, 200)
    figure = logos(sequence, {"truth": values, "other": 10 * values}, [(95, 10, "GATA")], title="title")
    renderer = drawn(figure)
    assert len(figure.axes) == 4  # two lines of two panels
    colours = {tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)): letter for letter, colour in COLOURS.items()}
    for axes, line in ((figure.axes[0], range(100)), (figure.axes[2], range(100, 200))):
        seen = {}
        for group in (child for child in axes.collections if isinstance(child, PathCollection)):
            letter = colours[tuple(group.get_facecolor()[0, :3])]
            for path in group.get_paths():
                box = path.get_extents()
                seen[round((box.x0 + box.x1) / 2) - 1] = letter, box.y0 if abs(box.y0) > abs(box.y1) else box.y1
        assert sorted(seen) == list(line)
        for i, (letter, height) in seen.items():
            assert letter == sequence[i]
            assert height == pytest.approx(float(values[i]), abs=1e-6)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    low, high = figure.axes[0].get_ylim()
    assert -low == pytest.approx(high)
    assert high == pytest.approx(1.05 * 1.5)
    names = [text for axes in figure.axes for text in axes.texts if text.get_text() == "GATA"]
    assert len(names) == 2  # it goes on in the next line
    assert all(figure.bbox.contains(*text.get_window_extent(renderer).min) for text in names)


def test_gaussianity_draws_all_sizes_layers_and_ranks():
    generator = torch.Generator().manual_seed(0)
    found = []
    for layer, size in itertools.product(("1st layer", "2nd layer"), range(1, 9)):
        std = torch.rand(6, generator=generator) + 0.1
        propagated = {0: Moments(torch.zeros(6), 0.5 * std), 16: Moments(torch.zeros(6), 0.9 * std)}
        values = std[2] * torch.randn(200, generator=generator)
        found.append(Sampled(layer, size, 2, values, Moments(torch.zeros(6), std), propagated))
    figure = gaussianity(found)
    drawn(figure)
    titles = {axes.get_title(): axes for axes in figure.axes}
    shown = float(found[0].sampled.std[2])
    assert f"k = 1\nσ {shown:.3f} sampled / {0.9 * shown:.3f} propagated" in titles
    assert sum(title.startswith("k = ") for title in titles) == 8
    for layer, (rank, ratio) in itertools.product(
        ("1st", "2nd"), {"no factors (rank 0)": "0.500", "16 factor columns": "0.900"}.items()
    ):
        (text,) = titles[f"{layer} layer\n{rank}"].texts
        assert text.get_text() == f"median ratio {ratio}\n48 points"


def test_figures_are_imported_by_those_who_draw_and_know_no_pyplot():
    drawing = {"plots", "paper"}
    for file in SOURCE.rglob("*.py"):
        text, folder = file.read_text(), file.relative_to(SOURCE).parts[0]
        assert folder not in drawing or file.name == "style.py" or "pyplot" not in text, file
        assert folder in drawing or "import dasp.plots" not in text, file
        top = [line for line in text.splitlines() if line.startswith(("from dasp.plots", "from matplotlib"))]
        assert folder in drawing or not top, file
