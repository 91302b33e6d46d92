"""Plots for users: what is drawn where, that nothing overlaps, and that nothing else changes."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
import types
import warnings

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.patches import Polygon
from matplotlib.text import Text
from scipy import stats

import dasp
from dasp import plots
from dasp.errors import BadInput
from dasp.evaluation import Result
from dasp.formatting import INTERVAL
from dasp.players import blocks
from dasp.plots.style import contrast

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's own
    import shap

LONG = "mean_concavity_of_all_the_nuclei_in_the_{}_sample_of_the_tissue_${}_1$"
NAMES = [
    "age", LONG.format("left", "x"), LONG.format("left", "y"), "a_b_c", "$\\frac{1}{$", "température µ",
    "שלום עולם", "\u202eright to left\u202c\u200f", "two\nlines", "x" * 200,
]  # fmt: skip


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def settled(axes):
    """The figure of some axes, drawn."""
    figure = np.ravel(axes)[0].figure
    figure.draw_without_rendering()
    return figure


def texts(figure):
    """All texts that are seen."""
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    ticks = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in
             (*axis.get_ticklabels(), *axis.get_ticklabels(minor=True))}  # fmt: skip
    shown = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_visible() and axes.axison
             for label in shown_ticks(axis)}  # fmt: skip
    return [text for text in found if text not in ticks or text in shown]


def shown_ticks(axis):
    low, high = sorted(axis.get_view_interval())
    edge = 1e-9 * (high - low)
    return [t.label1 for t in axis.get_major_ticks() if low - edge <= t.get_loc() <= high + edge]


def assert_readable(axes):
    """No text is cut off or overlaps another one."""
    figure = settled(axes)
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts(figure)]
    for text, box in boxes:
        assert figure.bbox.x0 - 1 <= box.x0, text
        assert box.x1 <= figure.bbox.x1 + 1, text
        assert figure.bbox.y0 - 1 <= box.y0, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        assert not first.overlaps(second), (one, other)


def test_texts_that_overlap_or_are_cut_off_are_seen():
    for x in (0.5, -0.5):
        _, axes = plt.subplots()
        axes.text(0.5, 0.5, "one")
        axes.text(x, 0.5, "another")
        with pytest.raises(AssertionError):
            assert_readable(axes)


def explanation(rows=6, features=4, **options):
    return shap.Explanation(
        random(rows, features), np.full(rows, 10.0), random(rows, features, seed=1),
        error_std=np.full((rows, features), 0.2), feature_names=[f"column {i}" for i in range(features)], **options,
    )  # fmt: skip


IMAGE = random(3, 6, 8)
DRAWN = {
    "waterfall": lambda **o: plots.waterfall(explanation()[0], **o),
    "force": lambda **o: plots.force(explanation()[0], **o),
    "bar": lambda **o: plots.bar(explanation(), **o),
    "beeswarm": lambda **o: plots.beeswarm(explanation(), **o),
    "image": lambda **o: plots.image(torch.tensor(IMAGE), data=np.abs(IMAGE), **o),
    "text": lambda **o: plots.text([1.0, -2.0], data=["some", "words"], std=[0.1, 2.0], **o),
    "logo": lambda **o: plots.logo([1.0, -2.0], sequence="AC", std=[0.1, 2.0], **o),
    "series": lambda **o: plots.series([1.0, -2.0], data=[3.0, 4.0], std=[0.1, 2.0], **o),
    "interactions": lambda **o: plots.interactions([[0.0, 1.0], [1.0, 0.0]], **o),
    "calibration": lambda **o: plots.calibration([1.0, 2.0], [1.5, 1.0], std=[0.5, 0.4], **o),
    "cost": lambda **o: plots.cost({"one": [(1, 2), (3, 1)], "other": [(2, 2)]}, **o),
}


def test_every_plot_is_tried():
    assert set(DRAWN) | {"text_html"} == set(plots.__all__)


@pytest.mark.parametrize("name", DRAWN)
def test_axes_are_returned_and_nothing_else_changes(name, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("it was shown"))
    before, state = dict(mpl.rcParams), np.random.get_state()[1].copy()  # noqa: NPY002 (that of everybody)
    assert_readable(DRAWN[name](title="A title with $ and _"))
    _, ax = plt.subplots(figsize=(8, 5), layout="constrained")
    number = len(plt.get_fignums())
    assert DRAWN[name](ax=ax) is ax
    assert len(plt.get_fignums()) == number
    assert_readable(ax)
    assert dict(mpl.rcParams) == before
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_a_backend_may_turn_interactive_mode_on(monkeypatch):
    """As that of notebooks does when the first figure is made; without it, they show no other."""
    subplots = plt.subplots

    def loading(*args, **kwargs):
        mpl.interactive(True)
        return subplots(*args, **kwargs)

    monkeypatch.setattr(plt, "subplots", loading)
    before = mpl.is_interactive()
    try:
        plots.bar(np.eye(2))
        assert mpl.is_interactive()
    finally:
        mpl.interactive(before)


def test_other_styles_leave_figures_as_they_are():
    with mpl.style.context("dark_background"), mpl.rc_context({"text.usetex": False, "font.size": 30}):
        axes = plots.waterfall([1.0, 2.0], names=["a", "b"])
        assert mpl.rcParams["font.size"] == 30
        figure = settled(axes)
    assert figure.get_facecolor()[:3] == (1, 1, 1)
    assert min(contrast(text.get_color(), "white") for text in texts(figure)) >= 4.5


HARD = {
    "names": dict(values=random(10), names=NAMES, data=np.array([0.5, 1e-9, 1e12, -3, np.nan, 0, 1, 2, 3, 4])),
    "texts": dict(values=random(2), names=["a", "b"], data=np.array(["a very long text as data", "$x$"], dtype=object)),
    "200 features": dict(values=random(200)),
    "tiny": dict(values=1e-9 * random(5), std=1e-10 * np.ones(5), base=0.0),
    "huge": dict(values=1e12 * random(5), std=1e11 * np.ones(5), base=-1e15),
    "negative": dict(values=-np.abs(random(5)), std=np.ones(5), base=3.0),
    "far base": dict(values=1e-3 * random(5), base=1e3),
    "zero": dict(values=np.zeros(5), std=np.zeros(5), base=0.0),
    "one": dict(values=np.ones(1), std=np.ones(1), base=1.0),
    "no deviations": dict(values=random(5)),
    "unsure": dict(values=random(12), std=10 * np.ones(12), base=1.0),
}  # fmt: skip


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("plot", [plots.waterfall, plots.force], ids=lambda p: p.__name__)
def test_labels_of_a_row_are_whole_and_apart(plot, case):
    given = dict(HARD[case])
    assert_readable(plot(given.pop("values"), title="A title", **given))


@pytest.mark.parametrize("case", ["names", "200 features", "tiny", "zero", "one"])
@pytest.mark.parametrize("plot", [plots.bar, plots.beeswarm], ids=lambda p: p.__name__)
def test_labels_of_a_table_are_whole_and_apart(plot, case):
    given = {name: part for name, part in HARD[case].items() if name != "base"}
    assert_readable(plot(given.pop("values"), title="A title", **given))


def test_names_are_no_formulas_and_stay_different():
    axes = plots.waterfall(random(10), names=NAMES)
    settled(axes)
    labels = axes.get_yticklabels()
    assert not any(label.get_parse_math() for label in labels)
    assert len({label.get_text() for label in labels}) == len(NAMES)
    assert "$\\frac{1}{$" in [label.get_text() for label in labels]
    assert not any("\u202e" in label.get_text() or "\n" in label.get_text() for label in labels)


def test_small_axes_of_a_grid_keep_their_room():
    _, panels = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    table, std = random(20, 10), np.full((20, 10), 0.3)
    title = "A rather long title that has to be wrapped"
    plots.waterfall(table[0], names=NAMES, std=std[0], data=table[0], ax=panels[0, 0], title=title)
    plots.bar(table, names=NAMES, std=std, ax=panels[0, 1], title=title)
    plots.beeswarm(table, names=NAMES, std=std, data=table, ax=panels[1, 0])
    plots.interactions(table[:10] + table[:10].T, names=NAMES, ax=panels[1, 1])
    assert_readable(panels)
    assert min(axes.get_position().width for axes in panels.flat) > 0.1


@pytest.mark.parametrize("plot", [plots.waterfall, plots.force, plots.bar, plots.beeswarm], ids=lambda p: p.__name__)
def test_small_axes_have_fewer_lines(plot):
    _, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    assert_readable(plot(random(40), std=np.ones(40), ax=axes))
    assert any("others" in text.get_text() for text in texts(axes.figure))


def bars_of(axes):
    """Ends of error bars, (bars, 2)."""
    segments = [segment for part in axes.containers if isinstance(part, ErrorbarContainer)
                for lines in part[2] for segment in lines.get_segments()]  # fmt: skip
    return np.array([segment[:, 0] for segment in segments])


@pytest.mark.parametrize("plot", [plots.waterfall, plots.force, plots.bar, plots.beeswarm], ids=lambda p: p.__name__)
def test_error_bars_are_intervals_of_95_percent(plot):
    values, std = np.array([4.0, -3.0, 0.2, 1.0]), np.array([0.5, 0.1, 0.3, 0.0])
    bars = bars_of(plot(values, std=std))
    lengths = np.sort(bars[:, 1] - bars[:, 0])
    assert lengths == pytest.approx(np.sort(2 * 1.96 * std[std > 0]))


@pytest.mark.parametrize("plot", [plots.waterfall, plots.force, plots.bar], ids=lambda p: p.__name__)
def test_what_may_be_nothing_is_hatched(plot):
    std = np.array([0.5, 0.6, 0.4, 0.0])
    axes = plot([1.0, -1.0, 1.0, 0.5], std=std)  # 1.96 · 0.5 < 1 < 1.96 · 0.6
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert len(axes.patches) == 4
    assert len(hatched) == 1
    if plot is not plots.force:
        assert hatched[0].get_width() == pytest.approx(-1)
    else:
        assert isinstance(hatched[0], Polygon)
    assert "the interval includes 0" in " ".join(axes.get_xlabel().split())


@pytest.mark.parametrize("draw", [plots.waterfall, plots.bar, plots.force])
def test_exact_values_have_no_intervals(draw):
    axes = draw([3.49, -1.0], std=[0.0, 0.0])
    told = [text.get_text() for text in axes.findobj(Text)]
    assert any("+3.49" in text for text in told)
    assert not any("±" in text for text in told)


def test_waterfalls_lead_from_the_base_to_the_sum():
    values = random(30)
    axes = plots.waterfall(values, std=np.arange(30) / 10, base=5.0, most=6)
    ends = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]
    assert len(ends) == 6
    assert ends[0][0] == pytest.approx(5)
    assert all(one[1] == pytest.approx(other[0]) for one, other in itertools.pairwise(ends))
    assert ends[-1][1] == pytest.approx(5 + values.sum())
    order = np.argsort(-np.abs(values))
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "25 others",
        *(f"Feature {i}" for i in order[4::-1]),
    ]
    others = order[5:]
    bar = bars_of(axes)[0]
    assert ends[0][1] - ends[0][0] == pytest.approx(values[others].sum())
    assert bar[1] - bar[0] == pytest.approx(2 * INTERVAL * math.sqrt(np.square(others / 10).sum()))


def test_an_explanation_and_its_arrays_are_drawn_alike():
    found = explanation()
    for plot, given, keywords in ((plots.waterfall, found[0], dict(base=10.0)), (plots.bar, found, {})):
        plain = plot(given.values, names=given.feature_names, data=given.data, std=given.error_std, **keywords)
        one, other = ([text.get_text() for text in texts(settled(axes))] for axes in (plot(given), plain))
        assert one == other


def test_bars_are_red_where_values_raise_the_output_and_blue_where_they_lower_it():
    axes = plots.bar(np.array([[3.0, -1.0], [-1.0, -2.0]] * 30))
    parts = [[(box.get_extents().x0, box.get_extents().x1) for box in part.get_paths()] for part in axes.collections
             if isinstance(part, PolyCollection)]  # fmt: skip
    assert parts[:2] == [[(0, 0), (0, 1.5)], [(0, 1.5), (1.5, 2)]]


def test_bars_have_both_kinds_of_intervals():
    values, std = random(50, 3), np.full((50, 3), 0.4)
    axes = plots.bar(values, std=std, most=2)
    sizes = np.abs(values)
    first = int(sizes.mean(0).argmax())
    others = [i for i in range(3) if i != first]
    assert [patch.get_width() for patch in axes.patches] == pytest.approx(
        [sizes[:, others].sum(1).mean(), sizes[:, first].mean()]
    )
    inner = 1.96 * 0.4 / math.sqrt(50)
    rows = stats.t.ppf(0.975, 49) * sizes[:, first].std(ddof=1) / math.sqrt(50)
    bars = bars_of(axes)[1]
    assert bars[1] - bars[0] == pytest.approx(2 * math.hypot(inner, rows), rel=1e-4)
    thick = [line for line in axes.lines if line.get_linewidth() > 3]
    assert np.ptp(thick[1].get_xdata()) == pytest.approx(2 * inner)
    assert np.ptp(thick[0].get_xdata()) == pytest.approx(2 * inner * math.sqrt(2))
    assert isinstance(axes.containers[0], BarContainer)


def test_swarms_have_a_dot_for_every_row_and_hollow_ones_where_unsure():
    values, std = random(40, 3), np.full((40, 3), 0.4)
    axes = plots.beeswarm(values, data=random(40, 3, seed=2), std=std)
    dots = [part for part in axes.collections if isinstance(part, PathCollection)]
    order = np.argsort(np.abs(values).mean(0))  # from below
    for i, (sure, unsure) in zip(order, zip(dots[::2], dots[1::2], strict=True), strict=True):
        uncertain = np.abs(values[:, i]) <= 1.96 * 0.4
        assert np.sort(np.asarray(unsure.get_offsets())[:, 0]) == pytest.approx(np.sort(values[uncertain, i]))
        assert np.sort(np.asarray(sure.get_offsets())[:, 0]) == pytest.approx(np.sort(values[~uncertain, i]))
        both = np.concatenate([np.asarray(part.get_offsets()) for part in (sure, unsure)])
        assert len({tuple(place) for place in both.round(9).tolist()}) == 40


def test_images_have_one_scale_around_zero():
    values = np.sin(np.arange(40.0)).reshape(2, 1, 4, 5)
    panels = plots.image({"a": values, "b": 3 * values}, data=np.abs(values))
    settled(panels)
    assert panels.shape == (2, 3)
    limits = {axes.images[0].get_clim() for axes in panels[:, 1:].flat}
    top = 3 * np.abs(values).max()
    assert limits == {(-top, top)}
    assert np.array_equal(panels[1, 2].images[0].get_array(), 3 * values[1, 0])
    assert [axes.get_title() for axes in panels[0]] == ["image", "a", "b"]


def test_pictures_from_0_to_1_keep_their_scale_and_others_get_it():
    dim = np.linspace(0.1, 0.6, 20).reshape(1, 1, 4, 5)
    for picture, expected in ((dim, dim), (255 * dim, (dim - 0.1) / 0.5), (dim - 0.3, (dim - 0.1) / 0.5)):
        first, _ = plots.image(random(1, 1, 4, 5), data=picture).ravel()
        assert np.allclose(first.images[0].get_array(), expected[0, 0])


def lines_of(axes):
    """How many sides of pixels are outlined."""
    *_, outlines = (part for part in axes.collections if isinstance(part, LineCollection))
    return round(sum(np.abs(np.diff(line, axis=0)).sum() for line in outlines.get_segments()))


def test_one_extreme_pixel_does_not_rule_the_scale():
    values = np.tile(np.linspace(-1, 1, 20), (20, 1))
    values[3, 4] = -50
    panels = plots.image(values, data=np.ones((20, 20)), title="Why?")
    assert_readable(panels)
    (bar,) = set(panels.figure.axes) - set(panels.flat)
    assert panels[0, 1].images[0].get_clim() == (-1, 1)
    assert "1 pixel beyond the scale, up to 50" in " ".join(bar.get_ylabel().split())
    assert plots.image(values, limit=7).images[0].get_clim() == (-7, 7)
    wide = plots.image(values.repeat(2, 0), feature_mask=np.arange(800).reshape(40, 20) // 40)  # regions
    largest = abs(values[3].mean())
    assert wide.images[0].get_clim() == pytest.approx((-largest, largest))


@pytest.fixture(scope="module")
def photos():
    """Two images by a network, with superpixels of their own and with blocks."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    )
    options = dict(baselines=0.0, output_names=["cat", "dog", "$bird_1$"], target="predicted", max_evaluations=40)
    rows = torch.rand(2, 3, 8, 8)
    named = {
        players: dasp.Explainer(network.eval(), players=players, **options) for players in ("block:2", "superpixel:6")
    }
    return network, rows, {players: explainer(rows) for players, explainer in named.items()}


