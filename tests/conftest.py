"""What all tests need."""

from __future__ import annotations

import os
import re

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


# With several processes, tests that share something that takes long to make are run by one of them: those of a file, or
# in these two files those of a case of test_rules, whose graph is traced once. All others go to whoever is free.
TOGETHER = {
    "tests/jobs/test_ray.py",  # one Ray
    "tests/paper/test_peers.py",  # what shap compiles
    "tests/paper/test_reproduce.py",  # one run of the experiments
}
BY_CASE = {"tests/attribution/test_differences.py", "tests/propagation/test_rules.py"}

# What takes longest, a file that stays together or a test, by the beginning of its name: run first, in this order, so
# that no process is left alone with it at the end. `pytest --durations=20` tells what belongs here.
FIRST = (
    "tests/jobs/test_ray.py",
    "tests/paper/test_reproduce.py",
    "tests/paper/test_peers.py",
    "tests/attribution/test_accuracy.py",
    "tests/propagation/test_rules.py::test_every_rule_has_a_case",
)


def group(name: str) -> str:
    """The tests that one process is to run, for the name of one of them.

    >>> group("tests/jobs/test_ray.py::test_bytes"), group("tests/test_start.py::test_import")
    ('tests/jobs/test_ray.py', 'tests/test_start.py::test_import')
    >>> group("tests/propagation/test_rules.py::test_moments[max dim-3]")
    'case max dim'
    """
    file, _, test = name.partition("::")
    if file in BY_CASE and test.endswith("]"):
        return "case " + re.sub(r"(-\d.*)?\]$", "", test.partition("[")[2])
    return file if file in TOGETHER else name


def pytest_collection_modifyitems(items):
    order = {start: place for place, start in enumerate(FIRST)}
    items.sort(key=lambda item: min((order[s] for s in FIRST if item.nodeid.startswith(s)), default=len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --numprocesses, and no other --dist. (`--dist loadgroup` groups nothing with pytest 9.2: xdist #1386.)"""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 (only where there are several processes)

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    config.option.loadscopereorder = False  # by the number of tests
    return Scheduling(config, log)
