"""The parts of a job on disk: none is taken for what it is not, no two jobs mix, and nobody's file is replaced."""

from __future__ import annotations

import json
import os
import random
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from explain_files import besides_random, dasp, record, rows, write_good_files
from safetensors.torch import save_file
from torch import nn

from dasp.errors import BadInput
from dasp.jobs.checkpoint import Checkpoint, DamagedPart

COMMAND = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def after_commit(monkeypatch, number, act):
    """Do something as soon as a chunk is written, once."""
    commit = Checkpoint.commit

    def acting(self, written, table):
        commit(self, written, table)
        if written == number:
            monkeypatch.setattr(Checkpoint, "commit", commit)
            act()

    monkeypatch.setattr(Checkpoint, "commit", acting)


def stop():
    raise KeyboardInterrupt


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(*arguments):
    """The line on stderr of a command that is refused."""
    result = dasp(*arguments)
    said = besides_random(result.err)
    assert (result.code, said.count("\n")) == (2, 1), result.err
    return said


# DamagedPart parts


def test_flipped_bits(tmp_path):
    """None is accepted; `benchmarks/flips.py` does it more often, with whole jobs."""
    chance = random.Random(0)
    with Checkpoint(tmp_path / "out.parquet") as parts:
        parts.begin(record())
        parts.commit(0, pa.table({"id": ["a", "b"], "x": [1.0, 2.0]}))
        file = parts.folder / "000000.part"
        content = file.read_bytes()
        for bit in chance.sample(range(8 * len(content)), 300):
            file.write_bytes(flipped(content, bit))
            assert parts.done() == set()
            with pytest.raises(DamagedPart):
                parts.finish(1, record())
        file.write_bytes(content)
        assert parts.done() == {0}


def test_damaged_parts_are_done_again(here, monkeypatch):
    assert dasp(*COMMAND, "whole.parquet").code == 0
    after_commit(monkeypatch, 4, stop)
    assert dasp(*COMMAND, "out.parquet").code == 130
    parts = here / "out.parquet.parts"
    content = (parts / "000001.part").read_bytes()
    (parts / "000001.part").write_bytes(flipped(content, 8 * 700 + 3))
    shutil.copy(parts / "000002.part", parts / "000003.part")  # of another place

    def damage():
        (parts / "000002.part").write_bytes(content)
        (parts / "000004.part").unlink()

    after_commit(monkeypatch, 5, damage)  # noticed when they are joined
    result = dasp(*COMMAND, "out.parquet")
    assert result.code == 0
    assert "resumed: 24 of 50 rows were done before" in result.out
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()


def test_parts_of_another_job(here, monkeypatch):
    """The same job in another folder: its parts are not this one's."""
    for output in ("out.parquet", "other.parquet"):
        after_commit(monkeypatch, 2, stop)
        assert dasp(*COMMAND, output).code == 130
    shutil.copy(here / "other.parquet.parts" / "000001.part", here / "out.parquet.parts" / "000001.part")
    assert "resumed: 16 of 50 rows were done before" in dasp(*COMMAND, "out.parquet").out


def test_parts_that_do_not_stay(here, monkeypatch):
    monkeypatch.setattr(Checkpoint, "_seal", lambda *_: os.urandom(32))
    assert "again and again; check the disk" in refused(*COMMAND, "out.parquet")


# Two jobs


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_folder_that_is_removed_under_a_job(tmp_path, all_of_it):
    """By then, it may be another job's."""
    table = pa.table({"x": [1.0]})
    first, second = Checkpoint(tmp_path / "out.parquet"), Checkpoint(tmp_path / "out.parquet")
    with first:
        first.begin(record(seed=1))
        first.commit(0, table)
        if all_of_it:
            shutil.rmtree(first.folder)
        else:
            for file in first.folder.iterdir():
                file.unlink()
        with second:
            second.begin(record(seed=2))
            second.commit(0, table)
            for late in (
                lambda: first.commit(1, table),
                lambda: first.finish(1, record()),
                lambda: first.begin(record(seed=1)),
            ):
                with pytest.raises(BadInput, match="out.parquet.parts: was removed or changed by somebody else"):
                    late()
            first.remove()
            first.__exit__()
            assert second.record() == record(seed=2)
            assert second.done() == {0}
            assert second.finish(1, record(seed=2)).summary.rows == 1


