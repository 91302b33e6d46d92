"""How many rows a second `dasp explain` does, how well, and in how much memory; against SHAP and Captum in one run.

    DASP_DATA=folder python benchmarks/throughput.py [--rows 10000] [--slow-rows 500] [--memory-rows 100000]

The network is the paper's (18 inputs, 128 and 64 hidden units). All methods explain the same game, with a zero
baseline. Ours run as a user would run them: the command, from a CSV file to a Parquet file. Methods that would take
long do `--slow-rows` only. The error is that of 30 rows against their exact values.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import shap
import torch
from captum.attr import ShapleyValueSampling
from torch import Tensor, nn

import dasp
import settings
from dasp import rmse

TRUE_ROWS = 30
COMMAND = """
import pathlib
import dasp.jobs.execution
from dasp.cli import main
def resident(kind):
    return int(pathlib.Path("/proc/self/status").read_text().split(kind + ":")[1].split()[0]) / 1024
imported = resident("VmRSS")
try:
    main()
finally:
    print(f"memory: {imported:.0f} MB after the import, at most {resident('VmHWM'):.0f} MB")
"""


def explain(folder: Path, rows: Tensor, method: str, threads: int) -> tuple[np.ndarray, float, float, str]:
    """The values of `dasp explain`, rows a second without and with its start, and what it says of memory."""
    data, output = folder / "rows.csv", folder / "out.parquet"
    names = [f"x{i}" for i in range(rows.shape[1])]
    pd.DataFrame(rows.numpy(), columns=names).to_csv(data, index=False)
    options = ["--output", output, "--method", method, "--threads", threads, "--overwrite"]
    start = time.perf_counter()
    command = [sys.executable, "-c", COMMAND, "explain", "model.pt2", "--trust", *map(str, [data, *options])]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    result = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment)  # noqa: S603
    seconds = time.perf_counter() - start
    found = re.search(r"([\d,.]+) rows/s", result.stdout)
    assert found
    values = pd.read_parquet(output, columns=names).to_numpy()
    memory = result.stdout.splitlines()[-1]
    return values, float(found[1].replace(",", "")), len(rows) / seconds, memory


def others(model: nn.Module, players: int) -> dict[str, tuple[object, bool]]:
    """Functions of rows (a tensor) that give values, and whether they are slow."""
    zero = torch.zeros(1, players)

    def function(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(x).float())[:, 0].numpy()

    deep = shap.DeepExplainer(model, zero)
    permutation = shap.PermutationExplainer(function, zero.numpy())
    sampling = ShapleyValueSampling(model)
    return {
        "shap.DeepExplainer": (lambda x: deep.shap_values(x, check_additivity=False).reshape(len(x), -1), False),
        "shap.PermutationExplainer": (lambda x: permutation(x.numpy(), silent=True).values, True),
        "Captum ShapleyValueSampling": (lambda x: sampling.attribute(x, target=0).numpy(), False),
    }


def line(name: str, rows: int, rate: float, error: float, note: str = "") -> None:
    print(f"{name:36} {rows:8,} {rate:10,.1f} {error:8.3f}  {note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in {"rows": 10_000, "slow-rows": 500, "threads": 1, "memory-rows": 100_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    setting = settings.parkinsons(TRUE_ROWS)
    model, truth = setting.problem.model, setting.problem.truth
    known = torch.cat([setting.data.test[0], setting.data.train[0]])
    rows = known.repeat(-(-max(options.rows, options.memory_rows) // len(known)), 1)

    def judged(values: np.ndarray) -> float:
        return rmse(torch.as_tensor(np.asarray(values[:TRUE_ROWS])), truth).mean().item()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dasp.save(model, rows[:1], folder / "model.pt2")
        print(f"{'':36} {'rows':>8} {'rows/s':>10} {'RMSE':>8}")
        for method, slow in {"gradient": False, "GradientDASP, rank 0": False, "DASP": False, "dasp": True}.items():
            number = options.slow_rows if slow else options.rows
            values, rate, whole, memory = explain(folder, rows[:number], method, options.threads)
            note = f"{whole:,.1f} rows/s with the start of Python; {memory}"
            line(f"dasp explain, {method}", number, rate, judged(values), note)
        for label, (function, slow) in others(model, rows.shape[1]).items():
            number = options.slow_rows if slow else options.rows
            start = time.perf_counter()
            values = function(rows[:number])  # type: ignore[operator]
            line(label, number, number / (time.perf_counter() - start), judged(values))
        for number in sorted({options.rows, options.memory_rows}):
            values, rate, _, memory = explain(folder, rows[:number], "GradientDASP, rank 0", options.threads)
            line("dasp explain, GradientDASP, rank 0", number, rate, judged(values), memory)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
