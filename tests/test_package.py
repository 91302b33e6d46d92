"""The package as a user meets it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import re
import runpy
import zipfile
from pathlib import Path

import pytest
import torch
import typer
from matplotlib import pyplot as plt

import dasp
from dasp.cli import app
from dasp.propagation.rules import RULES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = ROOT / "docs" / "command-line.md"

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT).with_suffix("")))


def test_everything_public_is_exported_and_documented():
    declared = {}  # to type checkers
    for node in ast.walk(ast.parse(Path(dasp.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dasp."):
            declared |= {alias.name: node.module for alias in node.names}
    assert set(declared) == set(dasp.__all__) <= set(dir(dasp))
    for name, home in declared.items():
        assert inspect.getdoc(getattr(dasp, name)), name
        assert getattr(dasp, name) is getattr(importlib.import_module(home), name), name
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = dasp.absent


@pytest.fixture
def left_as_it_was(tmp_path, monkeypatch):
    """Snippets write files, register rules, draw random numbers and open figures."""
    monkeypatch.chdir(tmp_path)
    plt.close("all")  # those of other tests: matplotlib warns of many
    rules = set(RULES)
    with torch.random.fork_rng(devices=[]):
        yield
    for op in set(RULES) - rules:
        del RULES[op]
    plt.close("all")


@pages
@pytest.mark.usefixtures("left_as_it_was")
def test_every_snippet_runs_and_prints_what_the_page_shows(page):
    """The snippets of a page run in order, in one scope. A text block directly below one is what it prints."""
    text = page.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python")
    assert sum(bool(shown) for _, shown in blocks) == text.count("```text")
    scope: dict = {"__name__": "__main__"}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), scope)
        if shown:
            assert [line.rstrip() for line in printed.getvalue().splitlines()] == shown.splitlines()


@pages
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert all((page.parent / link).exists() for link in links), links


def test_every_page_is_linked_from_the_first_one_or_from_that_of_the_reference():
    """The README leads to the first one, and to where people begin."""
    readme, docs = (ROOT / "README.md").read_text(), ROOT / "docs"
    assert {"(docs/index.md)", "(docs/start.md)"} <= set(re.findall(r"\(docs/[a-z-]+\.md\)", readme))
    linked = {docs / "index.md"}
    for index in (docs / "index.md", docs / "api" / "index.md"):
        linked |= {index.parent / link for link in re.findall(r"\]\(([^)#:]+\.md)\)", index.read_text())}
    assert set(PAGES[1:]) == linked


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_picture_of_the_readme_can_be_drawn(tmp_path, monkeypatch):
    """From fewer images and permutations, elsewhere."""
    pictures = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
    main = pictures["main"]
    x, y = pictures["digits"]()
    smaller = {"PICTURE": tmp_path / "digits.png", "PERMUTATIONS": 2, "TEST": 200, "digits": lambda: (x[:800], y[:800])}
    for name, value in smaller.items():
        monkeypatch.setitem(main.__globals__, name, value)
    with torch.random.fork_rng(devices=[]):
        main()
    assert (tmp_path / "digits.png").stat().st_size > 10_000


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path, monkeypatch):
    backend = pytest.importorskip("hatchling.build", reason="hatchling builds the wheel")
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / backend.build_wheel(str(tmp_path))) as wheel:
        built = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = (file for file in (ROOT / "src").rglob("*") if file.is_file() and file.suffix != ".pyc")
    assert built == {file.relative_to(ROOT / "src").as_posix() for file in source}
    assert {name.partition("/")[0] for name in built} == {"dasp"}


def test_every_make_command_exists():
    commands = {command for page in PAGES for command in re.findall(r"^make (\w+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= commands
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)


def test_every_dasp_command_exists():
    commands = {command for page in PAGES for command in re.findall(r"^dasp (\w+)", page.read_text(), re.MULTILINE)}
    assert commands == {command.callback.__name__ for command in app.registered_commands}


def test_every_option_exists_and_is_explained():
    group = typer.main.get_command(app)
    commands = [group, *group.commands.values()]
    options = {name for command in commands for option in command.params for name in option.opts if name[:2] == "--"}
    explained = set(re.findall(r"`(--[a-z-]+)", COMMANDS.read_text()))
    assert explained == options
