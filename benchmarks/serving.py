"""How long callers wait for the service of examples/serve.py, which promises `max_seconds` and as long for a turn.

    python benchmarks/serving.py [--seconds 0.2] [--requests 200] [--workers 2]

The service has processes of its own; clients ask for one row after the other, each as soon as it has its answer. The
time that is printed is the callers': the network of the machine, JSON and the wait for a turn are in it.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"
MODEL = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(18, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
"""


def asked(address: str, rows: list[list[float]]) -> list[tuple[int, float, int]]:
    """The status, the seconds and the evaluations of each request, one after the other."""
    found = []
    with httpx2.Client(base_url=address, timeout=600) as client:
        for row in rows:
            start = time.perf_counter()
            answer = client.post("/explain", json={"row": row})
            seconds = time.perf_counter() - start
            found.append((answer.status_code, seconds, answer.json().get("evaluations", 0)))
    return found


def wait_until_ready(address: str, service: subprocess.Popen[bytes]) -> None:
    while service.poll() is None:
        try:
            if httpx2.get(f"{address}/health").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.2)
    raise SystemExit(f"the service ended with exit code {service.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        Path(name, "served_model.py").write_text(MODEL)
        np.save(Path(name, "background.npy"), rng.normal(size=(1, 18)).astype(np.float32))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        own = {"MODEL": "served_model:build", "BACKGROUND": "background.npy", "SECONDS": str(options.seconds)}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **{f"DASP_{key}": value for key, value in own.items()}}
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--factory", "serve:app",
                   "--port", str(port), "--workers", str(options.workers), "--log-level", "warning"]  # fmt: skip
        service = subprocess.Popen(command, cwd=name, env=environment)  # noqa: S603
        address = f"http://127.0.0.1:{port}"
        try:
            wait_until_ready(address, service)
            asked(address, rng.normal(size=(20, 18)).tolist())  # every process answers its first
            for clients in (1, 2, 4):
                rows = rng.normal(size=(clients, options.requests // clients, 18)).tolist()
                with ThreadPoolExecutor(clients) as pool:
                    found = [each for own in pool.map(lambda mine: asked(address, mine), rows) for each in own]
                done = [(seconds, evaluations) for status, seconds, evaluations in found if status == 200]
                times = np.array([seconds for _, seconds, _ in found])
                p50, p95, p99 = np.quantile(times, [0.5, 0.95, 0.99])
                print(
                    f"{clients} clients: {p50:.3f} s in the median, {p95:.3f} at 95 %, {p99:.3f} at 99 %, "
                    f"{times.max():.3f} at most; {len(found) - len(done)} of {len(found)} refused; "
                    f"{np.median([number for _, number in done]):.0f} evaluations; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
