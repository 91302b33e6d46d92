"""Many fine players: what the choice of `GradientShapley` rests on.

    DASP_DATA=folder python benchmarks/fine_players.py [--half development]

Pixels of convolutional and residual networks that `zoo` trains, those for reporting unless the others are asked for;
four images each. For every method: the error relative to the root mean square of the Shapley values (the truth's own
error taken off), the stated one, how many of the 95 % intervals hold the value, of all players and of the ten largest
of an image, and the processor's milliseconds for an image, one thread. The truth is by antithetic permutations, and is
kept in results/cache. 341 pairs cost as much as 2,048 evaluations.
"""

from __future__ import annotations

import argparse
import csv
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp import BayesianShapley, GradientDASP, GradientShapley, PermutationShapley
from reproduction.store import Store, checksum
from zoo import Case, Network

STORE, FILE = Store(Path("results") / "cache"), Path(__file__).parent / "results" / "fine-players.csv"
NETWORKS = (("conv", "digits"), ("conv", "mnist14"), ("resnet8", "mnist14"), ("resnet20", "mnist14"), ("conv", "mnist"))
ROWS, LARGEST, NODES = 4, 10, {"nodes": 8}


def truth(model: nn.Module, x: Tensor, baseline: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    number = 300 if x[0].numel() > 300 else 700
    key = {"network": checksum(model.state_dict()), "rows": checksum(x), "permutations": number}

    def sampled() -> dict[str, Tensor]:
        values, error = PermutationShapley(model).attribute(
            x, baseline, target, n_permutations=number, seed=1, return_std=True
        )
        return {"values": values, "error": error}

    kept = STORE.keep(f"fine-players/{checksum(key)}", key, sampled)
    return kept["values"].flatten(1), kept["error"].flatten(1)


def methods(model: nn.Module) -> dict[str, tuple[Any, dict[str, Any]]]:
    propagated = GradientDASP(model)
    return {
        "GradientDASP": (propagated, NODES),
        "BayesianShapley, 2,048 evaluations": (BayesianShapley(model), {"max_evaluations": 2048}),
        "on GradientDASP, 256": (BayesianShapley(model, propagated, prior_options=NODES), {"max_evaluations": 256}),
        "on GradientDASP, 2,048": (BayesianShapley(model, propagated, prior_options=NODES), {"max_evaluations": 2048}),
        "GradientShapley, 43 pairs": (GradientShapley(model), {"n_pairs": 43}),
        "GradientShapley, 341 pairs": (GradientShapley(model), {"n_pairs": 341}),
        "on GradientDASP, 43 pairs": (GradientShapley(model, propagated, prior_options=NODES), {"n_pairs": 43}),
        "on GradientDASP, 341 pairs": (GradientShapley(model, propagated, prior_options=NODES), {"n_pairs": 341}),
    }


def measured(kind: str, data: str, seed: int) -> list[dict[str, str]]:
    case = Case("pixels", Network(kind, data, seed), development=seed == 0)
    model = case.network.trained(STORE)
    x, baseline, _ = case.arguments(ROWS)
    with torch.no_grad():
        target = model(x).argmax(1)
    values, error = truth(model, x, baseline, target)
    size = values.square().mean(1).sqrt()
    print(f"{case.network.name}: truth known to {float((error.square().mean(1).sqrt() / size).mean()):.3f}", flush=True)
    result = []
    for name, (method, options) in methods(model).items():
        method.attribute(x[:1], baseline, target[:1], **options)  # traces, and prepares
        start = time.process_time()
        bars = {} if isinstance(method, GradientDASP) else {"return_std": True}
        found = method.attribute(x, baseline, target, **options, **bars)
        seconds = (time.process_time() - start) / ROWS
        own, std = (part.flatten(1) for part in (found if bars else (found, torch.full_like(found, torch.nan))))
        off = ((own - values).square().mean(1) - error.square().mean(1)).clamp(min=0).sqrt() / size
        held = ((own - values).abs() <= 1.96 * (std.square() + error.square()).sqrt()).double()
        largest = held.gather(1, values.abs().topk(LARGEST, 1).indices)
        row = {
            "network": f"{case.network.name}, {int((values != 0).any(0).sum())} pixels",
            "method": name,
            "error": f"{float(off.square().mean().sqrt()):.3f}",
            "stated": f"{float((std.square().mean(1).sqrt() / size).mean()):.3f}" if bars else "",
            "held": f"{float(held[values != 0].mean()):.0%}" if bars else "",
            "held of the ten largest": f"{float(largest.mean()):.0%}" if bars else "",
            "ms": f"{1000 * seconds:.0f}",
        }
        print(
            "   ".join(f"{each:>26}" if i == 1 else f"{each:>7}" for i, each in enumerate(row.values()) if i),
            flush=True,
        )
        result.append(row)
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=("development", "report"), default="report")
    half = parser.parse_args().half
    torch.set_num_threads(1)
    rows = [row for kind, data in NETWORKS for row in measured(kind, data, seed=int(half == "report"))]
    if half == "report":
        with FILE.open("w") as file:
            file.write(f"# by: benchmarks/fine_players.py\n# version: {dasp.__version__}\n")
            file.write(f"# date: {datetime.now(UTC):%Y-%m-%d}\n")
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
