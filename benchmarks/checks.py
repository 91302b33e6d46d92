"""What does it cost to check that a model computes every row by itself, and the same each time?

    python benchmarks/checks.py [NETWORK …]

`Explainer` evaluates some rows again, alone or in another order (`dasp.models.witness`), and fewer of a model that has
passed before. Of a first and of a second call of a model, in processor seconds of one thread: all of it, the share of
the checks in per cent, and the rows and calls of the model that they take beside those that are asked for.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from dasp import Explainer
from dasp.games import request
from dasp.methods import METHODS
from dasp.models.witness import Witness
from networks import resnet18
from real_networks import Unavailable, efficientnet
from reproduction.mnist import lenet


def table() -> nn.Module:
    """Return a perceptron for a table of 18 columns."""
    return nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


# The network, the shape of its rows, how many there are, and what is asked.
CALLS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, dict[str, Any]]] = {
    "table, one row": (table, (18,), 1, {}),
    "table, 100 rows": (table, (18,), 100, {}),
    "table, 100 rows, 128 evaluations": (table, (18,), 100, {"max_evaluations": 128}),
    "LeNet, 16 blocks": (lenet, (1, 28, 28), 1, {"players": "block:7"}),
    "LeNet, 10 rows of 16 blocks": (lenet, (1, 28, 28), 10, {"players": "block:7"}),
    "LeNet, pixels": (lenet, (1, 28, 28), 1, {}),
    "ResNet-18, 16 blocks": (resnet18, (3, 224, 224), 1, {"players": "block:56", "max_evaluations": 256}),
    "ResNet-18, pixels, 20 passes": (
        resnet18, (3, 224, 224), 1, {"method": "gradient_shapley", "max_evaluations": 20}),
    "EfficientNet-Lite0, 16 blocks": (
        efficientnet, (3, 224, 224), 1, {"players": "block:56", "max_evaluations": 256}),
}  # fmt: skip


@dataclass
class Cost:
    """Processor seconds, rows and calls."""

    seconds: float = 0.0
    rows: int = 0
    calls: int = 0


@contextmanager
def watched() -> Iterator[tuple[Cost, Cost]]:
    """Count what the model, and what the checks of it take."""
    asked, checked = Cost(), Cost()
    call, again, first = Witness.__call__, Witness._again, request._check_function
    inside = 0  # of a check

    def timed(cost: Cost, function: Callable[..., Any], *args: Any, deeper: bool = False) -> Any:
        nonlocal inside
        outer, start = not inside, time.process_time()
        inside += deeper
        try:
            return function(*args)
        finally:
            inside -= deeper
            if outer:
                cost.seconds += time.process_time() - start

    def counted(cost: Cost, args: tuple[Any, ...]) -> None:
        cost.rows, cost.calls = cost.rows + len(args[0]), cost.calls + 1

    def evaluated_again(self: Witness, args: tuple[Any, ...]) -> Any:
        counted(checked, args)
        return timed(checked, again, self, args, deeper=True)

    def evaluated(self: Witness, *args: Any) -> Any:
        counted(checked if inside else asked, args)
        return timed(asked, call, self, *args)

    def checked_first(*args: Any) -> None:
        timed(checked, first, *args, deeper=True)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Witness, "_again", evaluated_again))
        stack.enter_context(patch.object(Witness, "__call__", evaluated))
        stack.enter_context(patch.object(request, "_check_function", checked_first))
        yield asked, checked


def measure(name: str) -> str:
    """Return a line about two calls."""
    build, shape, rows, options = CALLS[name]
    torch.manual_seed(0)
    model, x = build().eval(), torch.randn(rows, *shape)
    line = ""
    for network in (copy.deepcopy(model), model, model):  # the first call of all imports and warms up
        explainer = Explainer(network, baselines=torch.zeros(1, *shape), threads=1, **options)
        start = time.process_time()
        with watched() as (asked, checked):
            method = explainer.attribute(x, target=0).method
        seconds = time.process_time() - start
        told = f"{seconds:8.3f}{100 * checked.seconds / seconds:7.1f}{checked.rows:6}{checked.calls:6}"
        line = (
            f"{line}{told}" if network is model else f"{name:34}{METHODS[method].name:16}{asked.rows:9,}{asked.calls:5}"
        )
    return line


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    call = f"{'s':>8}{'%':>7}{'rows':>6}{'calls':>6}"
    print(f"{'':50}{'asked for':>14}{'first call':>26}{'second call':>26}\n{'':50}{'rows':>9}{'calls':>5}{call}{call}")
    for name in sys.argv[1:] or CALLS:
        try:
            print(measure(name), flush=True)
        except Unavailable as why:
            print(f"{name:34}{why}", flush=True)


if __name__ == "__main__":
    main()
