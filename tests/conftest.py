"""What all tests need."""

from __future__ import annotations

import gc
import os
import random
import shutil
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from scheduling import group, is_slow, place

os.environ.setdefault("KERAS_BACKEND", "torch")  # read once, when keras is imported
os.environ.setdefault("MPLBACKEND", "Agg")
around = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
os.environ["no_proxy"] = f"{around},127.0.0.1,localhost".strip(",")  # servers of tests are not behind a proxy
DATA = os.environ.get("DASP_DATA", "")
if DATA and not Path(DATA).is_dir():  # as in a clone elsewhere
    del os.environ["DASP_DATA"]


def pytest_report_header():
    """Say that tests which need the real data will be skipped."""
    if "DASP_DATA" in os.environ:
        return None
    return f"DASP_DATA {f'is {DATA}, which is no folder' if DATA else 'is not set'}: tests do without the real data"


# The same examples every time, however slow the machine is; `pytest --hypothesis-profile default` looks for others.
hypothesis.settings.register_profile(
    "dasp", deadline=None, derandomize=True, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("dasp")


def seed(number):
    torch.manual_seed(number)
    np.random.seed(number)  # noqa: NPY002 (that of everybody)
    random.seed(number)


def pytest_collectstart(collector):
    """What a test draws does not depend on the tests before it: neither what its module draws when it is imported, …"""
    seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """… nor its fixtures, …"""
    seed(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """… nor the test itself."""
    seed(2)


@pytest.fixture(autouse=True)
def same_threads():
    """Commands set the number of threads of their process, which here is that of other tests, too."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def browser():
    """A real browser. `make test` installs Chromium where it can; where there is none, its tests are skipped."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    root = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []  # which Chromium refuses otherwise
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=[*QUIET, *root])
        yield running
        running.close()


@pytest.fixture
def flaws():
    """What is wrong with how a page looks once it rests, by the name of the check."""
    script = (Path(__file__).parent / "seen.js").read_text()
    seen = f"""async (root) => {{
        const {{ settle, ...checks }} = {script};
        await settle();
        const wide = Math.max(0, document.documentElement.scrollWidth - innerWidth);
        return [["too wide", wide], ...Object.entries(checks).map(([name, check]) => [name, check(root)])];
    }}"""

    def found(page, root="main"):
        return {name: what for name, what in page.evaluate(seen, root) if what}

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


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: place(item.nodeid))
    for item in items:
        if is_slow(item.nodeid) or "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


def pytest_collection_finish(session):
    """Tracing a model makes many small objects; looking at all others as often as Python does takes a sixth of the
    time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_ignore_collect(collection_path, config):
    """Files without a quick test are not even imported by `make quick`."""
    path = collection_path.relative_to(config.rootpath).as_posix() + "/" * collection_path.is_dir()
    return (config.option.markexpr == "not slow" and is_slow(path)) or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --numprocesses, and no other --dist. (`--dist loadgroup` groups nothing with pytest 9.2: xdist #1386.)"""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 (only where there are several processes)

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    config.option.loadscopereorder = False  # by the number of tests
    return Scheduling(config, log)
