"""The map of the house is drawn from the house."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "architecture.py"
AGAIN = "out of date: run `python docs/architecture.py`"


@pytest.fixture(scope="module")
def map_of_the_house():
    return runpy.run_path(str(SCRIPT))


def test_the_page_and_its_picture_are_up_to_date(map_of_the_house):
    page, picture = map_of_the_house["PAGE"].read_text(), map_of_the_house["PICTURE"].read_text()
    assert picture == map_of_the_house["picture"](), AGAIN
    assert page == map_of_the_house["filled"](page), AGAIN


def test_the_rooms_are_those_of_the_layers(map_of_the_house):
    from test_layers import ROOMS  # noqa: PLC0415 (a module of the tests)

    drawn = map_of_the_house["ROOMS"]
    assert [room for room in ROOMS if room in drawn] == list(drawn)
    assert set(ROOMS) - set(drawn) == {"__main__", "rules", "display", "formatting", "errors"}


def test_walks_are_recorded_in_order(map_of_the_house):
    from dasp.formatting import within  # noqa: PLC0415

    assert map_of_the_house["walked"](lambda: within(1.0, 0.1)) == [("formatting", ["within", "number"])]
