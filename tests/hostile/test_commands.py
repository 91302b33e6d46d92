"""Input that cannot be used: one line on stderr that says what and where, exit code 2, and nothing left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bad_files import write_bad_files, write_outputs
from commands import AUDITS, CASES
from explain_files import FACTORY, besides_random, dasp, rows
from filelock import FileLock


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All files of the table."""
    here = tmp_path_factory.mktemp("bad")
    write_bad_files(here)
    return here


def _nothing_left(here: Path, before: set[str]) -> None:
    assert {str(file) for file in here.rglob("*") if "__pycache__" not in str(file)} == before


@pytest.fixture
def before(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return {str(file) for file in folder.rglob("*") if "__pycache__" not in str(file)}


@pytest.mark.parametrize("name", CASES)
def test_one_line_and_exit_code_2(name, folder, before):
    command, expected = CASES[name]
    result = dasp("explain", *shlex.split(command), *([] if " -o " in command else ["-o", "out.parquet"]))
    assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert result.err.startswith("dasp: ")
    assert expected in result.err
    _nothing_left(folder, before)


@pytest.fixture(scope="module")
def with_values(folder):
    """Outputs of dasp explain, whole and otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_outputs(folder)


@pytest.mark.usefixtures("with_values")
@pytest.mark.parametrize("name", AUDITS)
def test_one_line_and_exit_code_2_of_audits(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = {str(file) for file in folder.rglob("*") if "__pycache__" not in str(file)}
    command, expected = AUDITS[name]
    result = dasp("audit", *shlex.split(command))
    assert (result.code, result.err.count("\n"), result.out) == (2, 1, ""), result.err
    assert result.err.startswith("dasp: ")
    assert expected in result.err
    _nothing_left(folder, before)


@pytest.mark.parametrize("command", ["divine", "explain small:build rows.csv", "--speed 3"])
def test_usage(command, folder, before):
    result = dasp(*command.split())
    assert (result.code, result.err.count("\n")) == (2, 1), result.err


def test_there_are_enough_cases():
    assert len({command for command, _ in CASES.values()}) == len(CASES) >= 200
    assert not [name for name, (command, expected) in CASES.items() if expected in command]  # an echo says nothing


def test_ray_is_missing(folder, before, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet", "--engine", "ray")
    assert (result.code, result.err) == (2, "dasp: ray is missing: pip install 'torch-dasp[cluster]'\n")
    _nothing_left(folder, before)


# Python is started once; then every command has a process of its own, forked where all is imported.
FORKING = """
import os, sys
import dasp.jobs.execution
from dasp.cli import main

def forked(*arguments):
    if os.fork() == 0:
        sys.argv[1:] = arguments
        main()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def run_forking(code, *arguments, cwd):
    """The exit codes and the lines on stderr of what `code` forks."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING + code, *arguments]  # of forking
    # Where no file may be larger than 5000 bytes, Python leaves the beginning of a module's compiled code.
    compiled = {"PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd, env=os.environ | compiled)
    return [int(line) for line in result.stdout.splitlines() if line.isdigit()], result.stderr.splitlines()


VAST = """

def vast():
    return nn.Linear(2**17, 2**17)
"""

AS_PROCESSES = """
import resource

*commands, folder, first, second = sys.argv[1:]
for command in commands:
    forked("explain", *command.split(), "-o", "out.parquet")
for size in (first, second):
    os.chdir(os.path.join(folder, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    forked("explain", "small:build", "rows.npy", "-o", "out.parquet", "--chunk", "20")
with open("/proc/self/statm") as pages:
    taken = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**28, resource.RLIM_INFINITY))  # as `ulimit -v` does
forked("explain", "small:vast", "rows.npy", "-o", "out.parquet", "--overwrite")
"""


def test_as_processes_on_a_full_disk_and_without_memory(folder, before, tmp_path):
    sizes = ["100", "5000"]  # not even the job fits; the chunks do, the output does not
    for size in sizes:
        (tmp_path / size).mkdir()
        (tmp_path / size / "small.py").write_text(FACTORY + VAST)
        np.save(tmp_path / size / "rows.npy", rows(200))
    cases = [CASES[name] for name in ("CSV with text", "pickled model", "unknown option")]
    codes, lines = run_forking(AS_PROCESSES, *(command for command, _ in cases), tmp_path, *sizes, cwd=folder)
    lines = [line for line in lines if besides_random(line)]
    assert codes == [2] * 5 + [1], "\n".join(lines)
    assert "there is not enough memory (can't allocate memory): give the process more" in lines.pop()
    for line, (_, expected) in zip(lines[:3], cases, strict=True):
        assert expected in line
    _nothing_left(folder, before)
    for line, size in zip(lines[3:5], sizes, strict=True):
        assert "cannot be written: File too large" in line
        assert not (tmp_path / size / "out.parquet").exists()
        assert (tmp_path / size / "out.parquet.parts").exists() == (size == "5000")  # the rows that are done stay


def test_two_at_once(folder, before):
    parts = folder / "out.parquet.parts"
    parts.mkdir()
    with FileLock(parts / "lock"):
        result = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "another process is writing it" in result.err
    (parts / "lock").unlink()
    parts.rmdir()
    _nothing_left(folder, before)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(folder, before, tmp_path):
    tmp_path.chmod(0o500)
    result = dasp("explain", "small:build", "rows.csv", "-o", tmp_path / "out.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "cannot be written: Permission denied" in result.err
