"""The pictures of the page on how it works are small, described, and can be drawn again."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch
from PIL import Image

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = re.findall(r"!\[([^]]*)\]\(images/(.*?)\)", (DOCS / "how-it-works.md").read_text())


@pytest.fixture(scope="module")
def drawings():
    with torch.random.fork_rng(devices=[]):
        return runpy.run_path(str(DOCS / "drawings.py"))


def test_pictures_are_small_and_described(drawings):
    assert {name for _, name in PICTURES} == {f"{name}.png" for name in drawings["DRAWINGS"]}
    assert all(len(words) > 100 for words, _ in PICTURES)
    assert max((DOCS / "images" / name).stat().st_size for _, name in PICTURES) < 100_000


def test_they_can_be_drawn(drawings, tmp_path, monkeypatch):
    """From fewer coalitions."""
    for name, value in {"COALITIONS": 500, "EVALUATIONS": (32, 64), "PERMUTATIONS": 2, "NODES": 3}.items():
        monkeypatch.setitem(drawings["main"].__globals__, name, value)
    with torch.random.fork_rng(devices=[]):
        drawings["main"](tmp_path)
    for _, name in PICTURES:
        with Image.open(tmp_path / name) as drawn, Image.open(DOCS / "images" / name) as kept:
            assert drawn.size == kept.size


def test_the_drawn_extension_is_right_at_its_ends(drawings):
    """With next to no noise, the propagated mean is the output itself."""
    with torch.random.fork_rng(devices=[]):
        network, image = drawings["reader"]()
    for q, given in ((1e-6, 0 * image), (1 - 1e-6, image)):
        mean, slopes = drawings["_extension"](network, image, q, "full")
        assert mean == pytest.approx(network(given)[0, drawings["DIGIT"]].item(), abs=1e-2)
        assert slopes.shape == (64,)


def test_contributions_make_the_shapley_values(drawings):
    """Their mean over sizes is the area below the curve, and all of them add up."""
    with torch.random.fork_rng(devices=[]):
        added = drawings["contributions"]()
    q = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    assert torch.allclose(drawings["along"](added, q).mean(1), added.mean(1), atol=1e-6)
    probability = drawings["scores"]().softmax(1)[:, drawings["DIGIT"]]
    assert added.mean(1).sum().item() == pytest.approx((probability[-1] - probability[0]).item(), abs=1e-9)


def test_the_drawn_process_knows_what_it_has_seen(drawings):
    """And is certain of nothing else."""
    with torch.random.fork_rng(devices=[]):
        path = drawings["_path"]()
        assert path.sum(1).tolist() == list(range(drawings["PLAYERS"] + 1))
        seen = path[::2]
        mean, deviation = drawings["predicted"](seen, drawings["_worth"](seen), path)
    assert torch.allclose(mean[::2], drawings["_worth"](seen), atol=1e-3)
    assert deviation[::2].max() < 0.1 * deviation[1::2].min()