def test_an_explanation_keeps_its_regions(photos):
    network, rows, found = photos
    for explained in found.values():
        panels = plots.image(explained, title="A title")
        assert_readable(panels)
        assert panels.figure is panels[0, 0].figure
        for i, axes in enumerate(panels[:, 1]):
            own = explained[i].by_player()
            numbers = np.unique(explained[i].feature_mask[..., 0], return_inverse=True)[1].reshape(8, 8)
            below = plots.image(explained[i], overlay=False)[0, 1]
            assert np.allclose(below.images[0].get_array(), own.values[numbers])
            assert bool(below.patches) == bool((np.abs(own.values) <= 1.96 * own.error_std)[own.error_std > 0].any())
            sides = (numbers[1:] != numbers[:-1]).sum() + (numbers[:, 1:] != numbers[:, :-1]).sum()
            assert lines_of(axes) == sides
            output = network(rows)[i].max().item()
            assert own.base_values + own.values.sum() == pytest.approx(output, abs=1e-5)
            assert own.data[0] == pytest.approx(explained.data[i][numbers == 0].mean())
            assert f"{explained.row_outputs[i]}: {output:.3g}".replace("-", "−") in axes.get_title().replace("\n", " ")
    blocked = found["block:2"]
    assert_readable(plots.waterfall(blocked[0].by_player()))
    assert blocked.by_player().feature_names == [f"block {i}" for i in range(16)]
    assert blocked.by_player().shape == (2, 16)
    assert blocked[:, :4].feature_mask is None
    assert plots.image(blocked.values, data=blocked.data).size == 4  # which knows no regions


