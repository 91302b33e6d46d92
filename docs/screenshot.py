"""The picture of the report: `python docs/screenshot.py` runs the snippets of the five-minute start, explains its table
by the command of that page, but with few evaluations, so that there are error bars, and photographs it in Chromium.
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

START = Path(__file__).parent / "start.md"
PICTURE = Path(__file__).parent / "images" / "report.png"
WIDTH, HEIGHT, SCALE = 1120, 900, 0.75  # pixels of the window, and how much smaller the picture is


def report() -> Path:
    """The page of the five-minute start, in this folder."""
    text, scope = START.read_text(), {"__name__": "__main__"}
    for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(code, START.name, "exec"), scope)  # noqa: S102 (our own page)
    command, *_ = re.findall(r"^dasp (explain .*)$", text, re.MULTILINE)
    few = ("--method", "BayesianShapley on GradientDASP", "--max-evaluations", "64")
    app([*command.split(), *few], standalone_mode=False)
    return Path("page.html").absolute()


def main() -> None:
    """Take the picture."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    root = ["--no-sandbox"] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        os.chdir(folder)
        page = driver.chromium.launch(executable_path=program, args=root).new_page(
            viewport={"width": WIDTH, "height": HEIGHT}
        )
        page.goto(f"{report().as_uri()}#row=1")
        page.screenshot(path="whole.png", full_page=True)
        with Image.open("whole.png") as whole:
            size = round(whole.width * SCALE), round(whole.height * SCALE)
            small = whole.convert("RGB").resize(size, Image.Resampling.LANCZOS)
            small.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
        os.chdir(START.parent)


if __name__ == "__main__":
    main()
