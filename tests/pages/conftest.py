"""A real browser. `make test` installs Chromium where it can; where there is none, its tests are skipped."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from reported import write_files

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def browser():
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    root = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []  # which Chromium refuses otherwise
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=[*QUIET, *root])
        yield running
        running.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_files(folder)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    """Where models, data, outputs and pages are."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def flaws():
    """What is wrong with how a page looks, by what it is."""
    checks = (Path(__file__).parent / "seen.js").read_text()

    def found(page, root="main"):
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        seen = page.evaluate(f"(root) => Object.entries({checks}).map(([name, check]) => [name, check(root)])", root)
        return {name: what for name, what in [["too wide", max(0, wide)], *seen] if what}

    return found


@pytest.fixture
def look(browser):
    """Open a file, as `look(file, width=390, scheme="dark")`. In the end, nothing may have gone wrong in it, and
    nothing may have been asked of the network."""
    wrong, contexts = [], []

    def opened(file, *, width=1280, scheme="light", at=""):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(asked.url))
        page.goto(f"{file.as_uri()}{at}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