def test_an_output_of_all_keeps_its_regions(photos):
    network, rows, _ = photos
    every = dasp.Explainer(network, players="block:4", baselines=0.0)(rows)
    columns = every.by_player()
    for found in (every[..., 1], every[:, :, :, :, 1]):
        assert found.feature_mask.shape == (8, 8, 3)
        np.testing.assert_allclose(found.by_player().values, columns.values[..., 1])
        np.testing.assert_allclose(found.by_player().values.sum(1) + found.base_values, found.facts.prediction)
    assert every[0][..., 1].by_player().shape == (4,)
    assert every[..., :2, 1].feature_mask is None


def test_players_that_differ_between_images_are_no_columns(photos):
    *_, found = photos
    masks = found["superpixel:6"].feature_mask
    assert masks.shape == (2, 8, 8, 3)
    assert len(np.unique(masks[0])) != len(np.unique(masks[1]))
    with pytest.raises(BadInput, match=r"choose one, as by explanation\[0\].by_player"):
        found["superpixel:6"].by_player()
    with pytest.raises(BadInput, match="every pixel is a player of its own"):
        dasp.Explainer(lambda x: x.sum((1, 2, 3)))(torch.rand(1, 1, 4, 4)).by_player()


def test_series_and_grey_images_know_their_players():
    rows = torch.rand(2, 4, 6)
    windows = dasp.Explainer(lambda x: (x**2).sum((1, 2)), players="window:3")(rows)
    panels = plots.series(windows[1])
    assert [patch.get_width() for axes in panels for patch in axes.patches] == [3] * 8
    assert np.allclose(panels[2].lines[0].get_ydata(), rows[1, 2])
    grey = dasp.Explainer(lambda x: (x**2).sum((1, 2)), players="block:2")(rows)
    axes = plots.image(grey[0], overlay=False)[0, 1]
    assert axes.images[0].get_array()[0, :2].tolist() == pytest.approx([grey.values[0, 0]] * 2)
    assert grey[0].by_player() is not None
    assert f"output: {float((rows[0] ** 2).sum()):.3g}" in axes.get_title()


