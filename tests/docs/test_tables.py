"""The tables of the pages are what `benchmarks/tables.py` makes of the data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tables

AGAIN = "tables are out of date: run `python benchmarks/tables.py`"
GENERATED = ("benchmarks.md", "paper.md")


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_tables_are_up_to_date(page):
    text = page.read_text()
    assert text == tables.filled(text), AGAIN
    assert text.count("<!-- table:") == text.count("<!-- /table -->") == len(tables.TABLE.findall(text))


@pytest.mark.parametrize("name", GENERATED)
def test_no_table_of_figures_is_typed(name):
    (page,) = (page for page in tables.PAGES if page.name == name)
    rest = tables.TABLE.sub("", page.read_text())
    assert not re.search(r"^\|.*\d", rest, re.MULTILINE)


def test_all_data_are_shown_and_say_where_they_are_from():
    shown = {name for page in tables.PAGES for _, name, _ in tables.TABLE.findall(page.read_text())}
    files = sorted(tables.DATA.glob("*.csv"))
    assert {file.stem for file in files} <= shown
    assert set(tables.MADE) <= shown
    for file in files:
        about, rows = tables.read(file)
        assert set(about) == {"by", "version", "date"}, file
        assert len({len(row) for row in rows}) == 1, file
        script = re.match(r"benchmarks/\w+\.py", about["by"])
        assert script is None or (Path(tables.__file__).parents[1] / script[0]).exists()


def test_claims_are_those_of_the_run():
    experiments = {row[0] for row in tables._claims()}
    assert experiments == set(tables.EXPERIMENTS) == set(tables._about()["experiments"])
    assert all(row[3] in ("yes", "no") or row[3].startswith("not enough") for row in tables._claims())
