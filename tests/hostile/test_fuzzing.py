"""The fuzzers for a short while: the same few files every time. `make fuzz` goes on for an hour."""

from __future__ import annotations

import math

import file_fuzzer
import output_fuzzer
import pytest
from fuzzer import Subject, fuzz

from dasp.errors import BadInput

_FILES, _OUTPUTS = 60, 12  # of each kind


@pytest.mark.parametrize(
    ("subjects", "tries"),
    [(file_fuzzer.subjects, _FILES), (output_fuzzer.subjects, _OUTPUTS)],
    ids=["files", "outputs"],
)
def test_nothing_is_found(subjects, tries):
    tried, findings = fuzz(subjects(), math.inf, seed=0, tries=tries)
    assert findings == []
    assert {one.outcomes.total() for one in tried.values()} == {tries}
    assert all(one.outcomes["refused"] for one in tried.values())
    assert sum(one.outcomes["read"] for one in tried.values()) > len(tried)  # damage that is only damage is no test


def _reads(what):
    def read(file, _):
        if what == "a traceback":
            raise KeyError("a")
        if what == "two lines":
            raise BadInput("one\ntwo")
        if what == "a program":
            import subprocess  # noqa: PLC0415

            subprocess.run(["true"], check=True)
        if what == "a file":
            file.parent.with_name("other").write_text("x")
        if what == "a crash":
            import os  # noqa: PLC0415

            os._exit(9)

    return read


@pytest.mark.parametrize(
    ("what", "said"),
    [("a traceback", "KeyError"), ("two lines", "two lines: 'one"), ("a program", "subprocess.Popen"),
     ("a file", "open "), ("a crash", "the process ended with 9")],
)  # fmt: skip
def test_what_hurts_is_found(what, said, tmp_path, monkeypatch):
    def make(folder, chance, bait):
        (folder / "a").write_text("x")
        return folder / "a"

    monkeypatch.chdir(tmp_path)
    subject = Subject("a kind", lambda folder: [], make, _reads(what))
    _, findings = fuzz([subject], math.inf, seed=0, tries=1)
    assert said in findings[0]
    assert (tmp_path / "fuzz-findings").is_dir()
