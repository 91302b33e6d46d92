"""`dasp explain --engine ray`: the same bytes as in one process, also when a worker is killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import ray

from explain_files import FACTORY, dasp, rows

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
    assert dasp(*arguments, "local.parquet").code == 0
    (folder / "driver.pid").write_text(str(os.getpid()))
    result = dasp(*arguments, "ray.parquet", "--engine", "ray", "--workers", "1")
    assert (result.code, result.err) == (0, "")
    assert (folder / "killed.pid").exists()
    assert (folder / "ray.parquet").read_bytes() == (folder / "local.parquet").read_bytes()
    assert not (folder / "ray.parquet.parts").exists()


def test_what_a_worker_cannot_use(folder):
    arguments = ["explain", "ray_small:unlucky", "rows.npy", "-o", "out.parquet", "--engine", "ray", "--workers", "1"]
    result = dasp(*arguments)
    assert result.code == 2
    assert "has other parameters every time it is made" in result.err
    result = dasp(*arguments, "--threads", "3", "--overwrite")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "no machine of the Ray cluster has more than 2 CPUs" in result.err
