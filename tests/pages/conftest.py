"""Pages of every kind."""

from __future__ import annotations

import pytest
from reported import write_files


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
