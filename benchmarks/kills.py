"""Kill `dasp explain` at random moments, and compare what the resumed job wrote with an uninterrupted one.

    python benchmarks/kills.py [--kills 20] [--rows 5000] [--engine local|ray]

The process is killed by SIGKILL after a random time, within its start as well as its work. With Ray, workers are
killed one after the other; the job itself goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from dasp.paper.experiment import Data
from dasp.paper.parkinsons import Parkinsons

COMMAND = [sys.executable, "-c", "from dasp.cli import main; main()"]
WORKER = b"ray::MapWorker"
CHUNK = 64


def prepared(folder: Path, rows: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, 18)
    data = Data((x, x), (x, x), ["input"] * 18, "random")
    model = Parkinsons().network(data).eval()
    program = torch.export.export(model, (x[:2],), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(program, folder / "model.pt2")
    np.save(folder / "rows.npy", x.numpy())


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def workers(job: int) -> list[int]:
    """Ray workers of that job: processes by that name in its session."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(WORKER) and os.getsid(int(process.name)) == os.getsid(job):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def parts(folder: Path) -> int:
    return len(list(folder.glob("out.parquet.parts/*.part")))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--method", default="gradient")
    options = parser.parse_args()
    chance = random.Random(0)  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder, options.rows)
        command = [
            *COMMAND, "explain", "model.pt2", "rows.npy", "--method", options.method, "--threads", "1",
            "--chunk", str(CHUNK),
        ]  # fmt: skip
        start = time.perf_counter()
        subprocess.run([*command, "-o", "whole.parquet"], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        duration = time.perf_counter() - start
        print(f"{options.rows:,} rows in {duration:.1f} s: {digest(folder / 'whole.parquet')}", flush=True)
        begin = time.perf_counter()
        killed = jobs = 0
        while killed < options.kills:
            killed += interrupted(command, folder, options, duration, chance, options.kills - killed)
            jobs += 1
            if digest(folder / "out.parquet") != digest(folder / "whole.parquet"):
                raise SystemExit("OTHER bytes")
            if (folder / "out.parquet.parts").exists():
                raise SystemExit("parts are left")
            (folder / "out.parquet").unlink()
        seconds = time.perf_counter() - begin
        what = "a worker" if options.engine == "ray" else "the job"
        print(f"{killed} kills of {what} in {jobs} jobs, {seconds:.0f} s: the same bytes every time")


def interrupted(
    command: list[str], folder: Path, options: argparse.Namespace, duration: float, chance: random.Random, most: int
) -> int:
    """A job until it is done; how often it was killed."""
    killed = 0
    while not (folder / "out.parquet").exists():
        process = subprocess.Popen(  # noqa: S603
            [*command, "-o", "out.parquet", "--engine", options.engine], cwd=folder, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        if options.engine == "ray":
            killed += kill_workers(process, most, chance)
        elif killed < most:
            killed += kill(process, chance.uniform(0.2, 1) * duration)
            done = f"{parts(folder)} of {-(-options.rows // CHUNK)} parts"
            print("done" if (folder / "out.parquet").exists() else f"killed with {done}", flush=True)
        if process.wait() not in (0, -signal.SIGKILL):
            raise SystemExit(f"exit code {process.returncode}")
    return killed


def kill(process: subprocess.Popen[bytes], seconds: float) -> int:
    """SIGKILL after some seconds; 0 if it was done before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return 1
    return 0


def kill_workers(process: subprocess.Popen[bytes], most: int, chance: random.Random) -> int:
    """SIGKILL to one worker after the other while the job goes on."""
    killed = 0
    while process.poll() is None and killed < most:
        time.sleep(chance.uniform(0, 4))
        found = workers(process.pid)
        if found:
            os.kill(chance.choice(found), signal.SIGKILL)
            killed += 1
            print(f"worker {killed} killed", flush=True)
    return killed


if __name__ == "__main__":
    main()