def test_players_of_images_are_outlined_and_have_their_value():
    mask = blocks((3, 4, 6), 2)
    values = torch.arange(6.0)[mask]  # as Captum gives them
    axes = plots.image(values, feature_mask=mask, overlay=False)
    assert np.array_equal(axes.images[0].get_array(), values[0])
    assert lines_of(axes) == 6 + 2 * 4  # one line across, two down
    spread = np.moveaxis(values.numpy(), 0, 2) / 12  # as an explanation has them: 4 pixels of 3 channels
    given = shap.Explanation(spread[None], np.zeros(1), np.ones((1, 4, 6, 3)), error_std=spread[None] / 1.9)
    axes = plots.image(given[0], feature_mask=mask, only_certain=True)
    assert_readable(axes)
    shown = axes[0, 1].images[1].get_array()  # colours over the picture, of which the largest is opaque
    assert shown[..., 3].max() == 0  # 1.96 σ > |value| everywhere
    by_channel = blocks((3, 4, 6), 2, by_channel=True)
    axes = plots.image(torch.arange(18.0)[by_channel], feature_mask=by_channel, overlay=False)
    assert axes.images[0].get_array()[0, 0] == 0 + 6 + 12


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_has_the_players_of_its_own_mask(channels):
    wide = torch.arange(6) // 3 + torch.zeros(4, 1, dtype=torch.int64)  # left and right
    high = torch.arange(4)[:, None] // 2 + torch.zeros(6, dtype=torch.int64)  # above and below
    masks = torch.stack([wide, high])[:, None].expand(2, channels, 4, 6)
    own = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    values = torch.stack([worth[mask] for worth, mask in zip(own, masks, strict=True)])
    spread = shap.Explanation(np.moveaxis(values.numpy(), 1, 3) / (12 * channels), np.zeros(2))
    given = [masks, masks.movedim(1, 3), masks[:, :1]] + [masks[:, 0]] * (channels == 1)
    for explanation, mask in itertools.product([values, spread], given):
        panels = plots.image(explanation, feature_mask=mask).ravel()
        for axes, worth, single, lines in zip(panels, own, (wide, high), (4, 6), strict=True):
            assert np.allclose(axes.images[0].get_array(), worth[single])
            assert lines_of(axes) == lines
    first = plots.image(values[:1], feature_mask=masks[0][None])
    assert np.array_equal(first.images[0].get_array(), own[0][wide])
    with pytest.raises(BadInput, match=r"shape \(3, .*does not broadcast to 2 images"):
        plots.image(values, feature_mask=masks[[0, 0, 1]])