def test_a_job_whose_folder_is_removed(here, monkeypatch):
    after_commit(monkeypatch, 2, lambda: shutil.rmtree(here / "out.parquet.parts"))
    assert "run the same command again" in refused(*COMMAND, "out.parquet")
    assert not (here / "out.parquet.parts").exists()
    assert dasp(*COMMAND, "out.parquet").code == 0


@pytest.mark.parametrize("name", ["lock", "000001.part", "job.json"])
@pytest.mark.parametrize("make", ["link", "fifo", "folder"])
def test_a_folder_with_special_files(here, name, make):
    folder = here / "out.parquet.parts"
    folder.mkdir()
    file = folder / name
    {"link": lambda: file.symlink_to("absent/file"), "fifo": lambda: os.mkfifo(file), "folder": file.mkdir}[make]()
    assert f"it has a {name} that is no plain file" in refused(*COMMAND, "out.parquet", "--overwrite")
    assert [found.name for found in folder.iterdir()] == [name]


# Inputs


CHANGES = {
    "zeros": ("DATA", "small:build rows.npy", "rows.npy", lambda content: content[:128] + bytes(len(content) - 128)),
    "growth": ("DATA", "small:build rows.csv", "rows.csv", lambda content: content + b"1,2,3,4\n"),
    "loss": ("DATA", "small:build rows.csv", "rows.csv", lambda content: content[:-200]),
    "code": ("MODEL", "small:build rows.csv", "small.py", lambda content: content + b"# changed\n"),
    "background": ("--background", "small:build rows.csv --background rows.npy", "rows.npy", lambda content: b"other"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_while_the_job_runs(here, monkeypatch, change):
    name, command, file, changed = CHANGES[change]
    content = (here / file).read_bytes()

    def act():
        with (here / file).open("r+b") as stream:  # in place
            stream.truncate(stream.write(changed(content)))

    after_commit(monkeypatch, 2, act)
    command = ["explain", *command.split(), "--chunk", "8", "-o", "out.parquet"]
    assert f"{name} changed while the job ran: its rows may be of either" in refused(*command)
    assert not (here / "out.parquet").exists()
    (here / file).write_bytes(content)
    result = dasp(*command)
    assert result.code == 0
    assert "resumed" not in result.out  # some rows were of other data


def test_data_that_is_gone_in_the_end(here, monkeypatch):
    after_commit(monkeypatch, 6, lambda: (here / "rows.csv").rename(here / "away.csv"))
    assert "rows.csv: no such file" in refused(*COMMAND, "out.parquet")
    (here / "away.csv").rename(here / "rows.csv")
    assert "resumed: 50 of 50 rows" in dasp(*COMMAND, "out.parquet").out


def test_an_output_that_is_read(here):
    save_file(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).state_dict(), here / "weights.safetensors")
    (here / "groups.json").write_text('{"one": ["a", "b"], "two": ["c", "d"]}')
    files = {"DATA": "rows.csv", "MODEL": "small.py", "--background": "rows.parquet", "--players": "groups.json",
             "--weights": "weights.safetensors"}  # fmt: skip
    options = ["--background", "rows.parquet", "--players", "groups.json", "--weights", "weights.safetensors"]
    for name, file in files.items():
        before = (here / file).read_bytes()
        for link in (os.link, os.symlink):
            link(file, "linked.parquet")
            command = ["explain", "small:build", "rows.csv", *options, "-o", "linked.parquet", "--overwrite"]
            assert f"--output linked.parquet is a file that is read ({name})" in refused(*command)
            (here / "linked.parquet").unlink()
        assert (here / file).read_bytes() == before
    for option in ([], ["--overwrite"]):
        assert "is a file that is read (DATA)" in refused(
            "explain", "small:build", "rows.parquet", "-o", "rows.parquet", *option
        )
    assert len(pd.read_parquet("rows.parquet")) == 50


def test_data_among_the_parts(here):
    (here / "out.parquet.parts").mkdir()
    shutil.copy("rows.parquet", here / "out.parquet.parts" / "output.parquet")
    command = ["explain", "small:build", "out.parquet.parts/output.parquet", "-o", "out.parquet", "--overwrite"]
    assert "is in the folder where the job keeps its parts" in refused(*command)


# Outputs


@pytest.mark.parametrize("there", [False, True])
def test_an_output_that_appears_is_not_replaced(here, monkeypatch, there):
    if there:
        assert dasp("explain", "small:single", "rows.csv", "-o", "out.parquet").code == 0
    after_commit(monkeypatch, 6, lambda: (here / "out.parquet").write_text("precious"))
    assert "somebody else has written it while the job ran" in refused(*COMMAND, "out.parquet", "--overwrite")
    assert (here / "out.parquet").read_text() == "precious"
    (here / "out.parquet").rename(here / "precious.txt")
    assert "resumed: 50 of 50 rows" in dasp(*COMMAND, "out.parquet").out


def test_a_file_that_appears_at_the_last_moment(tmp_path, monkeypatch):
    output = tmp_path / "out.parquet"
    monkeypatch.setattr("dasp.jobs.output.stamp", lambda _: None)  # what it sees just before
    with Checkpoint(output) as parts:
        parts.begin(record())
        parts.commit(0, pa.table({"x": [1.0]}))
        output.write_text("precious")
        with pytest.raises(BadInput, match="and it is not replaced"):
            parts.finish(1, record())
        output.unlink()
        monkeypatch.setattr("pathlib.Path.hardlink_to", lambda *_: (_ for _ in ()).throw(PermissionError))
        parts.finish(1, record())  # on a file system without links
    assert len(pd.read_parquet(output)) == 1


def test_a_link_to_nothing_as_the_output(here):
    (here / "out.parquet").symlink_to("absent.parquet")
    assert "out.parquet: is not a file, and cannot be replaced" in refused(*COMMAND, "out.parquet")
    assert not (here / "out.parquet.parts").exists()


def test_done_before_means_that_it_can_be_read(here):
    assert dasp(*COMMAND, "out.parquet").code == 0
    content = (here / "out.parquet").read_bytes()
    (here / "out.parquet").write_bytes(flipped(content, 8 * 200))  # in a page
    assert "exists, but is damaged" in refused(*COMMAND, "out.parquet")
    assert dasp(*COMMAND, "out.parquet", "--overwrite").code == 0
    assert (here / "out.parquet").read_bytes() == content
    assert "done before" in dasp(*COMMAND, "out.parquet").out


def test_done_before_means_with_the_same_care_for_bad_rows(here, monkeypatch):
    x = rows(20)
    x[5, 0] = 7  # where the output is not finite
    np.save("pole.npy", x)
    command = ["explain", "small:Pole", "pole.npy", "--chunk", "4", "-o", "out.parquet"]
    assert dasp(*command, "--on-bad-row", "skip").code == 0
    assert "--on-bad-row was skip, and is fail now" in refused(*command)
    after_commit(monkeypatch, 3, stop)
    assert dasp(*command, "--on-bad-row", "skip", "--overwrite", "--seed", "1").code == 130
    (here / "out.parquet").unlink()
    assert "--on-bad-row was skip, and is fail now" in refused(*command, "--seed", "1")


def test_many_rows_that_are_left_out(here):
    """Their numbers do not make the metadata grow: there is a limit to what can be read of it."""
    x = rows(20_000)
    x[20:] = np.nan
    np.save("holes.npy", x)
    command = ["explain", "small:build", "holes.npy", "--on-bad-row", "skip", "-o", "out.parquet"]
    assert dasp(*command).code == 0
    metadata = pq.read_schema("out.parquet").metadata[b"dasp"]
    assert len(metadata) < 3_000
    assert json.loads(metadata)["skipped"] == {"number": 19_980, "first": list(range(20, 30))}
    x[20:, 0] = 7
    x[20:, 1:] = 0
    x[20:30] = rows(10)
    np.save("poles.npy", x)
    command = ["explain", "small:Pole", "poles.npy", "--on-bad-row", "skip", "--chunk", "20000", "-o", "poles.parquet"]
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "remove", lambda self: seen.extend(self._read(0).schema.metadata.values()))
        assert "left out, as the model's output is not finite: 19,970 rows (id 30, 31, " in dasp(*command).out
    assert max(map(len, seen)) < 300
