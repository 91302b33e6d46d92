"""`dasp explain`, killed and resumed: no byte of the output changes, and nothing is mixed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from explain_files import FACTORY, besides_random, dasp, record, rows, write_good_files
from filelock import lock_descriptor
from PIL import Image

from dasp.errors import BadInput
from dasp.jobs import checkpoint
from dasp.jobs.checkpoint import Checkpoint
from dasp.jobs.record import JobRecord
from dasp.jobs.summary import Notes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def stopping(monkeypatch, after):
    """Stop as a kill would, when some chunks are written."""
    commit = Checkpoint.commit

    def stop(self, number, table):
        commit(self, number, table)
        if number + 1 == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "commit", stop)


def test_resumes_where_it_was(here, monkeypatch):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        result = dasp(*arguments, "out.parquet")
    assert (result.code, besides_random(result.err)) == (
        130,
        "dasp: interrupted; run the same command again to go on where it stopped\n",
    )
    assert not (here / "out.parquet").exists()
    (here / "out.parquet.parts" / "000001.part").write_bytes(b"torn")  # done again
    (here / "out.parquet.parts" / "000005.part.writing").write_bytes(b"torn")
    result = dasp(*arguments, "out.parquet")
    assert "resumed: 16 of 50 rows were done before" in result.out
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()
    assert not (here / "out.parquet.parts").exists()
    assert "done before, with the same" in dasp(*arguments, "out.parquet").out


def test_killed_while_parts_are_removed(here):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    assert dasp(*arguments).code == 0
    with Checkpoint(here / "out.parquet") as parts:
        parts.begin(JobRecord.from_json(json.loads(pq.read_schema("out.parquet").metadata[b"dasp"])))
    assert "done before, with the same" in dasp(*arguments).out
    assert not (here / "out.parquet.parts").exists()


def test_nothing_of_another_job_is_lost(here, monkeypatch):
    first = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    second = [*first, "--target", "1"]
    assert dasp(*first).code == 0
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        assert dasp(*second, "--overwrite").code == 130
    result = dasp(*first)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "out.parquet.parts: --target was 1, and is not given now" in result.err
    before = (here / "out.parquet").read_bytes()
    assert "out.parquet: --target was not given, and is 1 now" in dasp(*second).err
    assert (here / "out.parquet").read_bytes() == before
    (here / "out.parquet").write_text("of somebody else")
    assert "was not written by dasp explain; --overwrite replaces it" in dasp(*second).err
    assert "resumed: 24 of 50 rows" in dasp(*second, "--overwrite").out


def test_a_page_of_what_was_written_without_inputs(here, monkeypatch):
    first = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    second = [*first, "--report", "page.html"]
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        assert dasp(*first).code == 130
    result = dasp(*second)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "out.parquet.parts: was begun without the inputs, which --report and --with-data write" in result.err
    assert dasp(*first).code == 0
    result = dasp(*second)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "out.parquet: was written without its inputs" in result.err
    assert "; dasp report out.parquet PAGE shows it without them, or --overwrite explains the rows again" in result.err
    assert "(--with-data changed as well)" in dasp(*second, "--target", "1").err
    assert dasp("report", "out.parquet", "page.html").code == 0
    assert dasp(*second, "--overwrite").code == 0


def test_a_damaged_job(here, monkeypatch):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        dasp(*arguments)
    for content in ("torn", "[]"):
        (here / "out.parquet.parts" / "job.json").write_text(content)
        assert "out.parquet.parts: its job.json is damaged; --overwrite starts over" in dasp(*arguments).err
    assert dasp(*arguments, "--overwrite").code == 0


@pytest.mark.parametrize("model", ["small:build", "small:absent"])
def test_a_folder_of_the_user_is_left_alone(here, model):
    folder = here / "out.parquet.parts"
    folder.mkdir()
    for name in ("precious.txt", "job.json", "data.arrow"):
        (folder / name).write_text("precious")
    result = dasp("explain", model, "rows.csv", "-o", "out.parquet", "--overwrite")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "out.parquet.parts: the job needs this folder, but it has " in result.err
    assert {file.name: file.read_text() for file in folder.iterdir()} == dict.fromkeys(
        ["precious.txt", "job.json", "data.arrow"], "precious"
    )


@pytest.mark.parametrize("windows", [False, True])  # there, a lock is released before its file is removed
def test_a_process_that_begins_as_another_ends(tmp_path, monkeypatch, windows):
    monkeypatch.setattr(checkpoint, "_WINDOWS", windows)
    second = Checkpoint(tmp_path / "out.parquet")
    with Checkpoint(tmp_path / "out.parquet") as first:
        first.begin(record())
        first.commit(0, pa.table({"x": [1.0]}))
        first.finish(1, record())
        second.__enter__()
    with pytest.raises(BadInput, match="another process is writing it"):
        Checkpoint(tmp_path / "out.parquet").__enter__()
    second.__exit__()
    assert [file.name for file in tmp_path.iterdir()] == ["out.parquet"]


def test_a_lock_on_a_removed_file_does_not_count(tmp_path, monkeypatch):
    """The process that had the folder removes it after another has opened the lock there."""
    output = tmp_path / "out.parquet"

    def late(*arguments, **options):
        monkeypatch.undo()
        shutil.rmtree(output.with_name("out.parquet.parts"))
        return lock_descriptor(*arguments, **options)

    monkeypatch.setattr(checkpoint, "lock_descriptor", late)
    with Checkpoint(output) as parts:
        assert (parts.folder / "lock").exists()
        with pytest.raises(BadInput, match="another process is writing it"), Checkpoint(output):
            pass
        parts.begin(record(seed=1))
    with Checkpoint(output) as again:  # free, and what was begun is there
        assert again.record() == record(seed=1)


def test_row_groups(here, monkeypatch):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    monkeypatch.setattr("dasp.jobs.output._GROUP_ROWS", 16)
    assert dasp(*arguments, "out.parquet").code == 0
    stored = pq.ParquetFile("out.parquet")
    assert [stored.metadata.row_group(i).num_rows for i in range(stored.num_row_groups)] == [16, 16, 16, 2]
    assert stored.read().equals(pq.read_table("whole.parquet"))


def test_many_parts_are_joined_in_time(tmp_path, monkeypatch):
    table = pa.table({f"x{i}": [0.0] for i in range(50)})
    monkeypatch.setattr(os, "fsync", lambda _: None)  # which is what takes long to write them
    with Checkpoint(tmp_path / "out.parquet") as parts:
        parts.begin(record())
        for number in range(2_000):
            parts.commit(number, table)
        start = time.process_time()  # of this process alone: others may be busy
        written = parts.finish(2_000, record())
        assert (written.summary.rows, written.notes) == (2_000, Notes())
        assert time.process_time() - start < 20  # two minutes, if every part looks at all that wait


CHANGES = {
    "--target": (["--target", "1"], "--target was not given, and is 1 now"),
    "--tolerance": (["--tolerance", "0.1"], "--tolerance was not given, and is 0.1 now"),
    "--chunk": (["--chunk", "9"], "--chunk was 8, and is 9 now"),
    "--baselines": (["--baselines", "mean"], "--baselines was zero, and is mean now"),
    "--seed": (
        ["--seed", "1", "--method", "dasp"],
        "--method was auto, and is dasp now (--seed, the method that was chosen",
    ),
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
        assert "--overwrite to replace it" in result.err
    whole = (here / "rows.csv").read_text()
    (here / "rows.csv").write_text(whole.replace("a,b", "e,b"))
    assert "DATA has changed" in dasp(*arguments).err
    (here / "rows.csv").write_text(whole)
    (here / "small.py").write_text(FACTORY + "# changed\n")
    assert "MODEL has changed" in dasp(*arguments).err
    assert dasp(*arguments, "--overwrite").code == 0


NETWORK = """
import torch
from torch import nn
from activations import activation