def test_channels_of_a_pixel_that_are_one_player_have_its_interval():
    values = np.stack([np.full((4, 4, 3), value / 3) for value in (1.9, 2.1)])  # of deviations 1: 1.96 is certain
    given = shap.Explanation(values, np.zeros(2), error_std=np.full(values.shape, 1 / 3))
    unsure, sure = (axes.images[0].get_array() for axes in plots.image(given, only_certain=True).ravel())
    assert (unsure == 0).all()
    assert np.allclose(sure, 2.1)


def test_texts_break_into_lines_that_do_not_overlap():
    words = ["word", "<b>", "$x$", "a_b", "שלום", "longest"] * 12
    axes = plots.text(random(72), data=words, std=np.full(72, 0.3), title="Some words")
    assert_readable(axes)
    assert [text.get_text() for text in axes.texts] == words
    unsure = (np.abs(random(72)) <= 1.96 * 0.3).tolist()
    frames = [text.get_bbox_patch().get_edgecolor()[3] > 0 for text in axes.texts]
    assert frames == unsure
    behind = [text.get_bbox_patch().get_facecolor()[:3] == (1, 1, 1) for text in axes.texts]
    assert behind == unsure  # a colour is only for what is certain
    pieces = plots.text([1.0, 1.0, -1.0], data=["un", "believ", "able text"]).texts
    ends = [text.get_bbox_patch().get_window_extent() for text in pieces]
    assert ends[0].x1 < ends[1].x0 + 8


