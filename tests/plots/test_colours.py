"""Colours: signs that colour-blind readers can tell apart, and text that can be read on what is behind it."""

from __future__ import annotations

import ast
import itertools
import re
from importlib.resources import files

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from skimage.color import deltaE_ciede2000, rgb2lab

from dasp.plots.style import BLACK, DARK, DIVERGING, DOWN, GREY, UP, contrast, readable, shade

# How dichromats see linear RGB: Machado, Oliveira, Fernandes, "A physiologically-based model for simulation of color
# vision deficiency" (2009), at full severity.
SEEN = {
    "all colours": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TOLD_APART = 10  # by CIEDE2000; 1 is just seen side by side

kinds = pytest.mark.parametrize("kind", SEEN)


def seen(colour, kind):
    """A colour in CIELAB, as it is seen."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    simulated = np.clip(np.array(SEEN[kind]) @ linear, 0, 1)
    back = np.where(simulated <= 0.0031308, 12.92 * simulated, 1.055 * simulated ** (1 / 2.4) - 0.055)
    return rgb2lab(back[None, None])[0, 0]


def distance(one, other, kind):
    return float(deltaE_ciede2000(seen(one, kind), seen(other, kind)))


@kinds
def test_signs_and_uncertainty_are_told_apart(kind):
    for colours in ((UP, DOWN, "white"), (UP, DOWN, GREY)):
        for one, other in itertools.combinations(colours, 2):
            assert distance(one, other, kind) > TOLD_APART, (one, other)


@kinds
@pytest.mark.parametrize("fraction", [0.3, 0.5, 1])
def test_shades_have_a_sign(kind, fraction):
    scale = colormaps[DIVERGING]
    for colour in (shade, lambda x: scale(0.5 + 0.5 * x)):
        assert distance(colour(fraction), colour(-fraction), kind) > TOLD_APART


def test_red_and_green_are_not_told_apart_by_all():
    """So the simulation does something."""
    assert distance("#B04000", "#607000", "all colours") > 3 * distance("#B04000", "#607000", "deuteranopia")


def test_text_is_read_on_its_background():
    assert min(contrast(colour, "white") for colour in (BLACK, DARK, UP, DOWN)) >= 4.5
    assert min(contrast("black", shade(x)) for x in np.linspace(-1, 1, 201)) >= 4.5
    scale = colormaps[DIVERGING](np.linspace(0, 1, 256))[:, :3]
    assert min(contrast(readable(colour), colour) for colour in scale) >= 4.5


def colours_of_pages():
    """The colours of pages by name: on a light page, on a dark one, and on paper."""
    style = (files("dasp.pages") / "templates" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks]


@kinds
def test_signs_on_pages_are_told_apart(kind):
    pages = colours_of_pages()
    assert len(pages) == 3
    for own in pages:
        for one, other in itertools.combinations(("up", "down", "page", "whisker"), 2):
            assert distance(own[one], own[other], kind) > TOLD_APART, (one, other)


def test_text_on_pages_is_read():
    for own in colours_of_pages():
        for text, behind in itertools.product(("text", "quiet", "link"), ("page", "card", "chosen")):
            assert contrast(own[text], own[behind]) >= 4.5, (text, behind)
        assert min(contrast(own["text"], own[behind]) for behind in ("warning", "good")) >= 4.5
        assert (
            min(contrast(own[bar], own[behind]) for bar in ("up", "down", "neutral") for behind in ("page", "card"))
            >= 3
        )


@kinds
def test_dots_on_pages_go_from_dark_to_light(kind):
    script = (files("dasp.pages") / "templates" / "report.js").read_text()
    for scheme in ("light", "dark"):
        (listed,) = re.findall(rf"^  {scheme}: (\[\[.*\]\]),$", script, re.MULTILINE)
        lightness = [seen(np.array(colour) / 255, kind)[0] for colour in ast.literal_eval(listed)]
        assert min(np.diff(lightness)) > 3
