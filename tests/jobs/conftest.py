"""What all tests of jobs have."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_heartbeat(monkeypatch):
    """Jobs say every half minute that they are alive; on a busy machine, tests would read that, too."""
    monkeypatch.setattr("dasp.games.progress._LINE", 1e6)
