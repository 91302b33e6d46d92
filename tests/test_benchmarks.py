"""The studies in benchmarks/ take long and are run by hand; here each is at least imported."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

STUDIES = sorted(file.stem for file in (Path(__file__).parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.filterwarnings("ignore:The set_.* function:PendingDeprecationWarning")  # shap colours its plots so
@pytest.mark.parametrize("study", STUDIES)
def test_its_names_are_still_there(study):
    importlib.import_module(study)
