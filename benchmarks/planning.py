"""The sheet for planning a job (docs/production.md), beside what is measured: one and two workers, here and on Ray.

    python benchmarks/planning.py [--rows 2400] [--parts 1000] [--calls 1500]

The sheet says: seconds of a core = rows × evaluations of a row × seconds of an evaluation. These are measured apart,
and compared with the seconds of cores that jobs take for a row. Cores count, not the clock: other work on the machine
makes a clock say anything. Then what does not grow with the model is measured: what a chunk costs at least (a model
that does nothing, one row a chunk), and what the join of parts takes, in time and memory, by two numbers of parts. What
follows for a billion rows is printed at the end. With --rows 0, the first part is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from workers import CHUNK, COMMAND, MODEL, watched

ROWS, COLUMNS = 256, 18  # of a chunk of a table, as jobs choose them
LARGE, SOME, MORE = 2**16, 8, 40  # rows of the parts by which the memory of the join is measured, and how many
BILLION = 10**9
NOTHING = """
from torch import nn


class Sum(nn.Module):
    def forward(self, x):
        return x.sum(1, keepdim=True)
"""
EVALUATION = """
import time, torch, busy_model
torch.set_num_threads(1)
model, x = busy_model.build(), torch.rand(208, 12)  # as many rows as the method gives it at once
with torch.no_grad():
    for _ in range(20):
        model(x)
    start = time.process_time()
    for _ in range(200):
        model(x)
print((time.process_time() - start) / 200 / len(x))
"""
JOIN = """
import json, sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
from dasp.jobs.checkpoint import Checkpoint
from dasp.jobs.record import AbsentInputs, JobRecord, SkippedRows, Software
parts, rows, columns = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
record = JobRecord({}, {}, Software("0", "0"), "", "", SkippedRows(), AbsentInputs("baselines"), {}, "")
def chunk(number):
    players = [f"x{i}" for i in range(columns)]
    names = ["prediction", "base_value", *players, *[f"error_std:{player}" for player in players]]
    numbers = {name: rng.normal(size=rows).astype(np.float32) for name in names}
    return pa.table({"id": np.arange(number * rows, (number + 1) * rows), "target": np.zeros(rows, np.int32), **numbers,
                     "gap": numbers["prediction"], "method": ["bayesian_shapley"] * rows,
                     "evaluations": np.full(rows, 512)})
def resident(kind):
    return int(Path("/proc/self/status").read_text().split(kind + ":")[1].split()[0]) / 1024
def timed(act):
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu
with Checkpoint(Path("joined.parquet")) as checkpoint:
    checkpoint.begin(record)
    commit = timed(lambda: [checkpoint.commit(number, chunk(number)) for number in range(parts)])
    size = (checkpoint.folder / "000000.part").stat().st_size
    done = timed(checkpoint.done)
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of the join alone
    before = resident("VmRSS")
    finish = timed(lambda: checkpoint.finish(parts, record))
    memory = resident("VmHWM") - before
footer = pq.read_metadata("joined.parquet").serialized_size
print(json.dumps({"commit": commit, "done": done, "finish": finish, "memory": memory, "part": size,
                  "footer": footer, "output": Path("joined.parquet").stat().st_size}))
