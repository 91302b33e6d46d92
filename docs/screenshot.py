"""The pictures of reports, photographed in Chromium: `python docs/screenshot.py`.

That of the README runs the snippets of the five-minute start and explains its table by the command of that page, but
with few evaluations, so that there are error bars; that of the first page is the top of what its snippet writes.
"""
# ruff: noqa: INP001  # a script, not a module

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from dasp.cli import app

DOCS = Path(__file__).parent
PICTURES = DOCS / "images"
WIDTH, HEIGHT, SCALE = 1120, 900, 0.75  # pixels of the window, and how much smaller the picture of the README is
TOP = 644  # pixels of the page that the first page shows


def run(page: Path) -> str:
    """Run the snippets of a page in this folder, and return its text."""
    text, scope = page.read_text(), {"__name__": "__main__"}
    for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(code, page.name, "exec"), scope)  # noqa: S102 (our own page)
    return text


def report() -> Path:
    """The page of the five-minute start, in this folder."""
    command, *_ = re.findall(r"^dasp (explain .*)$", run(DOCS / "start.md"), re.MULTILINE)
    few = ("--method", "BayesianShapley on GradientDASP", "--max-evaluations", "64")
    app([*command.split(), *few], standalone_mode=False)
    return Path("page.html").absolute()


def top() -> Path:
    """The page of the first page's snippet, in this folder."""
    run(DOCS / "index.md")
    return Path("page.html").absolute()


def compact(photograph: str, scale: float, picture: Path) -> None:
    """Save a photograph smaller, with 256 colours."""
    with Image.open(photograph) as whole:
        size = round(whole.width * scale), round(whole.height * scale)
        small = whole.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        small.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(picture, optimize=True)


def main() -> None:
    """Take the pictures."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    root = ["--no-sandbox"] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        os.chdir(folder)
        page = driver.chromium.launch(executable_path=program, args=root).new_page(
            viewport={"width": WIDTH, "height": HEIGHT}
        )
        page.goto(top().as_uri())
        page.screenshot(path="top.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": TOP})
        compact("top.png", 1, PICTURES / "report-top.png")
        page.goto(f"{report().as_uri()}#row=1")
        page.screenshot(path="whole.png", full_page=True)
        compact("whole.png", SCALE, PICTURES / "report.png")
        os.chdir(DOCS)


if __name__ == "__main__":
    main()
