"""`dasp.jobs.run`: the command in Python; its metrics, and the code that the command ends with."""

from __future__ import annotations

import json
import random
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from explain_files import dasp, rows, write_csv, write_good_files

from dasp.errors import BadInput
from dasp.jobs import JobMetrics, run
from dasp.jobs.checkpoint import Checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "production.md"
BROKEN = """

class Broken(nn.Module):
    def forward(self, x):
        if (x == 7).any():
            raise KeyError("seven")
        return x.sum(1, keepdim=True)


class Hungry(nn.Module):
    def forward(self, x):
        if (x == 7).any():
            torch.empty(2**60)
        return x.sum(1, keepdim=True)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    (tmp_path / "small.py").write_text((tmp_path / "small.py").read_text() + BROKEN)
    return tmp_path


def told(file="metrics.json"):
    return json.loads(Path(file).read_text())


def states():
    kept = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    return *kept, torch.get_num_threads()


def test_the_command_in_python_writes_the_same_bytes_and_leaves_the_process_as_it_was(here, capsys):
    options = ["--target", "1", "--columns", "a,b,c,d", "--baselines", "0.5", "--chunk", "8", "--threads", "1"]
    assert dasp("explain", "small:build", "rows.csv", "-o", "command.parquet", *options).code == 0
    said, before = [], states()
    given = dict(target=1, columns=["a", "b", "c", "d"], baselines=0.5, chunk=8, threads=1, show_progress=False)
    found = run("small:build", Path("rows.csv"), "python.parquet", say=said.append, **given, report="page.html")
    assert states() == before
    assert capsys.readouterr().out == ""
    assert said[0] == "rows.csv: 50 rows of 4 inputs"
    assert "page.html: 50 rows to look at" in said[-1]
    again = run("small:build", Path("rows.csv"), "again.parquet", **given, metrics="metrics.json")
    assert Path("again.parquet").read_bytes() == Path("command.parquet").read_bytes()
    assert told() == again.to_json()
    assert found == JobMetrics(
        output=Path("python.parquet"), data_rows=50, rows=50, new_rows=50, evaluations=50 * 16, seconds=found.seconds,
        rows_per_second=found.rows_per_second,
    )  # fmt: skip
    assert 0 < 50 / found.rows_per_second < found.seconds
    done = run("small:build", Path("rows.csv"), "again.parquet", **given)  # nothing is left to do
    assert (done.rows, done.new_rows, done.evaluations, done.rows_per_second) == (50, 0, 800, None)


@pytest.mark.parametrize("output", ["out.parquet", "out.csv"])
def test_metrics_are_those_of_the_output(here, output):
    x = rows(20)
    x[3, 1], x[5, 0], x[6, 0] = np.nan, 7, 7  # the pole
    write_csv(here / "some.csv", x)
    options = dict(on_bad_row="skip", tolerance=1e-9, method="bayesian", max_evaluations=12, chunk=4)
    found = run("small:Pole", "some.csv", output, **options)
    table = pd.read_parquet(output) if output.endswith("parquet") else pd.read_csv(output)
    assert (found.data_rows, found.rows, found.left_out_rows) == (20, len(table), 3)
    assert len(table) == 17
    assert found.missed_tolerance == table.missed.sum() > 0
    assert found.evaluations == table.evaluations.sum()
    again = run("small:Pole", "some.csv", output, **options)
    kept = ("data_rows", "rows", "left_out_rows", "missed_tolerance", "evaluations")
    assert [getattr(again, name) for name in kept] == [getattr(found, name) for name in kept]


def test_metrics_of_an_interrupted_job_and_of_the_rest(here, monkeypatch):
    commit, number = Checkpoint.commit, []

    def stop(self, *chunk):
        commit(self, *chunk)
        number.append(chunk)
        if len(number) == 4:
            raise KeyboardInterrupt

    command = ["explain", "small:build", "rows.csv", "-o", "out.parquet", "--chunk", "8", "--metrics", "metrics.json"]
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", stop)
        result = dasp(*command)
    first = told()
    assert (result.code, first["exit_code"], first["error"]) == (130, 130, result.err.splitlines()[-1])
    assert (first["data_rows"], first["rows"]) == (50, 24)  # the fourth is kept, but was not counted any more
    dasp(*command)
    assert (told()["exit_code"], told()["error"], told()["rows"], told()["new_rows"]) == (0, None, 50, 18)
    assert told()["evaluations"] == 50 * 16
    assert told().keys() == {field.name for field in fields(JobMetrics)}
    assert not list(here.glob(".metrics*"))


ENDS = {
    "done": ("small:build rows.csv", 0, None),
    "an option that cannot be": ("small:build rows.csv --target 9", 2, "--target is 9, but the model has 3 outputs"),
    "a file that is not there": ("small:build absent.csv", 2, "absent.csv: no such file or folder"),
    "a model whose code ends the process": ("small:exit rows.csv", 2, "its code called sys.exit"),
    "a library that is missing": ("small:build rows.csv --engine ray", 2, "ray is missing: pip install"),
    "a model that fails": ("small:Broken seven.csv --method permutation --chunk 8", 1, "KeyError: 'seven'"),
    "not enough memory": ("small:Hungry seven.csv --method permutation --chunk 8", 1, "there is not enough memory"),
}


@pytest.mark.parametrize("name", ENDS)
def test_exit_codes_are_in_the_metrics(here, name, monkeypatch):
    command, code, error = ENDS[name]
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    x = rows(20)
    x[13] = 7
    write_csv(here / "seven.csv", x)
    (here / "small.py").write_text((here / "small.py").read_text() + "\n\ndef exit():\n    raise SystemExit(0)\n")
    Path("metrics.json").write_text("of yesterday")
    arguments = ["explain", *command.split(), "-o", "out.parquet", "--metrics", "metrics.json"]
    if name == "a model that fails":  # a traceback
        with pytest.raises(KeyError):
            dasp(*arguments)
    else:
        result = dasp(*arguments)
        assert (result.code, told()["error"]) == (code, result.err.splitlines()[-1] if error else None)
    assert told()["exit_code"] == code
    assert error is None or error in told()["error"]


def test_the_page_has_all_exit_codes():
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)}
    assert codes == {code for _, code, _ in ENDS.values()} | {130, 137, 143}  # 128 + the number of a signal


def test_the_page_has_all_metrics():
    found = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert found == {one.name for one in fields(JobMetrics)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(metrics="metrics.txt"), "a name that ends in .json is needed"),
        (dict(metrics="absent/metrics.json"), "there is no folder absent"),
        (dict(metrics="players.json", players="players.json"), "players.json is what --players needs"),
        (dict(metrics="out.csv.json"), "out.csv.json is what --output needs"),
        (dict(max_evaluations="many"), "--max-evaluations is 'many'; a whole number is needed"),
        (dict(max_evaluations=True), "--max-evaluations is True; a whole number is needed"),
        (dict(trust="yes"), "--trust is 'yes'; True or False is needed"),
        (dict(tolerance="0.1"), "--tolerance is '0.1'; a number is needed"),
        (dict(players={"one": ["a"]}), "--players is {'one': ['a']}; a text is needed"),
        (dict(columns=["a,b"]), "--columns is ['a,b']; a text is needed"),
        (dict(weights=3), "--weights is 3; the name of a file is needed"),
        (dict(on_bad_row=None), "--on-bad-row is None; a text is needed"),
        (dict(chunk=0), "--chunk is 0; at least 1 is needed"),
    ],
)  # fmt: skip
def test_what_cannot_be(here, options, message):
    Path("players.json").write_text("{}")
    with pytest.raises(BadInput, match=re.escape(message)):
        run("small:build", "rows.csv", "out.csv", **options)
    assert Path("players.json").read_text() == "{}"


def test_models_are_named_and_options_exist(here):
    with pytest.raises(BadInput, match="MODEL is Linear.*; a text is needed"):
        run(torch.nn.Linear(4, 1), "rows.csv", "out.csv")
    with pytest.raises(TypeError, match="tolerence"):
        run("small:build", "rows.csv", "out.csv", tolerence=0.1)
