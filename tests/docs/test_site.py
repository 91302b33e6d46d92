"""The documentation site: it is built without a warning, needs no other host, and has every page and public name."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = (
    "dasp", "dasp.players", "dasp.plots", "dasp.methods", "dasp.evaluation", "dasp.errors", "dasp.explainer",
    "dasp.propagation", "dasp.rules",
)  # fmt: skip
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
LINKS = {"canonical", "next", "prev", "alternate"}  # of <link>: these load nothing


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    told = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    """What a page loads by itself, and its pictures."""

    def __init__(self, file):
        super().__init__()
        self.loaded, self.pictures = [], []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "img":
            self.pictures.append(given)
        if given.get(LOADING.get(tag, "")) and not (tag == "link" and given.get("rel") in LINKS):
            self.loaded.append(given[LOADING[tag]])


def test_it_is_built_without_a_warning_and_every_page_is_there(site):
    pages = {file.relative_to(DOCS).with_suffix(".html") for file in DOCS.rglob("*.md")}
    assert pages <= {file.relative_to(site) for file in site.rglob("*.html")}
    assert not list(site.rglob("*.py"))


def test_every_page_is_in_the_navigation():
    def files(part):
        if isinstance(part, str):
            return {part}
        return set().union(*map(files, part.values() if isinstance(part, dict) else part))

    settings = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text())
    named = files(yaml.safe_load(settings)["nav"])
    there = {str(file.relative_to(DOCS)) for suffix in ("md", "ipynb") for file in DOCS.rglob(f"*.{suffix}")}
    assert named == {name for name in there if ".ipynb_checkpoints" not in name}


def test_nothing_is_loaded_from_another_host(site):
    for file in site.rglob("*.html"):
        outside = [address for address in Page(file).loaded if re.match(r"(\w+:)?//", address)]
        assert not outside, file
    styles = "".join(file.read_text() for file in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?(https?:)?//|@import", styles)


def test_what_is_loaded_is_there_and_pictures_are_described(site):
    for file in set(site.rglob("*.html")) - {site / "404.html"}:  # which only a server shows, at any address
        page = Page(file)
        own = [address for address in page.loaded if not address.startswith(("data:", "http"))]
        assert all((file.parent / re.sub(r"[?#].*", "", address)).exists() for address in own), file
        described = (len(picture.get("alt", "")) > 40 for picture in page.pictures)
        assert file.parent.name == "notebooks" or all(described), file


def test_search_needs_no_server(site):
    assert (site / "search" / "search_index.js").read_text().startswith("var __index")
    assert "assets/iframe-worker.js" in (site / "index.html").read_text()


def home(room, name):
    """Where a name is defined: `dasp.evaluation.trials` is a function, and the module it is in."""
    found = getattr(importlib.import_module(room), name)
    return f"{getattr(found, '__module__', room)}.{name}"


def test_every_public_name_is_in_the_reference(site):
    """Compared with the inventory, which has the names that other sites can link to."""
    content = (site / "objects.inv").read_bytes().split(b"\n", 4)[-1]  # behind four lines of text
    documented = {line.split()[0] for line in zlib.decompress(content).decode().splitlines()}
    public = [(room, name) for room in ROOMS for name in importlib.import_module(room).__all__]
    assert {("dasp", "DASP"), ("dasp.players", "blocks"), ("dasp.errors", "BadInput")} <= set(public)
    assert [at for at in public if not {f"{at[0]}.{at[1]}", home(*at)} & documented] == []
    assert {"dasp.Explainer.attribute", "dasp.GradientDASP.interactions", "dasp.axioms.report"} <= documented


def test_what_docstrings_say_in_examples_is_code(site):
    text = (site / "api" / "estimators.html").read_text()
    assert "<blockquote" not in text
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text


@pytest.mark.parametrize("name", ["index", "how-it-works", "benchmarks", "api/estimators", "notebooks/table"])
def test_pages_are_readable_in_a_browser(site, look, flaws, name):
    """The theme's script sets the colours, in the frame after the system's have changed."""
    page = look(site / f"{name}.html")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme, name_of_theme in (("light", "default"), ("dark", "slate")):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_selector(f"body[data-md-color-scheme={name_of_theme}]:not([data-md-color-switching])")
            assert flaws(page, "article") == {}
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
            assert dark == (scheme == "dark")


def test_search_finds_pages(site, look):
    page = look(site / "index.html")
    page.keyboard.press("/")
    page.get_by_text("Type to start searching").wait_for()  # the index has been read
    page.keyboard.type("posterior")
    found = page.locator(".md-search-result__link").first
    address = found.evaluate("(link) => link.href")
    found.click()
    page.wait_for_url(address)
    assert "posterior" in page.locator("article").inner_text().lower()
