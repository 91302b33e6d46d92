"""What the schedule of the tests names is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduling import BY_CASE, FIRST, SLOW, TOGETHER

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", sorted({*SLOW, *TOGETHER, *BY_CASE, *FIRST}))
def test_it_names_what_is_there(name):
    file, _, test = name.partition("::")
    path = ROOT / file
    assert path.is_dir() if file.endswith("/") else path.is_file()
    assert not test or f"\ndef {test}(" in path.read_text()
