"""Kill `dasp explain` at random moments, and compare what the resumed job wrote with an uninterrupted one.

    python benchmarks/kills.py [--kills 20] [--rows 5000] [--engine local|ray]
                               [--what job|worker|driver|raylet|gcs_server] [--at 0.8|join|report] [--seconds 120]

The job is killed by SIGKILL after a random time, within its start as well as its work, or when some more of its parts
are there, or a fraction of all (--at), or while its parts are joined (--at join) or its page is written (--at report,
whose bytes are compared as well). With Ray, workers can be killed instead, within so many seconds of its first part,
while the job goes on; or the driver, which is the process that talks to Ray, or a part of Ray, either of which ends the
job: it must say so in one line.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import dasp
from reproduction.experiment import Data
from reproduction.parkinsons import Parkinsons

COMMAND = [sys.executable, "-c", "from dasp.cli import main; main()"]
WORKER = "ray::_Remote"
DONE = re.compile(rb"resumed: ([\d,]+) of ([\d,]+) rows")
CHUNK = 64
HALF = 0.5
# From when to when something is done: the file that is there then, that which is not yet, and the seconds that it takes
# for the rows of the default.
MOMENTS = {
    "join": ("out.parquet.parts/output.parquet", "out.parquet", 0.1),
    "report": ("out.parquet", "out.html", 1.0),
}


def prepared(folder: Path, rows: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, 18)
    data = Data((x, x), (x, x), ["input"] * 18, "random")
    model = Parkinsons().network(data).eval()
    dasp.save(model, x[:1], folder / "model.pt2")
    np.save(folder / "rows.npy", x.numpy())


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def processes(job: int, name: str) -> list[int]:
    """Processes by that name of the Ray that a job has started: they are in the session of a child of the job."""
    command = ["ps", "-e", "-o", "pid=,ppid=,sid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    found = [line.split(maxsplit=3) for line in listed.stdout.splitlines()]
    sessions = {pid for pid, parent, session, _ in found if parent == str(job) and pid == session}
    if name == "driver":
        return list(map(int, sessions))
    return [
        int(pid) for pid, _, session, command in found
        if session in sessions and (command.startswith(name) or f"/{name} " in command)
    ]  # fmt: skip


def parts(folder: Path) -> int:
    return len(list(folder.glob("out.parquet.parts/*.part")))


def further(folder: Path, options: argparse.Namespace, chance: random.Random) -> float:
    """A number of parts between those that are there and half of those that are left."""
    there = parts(folder)
    return there + chance.uniform(0, 0.5) * (options.rows / CHUNK - there)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--method", default="gradient")
    parser.add_argument("--what", default="job")
    parser.add_argument("--at")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    if options.at not in (None, *MOMENTS):
        options.at = float(options.at)
    chance = random.Random(0)  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder, options.rows)
        command = [
            *COMMAND, "explain", "model.pt2", "rows.npy", "--trust", "--method", options.method, "--threads", "1",
            "--chunk", str(CHUNK), "--show-progress", "no",
        ]  # fmt: skip
        start = time.perf_counter()
        page = ["--report", "whole.html"] if options.at == "report" else []
        subprocess.run([*command, "-o", "whole.parquet", *page], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        duration = time.perf_counter() - start
        print(f"{options.rows:,} rows in {duration:.1f} s: {digest(folder / 'whole.parquet')}", flush=True)
        begin = time.perf_counter()
        killed = jobs = 0
        while killed < options.kills:
            killed += interrupted(command, folder, options, duration, chance, options.kills - killed)
            jobs += 1
            for suffix in [".parquet", *([".html"] if page else [])]:
                if digest(folder / f"out{suffix}") != digest(folder / f"whole{suffix}"):
                    raise SystemExit("OTHER bytes")
            if (folder / "out.parquet.parts").exists():
                raise SystemExit("parts are left")
            (folder / "out.parquet").unlink()
            (folder / "out.html").unlink(missing_ok=True)
        seconds = time.perf_counter() - begin
        during = f" during the {options.at}" if options.at in MOMENTS else ""
        print(
            f"{killed} kills of the {options.what}{during} in {jobs} jobs, {seconds:.0f} s: the same bytes every time"
        )


def interrupted(
    command: list[str], folder: Path, options: argparse.Namespace, duration: float, chance: random.Random, most: int
) -> int:
    """A job until it is done; how often it, or a part of it, was killed."""
    killed = 0
    page = ["--report", "out.html"] if options.at == "report" else []
    while not (folder / ("out.html" if page else "out.parquet")).exists():
        process = subprocess.Popen(  # noqa: S603
            [*command, "-o", "out.parquet", "--engine", options.engine, *page], cwd=folder, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        if killed < most:
            kill = {"job": kill_job, "worker": kill_workers}.get(options.what, kill_ray)
            killed += kill(process, folder, options, duration, chance, most - killed)
        out, err = process.communicate()
        if found := DONE.search(out):
            print(found[0].decode(), flush=True)
        if process.returncode not in (0, -signal.SIGKILL):
            print(f"exit code {process.returncode}: {err.decode().strip()}", flush=True)
            if options.what in ("job", "worker") or err.count(b"\n") != 1:
                raise SystemExit("not as it should be")
    return killed


def kill_job(process, folder, options, duration, chance, most) -> int:
    """SIGKILL after some seconds, or some parts; 0 if it was done before."""
    if options.at in MOMENTS:
        return kill_at(process, folder, *MOMENTS[options.at], chance.random())
    end = time.perf_counter() + chance.uniform(0.2, 1) * duration
    goal = None if options.at is None else options.at * options.rows / CHUNK
    if options.what == "job" and chance.random() < HALF:  # else it would be killed in its start again and again
        goal = goal or further(folder, options, chance)
    while process.poll() is None:
        if parts(folder) >= goal if goal else time.perf_counter() > end:
            process.kill()
            print(f"killed with {parts(folder)} of {-(-options.rows // CHUNK)} parts", flush=True)
            return 1
        time.sleep(0.005)
    return 0


def kill_at(process, folder, begin, end, seconds, fraction) -> int:
    """SIGKILL some time after a file is there, before another is; 0 if that was there before."""
    while process.poll() is None:
        if (folder / begin).exists() and not (folder / end).exists():
            time.sleep(fraction * seconds)
            if process.poll() is None and not (folder / end).exists():
                process.kill()
                process.wait()
                left = sorted(str(file.relative_to(folder)) for file in folder.glob(".out*"))
                print(f"killed {fraction * seconds:.2f} s after {begin} was there; left: {left}", flush=True)
                return 1
        time.sleep(0.001)
    return 0


def kill_workers(process, folder, options, duration, chance, most) -> int:
    """SIGKILL to one worker after the other while the job goes on."""
    killed, begin = 0, 0.0
    while process.poll() is None and killed < most:
        pause = chance.uniform(0, 4) if options.seconds is None else options.seconds / most
        found = processes(process.pid, WORKER)
        if found and parts(folder) and (not begin or time.perf_counter() > begin + killed * pause):
            begin = begin or time.perf_counter()
            os.kill(chance.choice(found), signal.SIGKILL)
            killed += 1
            print(
                f"worker {killed} killed after {time.perf_counter() - begin:.0f} s: {parts(folder)} parts", flush=True
            )
        time.sleep(0.2)
    return killed


def kill_ray(process, folder, options, duration, chance, most) -> int:
    """SIGKILL to a part of Ray when some parts are there."""
    goal = options.at * options.rows / CHUNK if options.at else further(folder, options, chance)
    while process.poll() is None:
        if parts(folder) >= goal and (found := processes(process.pid, options.what)):
            os.kill(found[0], signal.SIGKILL)
            print(f"{options.what} killed with {parts(folder)} parts", flush=True)
            return 1
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    main()
