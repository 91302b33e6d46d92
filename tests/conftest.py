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


# Files whose tests share something that takes long to make; with several processes, each is run by one of them, and
# these files first, so that no process is left alone with one at the end. All other tests go to whoever is free.
TOGETHER = {
    "tests/propagation/test_rules.py": "rules",  # every case is traced once
    "tests/attribution/test_differences.py": "rules",  # the same cases
    "tests/jobs/test_ray.py": "ray",  # one Ray
    "tests/paper/test_reproduce.py": "reproduce",  # one run of the experiments
    "tests/docs/test_notebooks.py": "notebooks",  # one kernel
    "tests/pages/test_report.py": "pages",  # the pages of all kinds
    "tests/pages/test_report_in_browser.py": "pages",  # and one browser
    "tests/pages/test_site_in_browser.py": "pages",
    "tests/docs/test_site.py": "site",  # one build
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --numprocesses, and no other --dist. (`--dist loadgroup` groups nothing with pytest 9.2: xdist #1386.)"""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 (only where there are several processes)

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return TOGETHER.get(nodeid.split("::")[0], nodeid)

    return Scheduling(config, log)