def test_long_pieces_break_between_words():
    long = "One sentence that is longer than a line of the figure, as sentences of reviews often are. "
    sentences = [2 * long, "Yes!\n", "Next line. ", "ж" * 90]
    axes = plots.text([1.0, -1.0, 0.5, -0.5], data=sentences, output="good")
    figure = settled(axes)
    assert "".join("".join(text.get_text().split()) for text in axes.texts) == "".join("".join(sentences).split())
    boxes = [text.get_bbox_patch().get_window_extent() for text in axes.texts]
    assert max(box.x1 for box in boxes) <= figure.bbox.x1
    after = next(text for text in axes.texts if text.get_text() == "Next line.")
    assert after.get_window_extent().x0 == pytest.approx(boxes[0].x0, abs=5)


def test_texts_of_too_many_pieces_are_told_of_sentences():
    words = [f"word{i} " for i in range(60)]
    axes = plots.text(random(60), data=words, std=np.full(60, 2.0))
    (bar,) = set(axes.figure.axes) - {axes}
    told = "most of the 60 pieces may be nothing: explain it by sentences"
    assert told in " ".join(bar.get_xlabel().split())
    assert_readable(axes)
    certain = plots.text(random(60), data=words, std=np.full(60, 0.01))
    assert told not in " ".join(certain.figure.axes[1].get_xlabel().split())


def test_text_in_html_is_escaped():
    made = plots.text_html([1.0, -2.0], data=["<script>", '"&'], std=[0.1, 3.0])
    assert "<script>" not in made
    assert "&lt;script&gt;" in made
    assert "&quot;&amp;" in made
    assert made.count("dashed") == made.count("uncertain") == 1
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.array([1.0]), np.array([1.0, 2.0])]
    pieces = np.empty(2, dtype=object)
    pieces[:] = [np.array(["a"], dtype=object), np.array(["b ", "c"], dtype=object)]
    assert plots.text_html(shap.Explanation(ragged, np.zeros(2), pieces)).count("<p ") == 2


