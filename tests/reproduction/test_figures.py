"""The figures of the experiments: what can be checked without looking at them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.text import Annotation

from dasp.evaluation import Result
from reproduction.comparison_methods import COMPARED, display_name
from reproduction.figures import comparison, logos, maps, pareto
from reproduction.gaussianity import Moments, Sampled, gaussianity
from reproduction.peers import PEERS
from reproduction.style import BLUE, FAMILIES, GREEN, ORANGE, STYLES, VERMILLION, style_of

COLOURS = {"A": GREEN, "C": BLUE, "G": ORANGE, "T": VERMILLION}

SAME = {
    "captum_deeplift": "deeplift_rescale", "captum_integrated_gradients": "integrated_gradients",
    "captum_shapley_sampling": "shapley_sampling", "captum_kernel_shap": "kernel_shap",
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
        fixed = name in COMPARED and COMPARED[name].samples is None
        for budget in budgets[:1] if fixed else budgets:
            error = (1 + i / 7) / math.sqrt(budget)  # a spread as large as the mean, and larger
            found.append(
                Result(name, None if fixed else budget, budget, budget, budget * 1e-5 * (1 + i), error, 1.5 * error,
                       1 - error / 3, 0.3)
            )  # fmt: skip
    if exact:
        found.append(Result("exact_shapley", None, 2**18, 2**18, 2.0, 0.0, 0.0, 1.0, 0.0))
    return found


def test_every_method_has_a_style_and_no_two_the_same():
    for name in (*COMPARED, *PEERS):
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


def every_box(figure, renderer):
    return [axes.get_tightbbox(renderer) for axes in figure.axes]


@pytest.mark.parametrize("names", [[*COMPARED, *PEERS], ["dasp_rank_0", "a new one"]], ids=len)
@pytest.mark.parametrize("kind", ["comparison", "pareto"])
def test_legends_are_complete_and_beside_the_panels(names, kind):
    found = results([name for name in names if name != "exact_shapley"])
    figure = (
        comparison(found, title="title", standard_error=0.01)
        if kind == "comparison"
        else pareto(found, ours=[name for name in names if "dasp" in name], title="title")
    )
    renderer = drawn(figure)
    (legend,) = figure.legends
    box = legend.get_window_extent(renderer)
    assert not any(box.overlaps(panel) for panel in every_box(figure, renderer))
    assert box.y0 >= figure.bbox.y0
    assert box.x1 <= figure.bbox.x1
    assert {display_name(r.method) for r in found} <= {text.get_text() for text in legend.get_texts()}


def test_axes_hold_every_mean_and_stay_sane():
    found = results(["dasp_rank_0", "permutation_shapley", "occlusion"])
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
    names = ["saliency", *PEERS]
    found = [
        Result(name, 1, 10 + i, 10, 1e-3 * (1 + i / 50), 1 / (1 + i / 50), 0.0, 0.9, 0.0)
        for i, name in enumerate([*names, "dasp_rank_0"])
    ]
    figure = pareto(found, ours=["dasp_rank_0"], title="title")
    renderer = drawn(figure)
    for axes in figure.axes:
        labels = [child for child in axes.get_children() if isinstance(child, Annotation)]
        assert {label.get_text() for label in labels} == set(map(display_name, names))
        boxes = [label.get_bbox_patch().get_window_extent(renderer) for label in labels]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert all(box.x0 >= axes.get_window_extent().x0 for box in boxes)


def test_maps_have_the_scale_of_the_truth_and_are_symmetric():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 8, 8, generator=generator)
    truth = torch.randn(2, 8, 8, generator=generator) * torch.tensor([1.0, 100.0]).view(2, 1, 1)
    methods = {"truth": truth, **dict.fromkeys(COMPARED, truth * 2)}
    drawn(maps(images, {name: methods[name] for name in ("truth", "dasp_rank_0")}, labels=["7", "2"]))
    figure = maps(images, methods, labels=["7", "2"])
    pictures = [image for axes in figure.axes for image in axes.images if image.get_cmap().name == "RdBu_r"]
    pictures = [image for image in pictures if image.get_array().shape == (8, 8)]
    assert len(pictures) == 2 * (len(COMPARED) + -(-len(COMPARED) // 9))  # the truth is in every block
    expected = {1: 1.0} | dict.fromkeys(range(2, 20), 2.0)  # the truth, then methods twice as large
    for image in pictures:
        low, high = image.get_clim()
        assert -low == high
        assert abs(image.get_array()).max() / high == pytest.approx(
            expected[image.axes.get_subplotspec().colspan.start]
        )
    headings = {axes.get_title().replace("-\n", "").replace("\n", " ") for axes in figure.axes}
    assert set(COMPARED) <= headings


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
                seen[round((box.x0 + box.x1) / 2) - 1 + line.start] = (
                    letter,
                    box.y0 if abs(box.y0) > abs(box.y1) else box.y1,
                )
        assert sorted(seen) == list(line)
        assert axes.xaxis.get_major_formatter()(1, 0) == str(line.start + 1)
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
