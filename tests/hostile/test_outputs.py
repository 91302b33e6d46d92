"""Outputs of `dasp explain` that somebody has changed: shown, or refused in one line, with bounded memory and time."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import Case, expected, numbers, table
from explain_files import dasp
from outputs import KINDS, ROWS, valid
from tampered_outputs import TAMPERED

from dasp.pages import write_report


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_as_they_are_written_are_shown(kind, tmp_path):
    assert write_report(valid(kind).write(tmp_path), tmp_path / "page.html") == ROWS


@pytest.mark.parametrize("name", TAMPERED)
def test_one_line_and_exit_code_2(name, tmp_path):
    kind, change, expected = TAMPERED[name]
    output = valid(kind)
    change(output)
    file, page = output.write(tmp_path), tmp_path / "page.html"
    result = dasp("report", file, page)
    if expected is None:
        assert (result.code, result.err) == (0, "")
        assert page.stat().st_size < 10**7
    else:
        assert (result.code, result.err.count("\n"), page.exists()) == (2, 1, False), result.err
        assert result.err.startswith(f"dasp: {file}: ")
        assert len(result.err) < 600 + len(str(file))
        assert expected in result.err
    assert not [left for left in tmp_path.iterdir() if left.name.startswith(".")]


def test_there_are_enough_cases():
    assert len(TAMPERED) >= 150
    assert {kind for kind, _, _ in TAMPERED.values()} == set(KINDS)


def test_the_page_of_promises_has_their_numbers():
    """Up to a few cases that came since: `numbers` writes the table."""
    page = Path("docs/promises.md").read_text()
    for (command, code), number in expected().items():
        told = re.search(rf"^\| `{command}` \|.*\| (\d+) \| (\d+) \|$", page, re.MULTILINE)
        assert abs(int(told[1 if code == 2 else 2]) - number) <= 3 + number / 10
    assert {line.split("|")[2] for line in numbers(expected()).splitlines()} <= set(page.split("|"))


def test_cases_are_told_in_tables():
    cases = [Case("dasp explain", "one", 2, "dasp: a|b\nc"), Case("dasp report", "two", 0, ""),
             Case("dasp report", "three", 1, "Traceback")]  # fmt: skip
    told = "\n".join(table(cases))
    assert "| one | 2 | dasp: a\\|b ⏎ c |" in told
    assert "| 1 | 0 |" in told
    assert told.endswith("\n1 of dasp report with exit code 1")


def test_what_is_no_file_is_not_opened(tmp_path):
    """A pipe would be waited for, and a device read for ever; so would one beside a CSV file, which is as if none were
    there."""
    os.mkfifo(tmp_path / "pipe.parquet")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "zero.parquet").symlink_to("/dev/zero")
    (tmp_path / "loop.parquet").symlink_to("loop.parquet")
    beside = valid("csv").write(tmp_path, "piped")
    (tmp_path / "piped.csv.json").unlink()
    os.mkfifo(tmp_path / "piped.csv.json")
    answers = {
        "pipe.parquet": "is a pipe", "pipe.csv": "is a pipe", "folder.parquet": "is a folder; a file is needed",
        "zero.parquet": "is a device", "loop.parquet": "Too many levels of symbolic links",
        "absent.parquet": "no such file", "x" * 300 + ".parquet": "File name too long",
        beside.name: "is damaged or was not written by dasp explain",
    }  # fmt: skip
    for name, answer in answers.items():
        result = dasp("report", tmp_path / name, tmp_path / "page.html")
        assert (result.code, result.err.count("\n")) == (2, 1), result.err
        assert answer in result.err


def test_pages_are_called_as_the_system_allows(tmp_path):
    file = valid("table").write(tmp_path)
    os.mkfifo(tmp_path / "pipe.html")
    answers = {"p" * 300 + ".html": "File name too long", "pipe.html": "is not a file", "no\0name.html": "null"}
    for name, answer in answers.items():
        result = dasp("report", file, tmp_path / name)
        assert (result.code, result.err.count("\n")) == (2, 1), result.err
        assert answer in result.err
    assert dasp("report", file, tmp_path / f"{'p' * 250}.html").code == 0


def test_a_text_that_is_there_once_is_in_memory_once(tmp_path):
    """4000 rows of the same megabyte are a file of some kilobytes, and would be 4 GB."""
    output = valid("table")
    places = pa.array(np.arange(4000) % ROWS)
    output.columns = [(name, values.take(places)) for name, values in output.columns]
    output.metadata.pop("dasp rows")
    output.options = {"compression": "zstd", "store_schema": False}
    output.set("id", pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 2**20 + "x"])))
    before = pa.default_memory_pool().max_memory()
    result = dasp("report", output.write(tmp_path), tmp_path / "page.html")
    assert "column 'id' has a text of more than 1,048,576 bytes" in result.err
    assert pa.default_memory_pool().max_memory() - before < 2**28


def test_a_declared_size_is_not_believed(tmp_path):
    """The footer of a Parquet file says how many rows there are; what is there says something else."""
    file = valid("table").write(tmp_path)
    whole = bytearray(file.read_bytes())
    size = struct.unpack("<I", whole[-8:-4])[0]
    footer = whole[-8 - size : -8]
    rows = footer.index(bytes([0x16, 2 * ROWS]))  # field 3, i64, zigzag
    footer[rows + 1] = 2 * 60
    file.write_bytes(whole[: -8 - size] + footer + whole[-8:])
    assert pq.ParquetFile(file).metadata.num_rows == 60
    result = dasp("report", file, tmp_path / "page.html")
    assert (result.code, result.err.count("\n")) == (2, 1), result.err
