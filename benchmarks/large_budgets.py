"""BayesianShapley with many evaluations, against the newest of the sampling methods that model interactions.

    DASP_DATA=folder python benchmarks/large_budgets.py [--peer PYTHON]

LeNet-5 on digits in 49 blocks, and the 18-input network; no prior. For each budget: the RMSE over rows and seeds,
the stated standard deviation, how many of the 95 % intervals hold the truth, and the processor's seconds for a row
without the evaluations. The peer is OddSHAP of shapiq 1.8 or later with LightGBM, which need Python 3.12; --peer names
a Python that has them, if this one has not. Truth is exact for 18 inputs; for blocks it is least squares over many
more pairs, whose standard error is added to the stated one and taken off the errors. Truths are kept in results/cache.
Constants were chosen on other rows than these.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import settings
from dasp import BayesianShapley, ExactShapley
from dasp.attribution.bayesian.design import Pairs, log_counts
from reproduction.store import Store, checksum
from shapiq_peer import Peer

SEEDS = (0, 1, 2)
TRUTH_PARTS, TRUTH_PAIRS = 10, 40_000
STORE = Store(Path("results") / "cache")


@dataclass(frozen=True)
class Row:
    """One row's game: v(S) for members (coalitions, players), and its Shapley values."""

    players: int
    worth: Callable[[Tensor], Tensor]
    truth: Tensor
    error: Tensor  # standard error of the truth


def blocks(rows: int) -> list[Row]:
    """The first digits, in 7 × 7 blocks."""
    problem = settings.mnist(1, 2).problem
    model, data = problem.model.eval(), settings.MNIST().data()
    group = torch.arange(28) // 4
    mask = group[:, None] * 7 + group
    result = []
    for x, label in zip(data.test[0][:rows], data.test[1][:rows], strict=True):

        def worth(members: Tensor, x: Tensor = x, label: int = int(label)) -> Tensor:
            return _outputs(model, members, lambda part: part[:, None, mask] * x)[:, label].double()

        key = {"network": checksum(model.state_dict()), "row": checksum(x), "pairs": [TRUTH_PARTS, TRUTH_PAIRS]}
        kept = STORE.keep(f"large/blocks-{len(result)}", key, partial(least_squares, worth, 49))
        result.append(Row(49, worth, kept["values"], kept["error"]))
    return result


def inputs(rows: int) -> list[Row]:
    """The first test rows of the 18-input network."""
    problem = settings.parkinsons(rows).problem
    model, x = problem.model.eval().double(), problem.arguments["inputs"].double()
    truth = ExactShapley(model).attribute(x)

    def worth(row: Tensor, members: Tensor) -> Tensor:
        return _outputs(model, members, lambda part: part * row)[:, 0]

    nothing = torch.zeros_like(truth[0])
    return [Row(x.shape[1], partial(worth, row), values, nothing) for row, values in zip(x, truth, strict=True)]


def _outputs(model: nn.Module, members: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        return torch.cat([model(place(part.to(dtype))) for part in members.split(4096)])


def least_squares(worth: Callable[[Tensor], Tensor], players: int) -> dict[str, Tensor]:
    """Shapley values by the weighted regression that they are, over several large designs, and standard errors."""
    ones = torch.ones(players, players, dtype=torch.float64)
    total = worth(ones[:1].bool()) - worth(~ones[:1].bool())
    parts = []
    for seed in range(TRUTH_PARTS):
        pairs = Pairs.draw(players, TRUTH_PAIRS, 1000 + seed)
        y = (worth(pairs.members) - worth(~pairs.members)) / 2 - (pairs.sizes / players - 0.5) * total
        size = pairs.sizes.long()
        left = (log_counts(players).exp() / torch.bincount(size)[1:])[size - 1]  # pairs of a size for each one drawn
        weighted = pairs.centred() * (pairs.weights * left)[:, None]
        parts.append(torch.linalg.solve(weighted.T @ pairs.centred() + ones, weighted.T @ y) + total / players)
    values = torch.stack(parts)
    return {"values": values.mean(0), "error": values.std(0) / TRUTH_PARTS**0.5}


def oddshap(peer: Peer, row: Row, budget: int, seed: int) -> tuple[Tensor, float]:
    """Values and seconds."""
    found = peer("OddSHAP", lambda members: row.worth(torch.tensor(members)).numpy(), row.players, budget, seed)
    return torch.tensor(found.values), found.seconds


def ours(row: Row, budget: int, seed: int) -> tuple[Tensor, Tensor, float]:
    """Values, standard deviations and seconds without evaluations."""
    waited = 0.0

    def function(present: Tensor) -> Tensor:
        nonlocal waited
        start = time.process_time()
        values = row.worth(present > 0)
        waited += time.process_time() - start
        return values

    x = torch.ones(1, row.players, dtype=torch.float64)
    start = time.process_time()
    values, std = BayesianShapley(function).attribute(x, max_evaluations=budget, seed=seed, return_std=True)
    return values[0], std[0], time.process_time() - start - waited


def study(title: str, rows: list[Row], budgets: tuple[int, ...], peer: Peer | None) -> None:
    """Print a line for each budget and method."""
    print(f"\n{title}, {len(rows)} rows, {len(SEEDS)} seeds; truth with a standard error of "
          f"{torch.stack([row.error for row in rows]).square().mean().sqrt():.4f}")  # fmt: skip
    for budget in budgets:
        found = [(row, *ours(row, budget, seed)) for row in rows for seed in SEEDS]
        held = [(v - row.truth).abs() <= 1.96 * (std**2 + row.error**2).sqrt() for row, v, std, _ in found]
        stated = torch.stack([std for *_, std, _ in found]).square().mean().sqrt()
        print(f"{budget:6} evaluations: BayesianShapley {_rmse([(row, v) for row, v, *_ in found]):.4f}, stated "
              f"{stated:.4f}, {torch.stack(held).double().mean():.0%} within 95 % intervals, "
              f"{np.mean([seconds for *_, seconds in found]):.2f} s", end="", flush=True)  # fmt: skip
        if peer is not None:
            others = [(row, *oddshap(peer, row, budget, seed)) for row in rows for seed in SEEDS]
            print(f"; OddSHAP {_rmse([(row, v) for row, v, _ in others]):.4f}, "
                  f"{np.mean([seconds for *_, seconds in others]):.2f} s", end="")  # fmt: skip
        print(flush=True)


def _rmse(found: list[tuple[Row, Tensor]]) -> float:
    squares = torch.stack([(values - row.truth) ** 2 - row.error**2 for row, values in found])
    return float(squares.mean().clamp(min=0).sqrt())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--peer", default=sys.executable, help="a Python that has shapiq 1.8 and LightGBM")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    try:
        peer: Peer | None = Peer(chosen.peer)
        peer.require("OddSHAP")
    except ImportError as error:
        peer = None
        print(f"without OddSHAP: {error}")
    study("18 inputs", inputs(10), (1000, 3000, 10_000), peer)
    study("LeNet, 49 blocks", blocks(3), (1024, 4096, 16_384), peer)


if __name__ == "__main__":
    main()
