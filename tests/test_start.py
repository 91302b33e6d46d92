"""What the command imports before it answers: nothing heavy where the answer does not need it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from explain_files import FACTORY, rows, write_csv

HEAVY = (
    "torch", "captum", "matplotlib", "pandas", "ray", "sklearn", "shap", "scipy", "keras", "onnxruntime", "PIL",
    "rich.progress", "pyarrow", "skimage", "transformers",
)  # fmt: skip
CODE = """
import json, sys

try:
    from dasp.__main__ import main
    main()
except SystemExit as stop:
    code = stop.code
print(json.dumps([code, [name for name in HEAVY if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    (folder / "small.py").write_text(FACTORY)
    write_csv(folder / "rows.csv", rows())
    np.save(folder / "rows.npy", rows())
    return folder


def imported(here, *arguments):
    """The exit code of `dasp …` and which of the heavy modules it imported; both are printed last."""
    command = [sys.executable, "-c", f"HEAVY = {HEAVY}\n{CODE}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=here)
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "--help"], ["explain", "--speed"]])
def test_help_and_usage_need_nothing(here, arguments):
    assert imported(here, *arguments) == [2 if "--speed" in arguments else 0, []]


@pytest.mark.parametrize(
    "arguments",
    [
        "small:build rows.csv --columns a,z",
        "absent.pt2 rows.csv",
        "small:build rows.csv --weights absent.pt",
        "small:build rows.npy --background absent.npy",
        "small:build rows.csv --players absent.json",
    ],
)
def test_what_is_wrong_with_files_is_said_without_torch(here, arguments):
    code, found = imported(here, "explain", *arguments.split(), "-o", "out.parquet")
    assert code == 2
    assert set(found) <= {"pyarrow"}


def test_a_job_imports_what_it_needs(here):
    code, found = imported(here, "explain", "small:build", "rows.csv", "-o", "out.parquet")
    assert code == 0
    assert {"torch", "pyarrow"} <= set(found) <= {"torch", "pyarrow", "captum", "matplotlib", "PIL"}  # Captum's own


def test_the_package_itself_is_light():
    code = f"import sys, dasp; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout == "[]\n"
