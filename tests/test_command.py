"""The command as a process: its streams, interrupts, and the code that it ends with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
from explain_files import FACTORY, besides_random, rows

# Python is started once; every command has a process of its own, forked where all is imported.
FORKING = """
import os, sys
import dasp.jobs.execution
from dasp.__main__ import main

def without_a_reader():
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)

def on_a_full_disk():
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

def in_ascii():
    os.dup2(os.open("said.txt", os.O_WRONLY | os.O_CREAT), 1)
    sys.stdout.reconfigure(encoding="ascii")

def without_streams():
    for number in range(3):
        os.close(number)
    sys.stdin = sys.stdout = sys.stderr = None  # as Python has them then

for prepare in (without_a_reader, on_a_full_disk, in_ascii, without_streams):
    if os.fork() == 0:
        prepare()
        sys.argv[1:] = ["explain", "small:Loud", "größe.npy", "-o", f"{prepare.__name__}.parquet"]
        main()
    print(prepare.__name__, os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


# A library in C says something.
LOUD = """
import os

class Loud(nn.Module):
    def forward(self, x):
        os.write(2, b"")
        return x.sum(1, keepdim=True)
"""


def test_the_job_is_done_though_nobody_can_read_what_it_says(tmp_path):
    (tmp_path / "small.py").write_text(FACTORY + LOUD)
    np.save(tmp_path / "größe.npy", rows())
    command = [sys.executable, "-X", "utf8", "-W", "ignore::DeprecationWarning", "-c", FORKING]  # of forking
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=tmp_path)
    assert result.stdout.splitlines() == [
        "without_a_reader 0", "on_a_full_disk 0", "in_ascii 0", "without_streams 0",
    ], result.stderr  # fmt: skip
    assert besides_random(result.stderr) == ""
    assert len({file.read_bytes() for file in tmp_path.glob("*.parquet")}) == 1
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    assert (tmp_path / "said.txt").read_text().startswith(r"gr\xf6\xdfe.npy: 10 rows of 4 inputs")


def interrupted(tmp_path, before=""):
    """What becomes of the command when it is interrupted while it imports torch, here a module that waits for us."""
    waiting = "import sys\nprint('importing', flush=True)\nsys.stdin.read()\nsys.exit('not interrupted')\n"
    (tmp_path / "torch.py").write_text(waiting)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    start = before or "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    np.save(tmp_path / "rows.npy", rows())
    command = [sys.executable, "-c", f"{start}\nimport dasp.__main__\ndasp.__main__.main()"]
    arguments = ["explain", "small:build", "rows.npy", "-o", "out.parquet"]
    environment = {**os.environ, "PYTHONPATH": path}
    pipes = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE)
    with subprocess.Popen([*command, *arguments], **pipes, text=True, env=environment, cwd=tmp_path) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]  # and it need not wait any longer
        return process.returncode, said


def test_an_interrupt_while_it_starts(tmp_path):
    code, said = interrupted(tmp_path)
    assert (code, said) == (130, "dasp: interrupted; run the same command again to go on where it stopped\n")


def test_an_interrupt_that_is_ignored_stays_so(tmp_path):
    assert interrupted(tmp_path, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)") == (
        1, "not interrupted\n",
    )  # fmt: skip