def test_letters_of_a_logo_come_from_the_encoding():
    sequence = "GATTACA"
    hot = np.eye(4)[["ACGT".index(letter) for letter in sequence]]
    values, std = random(7), np.full(7, 0.3)
    axes = plots.logo(hot.T * values, data=hot.T, std=hot.T * std)
    assert bars_of_heights(axes) == pytest.approx(2 * 1.96 * std)
    letters = [part for part in axes.collections if isinstance(part, PathCollection)]
    boxes = [path.get_extents() for part in letters for path in part.get_paths()]
    heights = sorted((box.x0, box.y0 if abs(box.y0) > abs(box.y1) else box.y1) for box in boxes)
    assert [height for _, height in heights] == pytest.approx(values)
    lines = plots.logo(random(250), sequence="ACGTT" * 50, highlighted=[(95, 10, "a motif")])
    assert len(lines) == 3
    assert_readable(lines)


def bars_of_heights(axes):
    (part,) = (part for part in axes.containers if isinstance(part, ErrorbarContainer))
    return [segment[1, 1] - segment[0, 1] for segment in part[2][0].get_segments()]


def test_windows_of_a_series_are_shaded_once():
    values, std, mask = [1.0, -2.0, 0.5, 0.0], [0.1, 0.1, 1.0, 0.0], [[0, 0, 1, 1, 1, 1], [2, 2, 2, 3, 3, 3]]
    panels = plots.series(values, data=random(2, 6), feature_mask=mask, std=std, names=["one", "other $"])
    assert_readable(panels)
    spans = [[(patch.get_x(), patch.get_width(), bool(patch.get_hatch())) for patch in axes.patches] for axes in panels]
    assert spans == [[(-0.5, 2, False), (1.5, 4, False)], [(-0.5, 3, True), (2.5, 3, False)]]


def test_interactions_of_many_players_are_those_of_the_largest():
    pairs = random(2, 9, 9)
    pairs = pairs + pairs.transpose(0, 2, 1)
    axes = plots.interactions(pairs, most=4, names=[f"a rather long name of player {i}" for i in range(9)])
    assert_readable(axes)
    mean = pairs.mean(0)
    largest = np.sort(np.argsort(-np.abs(mean).sum(1))[:4])
    assert np.allclose(axes.images[0].get_array(), mean[np.ix_(largest, largest)])
    assert "5 other players" in axes.get_xlabel()
    small = plots.interactions(1e3 * mean[:4, :4])
    assert_readable(small)
    background = {
        text.get_position(): small.images[0].to_rgba(small.images[0].get_array())[text.get_position()[::-1]]
        for text in small.texts
    }
    assert len(background) == 12
    assert all(contrast(text.get_color(), background[text.get_position()][:3]) >= 4.5 for text in small.texts)


def test_calibration_tells_how_many_intervals_hold_the_truth():
    truth, std = random(400), np.exp(random(400, seed=1))
    error = std * random(400, seed=2)
    axes = plots.calibration(truth + error, truth, std=std)
    assert_readable(axes)
    held = 100 * (np.abs(error) <= 1.96 * std).mean()
    assert f"{held:.3g} % of 400 values" in " ".join(axes.get_xlabel().split())
    (line,) = (line for line in axes.lines if line.get_label() == "root mean square")
    assert len(line.get_xdata()) == 10
    first = np.argsort(std)[:40]
    assert line.get_xdata()[0] == pytest.approx(math.sqrt(np.square(std[first]).mean()))
    assert line.get_ydata()[0] == pytest.approx(math.sqrt(np.square(error[first]).mean()))


def test_costs_are_those_of_the_results():
    results = [Result("DASP", n, n, n, n / 1000, 1 / n, 0.0, 1.0, 0.0) for n in (100, 10)]
    results += [Result("Exact", None, 1024, 1024, 1.0, 0.0, 0.0, 1.0, 0.0)]
    for by, costs in (("evaluations", [10, 100]), ("seconds", [0.01, 0.1])):
        axes = plots.cost(results, by=by, standard_error=0.02)
        assert_readable(axes)
        lines = {line.get_label(): line for line in axes.lines}
        assert list(lines["DASP"].get_xdata()) == costs
        assert list(lines["DASP"].get_ydata()) == [0.1, 0.01]
        assert lines["Exact"].get_ydata()[0] == axes.get_ylim()[0]
    styles = [(line.get_color(), line.get_marker()) for line in plots.cost({str(i): [(1, 1)] for i in range(12)}).lines]
    assert len(set(styles)) == 12


