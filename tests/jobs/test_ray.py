"""`dasp explain --engine ray`: the same bytes as in one process, also when a worker is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import ray
from explain_files import FACTORY, dasp, rows

from dasp.jobs.parts import Parts

MORTAL = """
import os
import pathlib
import signal


class Mortal(nn.Sequential):
    \"\"\"Ends its process once, if that is a worker's and the file is there: as if killed within a chunk.\"\"\"

    def forward(self, x):
        file = pathlib.Path("driver.pid")
        if file.exists() and int(file.read_text()) != os.getpid():
            file.rename("killed.pid")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def mortal():
    return Mortal(*build(inputs=12))


def unlucky():
    model = build(inputs=12)
    model[0].weight.data += os.getpid()
    return model
"""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model and rows; a small Ray that runs in it."""
    here = tmp_path_factory.mktemp("ray")
    (here / "ray_small.py").write_text(FACTORY + MORTAL)
    np.save(here / "rows.npy", rows(200, 12))
    before = Path.cwd()
    os.chdir(here)
    sys.modules.pop("ray_small", None)
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"], os.environ["RAY_BACKEND_LOG_LEVEL"] = "0", "fatal"
    ray.init(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False)
    yield here
    ray.shutdown()
    os.chdir(before)


def test_same_bytes_and_a_killed_worker_loses_nothing(folder):
    arguments = ["explain", "ray_small:mortal", "rows.npy", "--chunk", "16", "--method", "permutation", "-o"]
    assert dasp(*arguments, "local.parquet", "--threads", "1").code == 0  # what workers of Ray have
    (folder / "driver.pid").write_text(str(os.getpid()))
    result = dasp(*arguments, "ray.parquet", "--engine", "ray", "--workers", "1")
    assert (result.code, result.err) == (0, "")
    assert (folder / "killed.pid").exists()
    assert (folder / "ray.parquet").read_bytes() == (folder / "local.parquet").read_bytes()
    assert not (folder / "ray.parquet.parts").exists()


def test_resumed_with_names_and_rows_that_are_left_out(folder, monkeypatch):
    x = rows(60)
    x[7] = np.nan
    x[[20, 33], 0] = 7  # the pole
    pd.DataFrame(x, columns=list("abcd")).assign(n=[f"p{i}" for i in range(60)]).to_csv("named.csv", index=False)
    arguments = ["explain", "ray_small:Pole", "named.csv", "--id", "n", "--on-bad-row", "skip", "--chunk", "4"]
    arguments += ["--threads", "1", "-o"]
    local = dasp(*arguments, "named.parquet")
    commit, committed = Parts.commit, []

    def stop(self, number, table):
        commit(self, number, table)
        committed.append(number)
        if len(committed) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "commit", stop)
        assert dasp(*arguments, "resumed.parquet", "--engine", "ray").code == 130
    result = dasp(*arguments, "resumed.parquet", "--engine", "ray")
    assert "resumed: 12 of 60 rows were done before" in result.out
    assert (folder / "resumed.parquet").read_bytes() == (folder / "named.parquet").read_bytes()
    for said in (local, result):
        assert "warning: left out, as the model's output is not finite: 2 rows (id p20, p33)" in said.out
        assert said.err == ""


def test_another_ray_is_left_alone(folder):
    """RAY_ADDRESS names one; without --ray-address, the job starts its own."""
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = ["explain", "ray_small:wide", "rows.npy", "-o", "own.parquet", "--engine", "ray", "--workers", "1"]
    result = subprocess.run(
        [sys.executable, "-c", "from dasp.cli import main; main()", *command],
        capture_output=True, text=True, check=False, cwd=folder, env=environment,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert len(pd.read_parquet("own.parquet")) == 200


def test_ray_that_cannot_start(folder, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no room\nfor it")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    command = ["explain", "ray_small:wide", "rows.npy", "-o", "none.parquet", "--engine", "ray"]
    assert dasp(*command).err == "dasp: Ray cannot be started here: no room for it\n"
    assert dasp(*command, "--ray-address", "there:1").err == "dasp: --ray-address there:1: no room for it\n"


def test_what_a_worker_cannot_use(folder):
    arguments = ["explain", "ray_small:unlucky", "rows.npy", "-o", "out.parquet", "--engine", "ray", "--workers", "1"]
    result = dasp(*arguments)
    assert result.code == 2
    assert "has other parameters every time it is made" in result.err
    result = dasp(*arguments, "--threads", "3", "--overwrite")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "no machine of the Ray cluster has more than 2 CPUs" in result.err
