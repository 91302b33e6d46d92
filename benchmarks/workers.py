"""The rate of two Ray workers against that of one, on a model that takes its time.

    python benchmarks/workers.py [--rows 6000] [--pairs 2]

The rate is that between a tenth and nine tenths of the chunks, so that the start of Ray does not count. Runs alternate,
as other work on the machine makes rates of different minutes hard to compare. What does not depend on it is how much of
the time workers run, or could run if a core were free (by /proc, so on Linux only): the rest they wait for chunks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kills import WORKER, processes

COMMAND = [sys.executable, "-c", "from dasp.cli import main; main()", "explain", "busy_model:build", "rows.npy"]
CHUNK = 16
MODEL = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(512, 512), nn.ReLU())]
    return nn.Sequential(nn.Linear(12, 512), nn.ReLU(), *layers, nn.Linear(512, 3)).eval()
"""


class Rate(NamedTuple):
    """What happens while a job does the chunks between a tenth and nine tenths of all."""

    chunks: float  # a second
    run: float  # seconds of a core for each chunk, of those who explain
    active: float  # the part of their time that these run, or could run if a core were free


def cores(pids: list[int]) -> tuple[float, float]:
    """Seconds that processes have run, with threads that have ended, and that their first threads waited for a core."""
    run = ready = 0.0
    for pid in pids:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]  # of user and system
        run += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        ready += int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    return run, ready


def watched(commands: list[list[str]], folder: Path, chunks: int, workers: int, *, handed: bool = False) -> Rate:
    """The rate of one job with so many Ray workers, or of several that explain themselves (0 workers). The seconds of
    cores are of those who explain; or of the job and the driver, through which all chunks are `handed`."""
    for output in folder.glob("watched*.parquet"):
        output.unlink()
    outputs = [f"watched{number}.parquet" for number in range(len(commands))]
    jobs = [
        subprocess.Popen([*command, "-o", output, "--show-progress", "no"], cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603
        for command, output in zip(commands, outputs, strict=True)
    ]
    seen: list[tuple[int, float, float, float]] = []  # chunks, at what time, seconds of cores until then
    while any(job.poll() is None for job in jobs):
        number = sum(len(list(folder.glob(f"{output}.parts/*.part"))) for output in outputs)
        if 0.1 <= number / chunks <= 0.9 and (not seen or number >= seen[-1][0]):  # they are removed in the end
            pids = processes(jobs[0].pid, WORKER) if workers else [job.pid for job in jobs if job.poll() is None]
            pids = [jobs[0].pid, *processes(jobs[0].pid, "driver")] if handed else pids
            seen.append((number, time.perf_counter(), *cores(pids)))
        time.sleep(0.1)
    if any(job.returncode for job in jobs):
        raise SystemExit(f"exit codes {[job.returncode for job in jobs]}")
    number, seconds, run, ready = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    return Rate(number / seconds, run / number, (run + ready) / seconds / (workers or len(jobs)))


def of_workers(rows: int, folder: Path, workers: int) -> Rate:
    options = ["--method", "permutation", "--chunk", str(CHUNK), "--engine", "ray", "--workers", str(workers)]
    return watched([[*COMMAND, *options]], folder, rows // CHUNK, workers)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--pairs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "busy_model.py").write_text(MODEL)
        x = np.random.default_rng(0).normal(size=(options.rows, 12)).astype(np.float32)
        np.save(folder / "rows.npy", x)
        for _ in range(options.pairs):
            one, two = (of_workers(options.rows, folder, workers) for workers in (1, 2))
            rates = f"{one.chunks * CHUNK:.1f} rows/s by one worker, {two.chunks * CHUNK:.1f} by two"
            print(f"{rates}: {two.chunks / one.chunks:.2f} times", flush=True)
            print(
                f"active {one.active:.0%} and {two.active:.0%} of the time; load {os.getloadavg()[0]:.1f}", flush=True
            )


if __name__ == "__main__":
    main()