REFUSED = {
    "choose one, as by explanation\\[0\\]": lambda: plots.waterfall(random(2, 3)),
    "of 2 outputs \\(a, b\\): choose one, as by explanation\\[:, :, 'a'\\]": lambda: plots.bar(
        shap.Explanation(random(3, 4, 2), np.zeros((3, 2)), random(3, 4), output_names=["a", "b"])
    ),
    "NaN": lambda: plots.bar([[1.0, np.nan]]),
    "no values": lambda: plots.bar(np.zeros((0, 3))),
    "std has the shape": lambda: plots.bar(random(2, 3), std=random(3)),
    "std has negative": lambda: plots.bar(random(3), std=[-1.0, 1, 1]),
    "2 names for 3": lambda: plots.bar(random(3), names=["a", "b"]),
    "data has the shape": lambda: plots.bar(random(3), data=[1.0]),
    "are not a table": lambda: plots.bar(random(2, 3, 4)),
    "the dict is empty": lambda: plots.image({}),
    "are not images": lambda: plots.image(random(3)),
    "do not fit on one ax": lambda: plots.image(random(2, 1, 4, 4), ax=plt.figure().subplots()),
    "does not broadcast": lambda: plots.image(random(4, 4), feature_mask=np.zeros((3, 3))),
    "only_certain needs": lambda: plots.image(random(4, 4), only_certain=True),
    "needs its numbers": lambda: plots.series(random(4)),
    "3 values for 2 players and 4 entries": lambda: plots.series(random(3), data=random(4), feature_mask=[0, 0, 1, 1]),
    "letters are not known": lambda: plots.logo(random(4)),
    "not those of all pairs": lambda: plots.interactions(random(3, 4)),
    "stated errors are not known": lambda: plots.calibration(random(3), random(3)),
    "by is 'money'": lambda: plots.cost({"a": [(1, 1)]}, by="money"),
    "too long for a figure: explain it by sentences": lambda: plots.text(random(3000), data=["words "] * 3000),
    "not pieces of text": lambda: plots.text(random(3), data=random(3)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_one_line(message):
    with pytest.raises(BadInput, match=message) as caught:
        REFUSED[message]()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", ["waterfall", "text", "bar", "data", "notebook"])
def test_figures_are_functions_whatever_was_imported_first(first, monkeypatch):
    """Each figure is in a file of its name, which is not to hide it."""
    for name in [name for name in sys.modules if name.startswith("dasp.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(dasp, "plots")
    importlib.import_module(f"dasp.plots.{first}")
    again = importlib.import_module("dasp.plots")
    assert again is not plots
    importlib.import_module("dasp.plots.notebook")
    assert {type(getattr(again, name)) for name in again.__all__} == {types.FunctionType}
    assert again.waterfall([1.0, 2.0]).get_yticklabels()


def test_matplotlib_is_asked_for(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dasp.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"dasp.plots needs matplotlib: pip install 'torch-dasp\[plots\]'"):
        importlib.import_module("dasp.plots")


def test_a_swarm_of_many_others_does_not_squeeze_the_named():
    values = random(60, 200)
    axes = plots.beeswarm(values, most=6)
    order = np.argsort(-np.abs(values).mean(0))
    edge = 1.3 * np.abs(values[:, order[:5]]).max()
    assert axes.get_xlim() == pytest.approx((-edge, edge))
    others = values[:, order[5:]].sum(1)
    told = {text.get_text() for text in axes.texts}
    assert {f"« {(others < -edge).sum()}", f"{(others > edge).sum()} »"} <= told
    alone = plots.beeswarm(values[:, :5])
    assert not {text.get_text()[:1] for text in alone.texts} & {"«", "»"}


def test_a_map_names_the_output_of_the_model_though_values_do_not_add_up(photos):
    network, rows, _ = photos
    found = dasp.Explainer(network, players="block:4", target=0, baselines=0.0)(rows)
    found.values = 0.5 * found.values
    title = plots.image(found[0])[0, 1].get_title()
    assert title.startswith(f"output: {network(rows)[0, 0].item():.3g}".replace("-", "−"))
