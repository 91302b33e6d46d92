"""`dasp explain`, killed and resumed: no byte of the output changes, and nothing is mixed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from dasp.explain.parts import Parts
from explain_files import FACTORY, dasp, rows, write_good_files


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def stopping(monkeypatch, after):
    """Stop as a kill would, when some chunks are written."""
    commit = Parts.commit

    def stop(self, number, table):
        commit(self, number, table)
        if number + 1 == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Parts, "commit", stop)


def test_resumes_where_it_was(here, monkeypatch):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        result = dasp(*arguments, "out.parquet")
    assert (result.code, result.err) == (130, "dasp: interrupted; the same command goes on where it was\n")
    assert not (here / "out.parquet").exists()
    (here / "out.parquet.parts" / "000001.arrow").write_bytes(b"torn")  # done again
    (here / "out.parquet.parts" / "000005.arrow.writing").write_bytes(b"torn")
    result = dasp(*arguments, "out.parquet")
    assert "resumed: 16 of 50 rows were done before" in result.out
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()
    assert not (here / "out.parquet.parts").exists()
    assert "done before, with the same" in dasp(*arguments, "out.parquet").out


def test_killed_while_parts_are_removed(here):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    assert dasp(*arguments).code == 0
    (here / "out.parquet.parts").mkdir()
    job = pq.read_schema("out.parquet").metadata[b"dasp"]
    (here / "out.parquet.parts" / "job.json").write_bytes(job)
    assert "done before, with the same" in dasp(*arguments).out
    assert not (here / "out.parquet.parts").exists()


CHANGES = {
    "--target": (["--target", "1"], "--target was not given, and is 1 now"),
    "--tolerance": (["--tolerance", "0.1"], "--tolerance was not given, and is 0.1 now"),
    "--chunk": (["--chunk", "9"], "--chunk was 8, and is 9 now"),
    "--baseline": (["--baseline", "mean"], "--baseline was zero, and is mean now"),
    "--seed": (["--seed", "1", "--method", "dasp"], "--method was auto, and is dasp now (--seed changed as well)"),
}


@pytest.mark.parametrize("finished", [False, True])
def test_changed_options_do_not_mix(here, monkeypatch, finished):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    with monkeypatch.context() as patch:
        if not finished:
            stopping(patch, after=3)
        dasp(*arguments)
    for changed, expected in CHANGES.values():
        result = dasp(*arguments, *changed)
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert expected in result.err
        assert "--overwrite to begin anew" in result.err
    whole = (here / "rows.csv").read_text()
    (here / "rows.csv").write_text(whole.replace("a,b", "e,b"))
    assert "DATA is another one now" in dasp(*arguments).err
    (here / "rows.csv").write_text(whole)
    (here / "small.py").write_text(FACTORY + "# changed\n")
    assert "MODEL is another one now" in dasp(*arguments).err
    assert dasp(*arguments, "--overwrite").code == 0


def test_models_that_differ_every_time_do_not_mix(here, monkeypatch):
    arguments = ["explain", "small:unseeded", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    torch.manual_seed(1)
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        dasp(*arguments)
    torch.manual_seed(2)
    assert "the model's parameters are others now" in dasp(*arguments).err


def test_random_methods_resume_alike(here, monkeypatch):
    np.save("wide.npy", rows(12, 12))
    for method in ("permutation", "KernelSHAP", "Shapley sampling"):
        arguments = ["explain", "small:wide", "wide.npy", "--chunk", "4", "--target", "0", "--method", method, "-o"]
        assert dasp(*arguments, "whole.parquet", "--overwrite").code == 0
        with monkeypatch.context() as patch:
            stopping(patch, after=2)
            assert dasp(*arguments, "out.parquet", "--overwrite").code == 130
        torch.manual_seed(7)
        assert dasp(*arguments, "out.parquet").code == 0
        assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()


def explain_there(folder, arguments):
    os.chdir(folder)
    sys.exit(dasp(*arguments).code)


def test_killed_at_random(here):
    """SIGKILL at any moment; `benchmarks/kills.py` does it more often and with more rows."""
    np.save("many.npy", rows(400, 12))
    arguments = ["explain", "small:wide", "many.npy", "--chunk", "8", "--method", "permutation", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dasp.cli", "dasp.explain.run", "explain_files"])
    chance = random.Random(0)
    for goal in (0, 6, 17, 30, 44):
        process = context.Process(target=explain_there, args=(here, [*arguments, "out.parquet"]))
        process.start()
        while len(list(here.glob("out.parquet.parts/*.arrow"))) < goal:
            assert process.is_alive()
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (here / "out.parquet").exists()
    assert dasp(*arguments, "out.parquet").code == 0
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()
    assert not (here / "out.parquet.parts").exists()
