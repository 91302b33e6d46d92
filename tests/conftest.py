"""What all tests need."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import torch

os.environ.setdefault("KERAS_BACKEND", "torch")  # read once, when keras is imported
os.environ.setdefault("MPLBACKEND", "Agg")


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


# With several processes, tests that share something that takes long to make are run by one of them: those of a file or
# folder, or in two files those of a case of test_rules, whose graph is traced once. All others go to whoever is free.
TOGETHER = (
    "tests/docs/test_notebooks.py",  # one kernel
    "tests/docs/test_site.py",  # one build
    "tests/jobs/test_ray.py",  # one Ray
    "tests/pages/",  # pages of all kinds
    "tests/paper/test_peers.py",  # what shap compiles
    "tests/paper/test_reproduce.py",  # one run of the experiments
)
BY_CASE = {"tests/attribution/test_differences.py", "tests/propagation/test_rules.py"}

# What takes longest, a file that stays together or a test, by the beginning of its name: run first, in this order, so
# that no process is left alone with it at the end. `pytest --durations=20` tells what belongs here.
FIRST = (
    "tests/docs/test_notebooks.py",
    "tests/pages/",
    "tests/jobs/test_ray.py",
    "tests/paper/test_reproduce.py",
    "tests/paper/test_peers.py",
    "tests/attribution/test_accuracy.py",
    "tests/propagation/test_rules.py::test_every_rule_has_a_case",
)


def group(name: str) -> str:
    """The tests that one process is to run, for the name of one of them.

    >>> group("tests/jobs/test_ray.py::test_bytes"), group("tests/test_start.py::test_import")
    ('tests/jobs/test_ray.py', 'tests/test_start.py::test_import')
    >>> group("tests/propagation/test_rules.py::test_moments[max dim-3]")
    'case max dim'
    """
    file, _, test = name.partition("::")
    if file in BY_CASE and test.endswith("]"):
        return "case " + re.sub(r"(-\d.*)?\]$", "", test.partition("[")[2])
    return next((start for start in TOGETHER if name.startswith(start)), name)


def pytest_collection_modifyitems(items):
    order = {start: place for place, start in enumerate(FIRST)}
    items.sort(key=lambda item: min((order[s] for s in FIRST if item.nodeid.startswith(s)), default=len(FIRST)))


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
