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


def active(pids: list[int]) -> float:
    """Seconds that the workers have run, or waited for a core."""
    stats = [Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split() for pid in pids]
    return sum(int(run) + int(ready) for run, ready, _ in stats) / 1e9


def rate(folder: Path, rows: int, workers: int) -> tuple[float, float]:
    """Rows per second, and the part of their time that workers were active."""
    output = folder / f"{workers}.parquet"
    output.unlink(missing_ok=True)
    command = [*COMMAND, "--method", "permutation", "--chunk", str(CHUNK), "--engine", "ray", "--workers", str(workers)]
    job = subprocess.Popen([*command, "-o", output.name], cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603
    seen: list[tuple[int, float, float]] = []  # chunks, at what time, active seconds until then
    while job.poll() is None:
        number = len(list(folder.glob(f"{output.name}.parts/*.part")))
        if 0.1 <= number * CHUNK / rows <= 0.9 and (not seen or number >= seen[-1][0]):  # they are removed in the end
            seen.append((number, time.perf_counter(), active(processes(job.pid, WORKER))))
        time.sleep(0.1)
    if job.returncode:
        raise SystemExit(f"exit code {job.returncode}")
    number, seconds, busy = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    return number * CHUNK / seconds, busy / seconds / workers


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
            one, two = (rate(folder, options.rows, workers) for workers in (1, 2))
            print(f"{one[0]:.1f} rows/s by one worker, {two[0]:.1f} by two: {two[0] / one[0]:.2f} times", flush=True)
            print(f"active {one[1]:.0%} and {two[1]:.0%} of the time; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