class Net(nn.Sequential):
    def forward(self, x):
        return torch.relu(activation(super().forward(x)))
"""


@pytest.mark.parametrize("file", ["network", "activations"])
def test_code_in_other_modules_does_not_mix(here, monkeypatch, file):
    def write(**changed):
        texts = {
            "factory": "import torch\nfrom torch import nn\nfrom network import Net\n\n\ndef build():\n"
            "    torch.manual_seed(0)\n    return Net(nn.Linear(4, 3))\n",
            "network": NETWORK, "activations": "def activation(x):\n    return x\n",
        }  # fmt: skip
        for name, text in {**texts, **changed}.items():
            (here / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)

    arguments = ["explain", "factory:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    write()
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        dasp(*arguments)
    changes = {
        "network": NETWORK.replace("relu", "sigmoid"),
        "activations": "def activation(x):\n    return x.abs().sqrt()\n",
    }
    write(**{file: changes[file]})
    result = dasp(*arguments)
    assert result.code == 2
    assert {"network": "MODEL has changed", "activations": "the model's outputs have changed"}[file] in result.err
    write()
    assert "resumed: 24 of 50 rows" in dasp(*arguments).out


def test_images_by_their_names(here):
    (here / "images").mkdir()
    Image.new("L", (4, 4)).save(here / "images" / "a.png")
    arguments = ["explain", "small:pictures", "images", "--method", "gradient", "-o", "out.parquet"]
    assert dasp(*arguments).code == 0
    (here / "images" / "a.png").rename(here / "images" / "b.png")
    assert "DATA has changed" in dasp(*arguments).err


def test_images_that_absent_inputs_are_taken_from(here):
    for folder in ("images", "others"):
        (here / folder).mkdir()
        Image.new("L", (4, 4), color=50 if folder == "images" else 100).save(here / folder / "a.png")
    for option in ("--background", "--baselines"):
        arguments = ["explain", "small:pictures", "images", option, "others", "--method", "gradient", "-o"]
        assert dasp(*arguments, f"{option[2:]}.parquet").code == 0
        assert "done before, with the same" in dasp(*arguments, f"{option[2:]}.parquet").out
    Image.new("L", (4, 4), color=150).save(here / "others" / "a.png")
    for option in ("--background", "--baselines"):
        arguments = ["explain", "small:pictures", "images", option, "others", "--method", "gradient", "-o"]
        assert f"{option} has changed" in dasp(*arguments, f"{option[2:]}.parquet").err


def test_models_that_differ_every_time_do_not_mix(here, monkeypatch):
    arguments = ["explain", "small:unseeded", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    torch.manual_seed(1)
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        dasp(*arguments)
    torch.manual_seed(2)
    assert "the model's parameters have changed" in dasp(*arguments).err


def test_random_methods_resume_alike(here, monkeypatch):
    np.save("wide.npy", rows(12, 12))
    for method in ("permutation", "gradient_shapley", "bayesian"):
        arguments = ["explain", "small:wide", "wide.npy", "--chunk", "4", "--target", "0", "--method", method, "-o"]
        assert dasp(*arguments, "whole.parquet", "--overwrite").code == 0
        with monkeypatch.context() as patch:
            stopping(patch, after=2)
            assert dasp(*arguments, "out.parquet", "--overwrite").code == 130
        torch.manual_seed(7)
        result = dasp(*arguments, "out.parquet", "--overwrite")  # the same command goes on
        assert "resumed: 8 of 12 rows were done before" in result.out
        assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()
        assert "done before, with the same" in dasp(*arguments, "out.parquet", "--overwrite").out


def explain_there(folder, arguments, most):
    """Explain some chunks, and wait to be killed."""
    commit = Checkpoint.commit

    def waiting(self, number, table):
        commit(self, number, table)
        if number >= most:
            time.sleep(3600)

    Checkpoint.commit = waiting
    os.chdir(folder)
    dasp(*arguments)


def test_killed_at_random(here):
    """SIGKILL at any moment; `benchmarks/kills.py` does it more often and with more rows."""
    np.save("many.npy", rows(400, 12))
    arguments = ["explain", "small:wide", "many.npy", "--chunk", "8", "--method", "permutation", "--threads", "1", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dasp.cli", "dasp.jobs.execution", "explain_files"])
    chance = random.Random(0)
    for goal in (0, 6, 17, 30, 44):
        process = context.Process(target=explain_there, args=(here, [*arguments, "out.parquet"], goal + 4))
        process.start()
        while len(list(here.glob("out.parquet.parts/*.part"))) < goal:
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
