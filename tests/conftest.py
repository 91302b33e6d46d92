"""What all tests need."""

from __future__ import annotations

import os

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


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items):
    """With --dist loadgroup, tests that share a fixture of their module run in one process, where it is made once."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
        if any(fixture.scope == "module" for definitions in fixtures for fixture in definitions):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
