"""`dasp explain --engine ray`: the same bytes as in one process, also when something is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import Pipe

import numpy as np
import pandas as pd
import psutil
import pytest
import ray
from explain_files import FACTORY, besides_random, dasp, rows

from dasp.errors import Stopped
from dasp.games import progress
from dasp.jobs.checkpoint import Checkpoint
from dasp.jobs.ray_engine import _check_started, _received

MORTAL = """
import os
import pathlib
import signal
import time


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


class Deadly(nn.Sequential):
    \"\"\"Ends its process whenever it sees a 7.\"\"\"

    def forward(self, x):
        if (x == 7).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def deadly():
    return Deadly(*build())


class Slow(nn.Sequential):
    def forward(self, x):
        time.sleep(0.05)
        return super().forward(x)


def slow():
    return Slow(*build(inputs=12))


def unlucky():
    model = build(inputs=12)
    model[0].weight.data += os.getpid()
    return model
"""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")


LONG = 600  # seconds: nothing takes as long, on any machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model and rows; the one Ray of all tests, which runs in it, and ends with them."""
    here = tmp_path_factory.mktemp("ray")
    (here / "ray_small.py").write_text(FACTORY + MORTAL)
    np.save(here / "rows.npy", rows(200, 12))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
        ray.init(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False)
    yield here
    ray.shutdown()


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    """Ray has as long to answer as a busy machine takes."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
    monkeypatch.delitem(sys.modules, "ray_small", raising=False)
    monkeypatch.setattr("dasp.jobs.ray_engine._ANSWER", LONG)
    monkeypatch.setattr("dasp.jobs.ray_engine._START", LONG)


@pytest.fixture
def there(folder):
    """The options that name this Ray."""
    return ["--engine", "ray", "--ray-address", ray.get_runtime_context().gcs_address, "--workers", "1"]


def until(condition):
    """Wait for something, for as long as it takes."""
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_same_bytes_and_a_killed_worker_loses_nothing(folder, there, monkeypatch):
    """And there is a line on stderr if half a minute passes, here with the beginning of everything."""
    monkeypatch.setattr(progress._Watch, "begin", progress._Watch.tell)
    arguments = ["explain", "ray_small:mortal", "rows.npy", "--chunk", "16", "--method", "permutation", "-o"]
    assert dasp(*arguments, "local.parquet", "--threads", "1").code == 0  # what workers of Ray have
    (folder / "driver.pid").write_text(str(os.getpid()))
    result = dasp(*arguments, "ray.parquet", *there)
    assert (result.code, result.err.count("dasp: explaining: 0 of 200 rows in 0 s\n")) == (0, 1)
    assert (folder / "killed.pid").exists()
    assert (folder / "ray.parquet").read_bytes() == (folder / "local.parquet").read_bytes()
    assert not (folder / "ray.parquet.parts").exists()


def test_interrupted_and_resumed_with_names_and_rows_that_are_left_out(folder, there, monkeypatch):
    """Every chunk is there as soon as it is done, whatever becomes of the others."""
    x = rows(60)
    x[7] = np.nan
    x[[20, 33], 0] = 7  # the pole
    pd.DataFrame(x, columns=list("abcd")).assign(n=[f"p{i}" for i in range(60)]).to_csv("named.csv", index=False)
    arguments = ["explain", "ray_small:Pole", "named.csv", "--id", "n", "--on-bad-row", "skip", "--chunk", "4"]
    arguments += ["--threads", "1", "-o"]
    local = dasp(*arguments, "named.parquet")
    commit, committed = Checkpoint.commit, []

    def stop(self, number, table):
        commit(self, number, table)
        committed.append(number)
        if len(committed) == 12:
            os.kill(os.getpid(), signal.SIGINT)  # of the job alone

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell starts this behind
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", stop)
        result = dasp(*arguments, "resumed.parquet", *there, "--workers", "1")
    signal.signal(signal.SIGINT, before)
    assert result.code == 130
    assert besides_random(result.err) == "dasp: interrupted; run the same command again to go on where it stopped\n"
    result = dasp(*arguments, "resumed.parquet", *there)
    assert "resumed: 48 of 60 rows were done before" in result.out
    assert (folder / "resumed.parquet").read_bytes() == (folder / "named.parquet").read_bytes()
    for said in (local, result):
        assert "warning: left out, as the model's output is not finite: 2 rows (id p20, p33)" in said.out
        assert besides_random(said.err) == ""


def test_a_row_that_kills_its_worker_is_named(folder, there):
    x = rows(6)
    x[3, 2] = 7
    np.save("deadly.npy", x)
    command = ["explain", "ray_small:deadly", "deadly.npy", "--chunk", "2", "--method", "permutation"]
    result = dasp(*command, "-o", "deadly.parquet", *there)
    assert (result.code, besides_random(result.err)) == (
        2, "dasp: the row of id 3 ends its worker every time: leave it out of the data\n",
    )  # fmt: skip


def processes_of(session):
    """The processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def test_a_ray_of_its_own_that_ends(folder):
    """RAY_ADDRESS names another one; without --ray-address, the job starts its own. When a part of Ray ends, Ray ends
    the process that talks to it: nothing may be left of it, and what is done stays."""
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = ["explain", "ray_small:slow", "rows.npy", "--method", "permutation", "--chunk", "1", "-o", "own.parquet"]
    job = subprocess.Popen(
        [sys.executable, "-c", "from dasp.cli import main; main()", *command, "--engine", "ray", "--workers", "1",
         "--show-progress", "no"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    until(lambda: job.poll() is not None or len(list(folder.glob("own.parquet.parts/*.part"))) >= 3)
    assert job.poll() is None
    (driver,) = [child.pid for child in psutil.Process(job.pid).children() if os.getsid(child.pid) == child.pid]
    assert len(processes_of(driver)) > 5  # its own
    os.kill(driver, signal.SIGKILL)
    error = job.communicate(timeout=LONG)[1]
    assert (job.returncode, besides_random(error)) == (
        1, "dasp: Ray has ended; run the same command again to go on where it stopped\n",
    )  # fmt: skip
    assert len(list(folder.glob("own.parquet.parts/*.part"))) >= 3
    until(lambda: not processes_of(driver))  # workers notice that their Ray has ended


@pytest.mark.parametrize("sent", [b"", b"\0\0\1", b"\0\0\1\0 a part of a message"])
def test_a_driver_that_is_killed_while_it_sends(sent):
    """What has begun to come of its last message does not matter."""
    here, there = Pipe()
    os.write(there.fileno(), sent)
    there.close()
    with pytest.raises(Stopped, match="Ray has ended; run the same command again"):
        _received(here)


def test_addresses_where_no_ray_is(folder, monkeypatch):
    """Ray itself would go on trying for minutes. A port that is taken, and where nobody listens, refuses at once."""
    command = ["explain", "ray_small:wide", "rows.npy", "-o", "none.parquet", "--engine", "ray", "--ray-address"]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert besides_random(dasp(*command, address).err) == f"dasp: --ray-address {address}: Connection refused\n"
    monkeypatch.setattr("dasp.jobs.ray_engine._ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = besides_random(dasp(*command, address).err)
    assert said == f"dasp: --ray-address {address}: no answer within 0.5 seconds\n"


def test_ray_that_cannot_start(folder, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "/dev/null/absent")
    result = dasp("explain", "ray_small:wide", "rows.npy", "-o", "none.parquet", "--engine", "ray")
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1)
    assert besides_random(result.err).startswith("dasp: Ray cannot be started here: ")
    here, there = Pipe()
    there.send(None)  # the driver has begun, but its Ray has not
    monkeypatch.setattr("dasp.jobs.ray_engine._START", 0.01)
    with pytest.raises(Stopped, match="Ray cannot be started here: no answer within 0.01 seconds"):
        _check_started(here, None)


def test_what_a_worker_cannot_use(folder, there):
    arguments = ["explain", "ray_small:unlucky", "rows.npy", "-o", "out.parquet", *there]
    result = dasp(*arguments)
    assert result.code == 2
    assert "has other parameters every time it is made" in result.err
    result = dasp(*arguments, "--threads", "3", "--overwrite")
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1)
    assert "no machine of the Ray cluster has more than 2 CPUs" in result.err