Path("joined.parquet").unlink()
"""


def printed(code: str, folder: Path, *arguments: int) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout  # noqa: S603


def explain(model: str, data: str, chunk: int, workers: int = 0) -> list[str]:
    own = [*COMMAND[:3], "explain", model, data, "--method", "permutation", "--chunk", str(chunk), "--threads", "1"]
    return [*own, *(["--engine", "ray", "--workers", str(workers)] if workers else [])]


def throughput(folder: Path, rows: int) -> None:
    """Compare the sheet with jobs of one and two processes, and of one and two workers on Ray."""
    x = np.random.default_rng(0).normal(size=(rows, 12)).astype(np.float32)
    np.save(folder / "rows.npy", x)
    for number in range(2):
        np.save(folder / f"half{number}.npy", x[number::2])
    np.save(folder / "few.npy", x[:CHUNK])
    metrics = ["--metrics", "metrics.json", "--show-progress", "no", "-o", "few.parquet"]
    command = [*explain("busy_model:build", "few.npy", CHUNK), *metrics]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    told = json.loads((folder / "metrics.json").read_text())
    evaluations = told["evaluations"] / told["rows"]
    whole, halves = explain("busy_model:build", "rows.npy", CHUNK), ["half0.npy", "half1.npy"]
    jobs = {
        "one process": ([whole], 0),
        "two processes, half of the rows each": ([explain("busy_model:build", half, CHUNK) for half in halves], 0),
        "one worker on Ray": ([explain("busy_model:build", "rows.npy", CHUNK, 1)], 1),
        "two workers on Ray": ([explain("busy_model:build", "rows.npy", CHUNK, 2)], 2),
    }
    for name, (commands, workers) in jobs.items():
        each = float(printed(EVALUATION, folder))
        sheet = evaluations * each
        rate = watched(commands, folder, rows // CHUNK, workers)
        run = rate.run / CHUNK
        print(
            f"{name}: {run * 1e3:.2f} ms of a core for a row; the sheet says {evaluations:.0f} × {each * 1e6:.1f} µs = "
            f"{sheet * 1e3:.2f} ms: {run / sheet:.2f} times; {rate.chunks * CHUNK:.1f} rows/s by the clock, active "
            f"{rate.active:.0%} of it, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def calls(folder: Path, number: int) -> float:
    """Return the seconds of a core for a chunk in the two processes that every chunk on Ray passes through: explaining
    takes no time, and a chunk has one row."""
    np.save(folder / "tiny.npy", np.random.default_rng(0).normal(size=(number, 4)).astype(np.float32))
    found = 0.0
    for name, workers in {"here": 0, "on Ray": 2}.items():
        rate = watched([explain("nothing:Sum", "tiny.npy", 1, workers)], folder, number, workers, handed=workers > 0)
        found = rate.run
        print(f"chunks of one row, a model that does nothing, {name}: {rate.chunks:.0f} a second by the clock, "
              f"{found * 1e3:.1f} ms of a core each, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in {"rows": 2400, "parts": 1000, "calls": 1500}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "busy_model.py").write_text(MODEL)
        (folder / "nothing.py").write_text(NOTHING)
        start = time.perf_counter()
        if options.rows:
            throughput(folder, options.rows)
        through = calls(folder, options.calls)
        few, many = [
            json.loads(printed(JOIN, folder, parts, ROWS, COLUMNS)) for parts in (options.parts // 2, options.parts)
        ]
        small, large = [json.loads(printed(JOIN, folder, parts, LARGE, COLUMNS)) for parts in (SOME, MORE)]
        for what, join in {"few": few, "many": many, "small": small, "large": large}.items():
            print(f"{what}: {join}", flush=True)
        chunks = BILLION / ROWS
        print(f"a billion rows of {COLUMNS} inputs, in {chunks / 1e6:.1f} million chunks of {ROWS}:")
        print(f"  parts: {many['part'] * chunks / 1e9:.0f} GB; output: {large['output'] / (MORE * LARGE):.0f} GB")
        print(f"  the footer of the output: {large['footer'] / (MORE * LARGE):.2f} GB")
        for what in ("commit", "done", "finish"):
            wall, cpu = ((many[what][i] - few[what][i]) / (options.parts / 2) * chunks / 3600 for i in (0, 1))
            print(f"  {what}: {cpu:.1f} h of a core, {wall:.1f} h by the clock")
        memory = (large["memory"] - small["memory"]) / ((MORE - SOME) * LARGE) * BILLION / 1e3
        print(f"  memory of the join: {memory:.0f} GB")
        print(f"  Ray: {ROWS / through:,.0f} rows/s at most, {chunks * through / 3600:.1f} h at least")
        print(f"  measured in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
