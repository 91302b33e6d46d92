"""Files are opened as few times as possible, and a change of one is noticed all the same."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from explain_files import besides_random, dasp, rows, write_csv, write_good_files
from torch import nn

from dasp.jobs.checkpoint import Checkpoint

_counts: Counter[str] | None = None


def _audit(event, arguments):
    if _counts is not None and event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        _counts[Path(os.fsdecode(arguments[0])).name] += 1


@contextmanager
def opens():
    """How often Python opens files in between, by their names."""
    global _counts  # noqa: PLW0603 (a hook cannot be taken away again)
    if _audit not in _hooks:
        sys.addaudithook(_audit)
        _hooks.append(_audit)
    _counts = found = Counter()
    try:
        yield found
    finally:
        _counts = None


_hooks = []


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Files that count as written long ago, so that their stamps are trusted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dasp.jobs.identity._SETTLED_SECONDS", -1.0)
    write_good_files(tmp_path)
    torch.manual_seed(0)
    state = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).state_dict()
    torch.save(state, "weights.pt")
    return tmp_path


COMMAND = ["explain", "small:build", "rows.npy", "--weights", "weights.pt", "--chunk", "8", "-o", "out.parquet"]


def test_files_are_opened_once_for_each_purpose(here):
    """The data: for its header, its checksum, the survey and the work. The weights: for their checksum and the model.

    Before version 0.2 it was six and seven times. Files that pyarrow reads by itself are opened by its own code, which
    is not seen here: a table is opened by Python for its header and its checksum.
    """
    write_csv(here / "some.csv", rows(3), "x0,x1,x2,x3")
    with opens() as found:
        assert dasp(*COMMAND, "--background", "some.csv", "--players", "window:2").code == 0
    assert found["rows.npy"] == 4
    assert found["weights.pt"] == 2
    assert found["some.csv"] == 2


@pytest.mark.parametrize("name", ["rows.npy", "weights.pt", "small.py"])
def test_a_change_is_noticed_by_the_stamp(here, monkeypatch, name):
    commit, content = Checkpoint.commit, (here / name).read_bytes()

    def changing(self, number, table):
        commit(self, number, table)
        with (here / name).open("r+b") as stream:  # of the same size
            stream.seek(len(content) - 1)
            stream.write(bytes([content[-1] ^ 1]))

    monkeypatch.setattr(Checkpoint, "commit", changing)
    result = dasp(*COMMAND)
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1)
    assert "changed while the job ran: its rows may be of either" in result.err


def test_a_file_that_is_only_touched_has_not_changed(here, monkeypatch):
    commit = Checkpoint.commit

    def touching(self, number, table):
        commit(self, number, table)
        (here / "rows.npy").touch()

    monkeypatch.setattr(Checkpoint, "commit", touching)
    with opens() as found:
        assert dasp(*COMMAND).code == 0
    assert found["rows.npy"] == 5  # it is hashed again
