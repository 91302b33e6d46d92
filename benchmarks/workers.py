"""The rate of two Ray workers against that of one, on a model that takes its time.

    python benchmarks/workers.py [--rows 6000] [--pairs 2]

The rate is that between a tenth and nine tenths of the chunks, so that the start of Ray does not count. Runs alternate,
as other work on the machine makes rates of different minutes hard to compare.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

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


def rate(folder: Path, rows: int, workers: int) -> float:
    """Rows per second."""
    output = folder / f"{workers}.parquet"
    output.unlink(missing_ok=True)
    command = [*COMMAND, "--method", "permutation", "--chunk", str(CHUNK), "--engine", "ray", "--workers", str(workers)]
    job = subprocess.Popen([*command, "-o", output.name], cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603
    times: dict[int, float] = {}
    while job.poll() is None:
        times.setdefault(len(list(folder.glob(f"{output.name}.parts/*.part"))), time.perf_counter())
        time.sleep(0.01)
    if job.returncode:
        raise SystemExit(f"exit code {job.returncode}")
    first, *_, last = (number for number in sorted(times) if 0.1 <= number * CHUNK / rows <= 0.9)
    return (last - first) * CHUNK / (times[last] - times[first])


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
            print(f"{one:.1f} rows/s by one worker, {two:.1f} by two: {two / one:.2f} times", flush=True)


if __name__ == "__main__":
    main()
