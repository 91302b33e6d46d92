"""The tables of the pages are what `benchmarks/page_tables.py` makes of the data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import page_tables
import reproduced
from dasp.evaluation import Result

AGAIN = "tables are out of date: run `python benchmarks/page_tables.py`"
GENERATED = ("benchmarks.md", "paper.md")


@pytest.mark.parametrize("page", page_tables.PAGES, ids=lambda page: page.stem)
def test_tables_are_up_to_date(page):
    text = page.read_text()
    assert text == page_tables.filled(text), AGAIN
    assert text.count("<!-- table:") == text.count("<!-- /table -->") == len(page_tables.TABLE.findall(text))


@pytest.mark.parametrize("name", GENERATED)
def test_no_table_of_figures_is_typed(name):
    (page,) = (page for page in page_tables.PAGES if page.name == name)
    rest = page_tables.TABLE.sub("", page.read_text())
    assert not re.search(r"^\|.*\d", rest, re.MULTILINE)


def test_all_data_are_shown_and_say_where_they_are_from():
    shown = {name for page in page_tables.PAGES for _, name, _ in page_tables.TABLE.findall(page.read_text())}
    files = sorted(page_tables.DATA.glob("*.csv"))
    assert {file.stem for file in files} <= shown
    assert set(page_tables.MADE) <= shown
    for file in files:
        about, rows = page_tables.read(file)
        assert set(about) == {"by", "version", "date"}, file
        assert len({len(row) for row in rows}) == 1, file
        script = re.match(r"benchmarks/\w+\.py", about["by"])
        assert script is None or (Path(page_tables.__file__).parents[1] / script[0]).exists()


def test_results_come_back_from_their_file(tmp_path, monkeypatch):
    results = (
        Result("DASP", 4, 64, 32, 0.00123456, 0.5, 0.1, 0.9, 0.05, seconds_alone=0.1, seconds_first=0.2),
        Result("Saliency", None, 3, 3, 0.001, 1.5, 0.1, 0.1, 0.05, seconds_alone=0.1, seconds_first=0.2),
    )
    monkeypatch.setattr(page_tables, "DATA", tmp_path)
    reproduced.write_csv(tmp_path / "folder" / "one.csv", [result.numbers() for result in results])
    assert page_tables.results("folder", "one") == (replace(results[0], seconds=0.001235), results[1])


def test_claims_are_those_of_the_run():
    experiments = {row[0] for row in page_tables._claims()}
    assert experiments == set(page_tables.EXPERIMENTS) == set(page_tables._about()["experiments"])
    assert all(row[3] in ("yes", "no") or row[3].startswith("not enough") for row in page_tables._claims())
