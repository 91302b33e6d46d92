"""Experiments without data: no data folder, an empty cache and no network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproduction.mnist import FILES
from reproduction.parkinsons import FILE

NOWHERE = "http://127.0.0.1:9/"  # nothing listens there


def isolate(patch, folder):
    """Leave nothing to find but what stands in."""
    patch.delenv("DASP_DATA", raising=False)
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    patch.setattr("reproduction.parkinsons.FILE", replace(FILE, url=NOWHERE))
    patch.setattr("reproduction.mnist.FILES", {name: replace(file, url=NOWHERE) for name, file in FILES.items()})
    return folder


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A folder, and no data anywhere."""
    return isolate(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def all_alone(tmp_path_factory):
    """The same for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        yield isolate(patch, tmp_path_factory.mktemp("alone"))
