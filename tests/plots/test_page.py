"""The pictures of the pages on plots and on differences of outputs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parents[2] / "docs"


def test_pictures_of_the_page_are_small_and_described():
    pictures = re.findall(r"!\[([^]]*)\]\(images/(.*?)\)", (DOCS / "plots.md").read_text())
    assert 6 <= len(pictures) <= 9
    pictures += re.findall(r"!\[([^]]*)\]\(images/(.*?)\)", (DOCS / "why-not.md").read_text())
    assert len(pictures) >= 8
    assert all(len(words) > 40 for words, _ in pictures)
    assert max((DOCS / "images" / name).stat().st_size for _, name in pictures) < 60_000


def test_pictures_are_what_snippets_draw(tmp_path):
    """The last figure before every picture, in one scope; the page itself is run by tests/test_package.py."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nfrom matplotlib import pyplot as plt\nwide = plt.figure(figsize=(3, 1))\n```\n"
        "```python\nwide.set_size_inches(4, 1)\n```\n\n![Nothing](images/wide.png)\n\n"
        "```python\nplt.figure(figsize=(1, 2))\n```\n\n![Nothing](images/high.png)\n"
    )
    runpy.run_path(str(DOCS / "pictures.py"))["illustrate"](page, tmp_path)
    for name, size in (("wide", (400, 100)), ("high", (100, 200))):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size == size
