"""The record of a job: it comes back from a file as it was written, and one of another version is refused."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from explain_files import dasp, record, write_good_files

from dasp.jobs.output import format_of
from dasp.jobs.record import VERSION, AbsentInputs, JobRecord, JobResult, UnreadableRecord, typed
from dasp.jobs.summary import Notes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


COMMAND = ["explain", "small:build", "rows.csv", "--players", "window:2", "--baselines", "mean", "-o"]


@pytest.mark.parametrize("output", ["out.parquet", "out.csv"])
def test_a_record_comes_back_as_it_was(here, output):
    assert dasp(*COMMAND, output).code == 0
    stored = format_of(here / output).read(here / output)
    found = stored.record
    assert isinstance(found, JobRecord)
    assert JobRecord.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.version == VERSION
    assert (found.options["players"], found.options["baselines"]) == ("window:2", "mean")
    assert set(found.files) == {"data", "model"}
    assert (found.absent.kind, found.absent.shape) == ("baselines", (4,))
    assert stored.result == JobResult("small:build", "rows.csv", 3, evaluations=200)  # 4 coalitions of 50 rows


def test_what_json_makes_of_a_record_and_of_a_result():
    absent = AbsentInputs("background", {"background": "b.npy"}, shape=(2, 1), values=[[1.0], [2.0]])
    given = JobRecord(**{**vars(record(seed=3)), "absent": absent})
    assert JobRecord.from_json(json.loads(json.dumps(given.to_json()))) == given
    result = JobResult("m", "d", 2, ("no", "yes"), notes=Notes(left_out=1, ids=("7",)))
    assert typed(JobResult, json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize("content", [None, [], {}, {"version": "1"}, {"version": VERSION}, {"dasp": "0.1"}])
def test_something_else_is_no_record(content):
    assert JobRecord.from_json(content) == UnreadableRecord("is damaged or was not written by dasp explain")


def test_another_version_is_refused_in_a_line(here):
    assert dasp(*COMMAND, "out.parquet").code == 0
    table = pq.read_table("out.parquet")
    metadata = dict(table.schema.metadata)
    metadata[b"dasp"] = json.dumps({**json.loads(metadata[b"dasp"]), "version": 9}).encode()
    pq.write_table(table.replace_schema_metadata(metadata), "out.parquet")
    said = "out.parquet: exists, but has a record of version 9, and this version of dasp reads version 1; --overwrite"
    assert said in dasp(*COMMAND, "out.parquet").err
    result = dasp("report", "out.parquet", "page.html")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "out.parquet: has a record of version 9, and this version of dasp reads version 1" in result.err
    assert dasp(*COMMAND, "out.parquet", "--overwrite").code == 0


def test_differences_have_the_names_that_users_know():
    before, now = record(seed=0, max_evaluations=None), record(seed=1, max_evaluations=5)
    assert before.differences(now) == {
        "--seed": "was 0, and is 1 now", "--max-evaluations": "was not given, and is 5 now",
    }  # fmt: skip
    changed = JobRecord(**{**vars(before), "parameters": "f" * 64, "files": {"data": "0" * 64}})
    assert before.differences(changed) == {"DATA": "has changed", "the model's parameters": "have changed"}
