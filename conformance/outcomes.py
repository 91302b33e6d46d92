"""A pytest plugin that writes the outcome of every test to a file, as JSON, and whether it made an object of ours.

CONFORMANCE_OUTCOMES names the file. CONFORMANCE_ONLY may name a file with the ids of the tests to run; others are left
out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from dasp import Explainer
from dasp.attribution.base import PlayerMethod

__all__ = [
    "pytest_collection_modifyitems",
    "pytest_collectreport",
    "pytest_configure",
    "pytest_runtest_logreport",
    "pytest_runtest_protocol",
    "pytest_sessionfinish",
]

_MADE = [0]  # objects of ours
_FOUND: dict[str, dict[str, Any]] = {}  # by the test's id: its outcome, the last line of why, and if ours were made


def _counted(cls: Any) -> None:
    """Count the objects of a class that are made."""
    initialise = cls.__init__

    @wraps(initialise)
    def counting(self: Any, *args: Any, **options: Any) -> None:
        _MADE[0] += 1
        initialise(self, *args, **options)

    cls.__init__ = counting


def _ours() -> list[type]:
    """Return the classes of ours that tests may use: where there is one, with the approximator for shapiq."""
    classes: list[type] = [PlayerMethod, Explainer]
    try:
        from dasp.explainer.shapiq_adapter import ShapiqApproximator  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return classes
    return [*classes, ShapiqApproximator]


def pytest_configure() -> None:
    """Count from now on."""
    for cls in _ours():
        _counted(cls)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what is not asked for."""
    if "CONFORMANCE_ONLY" in os.environ:
        wanted = set(json.loads(Path(os.environ["CONFORMANCE_ONLY"]).read_text()))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    """Note if a test, or a fixture of it, makes an object of ours."""
    before = _MADE[0]
    result = yield
    _FOUND.setdefault(item.nodeid, {"outcome": "passed", "why": ""})["ours"] = _MADE[0] > before
    return result


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the outcome; a test passes if its call does, and nothing around it fails."""
    if report.outcome == "passed" and report.when != "call":
        return
    found = _FOUND.setdefault(report.nodeid, {"outcome": report.outcome, "why": _why(report)})
    if report.outcome != "passed":
        found.update(outcome=report.outcome, why=_why(report))


def pytest_collectreport(report: Any) -> None:
    """Keep files that cannot be imported."""
    if report.outcome != "passed" and report.nodeid:
        _FOUND[report.nodeid] = {"outcome": report.outcome, "why": _why(report), "ours": True}


def pytest_sessionfinish() -> None:
    """Write all outcomes."""
    Path(os.environ["CONFORMANCE_OUTCOMES"]).write_text(json.dumps(_FOUND, indent=1))


def _why(report: Any) -> str:
    if report.outcome == "passed":
        return ""
    if report.outcome == "skipped":
        skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        return str(skipped)
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longrepr).splitlines()
    told = [line for line in lines if line.strip()]
    return (told[0] if crash is not None else told[-1]) if told else ""
