"""How much more a propagated pass costs than a plain forward pass: mean and variance, so 2 at the least.

python benchmarks/propagation.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace
from networks import small_resnet
from reproduction.mnist import lenet

BATCH, REPEATS = 64, 30


def seconds(function: Callable[[Any], object], argument: Any) -> float:
    start = time.perf_counter()
    function(argument)
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    print(f"batch {BATCH}, {torch.get_num_threads()} threads, median of {REPEATS} alternating runs")
    networks = [("LeNet-5, 1×28×28", lenet(), (1, 28, 28)), ("small ResNet, 3×32×32", small_resnet(3), (3, 32, 32))]
    for name, model, shape in networks:
        model.eval()
        x = torch.randn(BATCH, *shape)
        value = Gaussian(x, torch.rand_like(x))
        lifted = lift(trace(model, (x,), RULES), (value,), x[0].numel())
        with torch.no_grad():
            times = [(seconds(model, x), seconds(lifted, value)) for _ in range(REPEATS + 5)][5:]
        plain, propagated = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(slow / fast for fast, slow in times)
        print(f"{name}: forward {plain:.1f} ms, propagated (rank 0) {propagated:.1f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
